//! How wide each row is.

use arrow_array::cast::AsArray;
use arrow_array::{Array, OffsetSizeTrait, RecordBatch};
use arrow_schema::DataType;

use crate::rows::Rows;
use crate::schema::ColumnLayout;
use crate::staging::variable_bytes;

/// Bytes of the values of every row of `batch`, as arrays hold them.
pub fn row_bytes(batch: &RecordBatch) -> Vec<u64> {
    sums(batch.num_rows(), batch.columns().iter().map(|column| value_bytes(column.as_ref())))
}

/// Adds what the columns have of each row.
fn sums(rows: usize, columns: impl Iterator<Item = Vec<u64>>) -> Vec<u64> {
    columns.fold(vec![0; rows], |mut sums, column| {
        sums.iter_mut().zip(column).for_each(|(sum, bytes)| *sum += bytes);
        sums
    })
}

fn value_bytes(array: &dyn Array) -> Vec<u64> {
    let rows = array.len();
    let with_lengths =
        |bytes: u64| (0..rows).map(|row| bytes + variable_bytes(array, &Rows::Range(row..row + 1))).collect();
    match array.data_type() {
        DataType::Utf8 | DataType::Binary => with_lengths(4),
        DataType::LargeUtf8 | DataType::LargeBinary => with_lengths(8),
        DataType::Utf8View | DataType::BinaryView => with_lengths(16),
        DataType::Struct(_) => {
            let parts = array.as_struct().columns();
            sums(rows, parts.iter().map(|part| value_bytes(part.as_ref())))
        }
        DataType::List(_) => {
            items_bytes(array.as_list::<i32>().value_offsets(), array.as_list::<i32>().values())
        }
        DataType::LargeList(_) => {
            items_bytes(array.as_list::<i64>().value_offsets(), array.as_list::<i64>().values())
        }
        DataType::Map(..) => items_bytes(array.as_map().value_offsets(), array.as_map().entries()),
        DataType::FixedSizeList(_, size) if *size > 0 => {
            let items = value_bytes(array.as_fixed_size_list().values().as_ref());
            items.chunks(*size as usize).map(|items| items.iter().sum()).collect()
        }
        DataType::Dictionary(..) if rows > array.null_count() => {
            let dictionary = array.as_any_dictionary();
            let values = value_bytes(dictionary.values().as_ref());
            let keys = value_bytes(dictionary.keys());
            // Keys of nulls are of any value.
            keys.into_iter()
                .zip(dictionary.normalized_keys())
                .map(|(key, value)| key + values[value])
                .collect()
        }
        flat => match ColumnLayout::of(flat) {
            ColumnLayout::Null => vec![0; rows],
            ColumnLayout::Bits => vec![1; rows],
            ColumnLayout::Fixed { width_bytes } => vec![width_bytes as u64; rows],
            // Of what cannot be told for each row, all have the same.
            ColumnLayout::Variable | ColumnLayout::Nested => {
                vec![(array.get_array_memory_size() / rows.max(1)) as u64; rows]
            }
        },
    }
}

/// Of lists, each with the items between two offsets.
fn items_bytes<O: OffsetSizeTrait>(offsets: &[O], items: &dyn Array) -> Vec<u64> {
    let ends: Vec<usize> = offsets.iter().map(|offset| offset.as_usize()).collect();
    let first = ends[0];
    let items = value_bytes(items.slice(first, ends[ends.len() - 1] - first).as_ref());
    let of_list = |ends: &[usize]| items[ends[0] - first..ends[1] - first].iter().sum::<u64>();
    ends.windows(2).map(|ends| of_list(ends) + size_of::<O>() as u64).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int32Type;
    use arrow_array::{
        ArrayRef, BooleanArray, DictionaryArray, FixedSizeListArray, Int64Array, ListArray, StringArray,
        StringViewArray, StructArray,
    };

    use super::*;

    #[test]
    fn rows_are_as_wide_as_their_values() {
        let long = "x".repeat(5000);
        let views: ArrayRef = Arc::new(StringViewArray::from(vec![Some(long.as_str()), None, Some("ab")]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec![None, Some("abc"), Some("")]));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]));
        let flat = [("views", views, true), ("texts", texts, true), ("numbers", numbers, true)];
        let flat = RecordBatch::try_from_iter_with_nullable(flat).unwrap();
        assert_eq!(row_bytes(&flat), [5028, 31, 30]);
        assert_eq!(row_bytes(&flat.slice(1, 2)), [31, 30]);
    }

    #[test]
    fn nested_values_are_as_wide_as_their_parts() {
        let items = vec![Some(vec![Some(1); 1000]), Some(vec![]), None];
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(items));
        let truths: ArrayRef = Arc::new(BooleanArray::from(vec![true, false, true]));
        let pairs = (0..3).map(|number| Some([Some(number), None]));
        let pairs: ArrayRef = Arc::new(FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(pairs, 2));
        let words: DictionaryArray<Int32Type> = [Some("ab"), None, Some("abcdef")].into_iter().collect();
        let words: ArrayRef = Arc::new(words);
        let whole = RecordBatch::try_from_iter_with_nullable([
            ("lists", lists, true),
            ("truths", truths, true),
            ("pairs", pairs, true),
            ("words", words, true),
        ])
        .unwrap();
        let structs: ArrayRef = Arc::new(StructArray::from(whole));
        let nested = RecordBatch::try_from_iter([("structs", structs)]).unwrap();
        // A list has an offset, a word a key and an offset; a null has the key of one of them.
        let widths = row_bytes(&nested);
        assert_eq!((widths[0], widths[2]), (4000 + 4 + 1 + 8 + 4 + 6, 4 + 1 + 8 + 4 + 10));
        assert!((4 + 1 + 8 + 4 + 6..=4 + 1 + 8 + 4 + 10).contains(&widths[1]), "{widths:?}");
        assert_eq!(row_bytes(&nested.slice(2, 1)), widths[2..]);
    }

    #[test]
    fn there_may_be_no_rows() {
        let lists: ArrayRef =
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1)]); 0]));
        let words: ArrayRef = Arc::new(DictionaryArray::<Int32Type>::from_iter([None::<&str>; 0]));
        let none = RecordBatch::try_from_iter([("lists", lists), ("words", words)]).unwrap();
        assert!(row_bytes(&none).is_empty());
    }
}
