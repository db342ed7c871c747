//! How far a scan reads ahead, within the session's memory.

use std::sync::Arc;

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};

/// At small limits a reader takes at most this share of it: a query may have a dozen, and reading ahead helps none of them
/// that spills for want of memory.
const LIMIT_SHARE: usize = 64;

/// Memory reserved for the read-ahead of one reader. Given back when dropped.
#[derive(Debug)]
pub(super) struct ReadWindow {
    reservation: MemoryReservation,
}

impl ReadWindow {
    /// Reserves of `wanted_bytes`, beyond which the device gains nothing, what the pool grants, halving the wish until
    /// it does. One page is counted in any case: a scan that
    /// holds no page at all cannot proceed.
    pub fn reserve(
        pool: &Arc<dyn MemoryPool>,
        operator: &str,
        wanted_bytes: usize,
        page_bytes: usize,
    ) -> Self {
        let reservation = MemoryConsumer::new(format!("{operator} read-ahead")).register(pool);
        let mut bytes = match pool.memory_limit() {
            MemoryLimit::Finite(limit) => (limit / LIMIT_SHARE).min(wanted_bytes),
            _ => wanted_bytes,
        };
        while bytes > page_bytes && reservation.try_grow(bytes).is_err() {
            bytes /= 2;
        }
        if reservation.size() == 0 {
            reservation.grow(page_bytes);
        }
        Self { reservation }
    }

    pub fn bytes(&self) -> usize {
        self.reservation.size()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::{GreedyMemoryPool, UnboundedMemoryPool};

    use super::*;

    fn pool(bytes: usize) -> Arc<dyn MemoryPool> {
        Arc::new(GreedyMemoryPool::new(bytes))
    }

    #[test]
    fn follows_the_limit() {
        let unbounded: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        assert_eq!(ReadWindow::reserve(&unbounded, "scan", 2 << 20, 4096).bytes(), 2 << 20);
        assert_eq!(ReadWindow::reserve(&pool(1 << 30), "scan", 2 << 20, 4096).bytes(), 2 << 20);
        assert_eq!(ReadWindow::reserve(&pool(64 << 20), "scan", 2 << 20, 4096).bytes(), 1 << 20);
    }

    #[test]
    fn shrinks_to_what_is_left_and_never_below_a_page() {
        let pool = pool(64 << 20);
        let other = MemoryConsumer::new("other").register(&pool);
        other.grow((64 << 20) - (300 << 10));
        let window = ReadWindow::reserve(&pool, "scan", 2 << 20, 32 << 10);
        assert_eq!(window.bytes(), 256 << 10);
        let second = ReadWindow::reserve(&pool, "scan", 2 << 20, 128 << 10);
        assert_eq!(second.bytes(), 128 << 10);
        drop((window, second));
        assert_eq!(pool.reserved(), (64 << 20) - (300 << 10));
    }
}
