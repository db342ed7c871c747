//! Files and directories of the operating system.

use std::ffi::CString;
use std::fs;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::{FileHandle, FileKey, LockHandle, Medium, OpenFile, OpenMode, Opened, replacement_path};
use crate::error::{Error, Result};
use crate::profile::{DeviceIdentity, is_mounted_with_discard};

/// The file system that a directory lies on.
pub struct FileSystem {
    root: PathBuf,
}

impl FileHandle for OwnedFd {
    fn descriptor(&self) -> Option<RawFd> {
        Some(self.as_raw_fd())
    }
}

impl LockHandle for fs::File {}

impl FileSystem {
    /// On an existing directory.
    pub fn of(directory: &Path) -> Result<Self> {
        let root =
            directory.canonicalize().map_err(|source| Error::path("open directory", directory, source))?;
        if !root.is_dir() {
            return Err(Error::path("open directory", &root, io::Error::from(io::ErrorKind::NotADirectory)));
        }
        Ok(Self { root })
    }

    /// Opens past the page cache if asked to and possible.
    fn open_file(
        path: &Path,
        options: &mut fs::OpenOptions,
        direct: bool,
        operation: &'static str,
    ) -> Result<Opened> {
        let fail = |source| Error::path(operation, path, source);
        if direct {
            match options.custom_flags(libc::O_DIRECT).open(path) {
                Ok(file) => return opened(file, true).map_err(fail),
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    // A refused `create_new` leaves the file behind on some file systems.
                    if operation == "create" {
                        options.create_new(false).create(true);
                    }
                }
                Err(source) => return Err(fail(source)),
            }
        }
        options.custom_flags(0).open(path).and_then(|file| opened(file, false)).map_err(fail)
    }
}

fn opened(file: fs::File, direct: bool) -> io::Result<Opened> {
    let status = status(file.as_raw_fd())?;
    let (key, bytes) = (key(&status), status.st_size as u64);
    Ok(Opened { handle: Box::new(OwnedFd::from(file)), key, bytes, direct })
}

impl Medium for FileSystem {
    fn root(&self) -> &Path {
        &self.root
    }

    fn identity(&self) -> DeviceIdentity {
        DeviceIdentity::of(&self.root)
    }

    fn has_page_cache(&self) -> bool {
        true
    }

    fn tells_discards(&self) -> bool {
        is_mounted_with_discard(&self.root)
    }

    fn create(&self, path: &Path, direct: bool) -> Result<Opened> {
        let options = &mut fs::OpenOptions::new();
        Self::open_file(path, options.read(true).write(true).create_new(true), direct, "create")
    }

    fn open(&self, path: &Path, mode: OpenMode, direct: bool) -> Result<Opened> {
        let options = &mut fs::OpenOptions::new();
        Self::open_file(path, options.read(true).write(mode == OpenMode::ReadWrite), direct, "open")
    }

    fn remove(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(|source| Error::path("remove", path, source))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).map_err(|source| Error::path("rename", from, source))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        path.try_exists().map_err(|source| Error::path("look up", path, source))
    }

    fn list(&self, directory: &Path) -> Result<Vec<String>> {
        names(directory).map_err(|source| Error::path("list", directory, source))
    }

    fn sync_directory(&self, directory: &Path) -> Result<()> {
        fs::File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(|source| Error::path("sync directory", directory, source))
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        fs::create_dir(path).map_err(|source| Error::path("create directory", path, source))
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        fs::remove_dir(path).map_err(|source| Error::path("remove directory", path, source))
    }

    fn write_small(&self, path: &Path, contents: &[u8]) -> Result<()> {
        replace(path, contents).map_err(|source| Error::path("write", path, source))
    }

    fn read_small(&self, path: &Path) -> Result<Vec<u8>> {
        let mut contents = Vec::new();
        fs::File::open(path)
            .and_then(|mut file| file.read_to_end(&mut contents))
            .map_err(|source| Error::path("read", path, source))?;
        Ok(contents)
    }

    fn try_lock(&self, path: &Path) -> Result<Option<Box<dyn LockHandle>>> {
        let fail = |source| Error::path("lock", path, source);
        let options = &mut fs::OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path).map_err(fail)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(source)) => Err(fail(source)),
        }
    }

    fn free_bytes(&self, directory: &Path) -> Result<u64> {
        free_bytes(directory).map_err(|source| Error::path("ask for the free space of", directory, source))
    }

    fn key_of(&self, path: &Path) -> Option<FileKey> {
        let found = fs::metadata(path).ok()?;
        Some(mixed_key(found.dev(), found.ino()))
    }

    fn len(&self, file: &OpenFile) -> io::Result<u64> {
        file_len(file.descriptor())
    }

    fn allocate(&self, file: &OpenFile, offset: u64, bytes: u64) -> io::Result<()> {
        allocate(file.descriptor(), offset, bytes)
    }

    fn punch_hole(&self, file: &OpenFile, offset: u64, bytes: u64) -> io::Result<()> {
        punch_hole(file.descriptor(), offset, bytes)
    }

    fn truncate(&self, file: &OpenFile, bytes: u64) -> io::Result<()> {
        // SAFETY: the descriptor is open.
        check(unsafe { libc::ftruncate(file.descriptor(), bytes as libc::off_t) })
    }
}

fn names(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = fs::read_dir(directory)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<Vec<String>>>()?;
    names.sort_unstable();
    Ok(names)
}

fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let replacement = replacement_path(path);
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

fn free_bytes(directory: &Path) -> io::Result<u64> {
    let path = CString::new(directory.as_os_str().as_bytes())?;
    let mut figures = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path ends in a zero byte and `figures` has room for the answer.
    check(unsafe { libc::statvfs(path.as_ptr(), figures.as_mut_ptr()) })?;
    // SAFETY: filled in by the call that succeeded.
    let figures = unsafe { figures.assume_init() };
    #[allow(clippy::unnecessary_cast, reason = "the field types differ between platforms")]
    Ok(figures.f_bavail as u64 * figures.f_frsize as u64)
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

fn allocate(descriptor: RawFd, offset: u64, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
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

fn punch_hole(descriptor: RawFd, offset: u64, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    loop {
        // SAFETY: the descriptor is open.
        let returned =
            unsafe { libc::fallocate(descriptor, mode, offset as libc::off_t, bytes as libc::off_t) };
        match check(returned) {
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return Ok(()),
            other => return other,
        }
    }
}
