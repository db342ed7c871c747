//! Consuming the input: one table per input partition, which is emptied into the shared partitions when it is full.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::runtime::JoinSet;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use nandina_spill::Scatter;

use super::bounded::{ALL_SETS, BoundedGroups};
use super::metrics::AggregateMetrics;
use super::sink::Sink;
use super::state::AggregateState;
use super::stored_partition::StoredPartition;
use super::work_queue::{Merge, Work};
use crate::execution::meter::inherited;

/// Fewer groups than this are merged by one task, without going through partitions.
const FEW_GROUPS: usize = 8192;
/// Partitions of together fewer rows than this are merged in one table, if they take only a part of its share of memory.
const FEW_ROWS: u64 = 16_384;
const MERGED_SHARE: u64 = 4;

/// Consumes all input partitions at once, and queues the work that remains.
pub async fn take_input(
    state: Arc<AggregateState>,
    inputs: Vec<(SendableRecordBatchStream, AggregateMetrics)>,
) -> Result<()> {
    let sink = Sink::new(&state, state.options.clone(), 0);
    let mut tasks = JoinSet::new();
    for (input, metrics) in inputs {
        tasks.spawn(inherited(take_lane(Arc::clone(&state), Arc::clone(&sink), input, metrics)));
    }
    let mut tables = Vec::new();
    while let Some(done) = tasks.join_next().await {
        tables.push(done.map_err(|error| DataFusionError::External(Box::new(error)))??);
    }
    let work = finish_input(&state, &sink, tables).await?;
    state.queue.add(work);
    state.report_io();
    Ok(())
}

/// Consumes one input partition, and returns its table.
async fn take_lane(
    state: Arc<AggregateState>,
    sink: Arc<Sink>,
    mut input: SendableRecordBatchStream,
    metrics: AggregateMetrics,
) -> Result<BoundedGroups> {
    let (capacity, most) = state.lane_bytes();
    let mut table = BoundedGroups::try_new(&state, capacity, most, state.spec.converts_rows)?;
    let mut scatter = Scatter::default();
    let enough = state.spec.limit.unwrap_or(usize::MAX);
    while table.groups.len() < enough
        && let Some(batch) = input.next().await
    {
        take_batch(&state, &sink, batch?, &mut table, &mut scatter, &metrics).await?;
        state.progress.note();
    }
    drop(input);
    let alone = state.lanes == 1 && sink.is_empty();
    if !alone && (table.groups.len() > FEW_GROUPS || !sink.is_empty()) {
        table.empty_into(&sink, &mut scatter).await?;
    }
    Ok(table)
}

/// Consumes one batch: into the table, or past it where aggregating rows first gains nothing.
async fn take_batch(
    state: &AggregateState,
    sink: &Sink,
    batch: RecordBatch,
    table: &mut BoundedGroups,
    scatter: &mut Scatter,
    metrics: &AggregateMetrics,
) -> Result<()> {
    let timer = metrics.baseline.elapsed_compute().timer();
    metrics.input_rows.add(batch.num_rows());
    if batch.num_rows() == 0 {
        return Ok(());
    }
    let rows = state.spec.evaluate(&batch)?;
    drop(batch);
    drop(timer);
    for (set, keyed) in rows.sets.iter().enumerate() {
        let timer = metrics.baseline.elapsed_compute().timer();
        if table.is_passing(set) {
            let stored = table.groups.convert(keyed, &rows)?;
            drop(timer);
            metrics.passed_rows.add(rows.rows);
            sink.push(&stored, scatter).await?;
            table.note_passed(set, &keyed.hashes);
            continue;
        }
        table.groups.update(keyed, &rows.arguments)?;
        let full = table.note_taken(set, rows.rows);
        drop(timer);
        if full {
            table.relieve(sink, scatter).await?;
        }
    }
    Ok(())
}

/// The work that remains, given the lanes' tables.
async fn finish_input(
    state: &Arc<AggregateState>,
    sink: &Arc<Sink>,
    mut tables: Vec<BoundedGroups>,
) -> Result<Vec<Work>> {
    if !sink.is_empty() {
        let mut scatter = Scatter::default();
        for table in &mut tables {
            table.empty_into(sink, &mut scatter).await?;
        }
        return Ok(merges(state, sink.finish().await?, sink.scattered_bits()));
    }
    let groups: usize = tables.iter().map(|table| table.groups.len()).sum();
    let table = match tables.pop() {
        Some(only) if tables.is_empty() && groups > 0 => only,
        last => {
            let mut merged = BoundedGroups::try_new(state, usize::MAX, usize::MAX, false)?;
            for table in tables.iter_mut().chain(&mut last.into_iter().collect::<Vec<_>>()) {
                let stored = table.take_stored()?;
                merged.groups.merge(&stored)?;
                merged.note_taken(ALL_SETS, stored.num_rows());
            }
            if groups == 0
                && let Some(rows) = state.spec.empty_sets()?
            {
                for keyed in &rows.sets {
                    merged.groups.update(keyed, &rows.arguments)?;
                }
            }
            merged
        }
    };
    let (groups, memory) = table.into_parts();
    let results = groups.finish()?;
    memory.resize(results.memory_bytes());
    Ok(vec![Work::Results(results, memory)])
}

/// Partitions as work: resident ones first, small ones together.
pub fn merges(state: &AggregateState, mut partitions: Vec<StoredPartition>, used_bits: u32) -> Vec<Work> {
    partitions.sort_by_key(|partition| partition.file.is_some());
    let most_bytes = state.merge_bytes() as u64 / MERGED_SHARE;
    let mut work: Vec<Merge> = Vec::new();
    let (mut rows, mut bytes) = (0, 0);
    for partition in partitions {
        rows += partition.rows;
        bytes += partition.bytes();
        match work.last_mut().filter(|_| rows < FEW_ROWS && bytes < most_bytes) {
            Some(merge) => merge.partitions.push(partition),
            None => {
                (rows, bytes) = (partition.rows, partition.bytes());
                work.push(Merge { partitions: vec![partition], used_bits });
            }
        }
    }
    work.into_iter().map(Work::Merge).collect()
}
