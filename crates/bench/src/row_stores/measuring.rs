//! Operations again and again by several threads, and what they took.

use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::latencies::Latencies;
use crate::error::{BenchError, Result};

/// What was measured.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Outcome {
    pub operations: u64,
    /// The last part of which are `settling_seconds`, in which changed pages were written back.
    pub seconds: f64,
    pub settling_seconds: f64,
    pub median_seconds: f64,
    /// That 99 of 100 operations stayed below.
    pub slow_seconds: f64,
    /// Bytes that the process had read from, and written to devices while it measured.
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub processor_seconds: f64,
    /// Of Nandina: pages that were read, or written back.
    pub pages: u64,
    /// Of recovery.
    pub log_bytes: u64,
}

impl Outcome {
    /// With what it took to write back what had been changed.
    pub fn with(self, settling: &Self) -> Self {
        Self {
            settling_seconds: settling.seconds,
            seconds: self.seconds + settling.seconds,
            read_bytes: self.read_bytes + settling.read_bytes,
            written_bytes: self.written_bytes + settling.written_bytes,
            processor_seconds: self.processor_seconds + settling.processor_seconds,
            ..self
        }
    }

    pub fn per_second(&self) -> f64 {
        self.operations as f64 / self.seconds
    }
}

pub type Operation<'o> = &'o mut dyn FnMut() -> Result<()>;
pub type Running<'r> = &'r mut dyn FnMut(Operation<'_>) -> Result<()>;

/// Runs what each thread does, which has its operation run again and again: a second before measuring begins, and until the end.
pub fn measured(
    threads: usize,
    seconds: f64,
    thread: &(dyn Fn(usize, Running<'_>) -> Result<()> + Sync),
) -> Result<Outcome> {
    const WARM_UP: Duration = Duration::from_secs(1);
    let (is_measured, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let begin = Barrier::new(threads + 1);
    let work = |number: usize| -> Result<Latencies> {
        let mut latencies = Latencies::default();
        let mut has_begun = false;
        let result = thread(number, &mut |operation| {
            has_begun = true;
            begin.wait();
            while !is_over.load(Ordering::Relaxed) {
                let counts = is_measured.load(Ordering::Relaxed);
                let begun = Instant::now();
                operation()?;
                if counts {
                    latencies.add(begun.elapsed());
                }
            }
            Ok(())
        });
        if !has_begun {
            begin.wait();
        }
        result.map(|()| latencies)
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|number| scope.spawn(move || work(number))).collect();
        begin.wait();
        std::thread::sleep(WARM_UP);
        let before = Used::now()?;
        is_measured.store(true, Ordering::Relaxed);
        std::thread::sleep(Duration::from_secs_f64(seconds));
        is_measured.store(false, Ordering::Relaxed);
        let used = before.since()?;
        is_over.store(true, Ordering::Relaxed);
        let mut all = Latencies::default();
        for thread in running {
            match thread.join() {
                Ok(latencies) => all.add_all(&latencies?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        let (median_seconds, slow_seconds) = (all.quantile(0.5), all.quantile(0.99));
        Ok(Outcome { operations: all.count(), median_seconds, slow_seconds, ..used })
    })
}

/// What this process has used.
pub struct Used {
    at: Instant,
    read_bytes: u64,
    written_bytes: u64,
    processor_seconds: f64,
}

impl Used {
    pub fn now() -> Result<Self> {
        let path = Path::new("/proc/self/io");
        let io = std::fs::read_to_string(path).map_err(BenchError::file(path))?;
        let told = |word: &str| {
            let number = io.lines().find_map(|line| line.strip_prefix(word)?.trim().parse().ok());
            number
                .ok_or_else(|| BenchError::Setup(format!("{} has no number behind '{word}'", path.display())))
        };
        Ok(Self {
            at: Instant::now(),
            read_bytes: told("read_bytes:")?,
            written_bytes: told("write_bytes:")?,
            processor_seconds: nandina_device::processor_time().as_secs_f64(),
        })
    }

    pub fn since(&self) -> Result<Outcome> {
        let now = Self::now()?;
        Ok(Outcome {
            seconds: now.at.duration_since(self.at).as_secs_f64(),
            read_bytes: now.read_bytes - self.read_bytes,
            written_bytes: now.written_bytes - self.written_bytes,
            processor_seconds: now.processor_seconds - self.processor_seconds,
            ..Outcome::default()
        })
    }
}
