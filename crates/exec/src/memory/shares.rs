//! How much memory a spilling operator takes for what, and in which portions.

use arrow::array::RecordBatch;
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool};
use nandina_device::profile::IoSizes;
use nandina_spill::{MAX_READ_BYTES, MIN_READ_BYTES, PartitionerOptions};

use crate::batch::data_bytes;

/// Most rows in a page of a partition.
pub const MAX_PAGE_ROWS: usize = 1 << 13;

/// Largest page of a partition. Larger ones make neither gathering nor I/O faster: several of them go into
/// one write anyway.
const MAX_PAGE_BYTES: usize = 256 << 10;
/// Smallest page: the device's own.
const MIN_PAGE_BYTES: usize = 4 << 10;
/// The share of memory that pages being written to the device may take.
const WRITE_BUFFER_SHARE: usize = 8;
/// The share of memory that reads of spilled pages in flight may take, where that is less than the device needs.
const READ_WINDOW_SHARE: usize = 16;
/// The share of memory that an extent of temporary space may be as large as.
const EXTENT_SHARE: usize = 128;
/// The share of memory, and the bounds, of the rows that are consumed at a time.
const PORTION_SHARE: usize = 16;
const MAX_PORTION_BYTES: usize = 16 << 20;
const MIN_PORTION_BYTES: usize = 64 << 10;
/// Partitions at least, as log2.
const MIN_PARTITION_BITS: u32 = 3;

/// The limit of a pool in bytes; `None` if it has none.
pub fn pool_limit(pool: &dyn MemoryPool) -> Option<usize> {
    match pool.memory_limit() {
        MemoryLimit::Finite(bytes) => Some(bytes),
        MemoryLimit::Infinite | MemoryLimit::Unknown => None,
    }
}

/// The share of memory, and the bounds, of the rows of one output batch.
const OUTPUT_SHARE: usize = 64;
const MIN_OUTPUT_BYTES: usize = 64 << 10;
const MAX_OUTPUT_BYTES: usize = 16 << 20;

/// Bytes at which a batch of rows is full, however few they are, of an operator under `limit`. Batches that are on their
/// way are not reserved.
pub fn output_bytes(limit: Option<usize>) -> usize {
    (limit.unwrap_or(usize::MAX) / OUTPUT_SHARE).clamp(MIN_OUTPUT_BYTES, MAX_OUTPUT_BYTES)
}

/// Whether `bytes` more fit without any operator having to spill.
pub fn has_room(pool: &dyn MemoryPool, bytes: usize) -> bool {
    pool_limit(pool).is_none_or(|limit| pool.reserved().saturating_add(bytes) <= limit)
}

/// Memory for reads of spilled pages in flight, of one reader of an operator that may use `memory_bytes`.
pub fn read_window_bytes(memory_bytes: Option<usize>, sizes: &IoSizes) -> usize {
    let share = memory_bytes.unwrap_or(usize::MAX) / READ_WINDOW_SHARE;
    share.clamp(MIN_READ_BYTES, sizes.read_window_bytes())
}

/// How many rows of `batch` are consumed at a time by an operator that may use `memory_bytes`: all of them, unless they
/// are so wide that the batch would be a large part of the memory.
pub fn portion_rows(batch: &RecordBatch, memory_bytes: Option<usize>) -> usize {
    let portion = memory_bytes.map_or(MAX_PORTION_BYTES, |limit| limit / PORTION_SHARE);
    let portion = portion.clamp(MIN_PORTION_BYTES, MAX_PORTION_BYTES);
    let rows = batch.num_rows();
    (rows * portion / data_bytes(batch).max(1)).clamp(1, rows.max(1))
}

/// The shape of a partitioner for an operator that may use `memory_bytes` (`None`: any amount) and spills to a device of
/// these sizes.
///
/// With plentiful memory it has two to the `most_bits` partitions. Inputs up to this many times the memory are done in
/// one pass; the price is one page being filled per partition.
pub fn partitioner_options(
    memory_bytes: Option<usize>,
    sizes: &IoSizes,
    most_bits: u32,
) -> PartitionerOptions {
    let write_bytes = memory_bytes.unwrap_or(usize::MAX) / WRITE_BUFFER_SHARE;
    let mut options = PartitionerOptions {
        partition_bits: most_bits,
        page_bytes: MAX_PAGE_BYTES,
        max_page_rows: MAX_PAGE_ROWS,
        ring_pages: sizes.ring_writes,
        extent_bytes: 0,
    };
    // Fewer bytes per page first, down to a size of which a ring still writes well; then fewer partitions, which means
    // another pass sooner.
    let writes_well = (sizes.least_write_bytes / sizes.ring_writes).clamp(4 * MIN_PAGE_BYTES, MAX_PAGE_BYTES);
    while options.write_buffer_bytes() > write_bytes && options.page_bytes > writes_well {
        options.page_bytes /= 2;
    }
    while options.write_buffer_bytes() > write_bytes && options.partition_bits > MIN_PARTITION_BITS + 1 {
        options.partition_bits -= 1;
    }
    while options.write_buffer_bytes() > write_bytes && options.page_bytes > MIN_PAGE_BYTES {
        options.page_bytes /= 2;
    }
    while options.write_buffer_bytes() > write_bytes && options.partition_bits > MIN_PARTITION_BITS {
        options.partition_bits -= 1;
    }
    // A read does not go beyond an extent; an extent for each partition must not be much beside the spilled bytes.
    let extent_bytes = memory_bytes.unwrap_or(usize::MAX) / EXTENT_SHARE;
    options.extent_bytes =
        extent_bytes.clamp(MIN_READ_BYTES, MAX_READ_BYTES).max(options.page_bytes * options.ring_pages);
    options
}

#[cfg(test)]
mod tests {
    use nandina_device::profile::{DeviceIdentity, DeviceProfile};

    use super::*;

    fn sizes() -> IoSizes {
        DeviceProfile::assumed(DeviceIdentity::default()).sizes()
    }

    #[test]
    fn write_buffers_stay_within_their_share() {
        for memory in [16 << 20, 64 << 20, 256 << 20, 4usize << 30] {
            let options = partitioner_options(Some(memory), &sizes(), 6);
            assert!(options.write_buffer_bytes() <= memory / WRITE_BUFFER_SHARE, "{memory}: {options:?}");
        }
    }

    #[test]
    fn a_megabyte_is_enough_to_partition() {
        let options = partitioner_options(Some(1 << 20), &sizes(), 6);
        assert_eq!((options.page_bytes, options.partition_bits), (MIN_PAGE_BYTES, MIN_PARTITION_BITS));
        assert!(options.write_buffer_bytes() <= 1 << 18);
    }

    #[test]
    fn unlimited_memory_takes_the_largest_shape() {
        let options = partitioner_options(None, &sizes(), 6);
        assert_eq!((options.page_bytes, options.partition_bits), (MAX_PAGE_BYTES, 6));
    }
}
