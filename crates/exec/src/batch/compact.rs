//! Batches that hold more memory than their rows need: slices of large ones, views into shared buffers.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, GenericByteViewArray, GenericListArray, MapArray,
    MutableArrayData, OffsetSizeTrait, RecordBatch, RecordBatchOptions, StructArray, make_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::{ByteViewType, DataType};
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

/// The column with views into buffers of its own: a copy of views points to where they pointed.
pub fn with_own_buffers(column: &ArrayRef) -> Result<ArrayRef> {
    if !has_views(column.data_type()) {
        return Ok(Arc::clone(column));
    }
    Ok(match column.data_type() {
        DataType::Utf8View => Arc::new(with_own_bytes(column.as_string_view())),
        DataType::BinaryView => Arc::new(with_own_bytes(column.as_binary_view())),
        DataType::List(_) => list_with_own_buffers(column.as_list::<i32>())?,
        DataType::LargeList(_) => list_with_own_buffers(column.as_list::<i64>())?,
        DataType::FixedSizeList(field, len) => {
            let (list, nulls) = (column.as_fixed_size_list(), column.nulls().cloned());
            let values = with_own_buffers(list.values())?;
            Arc::new(FixedSizeListArray::try_new_with_length(
                Arc::clone(field),
                *len,
                values,
                nulls,
                column.len(),
            )?)
        }
        DataType::Map(field, sorted) => {
            let map = column.as_map();
            let entries = struct_with_own_buffers(map.entries())?;
            let (offsets, nulls) = (map.offsets().clone(), map.nulls().cloned());
            Arc::new(MapArray::try_new(Arc::clone(field), offsets, entries, nulls, *sorted)?)
        }
        DataType::Struct(_) => Arc::new(struct_with_own_buffers(column.as_struct())?),
        _ => Arc::clone(column),
    })
}

/// Longest value that a view holds itself.
const INLINE_BYTES: u128 = 12;

/// Views of a buffer that holds their values and nothing else. Values that stand together stay so, and are copied
/// together.
fn with_own_bytes<T: ByteViewType + ?Sized>(array: &GenericByteViewArray<T>) -> GenericByteViewArray<T> {
    let length_of = |view: u128| view & u128::from(u32::MAX);
    let is_long = |row: usize, view: u128| length_of(view) > INLINE_BYTES && array.is_valid(row);
    let long = array.views().iter().enumerate().filter(|(row, view)| is_long(*row, **view));
    let bytes: u128 = long.map(|(_, view)| length_of(*view)).sum();
    let buffers = array.data_buffers();
    let is_inside = |view: u128| {
        let end = (view >> 96) + length_of(view);
        buffers.get((view >> 64) as u32 as usize).is_some_and(|buffer| end <= buffer.len() as u128)
    };
    let mut long = array.views().iter().enumerate().filter(|(row, view)| is_long(*row, **view));
    // More than one buffer is needed: Arrow's own way makes as many as it takes. Values outside their buffers, which no
    // valid array has, must not be left out silently by the copying below.
    if bytes > i32::MAX as u128 || !long.all(|(_, view)| is_inside(*view)) {
        return array.gc();
    }
    let mut values = Vec::with_capacity(bytes as usize);
    // The values that are to be copied next: so many bytes from here.
    let (mut buffer, mut start, mut end) = (0, 0, 0);
    let copy = |values: &mut Vec<u8>, buffer: usize, range: Range<usize>| {
        // Of short texts alone there is no buffer.
        if !range.is_empty() {
            values.extend_from_slice(&buffers[buffer][range]);
        }
    };
    let copied = |(row, &view): (usize, &u128)| {
        if !is_long(row, view) {
            return if array.is_valid(row) { view } else { 0 };
        }
        let (of, at) = ((view >> 64) as u32 as usize, (view >> 96) as u32 as usize);
        if (of, at) != (buffer, end) {
            copy(&mut values, buffer, start..end);
            (buffer, start, end) = (of, at, at);
        }
        let place = (values.len() + end - start) as u128;
        end += length_of(view) as usize;
        place << 96 | u128::from(view as u64)
    };
    let views: Vec<u128> = array.views().iter().enumerate().map(copied).collect();
    copy(&mut values, buffer, start..end);
    let nulls = array.nulls().map(|nulls| NullBuffer::from(nulls.iter().collect::<BooleanBuffer>()));
    let own = if values.is_empty() { Vec::new() } else { vec![Buffer::from_vec(values)] };
    // SAFETY: values were copied whole from an array of the same type, and every view says where to.
    unsafe { GenericByteViewArray::new_unchecked(ScalarBuffer::from(views), own, nulls) }
}

fn has_views(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8View | DataType::BinaryView => true,
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => has_views(field.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_views(field.data_type())),
        _ => false,
    }
}

fn list_with_own_buffers<O: OffsetSizeTrait>(list: &GenericListArray<O>) -> Result<ArrayRef> {
    let (field, offsets, values, nulls) = list.clone().into_parts();
    Ok(Arc::new(GenericListArray::<O>::try_new(field, offsets, with_own_buffers(&values)?, nulls)?))
}

fn struct_with_own_buffers(parts: &StructArray) -> Result<StructArray> {
    let columns = parts.columns().iter().map(with_own_buffers).collect::<Result<Vec<_>>>()?;
    let nulls = parts.nulls().cloned();
    Ok(StructArray::try_new_with_length(parts.fields().clone(), columns, nulls, parts.len())?)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, ListArray, StringViewArray};
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
    fn texts_that_stand_in_their_views_have_no_buffer_to_copy_from() {
        let short = StringViewArray::from(vec![Some("short"), None, Some("")]);
        assert!(short.data_buffers().is_empty());
        assert_eq!(with_own_bytes(&short), short);
        let nothing = StringViewArray::from(vec![None::<&str>; 3]);
        assert_eq!(with_own_bytes(&nothing), nothing);
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
    fn texts_are_copied_whole_wherever_they_stand() {
        let in_order = StringViewArray::from_iter((0..1000).map(|number| match number % 5 {
            0 => None,
            1 => Some("short".to_owned()),
            _ => Some(format!("a text that is not in the view itself: {number}")),
        }));
        let places = arrow::array::UInt32Array::from_iter_values((0..1000).map(|row| row * 7 % 1000));
        let apart = arrow::compute::take(&in_order, &places, None).unwrap();
        for texts in [&in_order, apart.as_string_view(), &in_order.slice(3, 0), &in_order.slice(1, 7)] {
            let own = with_own_bytes(texts);
            assert_eq!(&own, texts);
            own.to_data().validate_full().unwrap();
            let long: usize = texts.iter().flatten().map(str::len).filter(|bytes| *bytes > 12).sum();
            assert_eq!(own.data_buffers().iter().map(|buffer| buffer.len()).sum::<usize>(), long);
        }
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
