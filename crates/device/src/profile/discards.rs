//! What it costs to give space back, and whether the drive hears of it.
//!
//! A file system that is mounted with `discard` makes a TRIM command of every range that is freed. Some drives queue it
//! among other commands and are done in microseconds; others do nothing else for a millisecond. What is better for
//! temporary files differs accordingly (`docs/benchmarks/temp-files.md`).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Bytes of the pieces that are given back in a measurement: an extent of temporary files under a usual limit.
pub(crate) const PIECE_BYTES: u64 = 1 << 20;
/// So many of them, every other one of a file, so that none can be put together with the next.
pub(crate) const PIECES: u64 = 32;

/// Telling the drive is cheap if it takes at most this part of the time of writing as many bytes.
const CHEAP_SHARE: f64 = 0.1;

/// The measured cost of giving space back.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DiscardCosts {
    /// Whether the file system tells the drive at once.
    pub told: bool,
    /// Microseconds that a piece of 1 MiB takes, until the drive has acknowledged it.
    pub micros_per_piece: f64,
}

impl DiscardCosts {
    /// Whether telling a drive that writes at this bandwidth (bytes per second) costs next to nothing.
    pub fn is_cheap(&self, write_bandwidth: f64) -> bool {
        let write_micros = PIECE_BYTES as f64 / write_bandwidth * 1e6;
        self.told && self.micros_per_piece <= CHEAP_SHARE * write_micros
    }
}

/// Whether the file system of a directory is mounted so that it tells the drive of freed ranges.
pub(crate) fn is_mounted_with_discard(directory: &Path) -> bool {
    let Ok(found) = fs::metadata(directory) else { return false };
    let device = format!("{}:{}", libc::major(found.dev()), libc::minor(found.dev()));
    fs::read_to_string("/proc/self/mountinfo")
        .is_ok_and(|mounts| mounts.lines().any(|mount| is_of(mount, &device) && has_discard(mount)))
}

/// Whether a line of `mountinfo` (proc(5)) is about a device.
fn is_of(mount: &str, device: &str) -> bool {
    mount.split(' ').nth(2) == Some(device)
}

/// Whether its options, those of the mount point or of the file system, have `discard`.
fn has_discard(mount: &str) -> bool {
    let options = mount.split(' ').flat_map(|field| field.split(','));
    options.into_iter().any(|option| option == "discard" || option.starts_with("discard="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_understood() {
        let with = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue,discard";
        let without = "37 35 98:1 / /discards rw,nodiscard - ext4 /dev/discard rw";
        assert!(is_of(with, "98:0") && !is_of(with, "98:1"));
        assert!(has_discard(with) && !has_discard(without));
        assert!(has_discard(&with.replace(",discard", ",discard=async")));
    }

    #[test]
    fn what_is_cheap_depends_on_what_writing_takes() {
        let told = |micros_per_piece| DiscardCosts { told: true, micros_per_piece };
        assert!(told(20.0).is_cheap(3e9), "a queued TRIM of an NVMe drive");
        assert!(!told(1000.0).is_cheap(5e8), "one of a SATA drive");
        assert!(!told(270.0).is_cheap(2e9), "a virtual disk");
        let silent = DiscardCosts { told: false, micros_per_piece: 1.0 };
        assert!(!silent.is_cheap(3e9), "what the drive does not hear of does not help it");
    }
}
