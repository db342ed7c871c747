//! Partitions that are in memory until another operator needs it.
//!
//! ```text
//!   tasks ─► push ─► pages in memory, reserved ──finish──► partitions: in memory, on the device, or both
//!                         │
//!           a reservation is refused, or others want memory:
//!           partitions leave in the order of the policy
//!                         ▼
//!                     the device
//! ```
//!
//! Several tasks push at once. Each has a reservation of its own for what its push may add, and frees it when it has
//! pushed, right before the partitioner's memory is reserved anew: what has not been granted yet is not counted.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::physical_plan::metrics::{Count, Time};
use nandina_spill::{Partition, Partitioner, Scatter};
use parking_lot::Mutex;

use super::destage::DestagePolicy;
use super::metrics::SpillMetrics;
use crate::batch::data_bytes;
use crate::error::spill_error;
use crate::memory::{HeldMemory, portion_rows};

/// A partitioner that spills when its memory is refused or wanted by others.
pub(crate) struct ResidentPartitions {
    partitioner: Partitioner,
    memory: Arc<HeldMemory>,
    /// Most bytes that the operator may use; `None` if there is no limit.
    memory_limit: Option<usize>,
    /// Locked while the reservation is set to the bytes held. True once the partitions have been handed over: a reclaim
    /// that began before must not free what they hold.
    is_handed_over: Mutex<bool>,
    policy: DestagePolicy,
    /// What so many rows in memory take beside their pages.
    bytes_of_rows: fn(usize) -> usize,
    /// What the operator holds beside its rows.
    bytes_beside: Box<dyn Fn() -> usize + Send + Sync>,
    metrics: PartitionsMetrics,
}

/// Where partitions count.
pub(crate) struct PartitionsMetrics {
    pub(crate) spill: SpillMetrics,
    pub(crate) spilled_partitions: Count,
    /// Time spent on pushing.
    pub(crate) push_time: Time,
}

/// Where rows belong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Destination<'a> {
    /// To the partitions of their hashes, one for each row, of which the top `used_bits` have been used before.
    ByHash { hashes: &'a [u64], used_bits: u32 },
    /// All to one partition.
    Partition(usize),
}

/// What becomes of a partition that some task is filling at the moment when it should be spilled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Busy {
    /// Another one is taken: the task that fills it may be waiting for the caller.
    Skipped,
    /// It is spilled as soon as it is free.
    Awaited,
}

impl ResidentPartitions {
    /// Of an empty partitioner. `memory` is what the operator holds for it: nothing else changes it until
    /// [`Self::finish`].
    pub(crate) fn new(
        partitioner: Partitioner,
        memory: Arc<HeldMemory>,
        memory_limit: Option<usize>,
        metrics: PartitionsMetrics,
    ) -> Self {
        Self {
            partitioner,
            memory,
            memory_limit,
            is_handed_over: Mutex::new(false),
            policy: DestagePolicy::default(),
            bytes_of_rows: |_| 0,
            bytes_beside: Box::new(|| 0),
            metrics,
        }
    }

    /// Spills in this order.
    pub(crate) fn with_policy(self, policy: DestagePolicy) -> Self {
        Self { policy, ..self }
    }

    /// Reserves this much for so many rows, beside their pages.
    pub(crate) fn with_bytes_of_rows(self, bytes_of_rows: fn(usize) -> usize) -> Self {
        Self { bytes_of_rows, ..self }
    }

    /// Reserves as well what the operator says that it holds beside its rows.
    pub(crate) fn with_bytes_beside(self, bytes: impl Fn() -> usize + Send + Sync + 'static) -> Self {
        Self { bytes_beside: Box::new(bytes), ..self }
    }

    /// Number of partitions.
    pub(crate) fn count(&self) -> usize {
        self.partitioner.options().partitions()
    }

    /// log2 of the number of partitions.
    pub(crate) fn partition_bits(&self) -> u32 {
        self.partitioner.options().partition_bits
    }

    /// Whether anything has been spilled.
    pub(crate) fn any_spilled(&self) -> bool {
        (0..self.count()).any(|partition| self.partitioner.is_spilled(partition))
    }

    /// Adds rows to their partitions, spilling for room if need be, and waits until the device has kept up. `scatter` is
    /// what the task keeps from push to push; `note_step` is called after each part of the rows.
    pub(crate) async fn push(
        &self,
        rows: &RecordBatch,
        destination: Destination<'_>,
        scatter: &mut Scatter,
        note_step: impl Fn(),
    ) -> Result<()> {
        let portion_rows = portion_rows(rows, self.memory_limit);
        for first in (0..rows.num_rows()).step_by(portion_rows) {
            let portion = rows.slice(first, portion_rows.min(rows.num_rows() - first));
            self.scatter(first..first + portion.num_rows(), destination, scatter);
            self.push_portion(&portion, scatter).await?;
            note_step();
            let _waiting = self.metrics.spill.time.timer();
            self.partitioner.throttle().await.map_err(spill_error)?;
        }
        Ok(())
    }

    fn scatter(&self, rows: Range<usize>, destination: Destination<'_>, scatter: &mut Scatter) {
        let bits = self.partition_bits();
        match destination {
            Destination::ByHash { hashes, used_bits } => {
                scatter.by_hash_behind(&hashes[rows], used_bits, bits)
            }
            Destination::Partition(partition) => scatter.to_partition(partition, rows.len(), bits),
        }
    }

    async fn push_portion(&self, rows: &RecordBatch, scatter: &Scatter) -> Result<()> {
        // A quarter more for vectors that grow by doubling.
        let estimate = data_bytes(rows) * 5 / 4 + (self.bytes_of_rows)(rows.num_rows());
        let room = self.make_room(estimate).await?;
        let timer = self.metrics.push_time.timer();
        let pushed = self.partitioner.push(rows, scatter).map_err(spill_error);
        drop(room);
        self.sync_reservation();
        drop(timer);
        pushed
    }

    /// Reserves `bytes`, spilling until they are granted. When nothing is left in memory they are taken all the same: they
    /// are filled pages that are being written then, whose total the partitioner's shape bounds.
    ///
    /// The caller holds no lock that spilling may want.
    pub(crate) async fn make_room(&self, bytes: usize) -> Result<HeldMemory> {
        let room = self.memory.another();
        // Where all partitions are to go, the one that another task is filling goes too.
        let busy = if self.policy == DestagePolicy::All { Busy::Awaited } else { Busy::Skipped };
        while !room.try_grow(bytes) {
            // The pool has nothing left to take from others: give up memory of our own.
            let freed = match self.spill_some(1, busy).map_err(spill_error)? {
                0 => self.spill_some(1, Busy::Awaited).map_err(spill_error)?,
                freed => freed,
            };
            if freed == 0 {
                // The task that filled the last of them may have spilled it.
                if !room.try_grow(bytes) {
                    room.grow(bytes);
                }
                break;
            }
            let _waiting = self.metrics.spill.time.timer();
            self.partitioner.drain_to(0).await.map_err(spill_error)?;
            self.sync_reservation();
        }
        Ok(room)
    }

    /// Starts spilling partitions until `wanted` bytes will be free when they are written; how many those are.
    fn spill_some(&self, wanted: usize, busy: Busy) -> nandina_spill::Result<usize> {
        let sizes = (0..self.count()).map(|partition| self.partitioner.resident_bytes(partition));
        let wanted = self.policy.wanted_bytes(wanted);
        let mut freed = 0;
        for partition in self.policy.order(sizes) {
            if freed >= wanted {
                break;
            }
            let rows = self.partitioner.resident_rows(partition);
            let bytes = match busy {
                Busy::Skipped => self.partitioner.try_spill(partition)?.unwrap_or(0),
                Busy::Awaited => self.partitioner.spill(partition)?,
            };
            if bytes > 0 {
                self.metrics.spilled_partitions.add(1);
                freed += bytes + (self.bytes_of_rows)(rows);
            }
        }
        Ok(freed)
    }

    /// Sets the reservation to the bytes held, beside what pushes in progress have reserved.
    fn sync_reservation(&self) {
        let is_handed_over = self.is_handed_over.lock();
        if !*is_handed_over {
            let rows = (0..self.count()).map(|partition| self.partitioner.resident_rows(partition)).sum();
            let of_rows = self.partitioner.memory_bytes() + (self.bytes_of_rows)(rows);
            self.memory.resize(of_rows + (self.bytes_beside)());
        }
    }

    /// Ends the input: all partitions, when the spilled pages have been written. The reservation stays; the caller sets
    /// it to what the partitions hold.
    pub(crate) async fn finish(&self) -> Result<Vec<Partition>> {
        *self.is_handed_over.lock() = true;
        let finished = self.partitioner.finish().map_err(spill_error)?;
        let _waiting = self.metrics.spill.time.timer();
        self.partitioner.drain_to(0).await.map_err(spill_error)?;
        Ok(finished)
    }

    /// Bytes that can be had by spilling.
    pub(crate) fn reclaimable_bytes(&self) -> usize {
        (0..self.count()).map(|partition| self.partitioner.resident_bytes(partition)).sum()
    }

    /// Spills for others until `bytes` are free, blocking the thread. Returns what it spilled, not by how much the
    /// reservation shrank: rows that are pushed meanwhile would hide it, and other operators would be asked needlessly.
    pub(crate) fn reclaim(&self, bytes: usize) -> nandina_spill::Result<usize> {
        let freed = self
            .spill_some(bytes, Busy::Skipped)
            .and_then(|freed| self.partitioner.drain_to_blocking(0).map(|()| freed));
        // Partitions may have left memory before a write failed.
        self.sync_reservation();
        freed
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::execution::memory_pool::MemoryPool;
    use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, Gauge};
    use futures::executor::block_on;

    use nandina_pages::PageSchema;
    use nandina_simulation::FaultPlan;
    use nandina_spill::{TempOptions, TempSpace};

    use super::*;
    use crate::memory::{MemoryGovernor, partitioner_options};

    #[test]
    fn a_reclaim_that_fails_leaves_what_is_held_reserved() {
        let (device, faults) = nandina_simulation::in_memory(FaultPlan::none());
        let space = TempSpace::open(device, TempOptions::default()).unwrap().query("test");
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
        let limit = Some(64 << 20);
        let options = partitioner_options(limit, &space.device().sizes(), 2);
        let partitioner = Partitioner::new(PageSchema::try_new(schema).unwrap(), options, space);
        let pool: Arc<dyn MemoryPool> = Arc::new(MemoryGovernor::new(limit));
        let memory = Arc::new(HeldMemory::new(&pool, "test", Gauge::new()));
        let metrics = PartitionsMetrics {
            spill: SpillMetrics::new(&ExecutionPlanMetricsSet::new(), 0),
            spilled_partitions: Count::new(),
            push_time: Time::new(),
        };
        let partitions = ResidentPartitions::new(partitioner, Arc::clone(&memory), limit, metrics);
        let numbers = Arc::new(Int64Array::from_iter_values(0..200_000));
        let rows = RecordBatch::try_from_iter([("n", numbers as _)]).unwrap();
        let mut scatter = Scatter::default();
        block_on(partitions.push(&rows, Destination::Partition(0), &mut scatter, || ())).unwrap();
        let before = memory.bytes();
        assert_eq!(before, partitions.partitioner.memory_bytes());
        faults.set_plan(FaultPlan::none().fail_from(0));
        assert!(partitions.reclaim(usize::MAX).is_err());
        assert!(partitions.partitioner.memory_bytes() < before, "what failed to be written is gone");
        assert_eq!(memory.bytes(), partitions.partitioner.memory_bytes());
        assert_eq!(pool.reserved(), memory.bytes());
    }
}
