//! Memory for operators that are bounded by themselves and cannot do with less.

use std::fmt;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};

/// A pool that asks another one for memory, which may make others spill, and takes what it is refused all the same.
///
/// For operators of DataFusion that fail where they are refused, and hold so many batches at most.
#[derive(Debug)]
pub(crate) struct Unrefused(pub Arc<dyn MemoryPool>);

impl MemoryPool for Unrefused {
    fn name(&self) -> &str {
        "unrefused"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.0.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.0.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.0.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.0.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        if self.0.try_grow(reservation, additional).is_err() {
            self.0.grow(reservation, additional);
        }
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.0.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.0.memory_limit()
    }
}

impl fmt::Display for Unrefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unrefused by {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::MemoryGovernor;
    use super::*;

    #[test]
    fn what_is_refused_is_taken_and_counted() {
        let governor: Arc<dyn MemoryPool> = Arc::new(MemoryGovernor::new(Some(1000)));
        let pool: Arc<dyn MemoryPool> = Arc::new(Unrefused(Arc::clone(&governor)));
        let merge = MemoryConsumer::new("merge").register(&pool);
        merge.try_grow(800).unwrap();
        merge.new_empty().try_grow(0).unwrap();
        merge.try_grow(700).unwrap();
        assert_eq!(governor.reserved(), 1500);
        assert!(MemoryConsumer::new("another").register(&governor).try_grow(1).is_err());
        drop(merge);
        assert_eq!(governor.reserved(), 0);
    }
}
