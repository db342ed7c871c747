//! How wide a row is: the bytes that it takes in memory, before any row has been seen and after, and its columns in files.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, OffsetSizeTrait};
use arrow::datatypes::{DataType, FieldRef, Schema};
use nandina_pages::ColumnLayout;

/// A text or a list of which nothing is known.
pub const TEXT_BYTES: usize = 32;

/// The columns that a file has for rows of `schema`, as those of structs and lists are stored each by itself.
pub fn leaf_columns(schema: &Schema) -> usize {
    schema.fields().iter().map(|field| leaves(field.data_type())).sum()
}

fn leaves(data_type: &DataType) -> usize {
    match data_type {
        DataType::Struct(fields) => fields.iter().map(|field| leaves(field.data_type())).sum(),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            leaves(item.data_type())
        }
        DataType::Map(entries, _) => leaves(entries.data_type()),
        _ => 1,
    }
}

/// Bytes of a row of `schema`, whose texts have `text_bytes` each.
pub fn row_bytes(schema: &Schema, text_bytes: usize) -> usize {
    let widths = schema.fields().iter().map(|field| column_bytes(field.data_type(), text_bytes));
    widths.fold(0, usize::saturating_add)
}

/// Bytes of a text, as the mean of those in rows of `schema` that have `row_bytes` bytes each; `None` if there are none.
pub fn text_bytes(schema: &Schema, row_bytes: usize) -> Option<usize> {
    let texts = self::row_bytes(schema, 1).saturating_sub(self::row_bytes(schema, 0));
    (texts > 0).then(|| row_bytes.saturating_sub(self::row_bytes(schema, 0)) / texts)
}

/// Bytes of a value.
pub fn column_bytes(data_type: &DataType, text_bytes: usize) -> usize {
    let of_fields = |fields: &mut dyn Iterator<Item = &FieldRef>| {
        fields.map(|field| column_bytes(field.data_type(), text_bytes)).fold(0, usize::saturating_add)
    };
    match data_type {
        DataType::Struct(fields) => of_fields(&mut fields.iter()),
        // How many values it has is unknown.
        DataType::List(_) | DataType::LargeList(_) | DataType::Map(..) => text_bytes.saturating_mul(2),
        flat => match ColumnLayout::of(flat) {
            ColumnLayout::Fixed { width_bytes } => width_bytes,
            ColumnLayout::Variable => text_bytes,
            ColumnLayout::Nested => text_bytes.saturating_mul(2),
            ColumnLayout::Bits => 1,
            ColumnLayout::Null => 0,
        },
    }
}

/// Bytes that the values of `array` have, however much of its buffers they are.
pub fn value_bytes(array: &ArrayRef) -> usize {
    if let Some(texts) = array.as_string_view_opt() {
        return texts.total_bytes_len() + size_of_val(texts.views().as_ref());
    }
    if let Some(binary) = array.as_binary_view_opt() {
        return binary.total_bytes_len() + size_of_val(binary.views().as_ref());
    }
    if let Some(list) = array.as_list_opt::<i32>() {
        return items_bytes(list.value_offsets(), list.values());
    }
    if let Some(list) = array.as_list_opt::<i64>() {
        return items_bytes(list.value_offsets(), list.values());
    }
    if let Some(map) = array.as_map_opt() {
        let entries: ArrayRef = Arc::new(map.entries().clone());
        return items_bytes(map.value_offsets(), &entries);
    }
    if let Some(parts) = array.as_struct_opt() {
        return parts.columns().iter().map(value_bytes).sum();
    }
    if let Some(dictionary) = array.as_any_dictionary_opt() {
        let keys = dictionary.keys();
        return keys.to_data().get_slice_memory_size().unwrap_or_else(|_| keys.get_array_memory_size());
    }
    array.to_data().get_slice_memory_size().unwrap_or_else(|_| array.get_array_memory_size())
}

/// Bytes of lists and their items. Slices of lists keep the items of all.
fn items_bytes<O: OffsetSizeTrait>(offsets: &[O], items: &ArrayRef) -> usize {
    let (Some(first), Some(last)) = (offsets.first(), offsets.last()) else { return 0 };
    let (first, last) = (first.as_usize(), last.as_usize());
    value_bytes(&items.slice(first, last - first)) + size_of_val(offsets)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;

    use super::*;

    fn schema(types: impl IntoIterator<Item = DataType>) -> Schema {
        Schema::new(types.into_iter().map(|data_type| Field::new("c", data_type, true)).collect::<Vec<_>>())
    }

    #[test]
    fn rows_are_as_wide_as_their_columns() {
        let two = Field::new("s", DataType::Utf8, true);
        let inner = DataType::Struct(vec![two, Field::new("n", DataType::Int32, true)].into());
        let schema = schema([DataType::Int64, DataType::Utf8View, DataType::Boolean, inner]);
        assert_eq!(row_bytes(&schema, 100), 8 + 100 + 1 + 100 + 4);
        assert_eq!(text_bytes(&schema, 213), Some(100));
        assert_eq!(text_bytes(&schema, 5), Some(0));
    }

    #[test]
    fn slices_of_lists_have_the_bytes_of_their_items() {
        use arrow::array::ListArray;
        use arrow::datatypes::Int64Type;
        let row = |length: i64| Some((0..length).map(Some).collect::<Vec<_>>());
        let lists: ArrayRef =
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([row(1000), row(2), row(3)]));
        assert_eq!(value_bytes(&lists.slice(1, 2)), 5 * 8 + 3 * 4);
        assert!(value_bytes(&lists) >= 1005 * 8);
        assert_eq!(value_bytes(&lists.slice(1, 0)), 4);
    }

    #[test]
    fn numbers_tell_nothing_of_texts() {
        assert_eq!(text_bytes(&schema([DataType::Int64, DataType::Date32]), 5_000), None);
        assert_eq!(text_bytes(&Schema::empty(), 0), None);
    }
}
