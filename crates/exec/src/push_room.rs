//! Room in memory for rows that are about to be pushed into a partitioner.
//!
//! Several tasks push at once. Each has a reservation of its own for what its push may add, and lets it go when it has
//! pushed, right before what the partitioner holds is counted anew: what nobody has granted yet is not counted.

use datafusion::common::Result;
use datafusion::physical_plan::metrics::Time;
use nandina_spill::Partitioner;

use crate::error::spill_error;

/// What becomes of a partition that somebody is filling at the moment when it should be spilled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Busy {
    /// Another one is taken: whoever fills it may be waiting for the caller.
    Skipped,
    /// It is spilled as soon as it is free.
    Awaited,
}

impl Busy {
    /// Starts spilling a partition; the bytes that will be free when it is written.
    pub(crate) fn spill(self, partitioner: &Partitioner, partition: usize) -> nandina_spill::Result<usize> {
        match self {
            Self::Skipped => Ok(partitioner.try_spill(partition)?.unwrap_or(0)),
            Self::Awaited => partitioner.spill(partition),
        }
    }
}

/// Asks for room until it is granted, spilling rows of `partitioner` for it. False when they are all on the device
/// already: then what is asked for is filled pages on their way there, whose total the partitioner's shape bounds.
///
/// `settle` makes the reservation of the partitioner what it holds. The caller holds no lock that spilling may want.
pub(crate) async fn make_room(
    partitioner: &Partitioner,
    is_granted: impl Fn() -> bool,
    spill_some: impl Fn(Busy) -> nandina_spill::Result<usize>,
    settle: impl Fn(),
    waiting: &Time,
) -> Result<bool> {
    while !is_granted() {
        // Not a governor, or one with nothing left to take from others: give up memory of our own.
        let freed = match spill_some(Busy::Skipped).map_err(spill_error)? {
            0 => spill_some(Busy::Awaited).map_err(spill_error)?,
            freed => freed,
        };
        if freed == 0 {
            // Whoever filled the last of them may have spilled it.
            return Ok(is_granted());
        }
        let _waiting = waiting.timer();
        partitioner.drain_to(0).await.map_err(spill_error)?;
        settle();
    }
    Ok(true)
}
