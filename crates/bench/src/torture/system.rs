//! What Rust's library does not ask the system for.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

/// A process that has ended, and the most memory that was resident while it ran.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    pub status: ExitStatus,
    pub peak_bytes: u64,
}

/// Looks whether a child has ended; its number is free afterwards.
pub fn has_ended(process: u32) -> io::Result<Option<Ended>> {
    let mut status = 0;
    // SAFETY: plain numbers, for which every pattern of bits is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to variables of this function.
    match unsafe { libc::wait4(process as libc::pid_t, &raw mut status, libc::WNOHANG, &raw mut usage) } {
        0 => Ok(None),
        number if number < 0 => Err(io::Error::last_os_error()),
        _ => {
            // Linux counts in KiB.
            let peak_bytes = u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024;
            Ok(Some(Ended { status: ExitStatus::from_raw(status), peak_bytes }))
        }
    }
}

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
