//! Batches that are kept for a while: they hold on to no more than their rows need, and know how much that is.
//!
//! Batches of a scan point into the buffers that were read, slices and views into what they were cut from. While rows
//! pass by, that is nobody's concern; of rows that wait it would keep far more in memory than is reserved.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::compute::take;
use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::common::utils::memory::get_record_batch_memory_size;

use crate::batch_bytes::data_bytes;

/// Less than this is not worth a copy.
const SMALL_BYTES: usize = 64 << 10;

/// A batch and the memory that it holds.
#[derive(Clone, Debug)]
pub struct HeldBatch {
    pub rows: RecordBatch,
    pub bytes: usize,
}

impl HeldBatch {
    /// The batch, or a copy if it holds on to much more than its rows.
    pub fn new(batch: RecordBatch) -> Result<Self> {
        let own_bytes = own_bytes(&batch);
        let bytes = get_record_batch_memory_size(&batch);
        if bytes <= 2 * own_bytes + SMALL_BYTES.min(own_bytes) {
            return Ok(Self { rows: batch, bytes: bytes.max(own_bytes) });
        }
        let all = UInt64Array::from_iter_values(0..batch.num_rows() as u64);
        let copy = |column: &ArrayRef| Ok(unshared(&take(column, &all, None)?));
        let columns = batch.columns().iter().map(copy).collect::<Result<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let rows = RecordBatch::try_new_with_options(batch.schema(), columns, &options)?;
        let bytes = get_record_batch_memory_size(&rows).max(own_bytes);
        Ok(Self { rows, bytes })
    }
}

/// Bytes that the rows need by themselves.
fn own_bytes(batch: &RecordBatch) -> usize {
    let beside_values = |column: &ArrayRef| {
        let view_bytes = match column.data_type() {
            DataType::Utf8View | DataType::BinaryView => column.len() * size_of::<u128>(),
            _ => 0,
        };
        view_bytes + column.len().div_ceil(8)
    };
    data_bytes(batch) + batch.columns().iter().map(beside_values).sum::<usize>()
}

/// Views without the texts that only other rows refer to.
pub fn unshared(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()),
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        _ => ArrayRef::clone(column),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringViewArray};

    use super::*;

    #[test]
    fn a_few_rows_do_not_keep_the_batch_they_were_cut_from() {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..50_000));
        let text = |number| format!("a text of more bytes than a view has: {number}");
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..50_000).map(text)));
        let whole = RecordBatch::try_from_iter([("number", numbers), ("text", texts)]).unwrap();
        let few = whole.slice(700, 20);
        let held = HeldBatch::new(few.clone()).unwrap();
        assert_eq!(held.rows, few);
        assert!(held.bytes < 20_000, "{}", held.bytes);
        assert!(get_record_batch_memory_size(&held.rows) <= held.bytes);
        let all = HeldBatch::new(whole.clone()).unwrap();
        assert!(Arc::ptr_eq(all.rows.column(1), whole.column(1)), "nothing to be gained by a copy");
    }
}
