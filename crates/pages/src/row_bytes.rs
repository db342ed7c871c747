//! How wide each row is.

use arrow_array::{Array as _, RecordBatch};

use crate::error::Result;
use crate::nested::NestedStaging;
use crate::rows::Rows;
use crate::schema::ColumnLayout;
use crate::staging::variable_bytes;

/// Bytes of the values of every row of `batch`, about as a page holds them.
pub fn row_bytes(batch: &RecordBatch) -> Result<Vec<u64>> {
    let mut rows = vec![0; batch.num_rows()];
    let mut fixed_bytes = 0;
    for (array, field) in batch.columns().iter().zip(batch.schema_ref().fields()) {
        match ColumnLayout::of(array.data_type()) {
            ColumnLayout::Null | ColumnLayout::Bits => {}
            ColumnLayout::Fixed { width_bytes } => fixed_bytes += width_bytes as u64,
            ColumnLayout::Variable => {
                for (row, bytes) in rows.iter_mut().enumerate() {
                    *bytes += variable_bytes(array.as_ref(), &Rows::Range(row..row + 1));
                }
            }
            ColumnLayout::Nested => {
                let empty = NestedStaging::new(field);
                for (row, bytes) in rows.iter_mut().enumerate() {
                    *bytes += empty.bound_bytes_with(array.as_ref(), &Rows::Range(row..row + 1))?;
                }
            }
        }
    }
    rows.iter_mut().for_each(|bytes| *bytes += fixed_bytes);
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int32Type;
    use arrow_array::{ArrayRef, BooleanArray, Int64Array, ListArray, StringArray, StringViewArray};

    use super::*;

    #[test]
    fn rows_are_as_wide_as_their_values() {
        let long = "x".repeat(5000);
        let views: ArrayRef = Arc::new(StringViewArray::from(vec![Some(long.as_str()), None, Some("ab")]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec![None, Some("abc"), Some("")]));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]));
        let truths: ArrayRef = Arc::new(BooleanArray::from(vec![true, false, true]));
        let flat = [("views", views, true), ("texts", texts, true), ("numbers", numbers, true)];
        let flat = RecordBatch::try_from_iter_with_nullable(flat).unwrap();
        assert_eq!(row_bytes(&flat).unwrap(), [5008, 11, 10]);
        assert_eq!(row_bytes(&flat.slice(1, 2)).unwrap(), [11, 10]);

        let items = vec![Some(vec![Some(1); 1000]), Some(vec![]), None];
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(items));
        let nested = RecordBatch::try_from_iter([("lists", lists), ("truths", truths)]).unwrap();
        let widths = row_bytes(&nested).unwrap();
        assert!((4000..5000).contains(&widths[0]), "{widths:?}");
        assert!(widths[1] < 1000 && widths[2] < 1000, "{widths:?}");
    }
}
