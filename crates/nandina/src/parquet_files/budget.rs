//! Memory for the read buffers of Parquet files, shared by all readers of a session.
//!
//! A reader cannot decode a row group before it has all of its columns. So what a scan needs at least is one row
//! group for each of its lanes, which under a small limit can be more than there is. Three rules keep it small:
//!
//! - Operators that can spill make room first.
//! - Where that is not enough, a reader waits for another one to be done with its row group. Not for ever: the
//!   other one may itself be waiting for this one's rows, so after a while without progress the reader goes over
//!   the limit by what it needs, and does not wait again.
//! - Reading ahead takes what is left, and at most a share of the limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use tokio::sync::Notify;

/// The part of the limit that may hold row groups which nobody has asked for yet.
const AHEAD_SHARE: usize = 8;

/// How long a reader waits while no row group is let go of. Long against decoding one, short against a user's
/// patience.
const PATIENCE: Duration = Duration::from_millis(300);

/// What the readers of a session hold together.
#[derive(Debug, Default)]
pub(crate) struct ReadBudget {
    held_bytes: AtomicUsize,
    ahead_bytes: AtomicUsize,
    freed: Notify,
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
    /// Reserves memory for a row group that is needed now. `patient` says whether waiting for other readers makes
    /// sense, and learns when it did not.
    pub(super) async fn take(
        self: &Arc<Self>,
        pool: &Arc<dyn MemoryPool>,
        bytes: usize,
        patient: &mut bool,
    ) -> Result<Grant, TooLarge> {
        let reservation = MemoryConsumer::new("Parquet reader").register(pool);
        if let MemoryLimit::Finite(limit_bytes) = pool.memory_limit()
            && bytes > limit_bytes
        {
            return Err(TooLarge { limit_bytes });
        }
        loop {
            // Listening begins before trying, so that nothing that happens in between is missed.
            let mut freed = std::pin::pin!(self.freed.notified());
            freed.as_mut().enable();
            if reservation.try_grow(bytes).is_ok() {
                break;
            }
            if !*patient || self.held_bytes.load(Ordering::Acquire) == 0 {
                reservation.grow(bytes);
                break;
            }
            *patient = tokio::time::timeout(PATIENCE, freed).await.is_ok();
        }
        Ok(self.grant(reservation, 0))
    }

    /// Reserves memory for a row group that will be needed later, if there is some to spare.
    pub(super) fn take_ahead(self: &Arc<Self>, pool: &Arc<dyn MemoryPool>, bytes: usize) -> Option<Grant> {
        let share = match pool.memory_limit() {
            MemoryLimit::Finite(limit_bytes) => limit_bytes / AHEAD_SHARE,
            _ => usize::MAX,
        };
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
    /// What was read ahead is needed now.
    pub fn into_needed(mut self) -> Self {
        self.budget.ahead_bytes.fetch_sub(std::mem::take(&mut self.ahead_bytes), Ordering::Relaxed);
        self
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.budget.ahead_bytes.fetch_sub(self.ahead_bytes, Ordering::Relaxed);
        self.budget.held_bytes.fetch_sub(self.reservation.free(), Ordering::AcqRel);
        self.budget.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use nandina_exec::memory::MemoryGovernor;

    fn budget(limit: usize) -> (Arc<ReadBudget>, Arc<dyn MemoryPool>) {
        (Arc::default(), Arc::new(MemoryGovernor::new(Some(limit))))
    }

    #[tokio::test]
    async fn a_reader_waits_for_another_ones_row_group() {
        let (budget, pool) = budget(100);
        let first = budget.take(&pool, 70, &mut true).await.unwrap();
        let waiting = tokio::spawn({
            let (budget, pool) = (Arc::clone(&budget), Arc::clone(&pool));
            async move { budget.take(&pool, 60, &mut true).await.unwrap() }
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
        let _held = budget.take(&pool, 70, &mut true).await.unwrap();
        let mut patient = true;
        let began = Instant::now();
        let _over = budget.take(&pool, 60, &mut patient).await.unwrap();
        assert!(began.elapsed() >= PATIENCE);
        assert_eq!((pool.reserved(), patient), (130, false));
        let _more = budget.take(&pool, 60, &mut patient).await.unwrap();
        assert_eq!(pool.reserved(), 190);
    }

    #[tokio::test]
    async fn nobody_waits_for_operators_that_cannot_give() {
        let (budget, pool) = budget(100);
        let operator = MemoryConsumer::new("sort").register(&pool);
        operator.grow(90);
        let mut patient = true;
        let _over = budget.take(&pool, 60, &mut patient).await.unwrap();
        assert_eq!((pool.reserved(), patient), (150, true));
        assert!(budget.take(&pool, 101, &mut patient).await.is_err());
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
