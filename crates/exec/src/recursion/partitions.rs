//! Rows in temporary space, scattered by their hashes.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use nandina_pages::PageSchema;
use nandina_spill::{
    Partition, PartitionFile, Partitioner, PartitionerOptions, QuerySpace, Scatter, partition_of,
};

use crate::aggregate::spec::hashes_of;
use crate::batch_reader::BatchReader;
use crate::chapter::ShelfMetrics;
use crate::error::spill_error;
use crate::memory::{partitioner_options, portion_rows, read_window_bytes};

/// How many partitions there are at most, as log2. Each is a file of its own, which should be longer than an extent.
const PARTITION_BITS: u32 = 4;

/// Where partitions lie, and in which shape.
#[derive(Debug)]
pub struct Partitions {
    space: Arc<QuerySpace>,
    options: PartitionerOptions,
    memory_limit: Option<usize>,
    batch_rows: usize,
    metrics: ShelfMetrics,
    /// Empty: what buffers are counted like.
    memory: MemoryReservation,
}

/// Rows on their way to their partitions. Pages are written as they fill.
pub struct PartitionWriter {
    partitioner: Partitioner,
    scatter: Scatter,
    memory_limit: Option<usize>,
    metrics: ShelfMetrics,
    space: Arc<QuerySpace>,
    _buffers: MemoryReservation,
}

/// The rows of a file on their way back.
pub struct PartitionRows {
    batches: BatchReader,
    metrics: ShelfMetrics,
    space: Arc<QuerySpace>,
    _window: MemoryReservation,
}

impl Partitions {
    pub fn new(
        space: Arc<QuerySpace>,
        memory: MemoryReservation,
        memory_limit: Option<usize>,
        batch_rows: usize,
        metrics: ShelfMetrics,
    ) -> Self {
        let options = partitioner_options(memory_limit, &space.device().sizes(), PARTITION_BITS + 1);
        // Half as many partitions as there is memory for: two writers may be at work at once.
        let options = PartitionerOptions { partition_bits: options.partition_bits - 1, ..options };
        Self { space, options, memory_limit, batch_rows, metrics, memory }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.options.partitions()
    }

    /// The partition of rows with this hash.
    pub fn of_hash(&self, hash: u64) -> usize {
        partition_of(hash, self.options.partition_bits)
    }

    /// What an operator of this session may use, in bytes.
    pub fn memory_limit(&self) -> Option<usize> {
        self.memory_limit
    }

    /// Memory that a writer of all partitions takes.
    pub fn write_buffer_bytes(&self) -> usize {
        self.options.write_buffer_bytes()
    }

    /// A writer of rows of all partitions, whose first column is their hash. Its buffers are counted whether there is
    /// room for them or not: they are few, and without them nothing can leave memory.
    pub fn writer(&self, pages: &Arc<PageSchema>) -> Result<PartitionWriter> {
        self.writer_of(pages, self.options.clone())
    }

    /// The same for rows that stay together, whatever their hashes.
    pub fn writer_of_one(&self, pages: &Arc<PageSchema>) -> Result<PartitionWriter> {
        self.writer_of(pages, PartitionerOptions { partition_bits: 0, ..self.options.clone() })
    }

    /// Memory for buffers, whether there is room for them or not.
    pub fn buffers(&self, bytes: usize) -> MemoryReservation {
        let buffers = self.memory.new_empty();
        buffers.grow(bytes);
        buffers
    }

    fn writer_of(&self, pages: &Arc<PageSchema>, options: PartitionerOptions) -> Result<PartitionWriter> {
        let buffers = self.buffers(options.write_buffer_bytes());
        let partitioner = Partitioner::new(Arc::clone(pages), options, Arc::clone(&self.space));
        for partition in 0..partitioner.options().partitions() {
            partitioner.spill(partition).map_err(spill_error)?;
        }
        Ok(PartitionWriter {
            partitioner,
            scatter: Scatter::default(),
            memory_limit: self.memory_limit,
            metrics: self.metrics.clone(),
            space: Arc::clone(&self.space),
            _buffers: buffers,
        })
    }

    /// Begins to read a file.
    pub fn read(&self, file: &Arc<PartitionFile>, pages: &Arc<PageSchema>) -> PartitionRows {
        let window_bytes = read_window_bytes(self.memory_limit, &self.space.device().sizes());
        let window = self.buffers(window_bytes);
        let reader = file.read(Arc::clone(pages), window_bytes);
        let waiting = self.metrics.spill.time.clone();
        PartitionRows {
            batches: BatchReader::new(reader, Arc::clone(pages), self.batch_rows, waiting),
            metrics: self.metrics.clone(),
            space: Arc::clone(&self.space),
            _window: window,
        }
    }
}

impl PartitionWriter {
    /// Adds rows, and waits until the device has kept up.
    pub async fn push(&mut self, rows: &RecordBatch) -> Result<()> {
        let portion_rows = portion_rows(rows, self.memory_limit);
        for first in (0..rows.num_rows()).step_by(portion_rows) {
            let portion = rows.slice(first, portion_rows.min(rows.num_rows() - first));
            match self.partitioner.options().partition_bits {
                0 => self.scatter.to_partition(0, portion.num_rows(), 0),
                bits => self.scatter.by_hash(hashes_of(&portion), bits),
            }
            self.partitioner.push(&portion, &self.scatter).map_err(spill_error)?;
            let _waiting = self.metrics.spill.time.timer();
            self.partitioner.throttle().await.map_err(spill_error)?;
        }
        self.metrics.spilled_rows.add(rows.num_rows());
        Ok(())
    }

    /// The file of every partition that has rows, when all of them have arrived at the device.
    pub async fn finish(self) -> Result<Vec<Option<Arc<PartitionFile>>>> {
        let finished = self.partitioner.finish().map_err(spill_error)?;
        let waiting = self.metrics.spill.time.timer();
        self.partitioner.drain_to(0).await.map_err(spill_error)?;
        drop(waiting);
        self.metrics.spill.bring_up(&self.space);
        let with_rows = |partition: Partition| partition.file.filter(|file| file.rows() > 0);
        Ok(finished.into_iter().map(with_rows).collect())
    }
}

impl PartitionRows {
    /// The next rows; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let batch = self.batches.next().await?;
        if batch.is_none() {
            self.metrics.spill.bring_up(&self.space);
        }
        Ok(batch)
    }
}
