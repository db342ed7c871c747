//! Merging the groups of partitions: into one table, or one level deeper if they do not fit into its share of memory.
//!
//! ```text
//!   pages ─► table ─┬─ all fitted ────────────────────────► results
//!                   └─ full ─► partitions by further bits ─► merges of the next level
//! ```
//!
//! A table that is full has seen how many of its rows were of groups it had; as in a lane, where that is few the rest
//! goes to the partitions as it is.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use datafusion::common::Result;
use nandina_spill::{PartitionReader, Scatter, SealedPage};

use super::bounded::{ALL_SETS, BoundedGroups};
use super::groups::Results;
use super::lane::merges;
use super::metrics::AggregateMetrics;
use super::sink::Sink;
use super::state::AggregateState;
use super::stored_partition::StoredPartition;
use super::work_queue::{Merge, Work};
use crate::batch::{array_bytes, data_bytes};
use crate::error::{pages_error, spill_error};
use crate::keys::hashes_of;
use crate::memory::HeldMemory;

/// Bits of the hash that partitions may be made by: partitions by all of them hold one group, or hardly more.
const MOST_BITS: u32 = 48;

/// Rows that are merged at once, as long as they take no more than this share of the table's memory.
const BATCH_ROWS: usize = 32_768;
const BATCH_SHARE: usize = 8;

/// What a merge comes to.
pub enum Merged {
    Results(Results, HeldMemory),
    /// As these pieces, one level deeper.
    Split(Vec<Work>),
}

/// Merges the groups of some partitions.
pub async fn merge(state: &Arc<AggregateState>, merge: Merge, metrics: &AggregateMetrics) -> Result<Merged> {
    let capacity = state.merge_bytes();
    let mut table = BoundedGroups::try_new(state, capacity, capacity, true)?;
    let mut deeper: Option<Arc<Sink>> = None;
    let mut scatter = Scatter::default();
    let bytes = merge.partitions.iter().map(StoredPartition::bytes).sum();
    for partition in merge.partitions {
        let mut pages = StoredPages::open(state, partition);
        while let Some(groups) = pages.next_batch(state).await? {
            if table.is_passing(ALL_SETS)
                && let Some(sink) = &deeper
            {
                sink.push(&groups, &mut scatter).await?;
                table.note_passed(ALL_SETS, hashes_of(&groups));
                continue;
            }
            let timer = metrics.baseline.elapsed_compute().timer();
            table.groups.merge(&groups)?;
            let full = table.note_taken(ALL_SETS, groups.num_rows());
            drop(timer);
            drop(groups);
            state.progress.note();
            if !full {
                continue;
            }
            // A table that was refused memory is smaller than it should be, and so must be the pieces.
            let options =
                if table.was_refused() { state.options.clone() } else { state.deeper_options(bytes) };
            if table.groups.len() == 1 || merge.used_bits + options.partition_bits > MOST_BITS {
                table.lift_bound();
                continue;
            }
            let sink = deeper.get_or_insert_with(|| {
                state.metrics.recursive_partitions.add(1);
                Sink::new(state, options, merge.used_bits)
            });
            table.relieve(sink, &mut scatter).await?;
        }
    }
    if let Some(sink) = deeper {
        table.empty_into(&sink, &mut scatter).await?;
        return Ok(Merged::Split(merges(state, sink.finish().await?, sink.scattered_bits())));
    }
    let _timer = metrics.baseline.elapsed_compute().timer();
    let (groups, memory) = table.into_parts();
    let results = groups.finish()?;
    memory.resize(results.memory_bytes());
    Ok(Merged::Results(results, memory))
}

/// The pages of a partition, which give their memory back one by one.
struct StoredPages {
    resident: VecDeque<SealedPage>,
    reader: Option<PartitionReader>,
    memory: HeldMemory,
    /// Bytes of the pages that were returned last, and of their copy.
    returned_bytes: usize,
}

impl StoredPages {
    fn open(state: &AggregateState, partition: StoredPartition) -> Self {
        let memory = partition.memory;
        let reader = partition.file.map(|file| {
            let window_bytes = state.read_window_bytes();
            memory.grow(window_bytes);
            file.read(Arc::clone(&state.spec.pages), window_bytes)
        });
        Self { resident: partition.resident.into(), reader, memory, returned_bytes: 0 }
    }

    /// The groups of some pages at once: accumulators have work to do for every batch, however small.
    async fn next_batch(&mut self, state: &AggregateState) -> Result<Option<RecordBatch>> {
        self.memory.shrink(std::mem::take(&mut self.returned_bytes));
        let most_bytes = state.merge_bytes() / BATCH_SHARE;
        let (mut pages, mut rows, mut bytes) = (Vec::new(), 0, 0);
        while rows < BATCH_ROWS && bytes < most_bytes {
            let Some(page) = self.next(state).await? else { break };
            rows += page.num_rows();
            bytes += data_bytes(&page) + array_bytes(&page);
            pages.push(page);
        }
        if pages.len() < 2 {
            return Ok(pages.pop());
        }
        self.memory.grow(bytes);
        self.returned_bytes += bytes;
        Ok(Some(concat_batches(state.spec.pages.arrow(), &pages)?))
    }

    async fn next(&mut self, state: &AggregateState) -> Result<Option<RecordBatch>> {
        // Pages in memory never make the task wait: others of its thread get their turn here.
        tokio::task::consume_budget().await;
        if let Some(page) = self.resident.pop_front() {
            let groups = page.open(&state.spec.pages).map_err(spill_error)?;
            self.returned_bytes += page.len_bytes();
            return groups.batch(None).map(Some).map_err(pages_error);
        }
        let Some(reader) = &mut self.reader else { return Ok(None) };
        let waiting = state.metrics.spill.time.timer();
        let page = reader.next().await.map_err(spill_error)?;
        drop(waiting);
        page.map(|page| page.batch(None).map_err(pages_error)).transpose()
    }
}
