//! What Rust's library does not ask the system for.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

/// Sends a signal to a child that has not been waited for, so that its number is still its own.
pub fn signal(process: u32, signal: i32) -> io::Result<()> {
    // SAFETY: takes plain numbers.
    if unsafe { libc::kill(process as libc::pid_t, signal) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

/// Ends a file system at once: what it has not written yet never reaches its device, its journal included.
///
/// This is what xfstests calls *godown*: `FS_IOC_SHUTDOWN` with `FSOP_GOING_FLAGS_NOLOGFLUSH`, which ext4, xfs and f2fs know.
pub fn shut_down_file_system(folder: &File) -> io::Result<()> {
    const FS_IOC_SHUTDOWN: libc::c_ulong = 0x8004_587D;
    const NOLOGFLUSH: u32 = 2;
    let how = NOLOGFLUSH;
    // SAFETY: the request reads one `u32`, which outlives it.
    if unsafe { libc::ioctl(folder.as_raw_fd(), FS_IOC_SHUTDOWN as _, &raw const how) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

/// Writes a file to its device and drops it from the page cache.
pub fn evict(file: &File) -> io::Result<()> {
    file.sync_all()?;
    // SAFETY: takes plain numbers.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
