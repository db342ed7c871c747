//! What time it is for a device: the system's, or a number that only waiting moves.

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
