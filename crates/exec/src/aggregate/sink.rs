//! Partitions that collect stored groups, within a reservation, and give memory back.
//!
//! ```text
//!   lanes ─► push ─► ResidentPartitions ──finish──► StoredPartitions, each with its own reservation
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use datafusion::common::Result;
use nandina_spill::{Partitioner, PartitionerOptions, Scatter, SealedPage};
use parking_lot::Mutex;

use super::state::AggregateState;
use super::stored_partition::StoredPartition;
use crate::keys::hashes_of;
use crate::memory::{HeldMemory, MemoryGovernor, Reclaim, ReclaimHandle};
use crate::spill::{Destination, PartitionsMetrics, ResidentPartitions};

/// The partitions of one level.
pub struct Sink {
    state: Arc<AggregateState>,
    partitions: ResidentPartitions,
    /// Bits of the hash, from the top, by which the rows that come here have been scattered before.
    used_bits: u32,
    memory: Arc<HeldMemory>,
    rows: AtomicU64,
    reclaim: Mutex<Option<ReclaimHandle>>,
}

impl Sink {
    /// Empty partitions of groups that have been scattered by `used_bits` of their hashes.
    pub fn new(state: &Arc<AggregateState>, options: PartitionerOptions, used_bits: u32) -> Arc<Self> {
        let (pages, space) = (Arc::clone(&state.spec.pages), Arc::clone(&state.space));
        let memory = Arc::new(state.another_reservation());
        let metrics = PartitionsMetrics {
            spill: state.metrics.spill.clone(),
            spilled_partitions: state.metrics.spilled_partitions.clone(),
            push_time: state.metrics.baseline.elapsed_compute().clone(),
        };
        let partitioner = Partitioner::new(pages, options, space);
        let sink = Arc::new(Self {
            partitions: ResidentPartitions::new(
                partitioner,
                Arc::clone(&memory),
                state.memory_limit,
                metrics,
            ),
            state: Arc::clone(state),
            used_bits,
            memory,
            rows: AtomicU64::new(0),
            reclaim: Mutex::new(None),
        });
        *sink.reclaim.lock() = MemoryGovernor::register_reclaimer(&state.pool, Arc::<Self>::downgrade(&sink));
        sink
    }

    /// Whether nothing has been pushed.
    pub fn is_empty(&self) -> bool {
        self.rows.load(Ordering::Relaxed) == 0
    }

    /// Bits of the hash by which groups have been scattered when they are here.
    pub fn scattered_bits(&self) -> u32 {
        self.used_bits + self.partitions.partition_bits()
    }

    /// Adds stored groups to their partitions, spilling for room if need be. `scatter` is what a task keeps from push to push.
    pub async fn push(&self, groups: &RecordBatch, scatter: &mut Scatter) -> Result<()> {
        let rows = groups.num_rows();
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        self.state.metrics.partitioned_groups.add(rows);
        let destination = Destination::ByHash { hashes: hashes_of(groups), used_bits: self.used_bits };
        self.partitions.push(groups, destination, scatter, || self.state.progress.note()).await
    }

    /// Ends the input and hands the partitions over.
    pub async fn finish(&self) -> Result<Vec<StoredPartition>> {
        self.reclaim.lock().take();
        let finished = self.partitions.finish().await?;
        let bytes_of = |pages: &[SealedPage]| pages.iter().map(SealedPage::len_bytes).sum::<usize>();
        self.memory.resize(finished.iter().map(|partition| bytes_of(&partition.resident)).sum());
        let stored = finished.into_iter().filter(|partition| partition.rows > 0).map(|partition| {
            let spilled_rows = partition.file.as_ref().map_or(0, |file| file.rows());
            self.state.metrics.spill.spilled_rows.add(spilled_rows as usize);
            let memory = self.memory.split(bytes_of(&partition.resident));
            StoredPartition {
                resident: partition.resident,
                file: partition.file,
                rows: partition.rows,
                memory,
            }
        });
        Ok(stored.collect())
    }
}

impl Reclaim for Sink {
    fn reclaimable_bytes(&self) -> usize {
        self.partitions.reclaimable_bytes()
    }

    fn reclaim(&self, bytes: usize) -> usize {
        self.partitions.reclaim(bytes).unwrap_or_else(|error| {
            log::warn!("an aggregation could not give memory back: {error}");
            0
        })
    }
}
