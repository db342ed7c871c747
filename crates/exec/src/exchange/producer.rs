//! One input of an exchange.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::repartition::BatchPartitioner;
use futures::StreamExt;

use super::queue::Queues;
use crate::batch::{array_bytes, compact, data_bytes};

/// Splits an input until it ends.
pub async fn produce(
    queues: Arc<Queues>,
    mut input: SendableRecordBatchStream,
    partitioner: BatchPartitioner,
    outputs: usize,
    batch_rows: usize,
) {
    let done = Done::new(&queues);
    let mut splitter = Splitter::new(partitioner, outputs, batch_rows);
    let outcome = split_all(&queues, &mut input, &mut splitter).await;
    // The input gives back what it holds before the outputs learn that it has ended.
    drop(input);
    done.with(outcome);
}

async fn split_all(
    queues: &Queues,
    input: &mut SendableRecordBatchStream,
    splitter: &mut Splitter,
) -> Result<()> {
    while let Some(batch) = input.next().await {
        for (output, rows) in splitter.split(batch?)? {
            queues.push(output, rows).await?;
        }
        queues.wanted().await;
    }
    for (output, rows) in splitter.finish()? {
        queues.push(output, rows).await?;
    }
    Ok(())
}

/// Tells the outputs that an input has ended, also when it panics.
pub struct Done(Option<Arc<Queues>>);

impl Done {
    /// Of an input that fills `queues`.
    pub fn new(queues: &Arc<Queues>) -> Self {
        Self(Some(Arc::clone(queues)))
    }

    /// The input has ended so.
    pub fn with(mut self, outcome: Result<()>) {
        if let Some(queues) = self.0.take() {
            queues.producer_done(outcome);
        }
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        if let Some(queues) = self.0.take() {
            queues.producer_done(Err(DataFusionError::Execution(
                "an input of an exchange or a spool ended in a panic".to_owned(),
            )));
        }
    }
}

/// Rows for one output of fewer bytes than this are put together with others.
const SMALL_BYTES: usize = 256 << 10;

/// Splits batches, and puts small pieces for the same output together.
struct Splitter {
    partitioner: BatchPartitioner,
    pieces: Vec<Pieces>,
    /// Rows of a batch at most.
    batch_rows: usize,
}

/// Rows for one output that are too few to be handed over.
#[derive(Default)]
struct Pieces {
    batches: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
}

impl Pieces {
    fn push(&mut self, batch: RecordBatch) {
        self.rows += batch.num_rows();
        self.bytes += piece_bytes(&batch);
        self.batches.push(batch);
    }

    /// All of them as one batch; `None` if there are none.
    fn take(&mut self) -> Result<Option<RecordBatch>> {
        let Self { mut batches, .. } = std::mem::take(self);
        Ok(match batches.first().map(RecordBatch::schema) {
            Some(schema) if batches.len() > 1 => Some(concat_batches(&schema, &batches)?),
            _ => batches.pop(),
        })
    }
}

fn piece_bytes(batch: &RecordBatch) -> usize {
    data_bytes(batch) + array_bytes(batch)
}

impl Splitter {
    fn new(partitioner: BatchPartitioner, outputs: usize, batch_rows: usize) -> Self {
        Self { partitioner, pieces: (0..outputs).map(|_| Pieces::default()).collect(), batch_rows }
    }

    /// The batches that are large enough by now.
    fn split(&mut self, batch: RecordBatch) -> Result<Vec<(usize, RecordBatch)>> {
        let Self { partitioner, pieces, batch_rows } = self;
        let mut full = Vec::new();
        partitioner.partition(batch, |output, rows| {
            let Some(waiting) = pieces.get_mut(output) else {
                unreachable!("rows are for one of the outputs, not for output {output}");
            };
            if waiting.rows + rows.num_rows() > *batch_rows {
                full.extend(waiting.take()?.map(|batch| (output, batch)));
            }
            let is_enough = rows.num_rows() > *batch_rows / 2;
            if is_enough || waiting.bytes + piece_bytes(&rows) >= SMALL_BYTES {
                waiting.push(rows);
                full.extend(waiting.take()?.map(|batch| (output, batch)));
            } else {
                // Waiting pieces do not hold on to the batch they were cut from.
                waiting.push(compact(rows)?.0);
            }
            Ok(())
        })?;
        Ok(full)
    }

    /// The rest.
    fn finish(&mut self) -> Result<Vec<(usize, RecordBatch)>> {
        let pieces = self.pieces.iter_mut().enumerate();
        let left = pieces.map(|(output, pieces)| Ok(pieces.take()?.map(|batch| (output, batch))));
        left.filter_map(Result::transpose).collect()
    }
}
