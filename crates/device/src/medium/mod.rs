//! Where files live: names, sizes and locks, everything about files that is not a transfer.
//!
//! A device is a medium and a backend that reaches its files: the file system with io_uring or a thread pool, or
//! another pair that goes together, such as memory that fails as planned.

mod file_system;

pub use file_system::FileSystem;

use std::any::Any;
use std::fmt::Debug;
use std::io;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use crate::counters::FileClass;
use crate::error::{Error, Result};
use crate::profile::DeviceIdentity;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    Read,
    ReadWrite,
}

/// Tells a file of a medium from its others for as long as it exists.
pub type FileKey = u64;

/// What a medium and its backend know an open file by. Closed when dropped.
pub trait FileHandle: Any + Send + Sync {
    /// The descriptor of a file of the operating system.
    fn descriptor(&self) -> Option<RawFd> {
        None
    }
}

/// A file that a medium has opened.
pub struct Opened {
    pub handle: Box<dyn FileHandle>,
    pub key: FileKey,
    /// Its length now.
    pub bytes: u64,
    /// Whether transfers bypass the page cache.
    pub direct: bool,
}

/// Holds a lock until dropped.
pub trait LockHandle: Debug + Send + Sync {}

/// Files and directories. Paths are absolute.
pub trait Medium: Send + Sync {
    /// The directory that the device was opened on.
    fn root(&self) -> &Path;

    /// Which device it is.
    fn identity(&self) -> DeviceIdentity;

    /// Whether files are kept in memory, and everything happens in the thread that asks for it.
    fn is_simulated(&self) -> bool {
        false
    }

    /// Whether the operating system may hold file data in its page cache, faster than the device would deliver it.
    fn has_page_cache(&self) -> bool;

    /// Whether the drive is told of ranges that are freed.
    fn tells_discards(&self) -> bool;

    /// Creates a file; fails if the name is taken.
    fn create(&self, path: &Path, direct: bool) -> Result<Opened>;
    fn open(&self, path: &Path, mode: OpenMode, direct: bool) -> Result<Opened>;
    /// Removes a file. Open handles stay usable.
    fn remove(&self, path: &Path) -> Result<()>;
    /// Renames a file or directory; an existing file of the new name is replaced, atomically.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    fn exists(&self, path: &Path) -> Result<bool>;
    /// Names in a directory, sorted.
    fn list(&self, directory: &Path) -> Result<Vec<String>>;
    /// Makes creations, renames and removals in a directory durable.
    fn sync_directory(&self, directory: &Path) -> Result<()>;
    fn create_directory(&self, path: &Path) -> Result<()>;
    /// Removes an empty directory.
    fn remove_directory(&self, path: &Path) -> Result<()>;
    /// Replaces a small file, atomically and durably.
    fn write_small(&self, path: &Path, contents: &[u8]) -> Result<()>;
    fn read_small(&self, path: &Path) -> Result<Vec<u8>>;
    /// Locks a lock file, which is created if need be; `None` when it is held.
    fn try_lock(&self, path: &Path) -> Result<Option<Box<dyn LockHandle>>>;
    fn free_bytes(&self, directory: &Path) -> Result<u64>;
    /// The key of a named file; none if it cannot be looked up.
    fn key_of(&self, path: &Path) -> Option<FileKey>;

    fn len(&self, file: &OpenFile) -> io::Result<u64>;
    /// Reserves space for a range and extends the file to its end.
    fn allocate(&self, file: &OpenFile, offset: u64, bytes: u64) -> io::Result<()>;
    /// Gives back the space of a range, where that is possible.
    fn punch_hole(&self, file: &OpenFile, offset: u64, bytes: u64) -> io::Result<()>;
    fn truncate(&self, file: &OpenFile, bytes: u64) -> io::Result<()>;
}

/// Where `write_small` prepares the new contents.
pub fn replacement_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// An open file as media and backends see it.
pub struct OpenFile {
    pub(crate) handle: Box<dyn FileHandle>,
    pub(crate) key: FileKey,
    pub(crate) path: PathBuf,
    pub(crate) class: FileClass,
    pub(crate) direct: bool,
}

impl OpenFile {
    pub fn handle(&self) -> &dyn FileHandle {
        &*self.handle
    }

    pub fn key(&self) -> FileKey {
        self.key
    }

    pub fn class(&self) -> FileClass {
        self.class
    }

    /// The descriptor, of a file of the operating system.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.handle.descriptor().expect("backends of the operating system get files of its file systems")
    }

    pub(crate) fn error(&self, operation: &'static str, offset: u64, bytes: u64, source: io::Error) -> Error {
        match source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => Error::NoSpace { file: self.path.clone(), offset, bytes },
            Some(libc::EFBIG) => Error::FileTooLarge { file: self.path.clone() },
            _ => Error::Request { operation, file: self.path.clone(), offset, bytes, source },
        }
    }
}
