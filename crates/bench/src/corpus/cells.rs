//! Rows of an answer as text, in the form in which DuckDB shows values.
//!
//! | type | written as |
//! |---|---|
//! | boolean | `true` |
//! | number | `-12`, `1.50`, `0.1`, `1e300`, `nan`, `inf` |
//! | date, time, timestamp | `2020-01-31`, `10:20:30.5`, `2020-01-31 10:20:30`, years before 1 as `0044-03-15 (BC)` |
//! | interval | `1 year 2 months 3 days 04:05:06.7` |
//! | bytes | `ab\x00` |
//! | list, struct, map | `[1, NULL]`, `{'a': 1}`, `{k=v}`: as Nandina casts them to texts, and times, too |

use arrow::array::{Array, ArrayRef, AsArray as _, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, DurationMicrosecondType, Float64Type, IntervalDayTimeType, IntervalMonthDayNanoType,
    IntervalUnit, IntervalYearMonthType, Schema, TimeUnit,
};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};

/// How values of a column are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Boolean,
    /// Integers and decimals: exact.
    Exact,
    Floating,
    Text,
    /// Dates, times, timestamps.
    Time,
    /// Lists, structs, intervals, bytes and everything else.
    Other,
}

/// A row; null is none.
pub type Row = Vec<Option<String>>;

/// The rows that a statement answered.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rows {
    pub kinds: Vec<Kind>,
    pub names: Vec<String>,
    pub rows: Vec<Row>,
}

impl Rows {
    pub fn new(schema: &Schema, batches: &[RecordBatch]) -> Result<Self, ArrowError> {
        let mut rows = Vec::new();
        for batch in batches {
            let columns: Vec<Vec<Option<String>>> =
                batch.columns().iter().map(texts).collect::<Result<_, _>>()?;
            let mut columns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
            for _ in 0..batch.num_rows() {
                rows.push(columns.iter_mut().map(|column| column.next().flatten()).collect());
            }
        }
        let fields = schema.fields();
        Ok(Rows {
            kinds: fields.iter().map(|field| kind(field.data_type())).collect(),
            names: fields.iter().map(|field| field.name().clone()).collect(),
            rows,
        })
    }

    /// For people: a line for each of the first rows.
    pub fn shown(&self) -> String {
        shown(&self.rows)
    }
}

/// How many rows of an answer a report shows.
const MOST_SHOWN: usize = 12;

/// For people: a line for each of the first rows.
pub fn shown(rows: &[Row]) -> String {
    let line = |row: &Row| {
        let cells: Vec<&str> = row.iter().map(|cell| cell.as_deref().unwrap_or("NULL")).collect();
        cells.join(" | ")
    };
    let mut lines: Vec<String> = rows.iter().take(MOST_SHOWN).map(line).collect();
    if rows.len() > MOST_SHOWN {
        lines.push(format!("… {} rows", rows.len()));
    }
    if rows.is_empty() {
        lines.push("(no rows)".to_owned());
    }
    lines.join("\n")
}

fn kind(data_type: &DataType) -> Kind {
    match data_type {
        DataType::Boolean => Kind::Boolean,
        _ if data_type.is_integer() || data_type.is_decimal() => Kind::Exact,
        _ if data_type.is_floating() => Kind::Floating,
        _ if data_type.is_string() => Kind::Text,
        DataType::Date32
        | DataType::Date64
        | DataType::Timestamp(..)
        | DataType::Time32(_)
        | DataType::Time64(_) => Kind::Time,
        DataType::Dictionary(_, value) => kind(value),
        _ => Kind::Other,
    }
}

type Texts = Vec<Option<String>>;

fn texts(array: &ArrayRef) -> Result<Texts, ArrowError> {
    let array = match array.data_type() {
        DataType::Dictionary(_, value) => cast(array, value)?,
        DataType::RunEndEncoded(_, value) => cast(array, value.data_type())?,
        _ => array.clone(),
    };
    match array.data_type() {
        // Has no bitmap that says so.
        DataType::Null => Ok(vec![None; array.len()]),
        DataType::Float16 | DataType::Float64 => {
            let doubles = cast(&array, &DataType::Float64)?;
            Ok(doubles.as_primitive::<Float64Type>().iter().map(|value| value.map(float)).collect())
        }
        DataType::Interval(unit) => intervals(&array, *unit),
        DataType::Duration(_) => {
            let micros = cast(&array, &DataType::Duration(TimeUnit::Microsecond))?;
            let micros = micros.as_primitive::<DurationMicrosecondType>();
            let text = |micros: i64| interval(0, micros / MICROS_PER_DAY, micros % MICROS_PER_DAY);
            Ok(micros.iter().map(|value| value.map(text)).collect())
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            let bytes = cast(&array, &DataType::LargeBinary)?;
            Ok(bytes.as_binary::<i64>().iter().map(|value| value.map(escaped)).collect())
        }
        of if of.is_nested() || kind(of) == Kind::Time => {
            let texts =
                nandina::texts_of(&array).map_err(|error| ArrowError::ComputeError(error.to_string()))?;
            Ok(texts.iter().map(|text| text.map(str::to_owned)).collect())
        }
        _ => plain(&array),
    }
}

fn plain(array: &ArrayRef) -> Result<Texts, ArrowError> {
    let options = FormatOptions::default();
    let formatter = ArrayFormatter::try_new(array, &options)?;
    let text = |row| array.is_valid(row).then(|| formatter.value(row).try_to_string()).transpose();
    (0..array.len()).map(text).collect()
}

fn float(value: f64) -> String {
    // The sign of a zero depends on the order of additions.
    let value = value + 0.0;
    if value.is_nan() { "nan".to_owned() } else { format!("{value:?}") }
}

const MICROS_PER_DAY: i64 = 86_400_000_000;

fn intervals(array: &ArrayRef, unit: IntervalUnit) -> Result<Texts, ArrowError> {
    Ok(match unit {
        IntervalUnit::YearMonth => {
            let months = array.as_primitive::<IntervalYearMonthType>().iter();
            months.map(|value| value.map(|months| interval(months.into(), 0, 0))).collect()
        }
        IntervalUnit::DayTime => {
            let values = array.as_primitive::<IntervalDayTimeType>().iter();
            let text = |days: i32, millis: i32| interval(0, days.into(), i64::from(millis) * 1000);
            values.map(|value| value.map(|value| text(value.days, value.milliseconds))).collect()
        }
        IntervalUnit::MonthDayNano => {
            let values = array.as_primitive::<IntervalMonthDayNanoType>().iter();
            let text =
                |months: i32, days: i32, nanos: i64| interval(months.into(), days.into(), nanos / 1000);
            values.map(|value| value.map(|value| text(value.months, value.days, value.nanoseconds))).collect()
        }
    })
}

fn interval(months: i64, days: i64, micros: i64) -> String {
    let mut parts = Vec::new();
    for (count, unit) in [(months / 12, "year"), (months % 12, "month"), (days, "day")] {
        if count != 0 {
            let plural = if count.abs() == 1 { "" } else { "s" };
            parts.push(format!("{count} {unit}{plural}"));
        }
    }
    if micros != 0 || parts.is_empty() {
        let sign = if micros < 0 { "-" } else { "" };
        let micros = micros.unsigned_abs();
        let seconds = micros / 1_000_000;
        let (hours, minutes, seconds, rest) =
            (seconds / 3600, seconds / 60 % 60, seconds % 60, micros % 1_000_000);
        let fraction =
            if rest == 0 { String::new() } else { format!(".{rest:06}").trim_end_matches('0').to_owned() };
        parts.push(format!("{sign}{hours:02}:{minutes:02}:{seconds:02}{fraction}"));
    }
    parts.join(" ")
}

fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    for &byte in bytes {
        match byte {
            b'\\' | b'\'' | b'"' => text.push_str(&format!("\\x{byte:02X}")),
            32..=126 => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\x{byte:02X}")),
        }
    }
    text
}

/// The number in an answer of one number, such as a count of rows.
pub fn only_count(rows: &Rows) -> Option<u64> {
    match rows.rows.as_slice() {
        [row] => row.first()?.as_deref()?.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use arrow::array::{
        BinaryArray, Date32Array, Float32Array, Float64Array, Int32Array, ListArray, NullArray, StringArray,
        StructArray, TimestampMicrosecondArray,
    };
    use arrow::datatypes::{Field, Int32Type};

    fn one(array: impl Array + 'static) -> Vec<String> {
        let array: ArrayRef = Arc::new(array);
        let or_null = |text: Option<String>| text.unwrap_or_else(|| "NULL".to_owned());
        texts(&array).unwrap().into_iter().map(or_null).collect()
    }

    #[test]
    fn numbers_and_bytes() {
        assert_eq!(
            one(Float64Array::from(vec![Some(-0.0), None, Some(f64::NAN), Some(1e300)])),
            ["0.0", "NULL", "nan", "1e300"]
        );
        assert_eq!(one(Float32Array::from(vec![0.1])), ["0.1"]);
        assert_eq!(one(BinaryArray::from_vec(vec![b"a\x00'"])), ["a\\x00\\x27"]);
    }

    #[test]
    fn times() {
        let micros = vec![0, 1_500_000, -62_198_755_200_000_000];
        assert_eq!(
            one(TimestampMicrosecondArray::from(micros)),
            ["1970-01-01 00:00:00", "1970-01-01 00:00:01.5", "0002-01-01 (BC) 00:00:00"]
        );
        assert_eq!(one(Date32Array::from(vec![18262])), ["2020-01-01"]);
        assert_eq!(interval(14, -3, 3_661_500_000), "1 year 2 months -3 days 01:01:01.5");
        assert_eq!(interval(0, 0, 0), "00:00:00");
    }

    #[test]
    fn nested_values() {
        assert_eq!(one(NullArray::new(2)), ["NULL", "NULL"]);
        let list = ListArray::from_iter_primitive::<Int32Type, _, _>(vec![Some(vec![Some(1), None]), None]);
        assert_eq!(one(list), ["[1, NULL]", "NULL"]);
        let a: ArrayRef = Arc::new(Int32Array::from(vec![1]));
        let b: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
        let row = StructArray::from(vec![
            (Arc::new(Field::new("a", DataType::Int32, true)), a),
            (Arc::new(Field::new("b", DataType::Utf8, true)), b),
        ]);
        assert_eq!(one(row), ["{'a': 1, 'b': x}"]);
    }
}
