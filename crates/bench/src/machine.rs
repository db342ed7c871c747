//! What a measurement ran on.

use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::runner;

/// Processor, memory, kernel and file system.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    pub processor: String,
    pub processors: usize,
    pub memory_bytes: u64,
    pub kernel: String,
    pub file_system: String,
    pub date: String,
}

impl Machine {
    /// This machine, with the file system that holds `folder`.
    pub fn this(folder: &Path) -> Self {
        let after = |text: &str, key: &str| {
            let line = text.lines().find(|line| line.starts_with(key))?.to_owned();
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let unknown = || "unknown".to_owned();
        let kibibytes = after(&file("/proc/meminfo"), "MemTotal").unwrap_or_default();
        let kibibytes: u64 = kibibytes.trim_end_matches("kB").trim().parse().unwrap_or(0);
        Self {
            processor: after(&file("/proc/cpuinfo"), "model name").unwrap_or_else(unknown),
            processors: runner::processors(),
            memory_bytes: kibibytes << 10,
            kernel: file("/proc/sys/kernel/osrelease").trim().to_owned(),
            file_system: file_system(&file("/proc/mounts"), folder).unwrap_or_else(unknown),
            date: DateTime::<Utc>::from(SystemTime::now()).format("%Y-%m-%d").to_string(),
        }
    }

    /// One line for people.
    pub fn describe(&self) -> String {
        format!(
            "{} processors ({}), {:.0} GB of memory, Linux {}, {}; {}",
            self.processors,
            self.processor,
            self.memory_bytes as f64 / (1u64 << 30) as f64,
            self.kernel,
            self.file_system,
            self.date,
        )
    }
}

/// The type of the file system that holds a folder: of the mount points above it the nearest.
fn file_system(mounts: &str, folder: &Path) -> Option<String> {
    let folder = folder.canonicalize().ok()?;
    let mount = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
    };
    let above = mounts.lines().filter_map(mount).filter(|(point, _)| folder.starts_with(point));
    above.max_by_key(|(point, _)| point.len()).map(|(_, kind)| kind)
}

/// What a program prints, or nothing if it cannot be run.
fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Touches memory and gives it back. A virtual machine's host backs memory when it is first touched, at a fraction
/// of the speed of memory, and takes it away again when it has been free for a while: without this whoever runs
/// first pays for all.
pub fn touch_memory(bytes: u64) {
    let mut memory = vec![0u8; bytes as usize];
    for page in memory.chunks_mut(4096) {
        if let Some(first) = page.first_mut() {
            *first = 1;
        }
    }
    std::hint::black_box(&memory);
}

/// Drops a file's pages from the page cache, so that every run reads it from the disk. Writes nothing.
pub fn drop_from_page_cache(path: &Path) {
    let input = format!("if={}", path.display());
    // Where `dd` lacks the flag, runs find the file cached, each as much as the other.
    let _ = output(Command::new("dd").args([&input, "iflag=nocache", "count=0"]));
}

/// Processor time of this process so far, all threads, in seconds; the kernel counts in hundredths.
pub fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is the program's name in parentheses; user and system time are the 14th and 15th.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_counts() {
        let folder = std::env::temp_dir().canonicalize().unwrap();
        let mounts = format!("/dev/a / ext4 rw 0 0\nnone {} tmpfs rw 0 0\n", folder.display());
        assert_eq!(file_system(&mounts, &folder).as_deref(), Some("tmpfs"));
        assert_eq!(file_system(&mounts, Path::new("/")).as_deref(), Some("ext4"));
    }

    #[test]
    fn processor_time_advances() {
        let before = processor_seconds();
        let mut sum = 0u64;
        while processor_seconds() < before + 0.03 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(processor_seconds() - before < 10.0);
    }
}
