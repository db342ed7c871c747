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
use crate::row_width::leaf_columns;

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

/// Rows of more columns are handed over as they come: what puts them together takes 8 KB and more of every column.
const WIDE_COLUMNS: usize = 64;

/// Splits batches, and puts small pieces for the same output together.
struct Splitter {
    partitioner: BatchPartitioner,
    pieces: Vec<Piece>,
    /// Rows of a batch at most.
    batch_rows: usize,
    is_wide: bool,
}

/// Rows for one output that are too few to be handed over.
#[derive(Default)]
struct Piece {
    rows: Option<BatchCoalescer>,
    bytes: usize,
}

impl Piece {
    /// Adds rows of so many bytes to those that wait.
    fn push(&mut self, batch: RecordBatch, bytes: usize, batch_rows: usize) -> Result<()> {
        let rows = self.rows.get_or_insert_with(|| {
            // It has room for all its rows from the start: for no more than will be.
            let row_bytes = bytes / batch.num_rows().max(1) + 1;
            let most_rows = (2 * SMALL_BYTES / row_bytes).clamp(1, batch_rows);
            BatchCoalescer::new(batch.schema(), most_rows)
        });
        self.bytes += bytes;
        rows.push_batch(batch)?;
        if self.bytes >= SMALL_BYTES {
            rows.finish_buffered_batch()?;
        }
        Ok(())
    }

    fn next(&mut self) -> Option<RecordBatch> {
        let batch = self.rows.as_mut()?.next_completed_batch()?;
        self.bytes = 0;
        Some(batch)
    }
}

impl Splitter {
    fn new(partitioner: BatchPartitioner, schema: &SchemaRef, outputs: usize, batch_rows: usize) -> Self {
        let pieces = (0..outputs).map(|_| Piece::default()).collect();
        Self { partitioner, pieces, batch_rows, is_wide: leaf_columns(schema) > WIDE_COLUMNS }
    }

    /// The batches that are large enough by now.
    fn split(&mut self, batch: RecordBatch) -> Result<Vec<(usize, RecordBatch)>> {
        let Self { partitioner, pieces, batch_rows, is_wide } = self;
        let mut full = Vec::new();
        partitioner.partition(batch, |output, rows| {
            let Some(piece) = pieces.get_mut(output) else { return Ok(()) };
            let bytes = data_bytes(&rows);
            let is_enough = rows.num_rows() > *batch_rows / 2 || bytes > SMALL_BYTES / 2;
            if *is_wide || (is_enough && piece.bytes == 0) {
                full.push((output, rows));
                return Ok(());
            }
            piece.push(rows, bytes, *batch_rows)?;
            full.extend(std::iter::from_fn(|| piece.next()).map(|batch| (output, batch)));
            Ok(())
        })?;
        Ok(full)
    }

    /// What is left.
    fn finish(&mut self) -> Result<Vec<(usize, RecordBatch)>> {
        let mut left = Vec::new();
        for (output, piece) in self.pieces.iter_mut().enumerate() {
            if let Some(rows) = &mut piece.rows {
                rows.finish_buffered_batch()?;
            }
            left.extend(std::iter::from_fn(|| piece.next()).map(|batch| (output, batch)));
        }
        Ok(left)
    }
}
