//! What time it is, and how much of it was spent computing.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// The time in which a device measures its requests.
pub trait Clock: Debug + Send + Sync {
    fn now(&self) -> Instant;
}

/// The operating system's monotonic clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }
}

/// Processor time that all threads of this process have used so far, in the kernel too. Zero where the system does not
/// tell.
pub fn processor_time() -> Duration {
    used_by(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// The same of the calling thread alone.
pub fn thread_processor_time() -> Duration {
    used_by(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn used_by(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills in the structure that it is given.
    let outcome = unsafe { libc::clock_gettime(clock, &mut time) };
    if outcome == 0 { Duration::new(time.tv_sec as u64, time.tv_nsec as u32) } else { Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computing_takes_processor_time() {
        for time in [processor_time, thread_processor_time] {
            let before = time();
            let mut sum = 0u64;
            while time() - before < Duration::from_millis(5) {
                sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(1));
            }
            assert!(time() > before);
        }
    }
}
