//! What all spill files of an operator have in common.

use std::sync::Arc;

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use nandina_pages::PageSchema;
use nandina_spill::{PartitionerOptions, QuerySpace, partition_of};

use super::metrics::SpillMetrics;
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

/// How an operator writes its files, which says how much memory each may take.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SpillShape {
    /// Several may be written at once.
    SideBySide,
    /// They are written one after the other and read side by side, each within so many bytes of memory, if there is a limit.
    OneAfterTheOther(Option<usize>),
    /// Rows are scattered to a file for each partition by the hashes in their first column, by two writers at once.
    ByHash,
}

impl SpillContext {
    /// For files of this shape. Buffers are reserved in `pool` for `consumer`.
    pub(crate) fn new(
        shape: SpillShape,
        pages: &Arc<PageSchema>,
        space: &Arc<QuerySpace>,
        pool: &Arc<dyn MemoryPool>,
        consumer: &str,
        batch_rows: usize,
        metrics: &SpillMetrics,
    ) -> Arc<Self> {
        let limit = pool_limit(pool.as_ref());
        let (memory_limit, writers_limit, bits) = match shape {
            SpillShape::SideBySide => (limit, limit, OPEN_WRITERS_BITS),
            SpillShape::OneAfterTheOther(share) => {
                (share, share.map(|bytes| bytes.saturating_mul(WRITER_SHARES)), 0)
            }
            SpillShape::ByHash => (limit, limit, MOST_PARTITION_BITS + 1),
        };
        let mut options = partitioner_options(writers_limit, &space.device().sizes(), bits);
        options.partition_bits = match shape {
            SpillShape::ByHash => options.partition_bits - 1,
            SpillShape::SideBySide | SpillShape::OneAfterTheOther(_) => 0,
        };
        Arc::new(Self {
            pages: Arc::clone(pages),
            space: Arc::clone(space),
            options,
            memory_limit,
            batch_rows,
            metrics: metrics.clone(),
            memory: MemoryConsumer::new(consumer).register(pool),
        })
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

    /// Updates the metrics with the bytes written and read so far.
    pub(super) fn report_io(&self) {
        self.metrics.update_from(&self.space);
    }
}
