//! Keys of indexes as bytes that are in the order of the keys.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float16Type, Float32Type, Float64Type};
use arrow_array::{Array as _, ArrayRef, ArrowPrimitiveType, PrimitiveArray, RecordBatch};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::{DataType, Schema, SortOptions};

use super::IndexDefinition;
use crate::error::{Result, StorageError};
use crate::guard::guarded;

/// As users see them: ascending, nulls last.
const ORDER: SortOptions = SortOptions { descending: false, nulls_first: false };

/// Keys of an index that are equal in its first columns and lie between two values in the next one, where these are given. Both bounds
/// are part of it. Each is an array of one value, of the type of its column.
#[derive(Debug, Clone, Default)]
pub struct KeyRange {
    pub equal: Vec<ArrayRef>,
    pub lower: Option<ArrayRef>,
    pub upper: Option<ArrayRef>,
}

/// How the keys of an index are written.
#[derive(Debug)]
pub(crate) struct KeyCodec {
    pub columns: Vec<usize>,
    converter: RowConverter,
}

impl KeyCodec {
    pub fn try_new(schema: &Schema, index: &IndexDefinition) -> Result<Self> {
        let fields = index.columns.iter().map(|column| schema.field(*column));
        if let Some(field) = fields.clone().find(|field| !can_be_key(field.data_type())) {
            return Err(StorageError::NoKeyType {
                index: index.name.clone(),
                column: field.name().clone(),
                data_type: field.data_type().clone(),
            });
        }
        let fields = fields.map(|field| sort_field(field.data_type()));
        Ok(Self { columns: index.columns.clone(), converter: RowConverter::new(fields.collect())? })
    }

    /// Keys of rows with all columns of the table.
    pub fn of_rows(&self, rows: &RecordBatch) -> Result<Rows> {
        self.of_columns(
            &self.columns.iter().map(|column| Arc::clone(rows.column(*column))).collect::<Vec<_>>(),
        )
    }

    /// Keys of their columns, or what they begin with of the first ones of them.
    pub fn of_columns(&self, columns: &[ArrayRef]) -> Result<Rows> {
        let columns: Vec<ArrayRef> = columns.iter().map(canonical).collect();
        if columns.len() < self.columns.len() {
            let fields = columns.iter().map(|column| sort_field(column.data_type())).collect();
            return Ok(RowConverter::new(fields)?.convert_columns(&columns)?);
        }
        Ok(self.converter.convert_columns(&columns)?)
    }

    /// The bytes that all keys of a range are between.
    pub fn bounds(&self, range: &KeyRange) -> Result<(Vec<u8>, Vec<u8>)> {
        let bytes = |next: Option<&ArrayRef>| -> Result<Vec<u8>> {
            let columns: Vec<ArrayRef> = range.equal.iter().chain(next).cloned().collect();
            match columns.is_empty() {
                true => Ok(Vec::new()),
                false => Ok(self.of_columns(&columns)?.row(0).as_ref().to_vec()),
            }
        };
        let lower = bytes(range.lower.as_ref())?;
        let mut upper = match (&range.lower, &range.upper) {
            (None, None) => lower.clone(),
            (_, upper) => bytes(upper.as_ref())?,
        };
        // Keys that go on behind these values are below this.
        upper.push(u8::MAX);
        Ok((lower, upper))
    }

    /// The values of a whole key.
    pub fn values(&self, key: &[u8]) -> Result<Vec<ArrayRef>> {
        let parser = self.converter.parser();
        // Arrow panics over bytes that are none of its own.
        match guarded(|| self.converter.convert_rows([parser.parse(key)])) {
            Ok(values) => Ok(values?),
            Err(_) => Err(StorageError::damaged("the row store", "a key of an index has no values")),
        }
    }

    /// Whether the key of a row has a null: then it is no other row's.
    pub fn has_null(&self, rows: &RecordBatch, row: usize) -> bool {
        self.columns.iter().any(|column| rows.column(*column).is_null(row))
    }
}

fn sort_field(data_type: &DataType) -> SortField {
    SortField::new_with_options(data_type.clone(), ORDER)
}

fn can_be_key(data_type: &DataType) -> bool {
    !data_type.is_nested() && *data_type != DataType::Null && !matches!(data_type, DataType::Interval(_))
}

/// SQL has one zero and one NaN.
fn canonical(array: &ArrayRef) -> ArrayRef {
    fn with<T: ArrowPrimitiveType>(array: &ArrayRef, one: impl Fn(T::Native) -> T::Native) -> ArrayRef {
        let array: &PrimitiveArray<T> = array.as_primitive();
        Arc::new(array.unary::<_, T>(one))
    }
    macro_rules! one {
        ($type:ty, $zero:expr, $nan:expr) => {
            with::<$type>(array, |value| match value {
                value if value == $zero => $zero,
                value if value.is_nan() => $nan,
                value => value,
            })
        };
    }
    match array.data_type() {
        DataType::Float16 => {
            one!(
                Float16Type,
                <Float16Type as ArrowPrimitiveType>::Native::ZERO,
                <Float16Type as ArrowPrimitiveType>::Native::NAN
            )
        }
        DataType::Float32 => one!(Float32Type, 0.0, f32::NAN),
        DataType::Float64 => one!(Float64Type, 0.0, f64::NAN),
        _ => Arc::clone(array),
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{Float64Array, StringArray};
    use arrow_schema::Field;

    use super::*;

    #[test]
    fn a_key_has_its_values() {
        let schema = Schema::new(vec![
            Field::new("a", DataType::Float64, true),
            Field::new("b", DataType::Utf8, true),
        ]);
        let index =
            IndexDefinition { name: "i".to_owned(), columns: vec![1, 0], is_unique: true, is_primary: false };
        let codec = KeyCodec::try_new(&schema, &index).unwrap();
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("")]));
        let numbers: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.5), Some(0.0), None]));
        let keys = codec.of_columns(&[Arc::clone(&texts), Arc::clone(&numbers)]).unwrap();
        for (row, key) in keys.iter().enumerate() {
            let values = codec.values(key.as_ref()).unwrap();
            let expected = [texts.slice(row, 1), numbers.slice(row, 1)];
            assert_eq!(values, expected);
        }
        assert!(codec.values(&[2]).is_err());
    }
}
