//! The rows of a partition file as batches of a size that is worth the per-batch work.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use datafusion::common::Result;
use datafusion::physical_plan::metrics::Time;
use nandina_pages::PageSchema;
use nandina_spill::PartitionReader;

use crate::error::{pages_error, spill_error};

/// More bytes in a batch save no work per batch.
const ENOUGH_BYTES: usize = 256 << 10;

/// Joins small pages to batches.
pub struct BatchReader {
    reader: PartitionReader,
    schema: Arc<PageSchema>,
    batch_rows: usize,
    waiting: Time,
    held: Option<(RecordBatch, usize)>,
}

impl BatchReader {
    /// Batches of up to `batch_rows` rows or enough bytes, unless a page has more; `waiting` counts the time spent on reads.
    pub fn new(reader: PartitionReader, schema: Arc<PageSchema>, batch_rows: usize, waiting: Time) -> Self {
        Self { reader, schema, batch_rows, waiting, held: None }
    }

    /// Submits the reads of the first pages.
    pub fn read_ahead(&mut self) {
        self.reader.read_ahead();
    }

    /// The next batch, or `None` after the last.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let mut batches: Vec<RecordBatch> = Vec::new();
        let (mut rows, mut bytes) = (0, 0);
        loop {
            let batch = match self.held.take() {
                Some(batch) => Some(batch),
                None => {
                    let waiting = self.waiting.timer();
                    let page = self.reader.next().await.map_err(spill_error)?;
                    drop(waiting);
                    let page = page.map(|page| Ok((page.batch(None)?, page.memory_bytes())));
                    page.transpose().map_err(pages_error)?
                }
            };
            let Some((batch, page_bytes)) = batch else { break };
            let is_full = rows + batch.num_rows() > self.batch_rows || bytes + page_bytes > ENOUGH_BYTES;
            if rows > 0 && is_full {
                self.held = Some((batch, page_bytes));
                break;
            }
            rows += batch.num_rows();
            bytes += page_bytes;
            batches.push(batch);
        }
        match batches.len() {
            0 => Ok(None),
            1 => Ok(batches.pop()),
            _ => Ok(Some(concat_batches(self.schema.arrow(), &batches)?)),
        }
    }
}
