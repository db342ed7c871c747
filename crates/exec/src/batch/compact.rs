//! Batches that hold more memory than their rows need: slices of large ones, views into shared buffers.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, MutableArrayData, RecordBatch, RecordBatchOptions, make_array};
use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::common::utils::memory::get_record_batch_memory_size;

use super::bytes::data_bytes;

/// Less than this is not worth a copy.
const SMALL_BYTES: usize = 64 << 10;

/// The batch, or a copy that holds only its rows where it holds much more, and the bytes it holds.
pub fn compact(batch: RecordBatch) -> Result<(RecordBatch, usize)> {
    let is_view =
        |column: &&ArrayRef| matches!(column.data_type(), DataType::Utf8View | DataType::BinaryView);
    let views_bytes = batch.columns().iter().filter(is_view).count() * batch.num_rows() * size_of::<u128>();
    let rows_bytes = data_bytes(&batch) + views_bytes + batch.num_columns() * batch.num_rows().div_ceil(8);
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

/// The column, or a copy that holds only its values where it holds much more.
pub fn compact_column(column: &ArrayRef) -> Result<ArrayRef> {
    let (batch, _) = compact(RecordBatch::try_from_iter([("", Arc::clone(column))])?)?;
    Ok(Arc::clone(batch.column(0)))
}

fn copy(column: &ArrayRef) -> Result<ArrayRef> {
    let data = column.to_data();
    let mut copied = MutableArrayData::new(vec![&data], false, column.len());
    copied.try_extend(0, 0, column.len())?;
    with_own_buffers(&make_array(copied.freeze()))
}

/// [`nandina_pages::with_own_buffers`]
pub fn with_own_buffers(column: &ArrayRef) -> Result<ArrayRef> {
    Ok(nandina_pages::with_own_buffers(column)?)
}

#[cfg(test)]
mod tests {
    use arrow::array::{FixedSizeListArray, Int64Array, ListArray, MapArray, StringViewArray, StructArray};
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::Field;

    use super::*;

    /// Fails unless ten rows out of the middle, copied, are the same and hold no more than they need.
    fn assert_let_go(whole: &RecordBatch) {
        let slice = whole.slice(500, 10);
        let (copied, bytes) = compact(slice.clone()).unwrap();
        assert_eq!(copied, slice);
        assert!(bytes < 10_000, "{bytes}");
        assert!(get_record_batch_memory_size(&copied) < 10_000);
        let (same, _) = compact(whole.clone()).unwrap();
        assert!(Arc::ptr_eq(same.column(0), whole.column(0)));
    }

    fn texts(rows: usize) -> StringViewArray {
        let text = |number: usize| format!("a text that is not in the view itself: {number}");
        StringViewArray::from_iter_values((0..rows).map(text))
    }

    #[test]
    fn a_small_slice_lets_go_of_the_whole() {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100_000));
        assert_let_go(
            &RecordBatch::try_from_iter([("n", numbers), ("t", Arc::new(texts(100_000)))]).unwrap(),
        );
    }

    #[test]
    fn texts_that_are_in_their_views_let_go_of_other_views() {
        let short = StringViewArray::from_iter((0..100_000).map(|n| (n % 3 > 0).then(|| format!("{n}"))));
        assert_let_go(&RecordBatch::try_from_iter([("t", Arc::new(short) as ArrayRef)]).unwrap());
    }

    #[test]
    fn nested_texts_let_go_of_others() {
        let field = || Arc::new(Field::new("item", DataType::Utf8View, true));
        let pairs = OffsetBuffer::from_lengths(std::iter::repeat_n(2, 10_000));
        let lists = ListArray::new(field(), pairs.clone(), Arc::new(texts(20_000)), None);
        let fixed = FixedSizeListArray::new(field(), 2, Arc::new(texts(20_000)), None);
        let fields = |rows| {
            let values: ArrayRef = Arc::new(texts(rows));
            vec![
                (Arc::new(Field::new("key", DataType::Utf8View, false)), Arc::clone(&values)),
                (Arc::new(Field::new("value", DataType::Utf8View, true)), values),
            ]
        };
        let entries = StructArray::from(fields(20_000));
        let of_entries = Arc::new(Field::new("entries", entries.data_type().clone(), false));
        let columns: [ArrayRef; 4] = [
            Arc::new(MapArray::new(of_entries, pairs, entries, None, false)),
            Arc::new(StructArray::from(fields(10_000))),
            Arc::new(lists),
            Arc::new(fixed),
        ];
        for column in columns {
            assert_let_go(&RecordBatch::try_from_iter([("c", column)]).unwrap());
        }
    }
}
