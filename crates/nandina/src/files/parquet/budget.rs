//! Memory for the read buffers of Parquet files, shared by all readers of a session.
//!
//! A reader cannot decode a row group before it has all of its columns, or those of the filter. So what a scan needs at
//! least is one row group for each of its lanes, which under a small limit can be more than there is. Three rules keep it
//! small:
//!
//! - Operators that can spill make room first.
//! - Where that is not enough, a reader waits for others to be done with their row groups. Not for long: they may
//!   themselves be waiting for this one's rows, so after a moment the reader goes over the limit by what it needs,
//!   and its scan does not wait again.
//! - Reading ahead takes unused memory, at most a share of the limit, and none while a reader waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use tokio::sync::Notify;

/// The part of the limit that may hold row groups which have not been asked for yet.
const AHEAD_SHARE: usize = 8;

/// How long a reader waits for others. Long against decoding a row group, short against a user's patience.
const PATIENCE: Duration = Duration::from_millis(500);

/// What the readers of a session hold together.
#[derive(Debug, Default)]
pub(crate) struct ReadBudget {
    held_bytes: AtomicUsize,
    ahead_bytes: AtomicUsize,
    /// Readers that wait.
    waiting: AtomicUsize,
    freed: Notify,
}

/// Counts a reader that waits, for as long as it does.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::AcqRel);
        Self(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The bytes can never be reserved, however long one waits.
#[derive(Debug)]
pub(super) struct TooLarge {
    pub limit_bytes: usize,
}

/// Memory that was granted to a reader; dropping it gives the memory back.
#[derive(Debug)]
pub(super) struct Grant {
    budget: Arc<ReadBudget>,
    reservation: MemoryReservation,
    /// Of these, bytes that count as read ahead.
    ahead_bytes: usize,
}

impl ReadBudget {
    /// Reserves memory for a row group that is needed now. `waits_for_memory` says whether waiting for other readers makes
    /// sense for this scan, and learns when it did not.
    pub(super) async fn take(
        self: &Arc<Self>,
        pool: &Arc<dyn MemoryPool>,
        bytes: usize,
        waits_for_memory: &AtomicBool,
    ) -> Result<Grant, TooLarge> {
        let reservation = MemoryConsumer::new("Parquet reader").register(pool);
        if let MemoryLimit::Finite(limit_bytes) = pool.memory_limit()
            && bytes > limit_bytes
        {
            return Err(TooLarge { limit_bytes });
        }
        if reservation.try_grow(bytes).is_err()
            && !self.take_when_freed(&reservation, bytes, waits_for_memory).await
        {
            reservation.grow(bytes);
        }
        Ok(self.grant(reservation, 0))
    }

    /// Waits until `bytes` can be had, for a moment; whether they could.
    async fn take_when_freed(
        &self,
        reservation: &MemoryReservation,
        bytes: usize,
        waits_for_memory: &AtomicBool,
    ) -> bool {
        let _waiting = Waiting::begin(&self.waiting);
        let taken = async {
            loop {
                // Listening begins before trying, so that nothing that happens in between is missed.
                let mut freed = std::pin::pin!(self.freed.notified());
                freed.as_mut().enable();
                if reservation.try_grow(bytes).is_ok() {
                    return true;
                }
                if !waits_for_memory.load(Ordering::Relaxed) || self.held_bytes.load(Ordering::Acquire) == 0 {
                    return false;
                }
                freed.await;
            }
        };
        let taken = tokio::time::timeout(PATIENCE, taken).await;
        if taken.is_err() {
            waits_for_memory.store(false, Ordering::Relaxed);
        }
        taken.unwrap_or(false)
    }

    /// Reserves memory for a row group that will be needed later, if there is some to spare: no operator spills or
    /// waits for it.
    pub(super) fn take_ahead(self: &Arc<Self>, pool: &Arc<dyn MemoryPool>, bytes: usize) -> Option<Grant> {
        let limit_bytes = match pool.memory_limit() {
            MemoryLimit::Finite(limit_bytes) => limit_bytes,
            _ => usize::MAX,
        };
        if self.waiting.load(Ordering::Acquire) > 0 || pool.reserved().saturating_add(bytes) > limit_bytes {
            return None;
        }
        let share = limit_bytes / AHEAD_SHARE;
        let taken = self.ahead_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |ahead| {
            ahead.checked_add(bytes).filter(|&sum| sum <= share)
        });
        taken.ok()?;
        let reservation = MemoryConsumer::new("Parquet reader, ahead").register(pool);
        let fits = reservation.try_grow(bytes).is_ok();
        let grant = self.grant(reservation, bytes);
        fits.then_some(grant)
    }

    fn grant(self: &Arc<Self>, reservation: MemoryReservation, ahead_bytes: usize) -> Grant {
        self.held_bytes.fetch_add(reservation.size(), Ordering::AcqRel);
        Grant { budget: Arc::clone(self), reservation, ahead_bytes }
    }
}

impl Grant {
    /// The row group read ahead is needed now.
    pub fn into_needed(mut self) -> Self {
        self.budget.ahead_bytes.fetch_sub(std::mem::take(&mut self.ahead_bytes), Ordering::Relaxed);
        self
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.budget.ahead_bytes.fetch_sub(self.ahead_bytes, Ordering::Relaxed);
        let freed_bytes = self.reservation.free();
        self.budget.held_bytes.fetch_sub(freed_bytes, Ordering::AcqRel);
        if freed_bytes > 0 {
            self.budget.freed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use nandina_exec::memory::{MemoryGovernor, Reclaim};

    fn budget(limit: usize) -> (Arc<ReadBudget>, Arc<dyn MemoryPool>) {
        (Arc::default(), Arc::new(MemoryGovernor::new(Some(limit))))
    }

    #[tokio::test]
    async fn a_reader_waits_for_another_ones_row_group() {
        let (budget, pool) = budget(100);
        let first = budget.take(&pool, 70, &AtomicBool::new(true)).await.unwrap();
        let waiting = tokio::spawn({
            let (budget, pool) = (Arc::clone(&budget), Arc::clone(&pool));
            async move { budget.take(&pool, 60, &AtomicBool::new(true)).await.unwrap() }
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(pool.reserved(), 70, "the second waits");
        drop(first);
        let second = waiting.await.unwrap();
        assert_eq!(pool.reserved(), 60);
        drop(second);
        assert_eq!((pool.reserved(), budget.held_bytes.load(Ordering::Relaxed)), (0, 0));
    }

    #[tokio::test]
    async fn a_reader_waits_in_vain_only_once() {
        let (budget, pool) = budget(100);
        let _held = budget.take(&pool, 70, &AtomicBool::new(true)).await.unwrap();
        let waits_for_memory = AtomicBool::new(true);
        let began = Instant::now();
        let _over = budget.take(&pool, 60, &waits_for_memory).await.unwrap();
        assert!(began.elapsed() >= PATIENCE);
        assert_eq!((pool.reserved(), waits_for_memory.load(Ordering::Relaxed)), (130, false));
        let _more = budget.take(&pool, 60, &waits_for_memory).await.unwrap();
        assert_eq!(pool.reserved(), 190);
    }

    #[tokio::test]
    async fn nobody_waits_for_operators_that_cannot_give() {
        let (budget, pool) = budget(100);
        let operator = MemoryConsumer::new("sort").register(&pool);
        operator.grow(90);
        let waits_for_memory = AtomicBool::new(true);
        let _over = budget.take(&pool, 60, &waits_for_memory).await.unwrap();
        assert_eq!((pool.reserved(), waits_for_memory.load(Ordering::Relaxed)), (150, true));
        assert!(budget.take(&pool, 101, &waits_for_memory).await.is_err());
    }

    /// An operator that could spill, and must not be asked to.
    struct Spiller(MemoryReservation);

    impl Reclaim for Spiller {
        fn reclaimable_bytes(&self) -> usize {
            self.0.size()
        }

        fn reclaim(&self, bytes: usize) -> usize {
            let freed = bytes.min(self.0.size());
            self.0.shrink(freed);
            freed
        }
    }

    #[tokio::test]
    async fn nobody_spills_for_reading_ahead() {
        let (budget, pool) = budget(800);
        let reservation = MemoryConsumer::new("join").register(&pool);
        reservation.grow(760);
        let spiller: Arc<dyn Reclaim> = Arc::new(Spiller(reservation));
        let _handle = MemoryGovernor::register_reclaimer(&pool, Arc::downgrade(&spiller));
        assert!(budget.take_ahead(&pool, 60).is_none());
        assert_eq!(spiller.reclaimable_bytes(), 760);
        let needed = budget.take(&pool, 60, &AtomicBool::new(true)).await.unwrap();
        assert_eq!(spiller.reclaimable_bytes(), 700);
        drop(needed);
    }

    #[tokio::test]
    async fn reading_ahead_takes_a_share() {
        let (budget, pool) = budget(800);
        let ahead = budget.take_ahead(&pool, 60).unwrap();
        assert!(budget.take_ahead(&pool, 60).is_none());
        let needed = ahead.into_needed();
        let again = budget.take_ahead(&pool, 60).unwrap();
        assert_eq!(pool.reserved(), 120);
        drop((needed, again));
        assert_eq!((pool.reserved(), budget.ahead_bytes.load(Ordering::Relaxed)), (0, 0));
        let full = MemoryConsumer::new("sort").register(&pool);
        full.grow(790);
        assert!(budget.take_ahead(&pool, 60).is_none());
        assert_eq!((pool.reserved(), budget.ahead_bytes.load(Ordering::Relaxed)), (790, 0));
        assert_eq!(budget.held_bytes.load(Ordering::Relaxed), 0);
    }
}
