//! One input of an exchange.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::BatchCoalescer;
use arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::repartition::BatchPartitioner;
use futures::StreamExt;

use super::queue::Queues;
use crate::batch_bytes::data_bytes;

/// Splits an input until it ends.
pub async fn produce(
    queues: Arc<Queues>,
    mut input: SendableRecordBatchStream,
    partitioner: BatchPartitioner,
    outputs: usize,
    batch_rows: usize,
) {
    let done = Done::new(&queues);
    let mut splitter = Splitter::new(partitioner, &input.schema(), outputs, batch_rows);
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
    pieces: Vec<Piece>,
}

/// Rows for one output that are too few to be handed over.
struct Piece {
    rows: BatchCoalescer,
    bytes: usize,
}

impl Piece {
    fn push(&mut self, batch: RecordBatch) -> Result<()> {
        self.bytes += data_bytes(&batch);
        self.rows.push_batch(batch)?;
        if self.bytes >= SMALL_BYTES {
            self.rows.finish_buffered_batch()?;
        }
        Ok(())
    }

    fn next(&mut self) -> Option<RecordBatch> {
        let batch = self.rows.next_completed_batch()?;
        self.bytes = 0;
        Some(batch)
    }
}

impl Splitter {
    fn new(partitioner: BatchPartitioner, schema: &SchemaRef, outputs: usize, batch_rows: usize) -> Self {
        let piece = || {
            let rows = BatchCoalescer::new(Arc::clone(schema), batch_rows);
            Piece { rows: rows.with_biggest_coalesce_batch_size(Some(batch_rows / 2)), bytes: 0 }
        };
        Self { partitioner, pieces: (0..outputs).map(|_| piece()).collect() }
    }

    /// The batches that are large enough by now.
    fn split(&mut self, batch: RecordBatch) -> Result<Vec<(usize, RecordBatch)>> {
        let Self { partitioner, pieces } = self;
        let mut full = Vec::new();
        partitioner.partition(batch, |output, rows| {
            if let Some(piece) = pieces.get_mut(output) {
                piece.push(rows)?;
                full.extend(std::iter::from_fn(|| piece.next()).map(|batch| (output, batch)));
            }
            Ok(())
        })?;
        Ok(full)
    }

    /// What is left.
    fn finish(&mut self) -> Result<Vec<(usize, RecordBatch)>> {
        let mut left = Vec::new();
        for (output, piece) in self.pieces.iter_mut().enumerate() {
            piece.rows.finish_buffered_batch()?;
            left.extend(std::iter::from_fn(|| piece.next()).map(|batch| (output, batch)));
        }
        Ok(left)
    }
}
