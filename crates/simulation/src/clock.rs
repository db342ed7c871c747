//! Time that is a number, which only waiting moves.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nandina_device::Clock;

#[derive(Debug)]
pub(crate) struct VirtualClock {
    origin: Instant,
    nanos: AtomicU64,
}

impl VirtualClock {
    pub(crate) fn new() -> Self {
        Self { origin: Instant::now(), nanos: AtomicU64::new(0) }
    }

    /// Moves time on to `at`, unless it is later already.
    pub(crate) fn advance_to(&self, at: Instant) {
        let nanos = at.saturating_duration_since(self.origin).as_nanos() as u64;
        self.nanos.fetch_max(nanos, Ordering::SeqCst);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Instant {
        self.origin + Duration::from_nanos(self.nanos.load(Ordering::SeqCst))
    }
}
