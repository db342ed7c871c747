//! Batches that hold more memory than their rows need: slices of large ones, views into shared buffers.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, MutableArrayData, RecordBatch, RecordBatchOptions, make_array};
use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::common::utils::memory::get_record_batch_memory_size;

use crate::batch_bytes::data_bytes;

/// Less than this is not worth a copy.
const SMALL_BYTES: usize = 64 << 10;

/// The batch, or a copy that holds only its rows where it holds much more, and the bytes it holds.
pub fn compact(batch: RecordBatch) -> Result<(RecordBatch, usize)> {
    let rows_bytes = data_bytes(&batch) + batch.num_columns() * batch.num_rows().div_ceil(8);
    let held_bytes = get_record_batch_memory_size(&batch);
    if held_bytes <= 2 * rows_bytes + SMALL_BYTES.min(rows_bytes) {
        return Ok((batch, held_bytes.max(rows_bytes)));
    }
    let columns = batch.columns().iter().map(copy).collect::<Result<_>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let copied = RecordBatch::try_new_with_options(batch.schema(), columns, &options)?;
    let held_bytes = get_record_batch_memory_size(&copied);
    Ok((copied, held_bytes.max(rows_bytes)))
}

fn copy(column: &ArrayRef) -> Result<ArrayRef> {
    match column.data_type() {
        DataType::Utf8View => Ok(Arc::new(column.as_string_view().gc())),
        DataType::BinaryView => Ok(Arc::new(column.as_binary_view().gc())),
        _ => {
            let data = column.to_data();
            let mut copied = MutableArrayData::new(vec![&data], false, column.len());
            copied.try_extend(0, 0, column.len())?;
            Ok(make_array(copied.freeze()))
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringViewArray};

    use super::*;

    #[test]
    fn a_small_slice_lets_go_of_the_whole() {
        let text = |number: i64| format!("a text that is not in the view itself: {number}");
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100_000));
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..100_000).map(text)));
        let whole = RecordBatch::try_from_iter([("n", numbers), ("t", texts)]).unwrap();
        let slice = whole.slice(500, 10);
        let (copied, bytes) = compact(slice.clone()).unwrap();
        assert_eq!(copied, slice);
        assert!(bytes < 10_000, "{bytes}");
        let (same, _) = compact(whole.clone()).unwrap();
        assert!(Arc::ptr_eq(same.column(0), whole.column(0)));
    }
}
