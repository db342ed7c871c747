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
use super::passes::{few_enough, open};
use super::state::SortState;

/// The rows of all inputs in order.
pub fn output(
    state: Arc<SortState>,
    inputs: Vec<SendableRecordBatchStream>,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    try_stream! {
        // Inputs that are read at once leave processors idle that merging alone does not use.
        let copies_at_once = if inputs.len() > 1 { inputs.len() + 1 } else { 0 };
        let lanes = take_in(&state, inputs).await?;
        let merge = begin(&state, lanes).await?;
        let mut batches = Batches { merge, rows: Outgoing::default(), copies: VecDeque::new(), copies_at_once };
        while let Some(batch) = batches.next(&state).await? {
            state.metrics.baseline.record_output(batch.num_rows());
            yield batch;
        }
        state.report_io();
    }
}

/// Takes in all inputs at once.
async fn take_in(state: &Arc<SortState>, inputs: Vec<SendableRecordBatchStream>) -> Result<Vec<Arc<Lane>>> {
    let mut tasks = JoinSet::new();
    let mut lanes = Vec::new();
    for input in inputs {
        let lane = Lane::new(state);
        lanes.push(Arc::clone(&lane));
        tasks.spawn(async move { lane.take_in(input).await });
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
    let reading = few_enough(state).await?;
    let runs = std::mem::take(&mut *state.runs.lock());
    let mut runs = open(state, runs, &reading).await?;
    let chunks = lanes.iter().flat_map(|lane| lane.finish()).collect();
    // What lanes had to write while runs were opened.
    let late = std::mem::take(&mut *state.runs.lock());
    runs.extend(open(state, late, &reading).await?);
    Ok(Merge::new(state, chunks, runs).reclaimable())
}

/// The batches of a merge, a few of which are copied by tasks of their own while the merge goes on.
struct Batches {
    merge: Arc<Merge>,
    rows: Outgoing,
    copies: VecDeque<SpawnedTask<Result<RecordBatch>>>,
    copies_at_once: usize,
}

impl Batches {
    async fn next(&mut self, state: &Arc<SortState>) -> Result<Option<RecordBatch>> {
        // A merge in memory never makes the task wait: others of its thread get their turn here.
        tokio::task::consume_budget().await;
        if self.copies_at_once == 0 {
            let rows = self.merge.next(&mut self.rows).await?;
            let _timer = state.metrics.baseline.elapsed_compute().timer();
            return rows.map(|rows| rows.gather(&state.spec.schema)).transpose();
        }
        while self.copies.len() < self.copies_at_once {
            let Some(rows) = self.merge.next(&mut self.rows).await? else { break };
            let state = Arc::clone(state);
            self.copies.push_back(SpawnedTask::spawn(async move {
                let _timer = state.metrics.baseline.elapsed_compute().timer();
                rows.gather(&state.spec.schema)
            }));
        }
        let Some(copy) = self.copies.pop_front() else { return Ok(None) };
        copy.await.map_err(|error| DataFusionError::External(Box::new(error)))?.map(Some)
    }
}
