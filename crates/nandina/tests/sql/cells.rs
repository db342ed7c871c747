//! How values stand in the files.
//!
//! | letter | type | written as |
//! |---|---|---|
//! | `B` | boolean | `true` |
//! | `I` | integer | `-12` |
//! | `N` | decimal | `1.50`, with all digits of its scale |
//! | `R` | floating point | `0.25`, `3.0`, `1e300`, `NaN`, `inf`, rounded to 12 digits: sums of parts differ in the last ones |
//! | `T` | text | as it is, a line break as `\n`, nothing as `(empty)` |
//! | `D`, `P`, `H` | date, timestamp (point in time), time (hours) | ISO 8601 |
//! | `?` | everything else: lists, structs, maps, intervals, bytes, the untyped null | as Arrow shows it; with a `VARIANT` or a `UNION`, as text |
//!
//! Null is `NULL`. Values are separated by a space, so a text with spaces reads like two: put brackets round it.

use arrow::array::{Array as _, ArrayRef, AsArray as _, RecordBatch};
use arrow::datatypes::{DataType, Float64Type, Schema};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use sqllogictest::ColumnType;

/// A column's type, as the letter after `query`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnKind(char);

impl ColumnType for ColumnKind {
    fn from_char(letter: char) -> Option<Self> {
        "BINRTDPH?".contains(letter).then_some(ColumnKind(letter))
    }

    fn to_char(&self) -> char {
        self.0
    }
}

/// The types of all columns.
pub fn kinds(schema: &Schema) -> Vec<ColumnKind> {
    schema.fields().iter().map(|field| ColumnKind(letter(field.data_type()))).collect()
}

fn letter(data_type: &DataType) -> char {
    match data_type {
        DataType::Boolean => 'B',
        _ if data_type.is_integer() => 'I',
        _ if data_type.is_decimal() => 'N',
        _ if data_type.is_floating() => 'R',
        _ if data_type.is_string() => 'T',
        DataType::Date32 | DataType::Date64 => 'D',
        DataType::Timestamp(..) => 'P',
        DataType::Time32(_) | DataType::Time64(_) => 'H',
        _ => '?',
    }
}

/// The values of a batch, row by row.
pub fn rows(batch: &RecordBatch) -> Result<Vec<Vec<String>>, ArrowError> {
    let columns: Vec<Vec<String>> = batch.columns().iter().map(values).collect::<Result<_, _>>()?;
    Ok((0..batch.num_rows()).map(|row| columns.iter().map(|column| column[row].clone()).collect()).collect())
}

fn values(column: &ArrayRef) -> Result<Vec<String>, ArrowError> {
    if column.data_type().is_floating() {
        let doubles = arrow::compute::cast(column, &DataType::Float64)?;
        let doubles = doubles.as_primitive::<Float64Type>();
        return Ok(doubles.iter().map(|value| value.map_or_else(|| "NULL".to_owned(), float)).collect());
    }
    if nandina_functions::takes_all(column.data_type()) {
        let texts = nandina::texts_of(column).map_err(|error| ArrowError::ComputeError(error.to_string()))?;
        return Ok(texts.iter().map(|text| text.map_or_else(|| "NULL".to_owned(), visible)).collect());
    }
    let options = FormatOptions::default().with_null("NULL");
    let formatter = ArrayFormatter::try_new(column, &options)?;
    let texts = (0..column.len()).map(|row| formatter.value(row).try_to_string());
    texts.map(|text| text.map(|text| visible(&text))).collect()
}

fn float(value: f64) -> String {
    let rounded: f64 = format!("{value:.11e}").parse().unwrap();
    // The sign of a zero depends on the order of additions.
    format!("{:?}", rounded + 0.0)
}

fn visible(text: &str) -> String {
    if text.is_empty() { "(empty)".to_owned() } else { text.replace('\n', "\\n") }
}
