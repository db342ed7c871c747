//! How many bytes of data a batch really holds.
//!
//! Arrow's own figure counts whole buffers, which slices and string views share with other batches: a slice
//! of a thousand rows can seem to hold a gigabyte.

use arrow::array::{Array, ArrayRef, AsArray, OffsetSizeTrait, RecordBatch, RunArray, UnionArray};
use arrow::datatypes::{
    BinaryViewType, ByteViewType, DataType, Int16Type, Int32Type, Int64Type, RunEndIndexType, StringViewType,
    UnionFields,
};
use nandina_pages::ColumnLayout;

/// Bytes of the values in `batch`, as they would stand in pages, without validity.
pub fn data_bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| column_bytes(column.as_ref())).sum()
}

/// What Arrow takes of each column besides its values: of a few rows of hundreds of columns, more than they do.
const ARRAY_BYTES: usize = 256;

/// Bytes of the arrays of `batch` besides their values.
pub fn array_bytes(batch: &RecordBatch) -> usize {
    batch.num_columns() * ARRAY_BYTES
}

fn column_bytes(column: &dyn Array) -> usize {
    match column.data_type() {
        DataType::Utf8View => view_bytes::<StringViewType>(column),
        DataType::BinaryView => view_bytes::<BinaryViewType>(column),
        DataType::Utf8 => offset_bytes(column.as_string::<i32>().value_offsets()),
        DataType::LargeUtf8 => offset_bytes(column.as_string::<i64>().value_offsets()),
        DataType::Binary => offset_bytes(column.as_binary::<i32>().value_offsets()),
        DataType::LargeBinary => offset_bytes(column.as_binary::<i64>().value_offsets()),
        flat => match ColumnLayout::of(flat) {
            ColumnLayout::Fixed { width_bytes } => column.len() * width_bytes,
            ColumnLayout::Bits => column.len().div_ceil(8),
            ColumnLayout::Null => 0,
            ColumnLayout::Variable | ColumnLayout::Nested => nested_bytes(column),
        },
    }
}

/// Bytes of a column whose values lie in columns of their own, of which a slice uses a part.
fn nested_bytes(column: &dyn Array) -> usize {
    match column.data_type() {
        DataType::List(_) => {
            let list = column.as_list::<i32>();
            list_bytes(list.value_offsets(), list.values())
        }
        DataType::LargeList(_) => {
            let list = column.as_list::<i64>();
            list_bytes(list.value_offsets(), list.values())
        }
        DataType::Map(..) => {
            let map = column.as_map();
            let entries = map.entries().columns().iter();
            let of_entries: usize = entries.map(|values| list_bytes(map.value_offsets(), values)).sum();
            // The offsets are there once.
            of_entries.saturating_sub(size_of_val(map.value_offsets()))
        }
        DataType::FixedSizeList(..) => column_bytes(column.as_fixed_size_list().values().as_ref()),
        DataType::Struct(_) => {
            column.as_struct().columns().iter().map(|values| column_bytes(values.as_ref())).sum()
        }
        DataType::Dictionary(..) => {
            let dictionary = column.as_any_dictionary();
            column_bytes(dictionary.keys()) + column_bytes(dictionary.values().as_ref())
        }
        DataType::Union(fields, _) => union_bytes(column.as_union(), fields),
        DataType::RunEndEncoded(ends, _) => match ends.data_type() {
            DataType::Int16 => run_bytes(column.as_run::<Int16Type>()),
            DataType::Int32 => run_bytes(column.as_run::<Int32Type>()),
            _ => run_bytes(column.as_run::<Int64Type>()),
        },
        _ => column.get_array_memory_size(),
    }
}

/// Bytes of the runs that rows are in: of their values, and of where they end.
fn run_bytes<R: RunEndIndexType>(runs: &RunArray<R>) -> usize {
    let values = runs.values_slice();
    values.len() * size_of::<R::Native>() + column_bytes(values.as_ref())
}

/// Bytes of the values of lists that the offsets reach, and of the offsets.
fn list_bytes<O: OffsetSizeTrait>(offsets: &[O], values: &ArrayRef) -> usize {
    let (Some(first), Some(last)) = (offsets.first(), offsets.last()) else { return 0 };
    let (first, last) = (first.as_usize(), last.as_usize());
    size_of_val(offsets) + column_bytes(values.slice(first, last - first).as_ref())
}

/// Bytes of a union: all values of sparse children, those that rows refer to of dense ones, on average.
fn union_bytes(union: &UnionArray, fields: &UnionFields) -> usize {
    let own_bytes = union.len() * (size_of::<i8>() + if union.is_dense() { size_of::<i32>() } else { 0 });
    let of_children = fields.iter().map(|(id, _)| {
        let child = union.child(id);
        let bytes = column_bytes(child.as_ref());
        match union.is_dense() {
            true => {
                let rows = union.type_ids().iter().filter(|&&of_row| of_row == id).count();
                (bytes as u128 * rows as u128 / child.len().max(1) as u128) as usize
            }
            false => bytes,
        }
    });
    own_bytes + of_children.sum::<usize>()
}

fn view_bytes<T: ByteViewType>(column: &dyn Array) -> usize {
    // The low half-word of a view is its length.
    let views = column.as_byte_view::<T>().views();
    views.iter().map(|&view| view as u32 as usize + size_of::<i32>()).sum()
}

fn offset_bytes<O: OffsetSizeTrait>(offsets: &[O]) -> usize {
    match (offsets.first(), offsets.last()) {
        (Some(first), Some(last)) => last.as_usize() - first.as_usize() + size_of_val(offsets),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        DictionaryArray, FixedSizeListArray, Int32Array, Int64Array, ListArray, MapArray, StringArray,
        StringViewArray, StructArray,
    };
    use arrow::buffer::{OffsetBuffer, ScalarBuffer};
    use arrow::datatypes::{Field, Fields};

    use super::*;

    const TEXT: &str = "a string of more than twelve bytes";
    /// Of a text in a page: its bytes and its offset.
    const TEXT_BYTES: usize = TEXT.len() + 4;

    #[test]
    fn a_slice_counts_only_its_rows() {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
        let views: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..1000).map(|_| TEXT)));
        let strings: ArrayRef = Arc::new(StringArray::from_iter_values((0..1000).map(|_| TEXT)));
        let batch = RecordBatch::try_from_iter([("n", numbers), ("v", views), ("s", strings)]).unwrap();
        assert_eq!(data_bytes(&batch.slice(10, 10)), 10 * 8 + 10 * TEXT_BYTES + 10 * TEXT.len() + 11 * 4);
    }

    fn texts(rows: usize) -> ArrayRef {
        Arc::new(StringViewArray::from_iter_values((0..rows).map(|_| TEXT)))
    }

    /// Bytes of ten rows out of the middle.
    fn ten_of(column: impl Array) -> usize {
        column_bytes(column.slice(500, 10).as_ref())
    }

    #[test]
    fn a_slice_of_lists_counts_only_their_values() {
        let field = |name: &str| Arc::new(Field::new(name, DataType::Utf8View, true));
        let threes = || OffsetBuffer::from_lengths(std::iter::repeat_n(3, 1000));
        let lists = ListArray::new(field("item"), threes(), texts(3000), None);
        assert_eq!(ten_of(lists), 30 * TEXT_BYTES + 11 * 4);
        let fixed = FixedSizeListArray::new(field("item"), 3, texts(3000), None);
        assert_eq!(ten_of(fixed), 30 * TEXT_BYTES);
        let entries = Fields::from(vec![
            Field::new("k", DataType::Utf8View, false),
            Field::new("v", DataType::Utf8View, true),
        ]);
        let pairs = StructArray::new(entries.clone(), vec![texts(3000), texts(3000)], None);
        let of_pairs = Arc::new(Field::new("entries", DataType::Struct(entries), false));
        assert_eq!(ten_of(MapArray::new(of_pairs, threes(), pairs, None, false)), 60 * TEXT_BYTES + 11 * 4);
    }

    #[test]
    fn a_slice_of_rows_in_parts_counts_its_part_of_each() {
        let fields = Fields::from(vec![Field::new("a", DataType::Utf8View, true)]);
        assert_eq!(ten_of(StructArray::new(fields, vec![texts(1000)], None)), 10 * TEXT_BYTES);
        let keys = Int32Array::from_iter_values((0..1000).map(|row| row % 2));
        assert_eq!(ten_of(DictionaryArray::new(keys, texts(2))), 10 * 4 + 2 * TEXT_BYTES);
        let ends = Int32Array::from_iter_values((1..=200).map(|run| 5 * run));
        let runs = RunArray::<Int32Type>::try_new(&ends, texts(200).as_ref()).unwrap();
        assert_eq!(ten_of(runs), 2 * (4 + TEXT_BYTES));
        let fields: UnionFields =
            [(0, Arc::new(Field::new("a", DataType::Utf8View, true)))].into_iter().collect();
        let ids = ScalarBuffer::from(vec![0_i8; 1000]);
        let sparse = UnionArray::try_new(fields.clone(), ids.clone(), None, vec![texts(1000)]).unwrap();
        assert_eq!(ten_of(sparse), 10 * (TEXT_BYTES + 1));
        let dense =
            UnionArray::try_new(fields, ids, Some(ScalarBuffer::from_iter(0..1000)), vec![texts(1000)]);
        assert_eq!(ten_of(dense.unwrap()), 10 * (TEXT_BYTES + 5));
    }
}
