//! From the inputs of a sort to its stream of results.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::RecordBatch;
use async_stream::try_stream;
use datafusion::common::runtime::{JoinSet, SpawnedTask};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use futures::Stream;

use super::lane::Lane;
use super::merge::Merge;
use super::merger::Outgoing;
use super::passes::reduce_runs;
use super::reading::open;
use super::state::SortState;
use crate::execution::meter::inherited;
use crate::memory::{HeldMemory, has_room};

/// The rows of all inputs in order.
pub fn output(
    state: Arc<SortState>,
    inputs: Vec<SendableRecordBatchStream>,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    try_stream! {
        // Inputs that are read at once leave processors idle that merging alone does not use.
        let copies_at_once = if inputs.len() > 1 { inputs.len() + 1 } else { 0 };
        let lanes = consume(&state, inputs).await?;
        let merge = begin(&state, lanes).await?;
        let mut batches = Batches::new(merge, copies_at_once);
        while let Some(batch) = batches.next(&state).await? {
            state.metrics.baseline.record_output(batch.num_rows());
            yield batch;
        }
        state.report_io();
    }
}

/// Consumes all inputs at once.
async fn consume(state: &Arc<SortState>, inputs: Vec<SendableRecordBatchStream>) -> Result<Vec<Arc<Lane>>> {
    let mut tasks = JoinSet::new();
    let mut lanes = Vec::new();
    for input in inputs {
        let lane = Lane::new(state);
        lanes.push(Arc::clone(&lane));
        tasks.spawn(inherited(async move { lane.consume(input).await }));
    }
    while let Some(done) = tasks.join_next().await {
        done.map_err(|error| DataFusionError::External(Box::new(error)))??;
    }
    if let Some(threshold) = &state.threshold {
        threshold.output_done();
    }
    Ok(lanes)
}

/// The last merge. Until it begins, lanes give memory back; from then on the merge does.
async fn begin(state: &Arc<SortState>, lanes: Vec<Arc<Lane>>) -> Result<Arc<Merge>> {
    let reading = reduce_runs(state).await?;
    let runs = std::mem::take(&mut *state.runs.lock());
    let ahead = reading.memory_ahead(runs.len());
    let mut runs = open(state, runs, &reading).await?;
    let chunks = lanes.iter().flat_map(|lane| lane.finish()).collect();
    // What lanes had to write while runs were opened.
    let late = std::mem::take(&mut *state.runs.lock());
    runs.extend(open(state, late, &reading).await?);
    Ok(Merge::new(state, chunks, runs, ahead).reclaimable())
}

/// The batches of a merge, a few of which are copied by tasks of their own while the merge goes on.
struct Batches {
    merge: Arc<Merge>,
    rows: Outgoing,
    copies: VecDeque<Copying>,
    copies_at_once: usize,
    /// Bytes of the largest batch so far.
    largest_bytes: usize,
}

/// A batch that is being copied, or waits for those before it.
struct Copying {
    task: SpawnedTask<Result<RecordBatch>>,
    memory: HeldMemory,
}

impl Batches {
    fn new(merge: Arc<Merge>, copies_at_once: usize) -> Self {
        let (rows, copies) = (Outgoing::default(), VecDeque::new());
        Self { merge, rows, copies, copies_at_once, largest_bytes: 0 }
    }

    async fn next(&mut self, state: &Arc<SortState>) -> Result<Option<RecordBatch>> {
        // A merge in memory never makes the task wait: others of its thread get their turn here.
        tokio::task::consume_budget().await;
        if self.copies_at_once == 0 {
            let rows = self.merge.next(&mut self.rows).await?;
            let _timer = state.metrics.baseline.elapsed_compute().timer();
            return rows.map(|rows| copied(&rows, state)).transpose();
        }
        while self.copies.len() < self.copies_at_once {
            let Some(memory) = self.memory_of_next(state) else { break };
            let Some(rows) = self.merge.next(&mut self.rows).await? else { break };
            self.largest_bytes = self.largest_bytes.max(rows.bytes());
            if !self.copies.is_empty() {
                memory.resize(rows.bytes());
            }
            let state = Arc::clone(state);
            let task = SpawnedTask::spawn(inherited(async move {
                let _timer = state.metrics.baseline.elapsed_compute().timer();
                copied(&rows, &state)
            }));
            self.copies.push_back(Copying { task, memory });
        }
        let Some(Copying { task, memory }) = self.copies.pop_front() else { return Ok(None) };
        let batch = task.await.map_err(|error| DataFusionError::External(Box::new(error)))??;
        drop(memory);
        Ok(Some(batch))
    }

    /// Memory for another copy, if no operator has to spill for it. The first one goes to the consumer of the output,
    /// which has to have it.
    fn memory_of_next(&self, state: &SortState) -> Option<HeldMemory> {
        let memory = state.another_reservation();
        let bytes = self.largest_bytes;
        let granted =
            self.copies.is_empty() || has_room(state.pool.as_ref(), bytes) && memory.try_grow(bytes);
        granted.then_some(memory)
    }
}

/// The rows as they leave the sort.
fn copied(rows: &Outgoing, state: &SortState) -> Result<RecordBatch> {
    state.spec.volatile.remove(rows.gather(&state.spec.schema)?)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{numbered, sort_by, state, text};
    use super::*;

    /// Reads all batches of an output that copies four at once. How many waited behind the first, and the bytes that were
    /// reserved meanwhile beyond those of the rows.
    fn waiting(limit_bytes: usize, taken_by_others: usize) -> (usize, usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let state = state(sort_by(text(), 100), limit_bytes);
            let chunk = numbered(&state.spec, 1000, 1000);
            let memory = state.another_reservation();
            memory.grow(chunk.bytes());
            let others = state.another_reservation();
            others.grow(taken_by_others);
            let before = state.pool.reserved();
            let mut batches = Batches::new(
                Merge::new(&state, vec![(chunk, memory)], Vec::new(), state.another_reservation())
                    .reclaimable(),
                4,
            );
            let mut rows = batches.next(&state).await.unwrap().unwrap().num_rows();
            let (waiting, reserved) = (batches.copies.len(), state.pool.reserved() - before);
            while let Some(batch) = batches.next(&state).await.unwrap() {
                rows += batch.num_rows();
            }
            assert_eq!((rows, state.pool.reserved()), (1000, taken_by_others));
            (waiting, reserved)
        })
    }

    #[test]
    fn batches_that_wait_are_reserved_or_not_begun() {
        let (batches, bytes) = waiting(64 << 20, 0);
        assert_eq!(batches, 3);
        assert!(bytes >= 3 * 100 * 1000, "{bytes} bytes");
        assert_eq!(waiting(64 << 20, 64 << 20), (0, 0));
    }
}
