//! One output partition: emits results, and merges partitions, as long as there are any.

use std::sync::Arc;

use arrow::array::RecordBatch;
use async_stream::try_stream;
use datafusion::common::{DataFusionError, Result};
use futures::Stream;
use futures::future::{BoxFuture, Shared};

use super::merge::{Merged, merge};
use super::metrics::AggregateMetrics;
use super::state::AggregateState;
use super::work_queue::Work;

/// Completion of the input, which every output awaits and any of them drives.
pub type InputTaken = Shared<BoxFuture<'static, std::result::Result<(), Arc<DataFusionError>>>>;

/// The stream of one output partition.
pub fn output(
    state: Arc<AggregateState>,
    input_taken: InputTaken,
    metrics: AggregateMetrics,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    try_stream! {
        input_taken.await.map_err(DataFusionError::Shared)?;
        while let Some((work, busy)) = state.queue.take(&state.progress).await {
            let merged = match work {
                Work::Results(results, memory) => Merged::Results(results, memory),
                Work::Merge(partitions) => merge(&state, partitions, &metrics).await?,
            };
            match merged {
                Merged::Split(work) => {
                    state.queue.add(work);
                    drop(busy);
                }
                Merged::Results(mut results, _memory) => {
                    drop(busy);
                    loop {
                        let timer = metrics.baseline.elapsed_compute().timer();
                        let Some(batch) = results.next()? else { break };
                        drop(timer);
                        metrics.baseline.record_output(batch.num_rows());
                        state.progress.note();
                        yield batch;
                    }
                }
            }
            state.report_io();
        }
    }
}
