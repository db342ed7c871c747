//! What all spill files of an operator have in common.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use nandina_pages::PageSchema;
use nandina_spill::{Partition, PartitionerOptions, QuerySpace, partition_of};

use super::file::SpillFile;
use super::metrics::SpillMetrics;
use super::writer::SpillWriter;
use crate::memory::{partitioner_options, pool_limit, read_window_bytes};

/// Writers that may be open at once, as log2: the buffers of each are as small as those of one of so many partitions.
const OPEN_WRITERS_BITS: u32 = 6;

/// Where one file is written after the other, the writer has as much memory as so many of the files that are read side
/// by side.
const WRITER_SHARES: usize = 4;

/// Spilled rows are scattered to at most so many partitions, as log2. Each is a file, which should be longer than an
/// extent.
const MOST_PARTITION_BITS: u32 = 4;

/// The shape of an operator's spill files, and where they are counted.
#[derive(Debug)]
pub(crate) struct SpillContext {
    pub(super) pages: Arc<PageSchema>,
    pub(super) space: Arc<QuerySpace>,
    pub(super) options: PartitionerOptions,
    /// Most bytes that the operator, or its share of one, may use; `None` if there is no limit.
    pub(super) memory_limit: Option<usize>,
    pub(super) batch_rows: usize,
    pub(super) metrics: SpillMetrics,
    /// Empty: the consumer that buffers are reserved for.
    memory: MemoryReservation,
}

impl SpillContext {
    /// For files of which several may be written at once. Buffers are reserved in `pool` for `consumer`.
    pub(crate) fn new(
        pages: Arc<PageSchema>,
        space: Arc<QuerySpace>,
        pool: &Arc<dyn MemoryPool>,
        consumer: &str,
        batch_rows: usize,
        metrics: SpillMetrics,
    ) -> Arc<Self> {
        let memory_limit = pool_limit(pool.as_ref());
        let options = partitioner_options(memory_limit, &space.device().sizes(), OPEN_WRITERS_BITS);
        let options = PartitionerOptions { partition_bits: 0, ..options };
        let memory = MemoryConsumer::new(consumer).register(pool);
        Arc::new(Self { pages, space, options, memory_limit, batch_rows, metrics, memory })
    }

    /// For files that are written one after the other and read side by side, each within `share_bytes` of memory.
    pub(crate) fn one_after_the_other(
        pages: Arc<PageSchema>,
        space: Arc<QuerySpace>,
        pool: &Arc<dyn MemoryPool>,
        consumer: &str,
        share_bytes: Option<usize>,
        batch_rows: usize,
        metrics: SpillMetrics,
    ) -> Arc<Self> {
        let writer_bytes = share_bytes.map(|share| share.saturating_mul(WRITER_SHARES));
        let options = partitioner_options(writer_bytes, &space.device().sizes(), 0);
        let memory = MemoryConsumer::new(consumer).register(pool);
        Arc::new(Self { pages, space, options, memory_limit: share_bytes, batch_rows, metrics, memory })
    }

    /// For rows that are scattered by the hashes in their first column, by two writers at once.
    pub(crate) fn scattered(
        pages: Arc<PageSchema>,
        space: Arc<QuerySpace>,
        pool: &Arc<dyn MemoryPool>,
        consumer: &str,
        batch_rows: usize,
        metrics: SpillMetrics,
    ) -> Arc<Self> {
        let memory_limit = pool_limit(pool.as_ref());
        let options = partitioner_options(memory_limit, &space.device().sizes(), MOST_PARTITION_BITS + 1);
        let options = PartitionerOptions { partition_bits: options.partition_bits - 1, ..options };
        let memory = MemoryConsumer::new(consumer).register(pool);
        Arc::new(Self { pages, space, options, memory_limit, batch_rows, metrics, memory })
    }

    /// The same for other rows.
    pub(crate) fn with_pages(&self, pages: &Arc<PageSchema>) -> Arc<Self> {
        self.derived(pages, self.options.partition_bits)
    }

    /// The same for rows that stay together, whatever their hashes.
    pub(crate) fn unscattered(&self) -> Arc<Self> {
        self.derived(&self.pages, 0)
    }

    fn derived(&self, pages: &Arc<PageSchema>, partition_bits: u32) -> Arc<Self> {
        Arc::new(Self {
            pages: Arc::clone(pages),
            space: Arc::clone(&self.space),
            options: PartitionerOptions { partition_bits, ..self.options.clone() },
            memory_limit: self.memory_limit,
            batch_rows: self.batch_rows,
            metrics: self.metrics.clone(),
            memory: self.memory.new_empty(),
        })
    }

    /// Most bytes that the operator may use; `None` if there is no limit.
    pub(crate) fn memory_limit(&self) -> Option<usize> {
        self.memory_limit
    }

    /// How many partitions rows are scattered to.
    pub(crate) fn partitions(&self) -> usize {
        self.options.partitions()
    }

    /// The partition of rows with this hash.
    pub(crate) fn partition_of(&self, hash: u64) -> usize {
        partition_of(hash, self.options.partition_bits)
    }

    /// Memory of a writer.
    pub(crate) fn write_buffer_bytes(&self) -> usize {
        self.options.write_buffer_bytes()
    }

    /// Memory of a reader.
    pub(crate) fn read_window_bytes(&self) -> usize {
        read_window_bytes(self.memory_limit, &self.space.device().sizes())
    }

    /// Reserves memory of buffers, whether there is room for them or not: they are bounded and few, and without them
    /// nothing can leave memory.
    pub(crate) fn reserve(&self, bytes: usize) -> MemoryReservation {
        let reservation = self.memory.new_empty();
        reservation.grow(bytes);
        reservation
    }

    /// Begins a file, or one for each partition.
    pub(crate) fn writer(self: &Arc<Self>) -> Result<SpillWriter> {
        SpillWriter::new(self)
    }

    /// The file of a partition that has been written; `None` if it has no rows.
    pub(super) fn file_of(self: &Arc<Self>, partition: Partition) -> Option<SpillFile> {
        let file = partition.file.filter(|file| file.rows() > 0)?;
        Some(SpillFile::new(self, file))
    }

    /// Brings the metrics up to what was written and read so far.
    pub(super) fn report_io(&self) {
        self.metrics.bring_up(&self.space);
    }
}
