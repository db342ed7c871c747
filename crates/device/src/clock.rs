//! What time it is for a device: the system's, or a number that only waiting moves. And how much of it was spent
//! computing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Clones show the same time.
#[derive(Debug, Clone, Default)]
pub(crate) enum Clock {
    #[default]
    Real,
    Virtual(Arc<VirtualClock>),
}

#[derive(Debug)]
pub(crate) struct VirtualClock {
    origin: Instant,
    nanos: AtomicU64,
}

impl Clock {
    pub(crate) fn virtual_time() -> Self {
        Clock::Virtual(Arc::new(VirtualClock { origin: Instant::now(), nanos: AtomicU64::new(0) }))
    }

    pub(crate) fn now(&self) -> Instant {
        match self {
            Clock::Real => Instant::now(),
            Clock::Virtual(clock) => clock.origin + Duration::from_nanos(clock.nanos.load(Ordering::SeqCst)),
        }
    }

    /// Moves virtual time on to `at`, unless it is later already.
    pub(crate) fn advance_to(&self, at: Instant) {
        if let Clock::Virtual(clock) = self {
            let nanos = at.saturating_duration_since(clock.origin).as_nanos() as u64;
            clock.nanos.fetch_max(nanos, Ordering::SeqCst);
        }
    }

    pub(crate) fn is_virtual(&self) -> bool {
        matches!(self, Clock::Virtual(_))
    }
}

/// Processor time that all threads of this process have used so far, in the kernel too. Zero where the system does not
/// tell.
pub fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills in the structure that it is given.
    let outcome = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    if outcome == 0 { Duration::new(time.tv_sec as u64, time.tv_nsec as u32) } else { Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computing_takes_processor_time() {
        let before = processor_time();
        let mut sum = 0u64;
        while processor_time() - before < Duration::from_millis(5) {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(1));
        }
        assert!(processor_time() > before);
    }
}
