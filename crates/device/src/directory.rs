//! Names, sizes and locks: everything about files that is not a transfer.

use std::ffi::CString;
use std::fs;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use crate::backend::simulated::{SimulatedLock, SimulatedMedium};
use crate::drive::placement::FileKey;
use crate::error::{Error, Result};
use crate::file::{FileInner, Handle, OpenMode};

/// Where files live: the operating system's file system, or memory.
pub(crate) enum Medium {
    Disk(DiskDirectory),
    Simulated(Arc<SimulatedMedium>),
}

/// Holds a lock until dropped.
#[derive(Debug)]
pub(crate) enum LockHandle {
    Disk(#[allow(dead_code, reason = "held for its lock")] fs::File),
    Simulated(#[allow(dead_code, reason = "held for its lock")] SimulatedLock),
}

impl Medium {
    pub(crate) fn create(&self, path: &Path, direct: bool) -> Result<(Handle, bool)> {
        match self {
            Medium::Disk(disk) => disk.open(
                path,
                fs::OpenOptions::new().read(true).write(true).create_new(true),
                direct,
                "create",
            ),
            Medium::Simulated(medium) => Ok((Handle::Simulated(medium.create(path)?), direct)),
        }
    }

    pub(crate) fn open(&self, path: &Path, mode: OpenMode, direct: bool) -> Result<(Handle, bool)> {
        match self {
            Medium::Disk(disk) => {
                let write = mode == OpenMode::ReadWrite;
                disk.open(path, fs::OpenOptions::new().read(true).write(write), direct, "open")
            }
            Medium::Simulated(medium) => Ok((Handle::Simulated(medium.open(path)?), direct)),
        }
    }

    pub(crate) fn remove(&self, path: &Path) -> Result<()> {
        match self {
            Medium::Disk(_) => fs::remove_file(path).map_err(|source| Error::path("remove", path, source)),
            Medium::Simulated(medium) => medium.remove(path),
        }
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        match self {
            Medium::Disk(_) => fs::rename(from, to).map_err(|source| Error::path("rename", from, source)),
            Medium::Simulated(medium) => medium.rename(from, to),
        }
    }

    pub(crate) fn exists(&self, path: &Path) -> Result<bool> {
        match self {
            Medium::Disk(_) => path.try_exists().map_err(|source| Error::path("look up", path, source)),
            Medium::Simulated(medium) => Ok(medium.exists(path)),
        }
    }

    pub(crate) fn list(&self, directory: &Path) -> Result<Vec<String>> {
        match self {
            Medium::Disk(disk) => {
                disk.list(directory).map_err(|source| Error::path("list", directory, source))
            }
            Medium::Simulated(medium) => medium.list(directory),
        }
    }

    pub(crate) fn sync_directory(&self, directory: &Path) -> Result<()> {
        match self {
            Medium::Disk(_) => fs::File::open(directory)
                .and_then(|directory| directory.sync_all())
                .map_err(|source| Error::path("sync directory", directory, source)),
            Medium::Simulated(medium) => medium.sync_directory(directory),
        }
    }

    pub(crate) fn create_directory(&self, path: &Path) -> Result<()> {
        match self {
            Medium::Disk(_) => {
                fs::create_dir(path).map_err(|source| Error::path("create directory", path, source))
            }
            Medium::Simulated(medium) => medium.create_directory(path),
        }
    }

    pub(crate) fn remove_directory(&self, path: &Path) -> Result<()> {
        match self {
            Medium::Disk(_) => {
                fs::remove_dir(path).map_err(|source| Error::path("remove directory", path, source))
            }
            Medium::Simulated(medium) => medium.remove_directory(path),
        }
    }

    pub(crate) fn write_small(&self, path: &Path, contents: &[u8]) -> Result<()> {
        match self {
            Medium::Disk(disk) => {
                disk.write_small(path, contents).map_err(|source| Error::path("write", path, source))
            }
            Medium::Simulated(medium) => medium.write_small(path, contents),
        }
    }

    pub(crate) fn read_small(&self, path: &Path) -> Result<Vec<u8>> {
        match self {
            Medium::Disk(_) => {
                let mut contents = Vec::new();
                fs::File::open(path)
                    .and_then(|mut file| file.read_to_end(&mut contents))
                    .map_err(|source| Error::path("read", path, source))?;
                Ok(contents)
            }
            Medium::Simulated(medium) => medium.read_small(path),
        }
    }

    pub(crate) fn try_lock(&self, path: &Path) -> Result<Option<LockHandle>> {
        match self {
            Medium::Disk(disk) => Ok(disk
                .try_lock(path)
                .map_err(|source| Error::path("lock", path, source))?
                .map(LockHandle::Disk)),
            Medium::Simulated(medium) => Ok(medium.try_lock(path)?.map(LockHandle::Simulated)),
        }
    }

    pub(crate) fn free_bytes(&self, directory: &Path) -> Result<u64> {
        match self {
            Medium::Disk(disk) => disk
                .free_bytes(directory)
                .map_err(|source| Error::path("ask for the free space of", directory, source)),
            Medium::Simulated(medium) => Ok(medium.free_bytes()),
        }
    }

    /// Tells a file from others for as long as it exists.
    pub(crate) fn key(&self, handle: &Handle) -> FileKey {
        match handle {
            Handle::Descriptor(descriptor) => status(descriptor.as_raw_fd()).map_or(0, |status| key(&status)),
            Handle::Simulated(inode) => Arc::as_ptr(inode).addr() as FileKey,
        }
    }

    /// The key of a named file; none if it cannot be looked up.
    pub(crate) fn key_of(&self, path: &Path) -> Option<FileKey> {
        match self {
            Medium::Disk(_) => {
                let found = fs::metadata(path).ok()?;
                Some(mixed_key(found.dev(), found.ino()))
            }
            Medium::Simulated(medium) => {
                medium.open(path).ok().map(|inode| self.key(&Handle::Simulated(inode)))
            }
        }
    }

    /// Length of an open file; 0 if it cannot be told.
    pub(crate) fn len_of(&self, handle: &Handle) -> u64 {
        match (self, handle) {
            (_, Handle::Descriptor(descriptor)) => file_len(descriptor.as_raw_fd()).unwrap_or(0),
            (Medium::Simulated(medium), Handle::Simulated(inode)) => medium.len(inode).unwrap_or(0),
            _ => 0,
        }
    }

    pub(crate) fn allocate(&self, file: &FileInner, offset: u64, bytes: u64) -> Result<()> {
        match (self, &file.handle) {
            (_, Handle::Descriptor(descriptor)) => allocate(descriptor, offset, bytes),
            (Medium::Simulated(medium), Handle::Simulated(inode)) => {
                medium.allocate(inode, file.class, offset, bytes)
            }
            _ => Err(io::Error::from_raw_os_error(libc::EBADF)),
        }
        .map_err(|source| file.error("allocation", offset, bytes, source))
    }

    pub(crate) fn punch_hole(&self, file: &FileInner, offset: u64, bytes: u64) -> Result<()> {
        match (self, &file.handle) {
            (_, Handle::Descriptor(descriptor)) => punch_hole(descriptor, offset, bytes),
            (Medium::Simulated(medium), Handle::Simulated(inode)) => medium.punch_hole(inode, offset, bytes),
            _ => Err(io::Error::from_raw_os_error(libc::EBADF)),
        }
        .map_err(|source| file.error("hole punching", offset, bytes, source))
    }

    pub(crate) fn truncate(&self, file: &FileInner, bytes: u64) -> Result<()> {
        match (self, &file.handle) {
            (_, Handle::Descriptor(descriptor)) => {
                // SAFETY: the descriptor is open.
                check(unsafe { libc::ftruncate(descriptor.as_raw_fd(), bytes as libc::off_t) })
            }
            (Medium::Simulated(medium), Handle::Simulated(inode)) => medium.truncate(inode, bytes),
            _ => Err(io::Error::from_raw_os_error(libc::EBADF)),
        }
        .map_err(|source| file.error("truncation", bytes, 0, source))
    }

    pub(crate) fn len(&self, file: &FileInner) -> Result<u64> {
        match (self, &file.handle) {
            (_, Handle::Descriptor(descriptor)) => file_len(descriptor.as_raw_fd()),
            (Medium::Simulated(medium), Handle::Simulated(inode)) => medium.len(inode),
            _ => Err(io::Error::from_raw_os_error(libc::EBADF)),
        }
        .map_err(|source| file.error("asking for the length", 0, 0, source))
    }
}

/// Directories of the operating system.
pub(crate) struct DiskDirectory;

impl DiskDirectory {
    /// Opens past the page cache if asked to and possible; tells which it was.
    fn open(
        &self,
        path: &Path,
        options: &mut fs::OpenOptions,
        direct: bool,
        operation: &'static str,
    ) -> Result<(Handle, bool)> {
        if direct {
            match options.custom_flags(libc::O_DIRECT).open(path) {
                Ok(file) => return Ok((Handle::Descriptor(OwnedFd::from(file)), true)),
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    // A refused `create_new` leaves the file behind on some file systems.
                    if operation == "create" {
                        options.create_new(false).create(true);
                    }
                }
                Err(source) => return Err(Error::path(operation, path, source)),
            }
        }
        let file =
            options.custom_flags(0).open(path).map_err(|source| Error::path(operation, path, source))?;
        Ok((Handle::Descriptor(OwnedFd::from(file)), false))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut names = fs::read_dir(directory)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<Vec<String>>>()?;
        names.sort_unstable();
        Ok(names)
    }

    fn write_small(&self, path: &Path, contents: &[u8]) -> io::Result<()> {
        let replacement = crate::directory::replacement_path(path);
        let mut file = fs::File::create(&replacement)?;
        file.write_all(contents)?;
        file.sync_data()?;
        drop(file);
        fs::rename(&replacement, path)?;
        match path.parent() {
            Some(directory) => fs::File::open(directory)?.sync_all(),
            None => Ok(()),
        }
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<fs::File>> {
        let file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        let path = CString::new(directory.as_os_str().as_bytes())?;
        let mut figures = MaybeUninit::<libc::statvfs>::uninit();
        // SAFETY: the path ends in a zero byte and `figures` has room for the answer.
        check(unsafe { libc::statvfs(path.as_ptr(), figures.as_mut_ptr()) })?;
        // SAFETY: filled in by the call that succeeded.
        let figures = unsafe { figures.assume_init() };
        #[allow(clippy::unnecessary_cast, reason = "the field types differ between platforms")]
        Ok(figures.f_bavail as u64 * figures.f_frsize as u64)
    }
}

/// Where `write_small` prepares the new contents.
pub(crate) fn replacement_path(path: &Path) -> std::path::PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

fn check(returned: libc::c_int) -> io::Result<()> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn file_len(descriptor: RawFd) -> io::Result<u64> {
    Ok(status(descriptor)?.st_size as u64)
}

fn status(descriptor: RawFd) -> io::Result<libc::stat> {
    let mut figures = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the descriptor is open and `figures` has room for the answer.
    check(unsafe { libc::fstat(descriptor, figures.as_mut_ptr()) })?;
    // SAFETY: filled in by the call that succeeded.
    Ok(unsafe { figures.assume_init() })
}

#[allow(clippy::unnecessary_cast, reason = "the field types differ between platforms")]
fn key(status: &libc::stat) -> FileKey {
    mixed_key(status.st_dev as u64, status.st_ino as u64)
}

/// One number for a file of one file system; collisions between file systems only blur a model's placement.
fn mixed_key(device: u64, inode: u64) -> FileKey {
    inode ^ device.rotate_left(40)
}

fn allocate(descriptor: &OwnedFd, offset: u64, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let descriptor = descriptor.as_raw_fd();
    loop {
        // SAFETY: the descriptor is open.
        let returned = unsafe { libc::fallocate(descriptor, 0, offset as libc::off_t, bytes as libc::off_t) };
        match check(returned) {
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            // Nothing to reserve with on this file system: the length alone is what callers rely on.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                return if file_len(descriptor)? >= offset + bytes {
                    Ok(())
                } else {
                    // SAFETY: the descriptor is open.
                    check(unsafe { libc::ftruncate(descriptor, (offset + bytes) as libc::off_t) })
                };
            }
            other => return other,
        }
    }
}

fn punch_hole(descriptor: &OwnedFd, offset: u64, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    loop {
        // SAFETY: the descriptor is open.
        let returned = unsafe {
            libc::fallocate(descriptor.as_raw_fd(), mode, offset as libc::off_t, bytes as libc::off_t)
        };
        match check(returned) {
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return Ok(()),
            other => return other,
        }
    }
}
