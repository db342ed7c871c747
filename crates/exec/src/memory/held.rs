//! What an operator has reserved in several places, and how much that is together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::physical_plan::metrics::Gauge;
use parking_lot::Mutex;

/// One of the reservations of an operator. Dropping it gives its bytes back.
#[derive(Debug)]
pub struct HeldMemory {
    reservation: MemoryReservation,
    /// Held while bytes are given back: looking at the size and changing it are two steps.
    shrinking: Mutex<()>,
    total: Arc<Total>,
}

/// The sum of all reservations of an operator.
#[derive(Debug)]
struct Total {
    bytes: AtomicUsize,
    peak: Gauge,
}

impl HeldMemory {
    /// The first of an operator that draws from `pool` by the name of `consumer`; `peak` shows the most that all together
    /// held.
    pub fn new(pool: &Arc<dyn MemoryPool>, consumer: impl Into<String>, peak: Gauge) -> Self {
        // Not `can_spill`: to the governor this consumer is a reclaimer, which it counts by itself.
        let reservation = MemoryConsumer::new(consumer).register(pool);
        Self::of(reservation, Arc::new(Total { bytes: AtomicUsize::new(0), peak }))
    }

    /// Another of the same operator, which holds nothing yet.
    pub fn another(&self) -> Self {
        Self::of(self.reservation.new_empty(), Arc::clone(&self.total))
    }

    fn of(reservation: MemoryReservation, total: Arc<Total>) -> Self {
        Self { reservation, shrinking: Mutex::new(()), total }
    }

    /// Part of this one's bytes as one of its own.
    pub fn split(&self, bytes: usize) -> Self {
        let _shrinking = self.shrinking.lock();
        Self::of(self.reservation.split(bytes.min(self.bytes())), Arc::clone(&self.total))
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.reservation.size()
    }

    /// Takes `bytes` more if the governor grants them.
    pub fn try_grow(&self, bytes: usize) -> bool {
        let granted = self.reservation.try_grow(bytes).is_ok();
        if granted {
            self.total.grow(bytes);
        }
        granted
    }

    /// Takes `bytes` more, whatever the limit: of memory whose size is bounded elsewhere.
    pub fn grow(&self, bytes: usize) {
        self.reservation.grow(bytes);
        self.total.grow(bytes);
    }

    /// Resizes it to `bytes` if the governor grants the difference.
    pub fn try_resize(&self, bytes: usize) -> bool {
        match bytes.checked_sub(self.bytes()) {
            Some(more) => self.try_grow(more),
            None => {
                self.resize(bytes);
                true
            }
        }
    }

    /// Makes it `bytes`, whatever the limit.
    pub fn resize(&self, bytes: usize) {
        let _shrinking = self.shrinking.lock();
        match bytes.checked_sub(self.bytes()) {
            Some(more) => self.grow(more),
            None => self.give_back(self.bytes() - bytes),
        }
    }

    /// Gives `bytes` back, or all there are if there are fewer.
    pub fn shrink(&self, bytes: usize) {
        let _shrinking = self.shrinking.lock();
        self.give_back(bytes.min(self.bytes()));
    }

    fn give_back(&self, bytes: usize) {
        self.reservation.shrink(bytes);
        self.total.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Total {
    fn grow(&self, bytes: usize) {
        let total = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.set_max(total);
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        self.total.bytes.fetch_sub(self.reservation.size(), Ordering::Relaxed);
    }
}
