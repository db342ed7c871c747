//! Values of both engines in one form.

use arrow::array::{Array as _, ArrayRef, AsArray as _, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use arrow::error::ArrowError;
use rusqlite::types::ValueRef;

/// One value. A floating-point number that is whole is a whole number, as SQLite tells types by values.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    Null,
    Whole(i64),
    /// The bits of a floating-point number.
    Real(u64),
    Text(String),
}

pub type Row = Vec<Value>;

/// Whole floating-point numbers up to here are exact.
const MOST_WHOLE: f64 = (1u64 << 53) as f64;

impl Value {
    fn real(number: f64) -> Self {
        match number.fract() == 0.0 && number.abs() < MOST_WHOLE {
            true => Self::Whole(number as i64),
            false => Self::Real(number.to_bits()),
        }
    }

    pub fn of_sqlite(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(number) => Self::Whole(number),
            ValueRef::Real(number) => Self::real(number),
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
                Self::Text(String::from_utf8_lossy(bytes).into_owned())
            }
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Null => "NULL".to_owned(),
            Self::Whole(number) => number.to_string(),
            Self::Real(bits) => f64::from_bits(*bits).to_string(),
            Self::Text(text) if text.len() > 60 => {
                format!("'{}…' of {} letters", text.chars().take(30).collect::<String>(), text.len())
            }
            Self::Text(text) => format!("'{text}'"),
        }
    }
}

/// A row for people.
pub fn shown(row: &Row) -> String {
    format!("({})", row.iter().map(Value::shown).collect::<Vec<_>>().join(", "))
}

/// The rows of a result of Nandina's.
pub fn rows_of_batches(batches: &[RecordBatch]) -> Result<Vec<Row>, ArrowError> {
    let mut rows = Vec::new();
    for batch in batches {
        let columns = batch.columns().iter().map(values).collect::<Result<Vec<_>, _>>()?;
        let row = |row: usize| columns.iter().filter_map(|column| column.get(row).cloned()).collect();
        rows.extend((0..batch.num_rows()).map(row));
    }
    Ok(rows)
}

fn values(column: &ArrayRef) -> Result<Vec<Value>, ArrowError> {
    let kind = column.data_type();
    if matches!(kind, DataType::Null) {
        return Ok(vec![Value::Null; column.len()]);
    }
    if kind.is_integer() || matches!(kind, DataType::Boolean) {
        let column = cast(column, &DataType::Int64)?;
        let numbers = column.as_primitive::<Int64Type>().iter();
        return Ok(numbers.map(|number| number.map_or(Value::Null, Value::Whole)).collect());
    }
    if kind.is_floating() {
        let column = cast(column, &DataType::Float64)?;
        let numbers = column.as_primitive::<Float64Type>().iter();
        return Ok(numbers.map(|number| number.map_or(Value::Null, Value::real)).collect());
    }
    let column = cast(column, &DataType::Utf8)?;
    let text = |text: Option<&str>| text.map_or(Value::Null, |text| Value::Text(text.to_owned()));
    Ok(column.as_string::<i32>().iter().map(text).collect())
}
