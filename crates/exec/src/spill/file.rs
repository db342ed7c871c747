//! Rows in temporary space, and reading them back.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use nandina_spill::PartitionFile;

use super::batch_reader::BatchReader;
use super::context::SpillContext;

/// Rows in temporary space, at least one. They take no memory, and are gone with the last clone.
#[derive(Clone, Debug)]
pub(crate) struct SpillFile {
    context: Arc<SpillContext>,
    file: Arc<PartitionFile>,
}

/// The rows of a spill file, in the order in which they were pushed.
pub(crate) struct SpillReader {
    context: Arc<SpillContext>,
    batches: BatchReader,
    /// The memory of reads in flight.
    _window: MemoryReservation,
}

impl SpillFile {
    pub(super) fn new(context: &Arc<SpillContext>, file: Arc<PartitionFile>) -> Self {
        Self { context: Arc::clone(context), file }
    }

    /// Number of rows.
    pub(crate) fn row_count(&self) -> usize {
        self.file.rows() as usize
    }

    /// The rows, from the first on.
    pub(crate) fn read(&self) -> SpillReader {
        self.read_within(self.context.reserve(self.context.read_window_bytes()))
    }

    /// The same for a caller that has reserved [`SpillContext::read_window_bytes`] itself.
    pub(crate) fn read_reserved(&self) -> SpillReader {
        self.read_within(self.context.reserve(0))
    }

    fn read_within(&self, window: MemoryReservation) -> SpillReader {
        let context = &self.context;
        let window_bytes = context.read_window_bytes();
        let reader = self.file.read(Arc::clone(&context.pages), window_bytes);
        let (pages, waiting) = (Arc::clone(&context.pages), context.metrics.time.clone());
        let mut batches = BatchReader::new(reader, pages, context.batch_rows, waiting);
        batches.read_ahead();
        SpillReader { context: Arc::clone(context), batches, _window: window }
    }
}

impl SpillReader {
    /// The next rows; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let batch = self.batches.next().await?;
        if batch.is_none() {
            self.context.report_io();
        }
        Ok(batch)
    }
}
