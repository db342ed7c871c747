//! The reservation of an operator that several threads bring up to date.

use std::sync::Arc;

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use parking_lot::Mutex;

/// What an operator holds beside what pushes in progress have reserved.
///
/// While rows are pushed, whoever has pushed or spilled some makes it what the partitioner holds. That ends when the
/// partitions are handed over: a reclaim that began before must not take what they hold for free.
#[derive(Debug)]
pub(crate) struct SharedReservation {
    reservation: MemoryReservation,
    /// Held whenever the size changes: looking at it and changing it are two steps.
    is_handed_over: Mutex<bool>,
}

impl SharedReservation {
    /// Nothing yet, of `pool`.
    pub(crate) fn new(pool: &Arc<dyn MemoryPool>, consumer: &str) -> Self {
        // Not `can_spill`: to the governor this consumer is a reclaimer, which it counts by itself.
        let reservation = MemoryConsumer::new(consumer).register(pool);
        Self { reservation, is_handed_over: Mutex::new(false) }
    }

    /// A reservation of the same operator, of its own.
    pub(crate) fn new_empty(&self) -> MemoryReservation {
        self.reservation.new_empty()
    }

    /// Bytes reserved.
    pub(crate) fn size(&self) -> usize {
        self.reservation.size()
    }

    /// Makes it what the partitioner holds, unless its partitions have been handed over.
    pub(crate) fn settle(&self, held_bytes: impl FnOnce() -> usize) {
        let is_handed_over = self.is_handed_over.lock();
        if !*is_handed_over {
            self.reservation.resize(held_bytes());
        }
    }

    /// From here on, what the partitioner says it holds is not what is held.
    pub(crate) fn hand_over(&self) {
        *self.is_handed_over.lock() = true;
    }

    /// Makes it `bytes`, whatever the limit.
    pub(crate) fn resize(&self, bytes: usize) {
        let _alone = self.is_handed_over.lock();
        self.reservation.resize(bytes);
    }

    /// Gives `bytes` back, or all there are if there are fewer.
    pub(crate) fn shrink(&self, bytes: usize) {
        let _alone = self.is_handed_over.lock();
        self.reservation.shrink(bytes.min(self.reservation.size()));
    }
}

#[cfg(test)]
mod tests {
    use crate::memory::MemoryGovernor;

    use super::*;

    #[test]
    fn what_was_handed_over_is_not_taken_for_free() {
        let pool: Arc<dyn MemoryPool> = Arc::new(MemoryGovernor::new(Some(1000)));
        let shared = SharedReservation::new(&pool, "operator");
        shared.settle(|| 700);
        assert_eq!(pool.reserved(), 700);
        shared.hand_over();
        shared.settle(|| 0);
        assert_eq!(pool.reserved(), 700);
        shared.resize(300);
        shared.shrink(400);
        assert_eq!(pool.reserved(), 0);
    }
}
