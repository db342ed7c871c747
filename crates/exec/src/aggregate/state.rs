//! What all lanes and outputs of one aggregation share.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::memory_pool::MemoryPool;
use nandina_spill::{PartitionerOptions, QuerySpace};
use parking_lot::Mutex;

use super::metrics::AggregateMetrics;
use super::spec::AggregateSpec;
use super::work_queue::WorkQueue;
use crate::execution::Progress;
use crate::memory::HeldMemory;
use crate::memory::{
    MemoryGovernor, Reclaim, ReclaimHandle, partitioner_options, pool_limit, read_window_bytes,
};

/// The share of memory that the tables of all lanes may take together while they are emptied when they are full.
const LANES_SHARE: usize = 8;
/// The same where it lets them hold all groups, in percent: nothing else needs memory then.
const GROWN_LANES_PERCENT: usize = 75;
/// The share of memory that the tables of all merges may take together.
const MERGES_SHARE: usize = 2;
/// Partitions when memory is plentiful, as log2. More than a join has: tables of tens of millions of groups in all are
/// then still small ones, and some of DataFusion's accumulators do work for every group of a table with every batch.
const MOST_PARTITION_BITS: u32 = 8;
/// A table of groups may take so many times their bytes in stored form: slots, and vectors that grow by doubling.
const TABLE_FACTOR: u64 = 3;
/// Least memory of a lane's table and of a merge's.
const MIN_LANE_BYTES: usize = 64 << 10;
const MIN_MERGE_BYTES: usize = 128 << 10;
/// A lane's table is full at this size first: it lies in the second-level cache or near it.
const LANE_BYTES: usize = 2 << 20;
/// The most it grows to, if memory allows, where that lets it hold all groups. Looking up a row in memory takes as long
/// as scattering it and merging it in the cache, but partitions take memory, or the device, for every row.
const MOST_LANE_BYTES: usize = 1 << 30;

/// The shared state of one execution of an aggregation.
pub struct AggregateState {
    pub spec: Arc<AggregateSpec>,
    pub space: Arc<QuerySpace>,
    pub pool: Arc<dyn MemoryPool>,
    pub metrics: AggregateMetrics,
    /// The limit of the memory pool in bytes; `None` if it has none.
    pub memory_limit: Option<usize>,
    /// The shape of the first partitions.
    pub options: PartitionerOptions,
    /// Input partitions, which is also the number of outputs.
    pub lanes: usize,
    pub progress: Progress,
    pub queue: Arc<WorkQueue>,
    memory: HeldMemory,
    reclaim: Mutex<Option<ReclaimHandle>>,
}

impl AggregateState {
    /// State for one execution, drawing memory from `pool` and spilling to `space`.
    pub fn new(
        spec: Arc<AggregateSpec>,
        pool: &Arc<dyn MemoryPool>,
        space: Arc<QuerySpace>,
        metrics: AggregateMetrics,
        lanes: usize,
    ) -> Arc<Self> {
        let memory_limit = pool_limit(pool.as_ref());
        let state = Arc::new(Self {
            spec,
            memory_limit,
            options: partitioner_options(memory_limit, &space.device().sizes(), MOST_PARTITION_BITS),
            lanes,
            progress: Progress::default(),
            queue: Arc::default(),
            memory: HeldMemory::new(pool, "HashAggregate", metrics.peak_memory_bytes.clone()),
            pool: Arc::clone(pool),
            space,
            metrics,
            reclaim: Mutex::new(None),
        });
        *state.reclaim.lock() = MemoryGovernor::register_reclaimer(pool, Arc::<Self>::downgrade(&state));
        state
    }

    /// A further reservation of the same aggregation.
    pub fn another_reservation(&self) -> HeldMemory {
        self.memory.another()
    }

    /// Bytes at which a lane's table is full, and the most that may become.
    pub fn lane_bytes(&self) -> (usize, usize) {
        let lane = self.memory_limit.unwrap_or(usize::MAX) / self.lanes;
        let first = (lane / LANES_SHARE).clamp(MIN_LANE_BYTES, LANE_BYTES);
        let grown = (lane / 100 * GROWN_LANES_PERCENT).clamp(first, MOST_LANE_BYTES);
        (first, if self.spec.grows_well { grown } else { first })
    }

    /// Bytes at which the table of a merge is full.
    pub fn merge_bytes(&self) -> usize {
        let share = self.memory_limit.unwrap_or(usize::MAX) / (MERGES_SHARE * self.lanes);
        share.max(MIN_MERGE_BYTES)
    }

    /// The shape of partitions one level deeper, for groups of so many bytes in stored form.
    pub fn deeper_options(&self, bytes: u64) -> PartitionerOptions {
        let pieces = (bytes.saturating_mul(TABLE_FACTOR) / self.merge_bytes() as u64).max(2);
        let bits = (pieces.ilog2() + 1).min(self.options.partition_bits);
        partitioner_options(self.memory_limit, &self.space.device().sizes(), bits)
    }

    /// Memory for the reads in flight of one reader of spilled pages.
    pub fn read_window_bytes(&self) -> usize {
        read_window_bytes(self.memory_limit, &self.space.device().sizes())
    }

    /// Updates the metrics of spill traffic from the space's account.
    pub fn report_io(&self) {
        self.metrics.spill.update_from(&self.space);
    }
}

impl Reclaim for AggregateState {
    fn reclaimable_bytes(&self) -> usize {
        self.queue.resident_bytes()
    }

    fn reclaim(&self, bytes: usize) -> usize {
        let mut freed = 0;
        while freed < bytes {
            let Some(mut merge) = self.queue.take_largest() else { break };
            let spilled: Result<usize> = merge
                .partitions
                .iter_mut()
                .filter(|partition| !partition.resident.is_empty())
                .map(|partition| partition.spill(&self.space, self.options.extent_bytes, &self.metrics))
                .sum();
            self.queue.put_back(merge);
            match spilled {
                Ok(bytes) => freed += bytes,
                Err(error) => {
                    log::warn!("an aggregation could not give memory back: {error}");
                    break;
                }
            }
        }
        freed
    }
}
