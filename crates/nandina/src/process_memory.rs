//! How much memory this process may use, and how much it does.
//!
//! The answer to "may use" is the smallest of physical memory, the limits of every control group above the
//! process (version 1 and 2) and the address-space limit (`RLIMIT_AS`). All of it is read from `/proc` and
//! `/sys`, so no foreign calls are needed; what cannot be read does not limit.

use std::fs;
use std::path::{Path, PathBuf};

/// Assumed where the system does not tell (no `/proc`): small enough to be safe, large enough to work.
const UNKNOWN_MACHINE_BYTES: u64 = 4 << 30;

/// Bytes of memory that this process may use.
pub fn usable_bytes() -> u64 {
    let physical = fs::read_to_string("/proc/meminfo").ok().and_then(|text| kib_field(&text, "MemTotal:"));
    let address_space =
        fs::read_to_string("/proc/self/limits").ok().and_then(|text| address_space_limit(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").ok().map(|text| control_group_files(&text));
    let groups = groups.unwrap_or_default();
    let group_limits =
        groups.iter().filter_map(|file| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok());
    physical.into_iter().chain(address_space).chain(group_limits).min().unwrap_or(UNKNOWN_MACHINE_BYTES)
}

/// Memory of this process that is resident now.
pub fn resident_bytes() -> Option<u64> {
    kib_field(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// The most memory of this process that was resident at once since its start or [`reset_peak`].
pub fn peak_resident_bytes() -> Option<u64> {
    kib_field(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

/// Makes [`peak_resident_bytes`] start again from the memory resident now. False where the system forbids it.
pub fn reset_peak() -> bool {
    fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// Whether `path` (or its nearest existing parent) lies on a file system that keeps its files in memory,
/// where temporary files would use up exactly what they are meant to save.
pub fn is_memory_file_system(path: &Path) -> bool {
    let mut existing = path.to_path_buf();
    while !existing.exists() {
        if !existing.pop() {
            return false;
        }
    }
    let Ok(existing) = existing.canonicalize() else { return false };
    let Ok(mounts) = fs::read_to_string("/proc/self/mounts") else { return false };
    file_system_of(&mounts, &existing).is_some_and(|kind| matches!(kind, "tmpfs" | "ramfs"))
}

/// The value of a `Name:   123 kB` line, in bytes.
fn kib_field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The soft limit in the `Max address space` line of `/proc/self/limits`; none when unlimited.
fn address_space_limit(text: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// The files that hold the memory limits of the process's control groups and of all groups above them.
fn control_group_files(text: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in text.lines() {
        // hierarchy-id:controllers:path; version 2 has no controllers.
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (root, file) = if controllers.is_empty() {
            ("/sys/fs/cgroup", "memory.max")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else {
            continue;
        };
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            files.push(Path::new(root).join(group).join(file));
        }
        if controllers.is_empty() {
            // Hybrid set-ups mount version 2 one folder deeper.
            files.push(Path::new("/sys/fs/cgroup/unified").join(path.trim_start_matches('/')).join(file));
        }
    }
    files
}

/// The type of the file system that `path` is on, by the longest mount point above it.
fn file_system_of<'a>(mounts: &'a str, path: &Path) -> Option<&'a str> {
    let mut best: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        let mut fields = line.split(' ').skip(1);
        let (Some(mount_point), Some(kind)) = (fields.next(), fields.next()) else { continue };
        let longer = best.is_none_or(|(length, _)| mount_point.len() >= length);
        if longer && path.starts_with(mount_point) {
            best = Some((mount_point.len(), kind));
        }
    }
    best.map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_in_bytes() {
        assert_eq!(kib_field("MemTotal:       1024 kB\nMemFree: 1 kB", "MemTotal:"), Some(1 << 20));
        assert_eq!(kib_field("MemFree: 1 kB", "MemTotal:"), None);
    }

    #[test]
    fn address_space_may_be_unlimited() {
        assert_eq!(
            address_space_limit("Max address space         unlimited            unlimited  bytes"),
            None
        );
        assert_eq!(address_space_limit("Max address space         4096        unlimited  bytes"), Some(4096));
    }

    #[test]
    fn limits_of_all_groups_above_count() {
        let files = control_group_files("0::/user/app\n5:cpu,memory:/a\n3:cpu:/b\n");
        let names: Vec<_> = files.iter().map(|f| f.to_string_lossy().into_owned()).collect();
        assert!(names.contains(&"/sys/fs/cgroup/user/app/memory.max".to_owned()));
        assert!(names.contains(&"/sys/fs/cgroup/user/memory.max".to_owned()));
        assert!(names.contains(&"/sys/fs/cgroup/memory.max".to_owned()));
        assert!(names.contains(&"/sys/fs/cgroup/memory/a/memory.limit_in_bytes".to_owned()));
        assert!(!names.iter().any(|name| name.contains("/b/")));
    }

    #[test]
    fn the_longest_mount_point_decides() {
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/b /tmp/disk ext4 rw 0 0\n";
        assert_eq!(file_system_of(mounts, Path::new("/home")), Some("ext4"));
        assert_eq!(file_system_of(mounts, Path::new("/tmp/x")), Some("tmpfs"));
        assert_eq!(file_system_of(mounts, Path::new("/tmp/disk/x")), Some("ext4"));
        assert_eq!(file_system_of(mounts, Path::new("/tmpx")), Some("ext4"));
    }

    #[test]
    fn this_process_uses_less_than_it_may() {
        let resident = resident_bytes().unwrap();
        assert!(resident > 0 && resident < usable_bytes());
        assert!(peak_resident_bytes().unwrap() >= resident / 2);
    }
}
