//! Runs `fio`, the yardstick of the benchmarks, where it is installed.

use std::path::Path;
use std::process::Command;

/// One job of fio: `io_uring`, direct, one thread.
pub struct Job<'a> {
    pub file: &'a Path,
    /// fio's name of the pattern: `read`, `write` or `randread`.
    pub pattern: &'a str,
    /// Only this many first bytes of the file are touched.
    pub file_bytes: u64,
    pub request_bytes: u64,
    pub depth: usize,
    /// Done before measuring begins.
    pub ramp_seconds: f64,
    pub seconds: f64,
}

impl Job<'_> {
    /// Requests per second; nothing if fio is missing or fails.
    pub fn run(&self) -> Option<f64> {
        let output = Command::new("fio")
            .args(["--name=job", "--ioengine=io_uring", "--direct=1", "--time_based", "--norandommap"])
            .args(["--randrepeat=0", "--overwrite=1", "--output-format=terse", "--terse-version=3"])
            .arg(format!("--filename={}", self.file.display()))
            .arg(format!("--size={}", self.file_bytes))
            .arg(format!("--rw={}", self.pattern))
            .arg(format!("--bs={}", self.request_bytes))
            .arg(format!("--iodepth={}", self.depth))
            .arg(format!("--ramp_time={}ms", (self.ramp_seconds * 1000.0) as u64))
            .arg(format!("--runtime={}ms", (self.seconds * 1000.0) as u64))
            .output()
            .ok()?;
        let line = String::from_utf8_lossy(&output.stdout);
        let fields: Vec<&str> = line.trim().split(';').collect();
        // Bandwidth in KiB/s: more digits than the requests per second beside it.
        let field = if self.pattern == "write" { 47 } else { 6 };
        let kib_per_second: f64 = fields.get(field)?.parse().ok()?;
        Some(kib_per_second * 1024.0 / self.request_bytes as f64)
    }
}
