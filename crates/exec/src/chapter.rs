//! Rows in temporary space that come back in the order in which they went. A chapter is written until its reader has
//! nothing else left; then it is read, and rows that come meanwhile begin the next one. One that gets no more rows, but
//! is not read yet, is closed: it takes no memory.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::memory_pool::{MemoryPool, MemoryReservation};
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder, Time};
use futures::executor::block_on;
use nandina_pages::PageSchema;
use nandina_spill::{Partition, PartitionFile, Partitioner, PartitionerOptions, QuerySpace, Scatter};

use crate::batch_reader::BatchReader;
use crate::error::spill_error;
use crate::memory::{partitioner_options, pool_limit, portion_rows, read_window_bytes};
use crate::spill_metrics::SpillMetrics;

/// Chapters that may be written at once, as log2: each has as small buffers as one of so many partitions.
const WRITERS_BITS: u32 = 6;

/// Of chapters that are written one after the other, the one that is being written has as much memory as so many.
const WRITER_SHARES: usize = 4;

/// What all chapters of an operator have in common.
#[derive(Debug)]
pub struct Shelf {
    pages: Arc<PageSchema>,
    space: Arc<QuerySpace>,
    memory_limit: Option<usize>,
    options: PartitionerOptions,
    batch_rows: usize,
    metrics: ShelfMetrics,
}

/// Where chapters count.
#[derive(Clone, Debug)]
pub struct ShelfMetrics {
    pub spill: SpillMetrics,
    pub spilled_rows: Count,
}

impl ShelfMetrics {
    pub fn new(set: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        let spilled_rows = MetricBuilder::new(set).counter("spilled_rows", partition);
        Self { spill: SpillMetrics::new(set, partition), spilled_rows }
    }
}

/// A chapter that is being written.
pub struct Chapter {
    shelf: Arc<Shelf>,
    partitioner: Arc<Partitioner>,
    /// The memory of pages being filled and written.
    buffers: MemoryReservation,
}

/// A chapter that has been written.
pub struct ClosedChapter {
    shelf: Arc<Shelf>,
    file: Option<Arc<PartitionFile>>,
    /// Empty: what will be taken for reading.
    window: MemoryReservation,
}

/// A chapter that is being read.
pub struct Reading {
    shelf: Arc<Shelf>,
    batches: BatchReader,
    _window: MemoryReservation,
}

impl Shelf {
    pub fn new(
        pages: Arc<PageSchema>,
        space: Arc<QuerySpace>,
        pool: &Arc<dyn MemoryPool>,
        batch_rows: usize,
        metrics: ShelfMetrics,
    ) -> Arc<Self> {
        let memory_limit = pool_limit(pool.as_ref());
        let options = partitioner_options(memory_limit, &space.device().sizes(), WRITERS_BITS);
        let options = PartitionerOptions { partition_bits: 0, ..options };
        Arc::new(Self { pages, space, memory_limit, options, batch_rows, metrics })
    }

    /// For one of several that are read side by side, but written one after the other: each may reckon with
    /// `share_bytes`.
    pub fn of_share(
        pages: Arc<PageSchema>,
        space: Arc<QuerySpace>,
        share_bytes: Option<usize>,
        batch_rows: usize,
        metrics: ShelfMetrics,
    ) -> Arc<Self> {
        let memory_limit = share_bytes;
        let writer_bytes = share_bytes.map(|share| share.saturating_mul(WRITER_SHARES));
        let options = partitioner_options(writer_bytes, &space.device().sizes(), 0);
        Arc::new(Self { pages, space, memory_limit, options, batch_rows, metrics })
    }

    /// An empty chapter. `memory` is where its buffers are counted, whether there is room for them or not: they are
    /// few, and without them nothing can leave memory.
    pub fn chapter(self: &Arc<Self>, memory: &MemoryReservation) -> Result<Chapter> {
        let buffers = memory.new_empty();
        buffers.grow(self.options.write_buffer_bytes());
        let (pages, space) = (Arc::clone(&self.pages), Arc::clone(&self.space));
        let partitioner = Partitioner::new(pages, self.options.clone(), space);
        partitioner.spill(0).map_err(spill_error)?;
        Ok(Chapter { shelf: Arc::clone(self), partitioner: Arc::new(partitioner), buffers })
    }

    /// Memory that a chapter takes while it is written.
    pub fn write_buffer_bytes(&self) -> usize {
        self.options.write_buffer_bytes()
    }

    fn report_io(&self) {
        self.metrics.spill.bring_up(&self.space);
    }
}

impl Chapter {
    /// Adds rows. Waiting until the device has kept up is for the caller, see [`Self::throttle`].
    pub fn push(&self, rows: &RecordBatch) -> Result<()> {
        let portion_rows = portion_rows(rows, self.shelf.memory_limit);
        let mut scatter = Scatter::default();
        for first in (0..rows.num_rows()).step_by(portion_rows) {
            let portion = rows.slice(first, portion_rows.min(rows.num_rows() - first));
            scatter.to_partition(0, portion.num_rows(), 0);
            self.partitioner.push(&portion, &scatter).map_err(spill_error)?;
        }
        self.shelf.metrics.spilled_rows.add(rows.num_rows());
        Ok(())
    }

    /// Waits, without holding the chapter, until what is on its way to the device is no more than the buffers.
    pub fn throttle(&self) -> impl Future<Output = Result<()>> + Send + use<> {
        let partitioner = Arc::clone(&self.partitioner);
        async move { partitioner.throttle().await.map_err(spill_error) }
    }

    /// Like [`Self::throttle`], blocking the thread.
    pub fn throttle_blocking(&self) -> Result<()> {
        block_on(self.partitioner.throttle()).map_err(spill_error)
    }

    /// Ends the chapter and begins to read it.
    pub async fn read(self, waiting: &Time) -> Result<Option<Reading>> {
        let timer = waiting.timer();
        let closed = self.close().await?;
        drop(timer);
        Ok(closed.read(waiting))
    }

    /// Ends the chapter when all of it has arrived at the device.
    pub async fn close(self) -> Result<ClosedChapter> {
        let finished = self.partitioner.finish().map_err(spill_error)?;
        self.partitioner.drain_to(0).await.map_err(spill_error)?;
        Ok(self.written_as(finished))
    }

    /// Ends the chapter, blocking the thread until all of it has arrived at the device.
    pub fn close_blocking(self) -> Result<ClosedChapter> {
        let finished = self.partitioner.finish().map_err(spill_error)?;
        self.partitioner.drain_to_blocking(0).map_err(spill_error)?;
        Ok(self.written_as(finished))
    }

    fn written_as(self, finished: Vec<Partition>) -> ClosedChapter {
        let Self { shelf, partitioner, buffers: window } = self;
        drop(partitioner);
        window.free();
        shelf.report_io();
        let file = finished.into_iter().find_map(|partition| partition.file);
        ClosedChapter { shelf, file, window }
    }
}

impl ClosedChapter {
    /// Begins to read; `None` if there are no rows.
    pub fn read(self, waiting: &Time) -> Option<Reading> {
        let Self { shelf, file, window } = self;
        let file = file?;
        let window_bytes = read_window_bytes(shelf.memory_limit, &shelf.space.device().sizes());
        window.grow(window_bytes);
        let reader = file.read(Arc::clone(&shelf.pages), window_bytes);
        let batches = BatchReader::new(reader, Arc::clone(&shelf.pages), shelf.batch_rows, waiting.clone());
        Some(Reading { shelf, batches, _window: window })
    }
}

impl Reading {
    /// The next rows; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let batch = self.batches.next().await?;
        if batch.is_none() {
            self.shelf.report_io();
        }
        Ok(batch)
    }
}
