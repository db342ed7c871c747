//! Output streams of a plan, read and dropped as consumers do.

use std::future::Future;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::StreamExt;
use tokio::task::JoinHandle;

use super::Engine;

/// Starts all output partitions of `plan`.
pub fn streams(engine: &Engine, plan: &Arc<dyn ExecutionPlan>) -> Vec<SendableRecordBatchStream> {
    let partitions = plan.output_partitioning().partition_count();
    (0..partitions).map(|partition| plan.execute(partition, engine.task()).expect("a stream")).collect()
}

/// Reads every stream to its end, all at once.
pub async fn read_all(streams: Vec<SendableRecordBatchStream>) -> Vec<Result<Vec<RecordBatch>>> {
    let read = |mut stream: SendableRecordBatchStream| async move {
        let mut batches = Vec::new();
        while let Some(batch) = stream.next().await {
            batches.push(batch?);
        }
        Ok(batches)
    };
    let readers: Vec<JoinHandle<Result<Vec<RecordBatch>>>> =
        streams.into_iter().map(|stream| tokio::spawn(read(stream))).collect();
    let mut outcomes = Vec::new();
    for reader in readers {
        outcomes.push(reader.await.expect("a reader"));
    }
    outcomes
}

/// The messages of the streams that failed.
pub fn errors(outcomes: &[Result<Vec<RecordBatch>>]) -> Vec<String> {
    outcomes.iter().filter_map(|outcome| outcome.as_ref().err().map(ToString::to_string)).collect()
}

/// Reads in the background until told to stop, then drops the streams.
pub async fn cancel_when(streams: Vec<SendableRecordBatchStream>, moment: impl Future<Output = ()>) {
    let readers: Vec<JoinHandle<()>> = streams
        .into_iter()
        .map(|mut stream| tokio::spawn(async move { while stream.next().await.is_some() {} }))
        .collect();
    moment.await;
    for reader in readers {
        reader.abort();
        let _cancelled = reader.await;
    }
}
