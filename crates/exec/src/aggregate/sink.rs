//! Partitions that take in stored groups, within a reservation, and give memory back.
//!
//! ```text
//!   lanes ─► push ─► Partitioner: pages in memory ──finish──► StoredPartitions, each with its own reservation
//!                        │    ▲
//!               largest first: reclaim, or a reservation that is refused
//!                        ▼
//!                     the device
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use datafusion::common::Result;
use nandina_spill::{PartitionFile, Partitioner, PartitionerOptions, Scatter, SealedPage};
use parking_lot::Mutex;

use super::spec::hashes_of;
use super::state::AggregateState;
use crate::batch_bytes::data_bytes;
use crate::error::spill_error;
use crate::held_memory::HeldMemory;
use crate::join::DestagePolicy;
use crate::memory::{MemoryGovernor, Reclaim, ReclaimHandle, portion_rows};
use crate::push_room::{Busy, make_room};

/// The partitions of one level.
pub struct Sink {
    state: Arc<AggregateState>,
    partitioner: Partitioner,
    /// Bits of the hash, from the top, by which the rows that come here have been scattered before.
    used_bits: u32,
    memory: HeldMemory,
    rows: AtomicU64,
    /// Locked while the reservation is made what is really held; true once the partitions have been handed over.
    handed_over: Mutex<bool>,
    reclaim: Mutex<Option<ReclaimHandle>>,
}

/// What one task needs to push, kept from batch to batch.
#[derive(Default)]
pub struct PushScratch {
    hashes: Vec<u64>,
    scatter: Scatter,
}

/// A complete partition: in memory, on the device, or both.
pub struct StoredPartition {
    pub resident: Vec<SealedPage>,
    pub file: Option<Arc<PartitionFile>>,
    pub rows: u64,
    /// For the resident pages.
    pub memory: HeldMemory,
}

impl Sink {
    /// Empty partitions of groups that have been scattered by `used_bits` of their hashes.
    pub fn new(state: &Arc<AggregateState>, options: PartitionerOptions, used_bits: u32) -> Arc<Self> {
        let (pages, space) = (Arc::clone(&state.spec.pages), Arc::clone(&state.space));
        let sink = Arc::new(Self {
            partitioner: Partitioner::new(pages, options, space),
            state: Arc::clone(state),
            used_bits,
            memory: state.another_reservation(),
            rows: AtomicU64::new(0),
            handed_over: Mutex::new(false),
            reclaim: Mutex::new(None),
        });
        let weak: std::sync::Weak<dyn Reclaim> = Arc::downgrade(&(Arc::clone(&sink) as Arc<dyn Reclaim>));
        *sink.reclaim.lock() = MemoryGovernor::register_reclaimer(&state.pool, weak);
        sink
    }

    /// Whether nothing has been pushed.
    pub fn is_empty(&self) -> bool {
        self.rows.load(Ordering::Relaxed) == 0
    }

    /// Bits of the hash by which groups have been scattered when they are here.
    pub fn scattered_bits(&self) -> u32 {
        self.used_bits + self.partitioner.options().partition_bits
    }

    /// Adds stored groups to their partitions, spilling for room if need be.
    pub async fn push(&self, groups: &RecordBatch, scratch: &mut PushScratch) -> Result<()> {
        let rows = groups.num_rows();
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        self.state.metrics.partitioned_groups.add(rows);
        let portion_rows = portion_rows(groups, self.state.memory_limit);
        for first in (0..rows).step_by(portion_rows) {
            let portion = groups.slice(first, portion_rows.min(rows - first));
            scratch.hashes.clear();
            scratch.hashes.extend(hashes_of(&portion).iter().map(|hash| hash << self.used_bits));
            scratch.scatter.by_hash(&scratch.hashes, self.partitioner.options().partition_bits);
            self.push_portion(&portion, &scratch.scatter).await?;
        }
        Ok(())
    }

    async fn push_portion(&self, groups: &RecordBatch, scatter: &Scatter) -> Result<()> {
        // A quarter more for vectors that grow by doubling.
        let estimate = data_bytes(groups) * 5 / 4;
        let room = self.make_room(estimate).await?;
        let timer = self.state.metrics.baseline.elapsed_compute().timer();
        let pushed = self.partitioner.push(groups, scatter).map_err(spill_error);
        drop(timer);
        drop(room);
        self.settle();
        self.state.progress.note();
        pushed?;
        let _waiting = self.state.metrics.spill.time.timer();
        self.partitioner.throttle().await.map_err(spill_error)
    }

    /// Reserves `estimate` bytes for the next push, spilling if need be.
    async fn make_room(&self, estimate: usize) -> Result<HeldMemory> {
        let room = self.memory.another();
        let spill = |busy| self.spill_largest(1, busy);
        let waiting = &self.state.metrics.spill.time;
        if !make_room(&self.partitioner, || room.try_grow(estimate), spill, || self.settle(), waiting).await?
        {
            room.grow(estimate);
        }
        Ok(room)
    }

    /// Starts spilling the largest resident partitions, until `wanted` bytes will be free when they are written;
    /// how many those are.
    fn spill_largest(&self, wanted: usize, busy: Busy) -> nandina_spill::Result<usize> {
        let partitions = 0..self.partitioner.options().partitions();
        let sizes = partitions.map(|partition| self.partitioner.resident_bytes(partition));
        let mut freed = 0;
        for partition in DestagePolicy::Largest.order(sizes) {
            if freed >= wanted {
                break;
            }
            let bytes = busy.spill(&self.partitioner, partition)?;
            if bytes > 0 {
                self.state.metrics.spilled_partitions.add(1);
                freed += bytes;
            }
        }
        Ok(freed)
    }

    /// Makes the reservation what is really held, beside what pushes in progress have reserved.
    fn settle(&self) {
        let handed_over = self.handed_over.lock();
        if !*handed_over {
            self.memory.resize(self.partitioner.memory_bytes());
        }
    }

    /// Ends the input and hands the partitions over.
    pub async fn finish(&self) -> Result<Vec<StoredPartition>> {
        self.reclaim.lock().take();
        // A reclaim that has begun must not take what the partitions hold for free.
        *self.handed_over.lock() = true;
        let finished = self.partitioner.finish().map_err(spill_error)?;
        let waiting = self.state.metrics.spill.time.timer();
        self.partitioner.drain_to(0).await.map_err(spill_error)?;
        drop(waiting);
        let bytes_of = |pages: &[SealedPage]| pages.iter().map(SealedPage::len_bytes).sum::<usize>();
        self.memory.resize(finished.iter().map(|partition| bytes_of(&partition.resident)).sum());
        let stored = finished.into_iter().filter(|partition| partition.rows > 0).map(|partition| {
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
        let partitions = 0..self.partitioner.options().partitions();
        partitions.map(|partition| self.partitioner.resident_bytes(partition)).sum()
    }

    fn reclaim(&self, bytes: usize) -> usize {
        // What was spilled, not by how much the reservation shrank: others may push rows meanwhile.
        let spilled = self
            .spill_largest(bytes, Busy::Skipped)
            .and_then(|freed| self.partitioner.drain_to_blocking(0).map(|()| freed));
        self.settle();
        spilled.unwrap_or_else(|error| {
            log::warn!("an aggregation could not give memory back: {error}");
            0
        })
    }
}

impl StoredPartition {
    /// Bytes of all pages.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes() as u64 + self.file.as_ref().map_or(0, |file| file.bytes())
    }

    /// Writes the resident pages to the device, blocking the thread.
    pub fn spill(&mut self, state: &AggregateState) -> Result<usize> {
        let mut file = PartitionFile::new(Arc::clone(&state.space), state.options.extent_bytes);
        file.write_blocking(self.resident.clone()).map_err(spill_error)?;
        self.file = Some(Arc::new(file));
        self.resident.clear();
        state.metrics.spilled_partitions.add(1);
        let freed = self.memory.bytes();
        self.memory.shrink(freed);
        Ok(freed)
    }
}
