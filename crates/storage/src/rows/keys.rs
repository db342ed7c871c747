//! Keys of indexes as bytes that are in the order of the keys.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float16Type, Float32Type, Float64Type};
use arrow_array::{Array as _, ArrayRef, ArrowPrimitiveType, PrimitiveArray, RecordBatch};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::{DataType, Schema, SortOptions};

use super::IndexDefinition;
use crate::error::{Result, StorageError};

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
