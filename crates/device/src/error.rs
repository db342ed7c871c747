//! What can go wrong between a request and the medium.

use std::io;
use std::path::{Path, PathBuf};

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{operation} of {bytes} bytes at offset {offset} of {} failed: {source}", file.display())]
    Request { operation: &'static str, file: PathBuf, offset: u64, bytes: u64, source: io::Error },

    #[error(
        "{} ends early: {wanted_bytes} bytes were wanted at offset {offset}, only {found_bytes} are there; \
         the file is truncated or the offset is wrong",
        file.display()
    )]
    PastEnd { file: PathBuf, offset: u64, wanted_bytes: u64, found_bytes: u64 },

    #[error(
        "request on {} is not aligned: {what} is {value}, it has to be a multiple of {} bytes",
        file.display(),
        crate::BLOCK_BYTES
    )]
    Misaligned { file: PathBuf, what: &'static str, value: u64 },

    #[error(
        "no space left for {bytes} bytes at offset {offset} of {}; free space on that file system or use another directory",
        file.display()
    )]
    NoSpace { file: PathBuf, offset: u64, bytes: u64 },

    #[error(
        "no space left to {operation} {}; free space on that file system or use another directory",
        path.display()
    )]
    NoSpaceFor { operation: &'static str, path: PathBuf },

    #[error(
        "{} would become larger than a file may be here; raise the limit (`ulimit -f`) or use another directory",
        file.display()
    )]
    FileTooLarge { file: PathBuf },

    #[error("{} was opened on another device than the batch that it was given to", file.display())]
    OtherDevice { file: PathBuf },

    #[error("cannot {operation} {}: {source}", path.display())]
    Path { operation: &'static str, path: PathBuf, source: io::Error },

    #[error("'{name}' is not a name inside a device directory: use a relative path without '..'")]
    InvalidName { name: String },

    #[error(
        "the {backend} backend cannot be used here ({source}); choose the thread pool or leave the choice to 'auto'"
    )]
    BackendUnavailable { backend: &'static str, source: io::Error },

    #[error("{device} was not calibrated: {reason}")]
    Calibration { device: String, reason: String },

    #[error("calibration of {} was interrupted; nothing was kept", directory.display())]
    Interrupted { directory: PathBuf },

    #[error("the device profile {} cannot be used: {reason}; calibrate again to replace it, or remove it", file.display())]
    Profile { file: PathBuf, reason: String },
}

impl Error {
    pub(crate) fn interrupted(directory: &Path) -> Self {
        Error::Interrupted { directory: directory.to_path_buf() }
    }

    /// That a file or directory cannot be opened, removed, …
    pub fn path(operation: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => Error::NoSpaceFor { operation, path },
            Some(libc::EFBIG) => Error::FileTooLarge { file: path },
            _ => Error::Path { operation, path, source },
        }
    }

    /// Whether the medium was full.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Error::NoSpace { .. } | Error::NoSpaceFor { .. })
    }

    /// Whether a file or directory of that name does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::Path { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Whether a file or directory of that name exists already.
    pub fn is_already_there(&self) -> bool {
        matches!(self, Error::Path { source, .. } if source.kind() == io::ErrorKind::AlreadyExists)
    }
}
