//! How much memory the program takes beside what its queries ask for, which matters under a small limit.
//!
//! *The allocator.* mimalloc asks the system for huge pages, and keeps freed memory for a second. With gigabytes to spend
//! both save time. With 32 MB huge pages are what the process is made of, so a small limit turns them off. mimalloc reads
//! its options before `main`: the program starts once more with them set. Memory that is kept is not faulted in again,
//! and given back when the process has become too large: see [`bound`]. With 4 ms in place of a second the queries of
//! TPC-H take a tenth longer at 64 MB, for some five megabytes less at the peak. Buffers for I/O ask for huge pages
//! themselves and should go on getting them.
//!
//! *The program's own code.* Where a page of it is touched, the system maps the 64 KB around it, too, if they are in the
//! page cache: 36 MB are resident while a join runs that uses 2 MB of code a second, and 78 MB while it is planned. A
//! small limit has it map touched pages alone (`map_touched_pages`). The planner's part is not needed for running the
//! plan, and comes back for the price of minor faults, so once a statement is planned its process lets go of it.

use std::env;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use nandina::{ResidentBound, process_memory};

/// Limits below this are worth the trouble.
const SMALL_LIMIT_BYTES: u64 = 1 << 30;
/// The allocator's option for huge pages.
pub const HUGE_PAGES: &str = "MIMALLOC_ALLOW_THP";
/// Marks the program that was started again.
pub const STARTED_AGAIN: &str = "NANDINA_SMALL";

/// Beyond the limit: code, threads, descriptions of files, batches in flight. Users are promised 64 MB; growth between
/// two looks takes the rest. More where code is resident that was never touched.
const ALLOWED_BYTES: usize = 32 << 20;
const UNTOUCHED_BYTES: usize = 8 << 20;

static MAPS_TOUCHED_PAGES: AtomicBool = AtomicBool::new(false);

/// How much of this process may be resident.
pub fn bound() -> ResidentBound {
    let untouched_bytes = if MAPS_TOUCHED_PAGES.load(Ordering::Relaxed) { 0 } else { UNTOUCHED_BYTES };
    ResidentBound {
        allowed_bytes: ALLOWED_BYTES + untouched_bytes,
        measure: process_memory::resident_bytes,
        give_back,
    }
}

fn give_back() {
    // SAFETY: may be called at any time by any thread.
    unsafe { libmimalloc_sys::mi_collect(true) };
}

/// Starts the program again with an allocator that asks for no huge pages, if the limit is small and the environment has
/// not chosen already. Returns when there is nothing to do, or no way to do it.
pub fn suit(limit_bytes: u64) {
    if env::var_os(STARTED_AGAIN).is_some() {
        // Only saves memory, and is not allowed everywhere: seccomp filters of containers refuse it.
        MAPS_TOUCHED_PAGES.store(map_touched_pages().is_ok(), Ordering::Relaxed);
        return allow_advised_huge_pages();
    }
    if limit_bytes >= SMALL_LIMIT_BYTES || env::var_os(HUGE_PAGES).is_some() {
        return;
    }
    let Ok(program) = env::current_exe() else { return };
    let mut again = Command::new(program);
    again.args(env::args_os().skip(1)).env(HUGE_PAGES, "0");
    // Only returns if it failed; then this process does the work as it is.
    let _ = again.env(STARTED_AGAIN, "1").exec();
}

/// mimalloc without huge pages has turned them off for the whole process: allows them for memory that asks for them.
#[cfg(target_os = "linux")]
fn allow_advised_huge_pages() {
    /// Since Linux 6.18; not in libc yet.
    const PR_THP_DISABLE_EXCEPT_ADVISED: libc::c_ulong = 1 << 1;
    const NONE: libc::c_ulong = 0;
    // SAFETY: changes an attribute of this process, by plain values.
    let advised = unsafe {
        libc::prctl(libc::PR_SET_THP_DISABLE, 1 as libc::c_ulong, PR_THP_DISABLE_EXCEPT_ADVISED, NONE, NONE)
    };
    let mode = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if advised != 0 && mode.contains("[madvise]") {
        // SAFETY: as above. In this mode no other memory gets them anyway.
        unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, NONE, NONE, NONE, NONE) };
    }
}

#[cfg(not(target_os = "linux"))]
fn allow_advised_huge_pages() {}

/// Turns off fault-around for the program's code: pages that are not touched are not mapped.
///
/// The system has no setting for one mapping. But where asynchronous write protection (`UFFD_FEATURE_WP_ASYNC`, Linux 6.7)
/// is to notice writes, it maps every page by itself. Code is never written, so nothing else follows from it.
#[cfg(target_os = "linux")]
fn map_touched_pages() -> io::Result<()> {
    const UFFD_USER_MODE_ONLY: libc::c_int = 1;
    const UFFD_API: u64 = 0xAA;
    const UFFD_FEATURE_PAGEFAULT_FLAG_WP: u64 = 1;
    const UFFD_FEATURE_WP_ASYNC: u64 = 1 << 15;
    const UFFDIO_REGISTER_MODE_WP: u64 = 1 << 1;
    const UFFDIO_API: libc::c_ulong = 0xC018_AA3F;
    const UFFDIO_REGISTER: libc::c_ulong = 0xC020_AA00;

    // SAFETY: takes flags, and returns a descriptor with no other owner.
    let opened = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | UFFD_USER_MODE_ONLY) };
    let descriptor = i32::try_from(opened).ok().filter(|descriptor| *descriptor >= 0);
    let descriptor = descriptor.ok_or_else(io::Error::last_os_error)?;
    // SAFETY: just opened. It is never closed from here on: the mappings are as they were when it is.
    let registry = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(descriptor) });
    let ask = |request: libc::c_ulong, argument: &mut [u64]| {
        // SAFETY: both requests read and write that many numbers.
        match unsafe { libc::ioctl(registry.as_raw_fd(), request as _, argument.as_mut_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    let mut version_features_requests = [UFFD_API, UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_ASYNC, 0];
    ask(UFFDIO_API, &mut version_features_requests)?;
    for (start, bytes) in program_pages(&std::fs::read_to_string("/proc/self/maps")?) {
        let mut start_length_mode_requests = [start as u64, bytes as u64, UFFDIO_REGISTER_MODE_WP, 0];
        ask(UFFDIO_REGISTER, &mut start_length_mode_requests)?;
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn map_touched_pages() -> io::Result<()> {
    Ok(())
}

/// Lets go of the pages of code and constants that planning has touched, if the limit is small.
pub fn leave_planner(limit_bytes: u64) {
    if limit_bytes >= SMALL_LIMIT_BYTES {
        return;
    }
    #[cfg(target_os = "linux")]
    for (start, bytes) in program_pages(&std::fs::read_to_string("/proc/self/maps").unwrap_or_default()) {
        // SAFETY: the pages are a private, read-only mapping of a file, and unchanged: they come back when touched.
        unsafe { libc::madvise(std::ptr::with_exposed_provenance_mut(start), bytes, libc::MADV_DONTNEED) };
    }
}

/// Address and size of the read-only mappings of the program itself, up to its code.
///
/// Behind the code come constants with addresses in them, which the loader has changed and then made read-only:
/// those must stay.
#[cfg(target_os = "linux")]
fn program_pages(maps: &str) -> Vec<(usize, usize)> {
    let Some(program) = env::current_exe().ok().and_then(|path| path.to_str().map(str::to_owned)) else {
        return Vec::new();
    };
    let mut pages = Vec::new();
    for line in maps.lines().filter(|line| line.ends_with(&program)) {
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some(access)) = (words.next(), words.next()) else { break };
        let bounds = range.split_once('-').map(|(start, end)| {
            (usize::from_str_radix(start, 16).unwrap_or(0), usize::from_str_radix(end, 16).unwrap_or(0))
        });
        match (access, bounds) {
            ("r--p" | "r-xp", Some((start, end))) if end > start => pages.push((start, end - start)),
            _ => break,
        }
        if access == "r-xp" {
            return pages;
        }
    }
    Vec::new()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_before_the_end_of_the_code_is_let_go() {
        let program = env::current_exe().unwrap();
        let line = |range, access| format!("{range} {access} 00000000 fe:00 7 {}\n", program.display());
        let maps = line("1000-3000", "r--p")
            + &line("3000-9000", "r-xp")
            + &line("9000-a000", "r--p")
            + &line("a000-b000", "rw-p");
        assert_eq!(program_pages(&maps), [(0x1000, 0x2000), (0x3000, 0x6000)]);
        assert!(program_pages(&line("9000-a000", "r--p")).is_empty(), "no code, nothing certain");
    }

    #[test]
    fn the_program_goes_on_without_its_pages() {
        leave_planner(32 << 20);
        assert!(!program_pages(&std::fs::read_to_string("/proc/self/maps").unwrap()).is_empty());
    }
}
