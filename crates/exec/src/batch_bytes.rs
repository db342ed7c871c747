//! How many bytes of data a batch really holds.
//!
//! Arrow's own figure counts whole buffers, which slices and string views share with other batches: a slice
//! of a thousand rows can seem to hold a gigabyte.

use arrow::array::{Array, AsArray, OffsetSizeTrait, RecordBatch};
use arrow::datatypes::{BinaryViewType, ByteViewType, DataType, StringViewType};
use nandina_pages::ColumnLayout;

/// Bytes of the values in `batch`, as they would stand in pages, without validity.
pub fn data_bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| column_bytes(column.as_ref())).sum()
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
            ColumnLayout::Variable | ColumnLayout::Nested => {
                column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size())
            }
        },
    }
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

    use arrow::array::{ArrayRef, Int64Array, StringArray, StringViewArray};

    use super::*;

    #[test]
    fn a_slice_counts_only_its_rows() {
        let text = "a string of more than twelve bytes";
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
        let views: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..1000).map(|_| text)));
        let strings: ArrayRef = Arc::new(StringArray::from_iter_values((0..1000).map(|_| text)));
        let batch = RecordBatch::try_from_iter([("n", numbers), ("v", views), ("s", strings)]).unwrap();
        assert_eq!(
            data_bytes(&batch.slice(10, 10)),
            10 * 8 + 10 * (text.len() + 4) + 10 * text.len() + 11 * 4
        );
    }
}
