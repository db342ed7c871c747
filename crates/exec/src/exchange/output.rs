//! One output: the rows of its queue, wherever they wait.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::metrics::BaselineMetrics;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::queue::{Found, Queues};
use crate::memory::ReclaimHandle;
use crate::spill::SpillReader;

/// What the outputs of an execution share. Inputs end with the last of them.
pub struct Running {
    queues: Arc<Queues>,
    begin: Begin,
    _reclaim: Option<ReclaimHandle>,
    _producers: JoinSet<()>,
}

/// Inputs begin with the first output that is read, not with those that are only there: what a join needs to have read
/// before its probe side may tell the scans of that what they need not read.
#[derive(Clone)]
pub struct Begin(Arc<watch::Sender<bool>>);

impl Begin {
    /// No rows have been asked for yet.
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    fn now(&self) {
        self.0.send_if_modified(|begun| !std::mem::replace(begun, true));
    }

    /// Waits until a consumer asks for rows.
    pub async fn wait(self) {
        let mut begun = self.0.subscribe();
        let waited = begun.wait_for(|begun| *begun).await;
        assert!(waited.is_ok(), "a waiting output holds a sender");
    }
}

impl Running {
    /// Of queues that `producers` fill, which may wait for `begin`.
    pub fn new(queues: Arc<Queues>, producers: JoinSet<()>, begin: Begin) -> Arc<Self> {
        let reclaim = queues.register();
        Arc::new(Self { queues, begin, _reclaim: reclaim, _producers: producers })
    }
}

/// One output of an execution.
pub struct Output {
    running: Arc<Running>,
    number: usize,
    reading: Option<SpillReader>,
    metrics: BaselineMetrics,
}

impl Output {
    /// The one that reads the queue `number`.
    pub fn new(running: Arc<Running>, number: usize, metrics: BaselineMetrics) -> Self {
        Self { running, number, reading: None, metrics }
    }

    /// Its rows.
    pub fn stream(mut self, schema: SchemaRef) -> SendableRecordBatchStream {
        let stream = async_stream::try_stream! {
            self.running.begin.now();
            while let Some(batch) = self.next().await? {
                self.metrics.record_output(batch.num_rows());
                yield batch;
            }
        };
        Box::pin(RecordBatchStreamAdapter::new(schema, stream))
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(reading) = &mut self.reading {
                if let Some(batch) = reading.next().await? {
                    return Ok(Some(batch));
                }
                self.reading = None;
            }
            match self.running.queues.take(self.number)? {
                Found::Batch(batch) => return Ok(Some(batch)),
                Found::Spilled(writer) => self.reading = writer.finish_one().await?.map(|file| file.read()),
                Found::Nothing => self.running.queues.arrived(self.number).await,
                Found::End => return Ok(None),
            }
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.running.queues.close(self.number);
    }
}
