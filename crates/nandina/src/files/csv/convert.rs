//! Columns of CSV files that are read as texts and converted afterwards, as the parser does not know their type or their
//! format; and what is said of a value that is not of its type.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, Date32Builder, StringArray, TimestampNanosecondBuilder,
};
use arrow::compute::kernels::cast_utils::Parser as _;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Date32Type, Field, TimeUnit};
use arrow::error::ArrowError;
use chrono::{DateTime, NaiveDate, NaiveDateTime};
use datafusion::common::config::CsvOptions;
use nandina_functions::{Failed, cast_array, sql_type};

/// The format that stands for the parser's own: ISO 8601.
pub(super) const USUAL: &str = "";

/// How texts become values.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Conversion {
    Date(String),
    Timestamp(String, DataType),
    Cast(DataType),
}

impl Conversion {
    /// How a column is converted; none if the parser reads it.
    pub fn of(field: &Field, format: Option<&String>, options: &CsvOptions) -> Option<Self> {
        let data_type = field.data_type();
        let unless_usual = |format: &String| (format != USUAL).then(|| format.clone());
        match data_type {
            DataType::Date32 => {
                format.or(options.date_format.as_ref()).and_then(unless_usual).map(Self::Date)
            }
            DataType::Timestamp(_, _) => format
                .or(options.timestamp_format.as_ref())
                .and_then(unless_usual)
                .map(|format| Self::Timestamp(format, data_type.clone())),
            of if is_parsed(of) => None,
            other => Some(Self::Cast(other.clone())),
        }
    }

    /// The values of texts of a column.
    pub fn apply(&self, column: &str, texts: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        match self {
            Self::Cast(to) => match cast_array(texts, to, Failed::IsError) {
                Ok(values) => Ok(values),
                Err(_) => Err(self.first_failure(column, texts.as_string(), |text| {
                    let one: ArrayRef = Arc::new(StringArray::from(vec![text]));
                    cast_array(&one, to, Failed::IsError).is_ok()
                })),
            },
            Self::Date(format) => {
                let texts: &StringArray = texts.as_string();
                let mut values = Date32Builder::with_capacity(texts.len());
                for text in texts {
                    match text.map(|text| date(text.trim(), format)) {
                        Some(None) => {
                            let parses = |text: &str| date(text.trim(), format).is_some();
                            return Err(self.first_failure(column, texts, parses));
                        }
                        value => values.append_option(value.flatten()),
                    }
                }
                Ok(Arc::new(values.finish()))
            }
            Self::Timestamp(format, to) => {
                let texts: &StringArray = texts.as_string();
                let mut values = TimestampNanosecondBuilder::with_capacity(texts.len());
                let parse = |text: &str| timestamp(text.trim(), format);
                for text in texts {
                    match text.map(parse) {
                        Some(None) => {
                            return Err(self.first_failure(column, texts, |text| parse(text).is_some()));
                        }
                        value => values.append_option(value.flatten()),
                    }
                }
                let values: ArrayRef = Arc::new(values.finish());
                let zone = match to {
                    DataType::Timestamp(_, zone) => zone.clone(),
                    _ => None,
                };
                let in_zone = cast_with_options(
                    &values,
                    &DataType::Timestamp(TimeUnit::Nanosecond, zone),
                    &CastOptions::default(),
                )?;
                cast_with_options(&in_zone, to, &CastOptions::default())
            }
        }
    }

    /// The error for the first text that is not a value.
    fn first_failure(&self, column: &str, texts: &StringArray, parses: impl Fn(&str) -> bool) -> ArrowError {
        let text = texts.iter().flatten().find(|text| !parses(text)).unwrap_or_default();
        let (of, format) = match self {
            Self::Date(format) => (&DataType::Date32, Some(format)),
            Self::Timestamp(format, to) => (to, Some(format)),
            Self::Cast(to) => (to, None),
        };
        let format = format.map(|format| format!(" of the format '{format}'")).unwrap_or_default();
        ArrowError::CsvError(format!("column '{column}': '{text}' is not {}{format}", described(of)))
    }
}

/// Nanoseconds since 1970, of a time of a format; of a date alone, its begin.
pub(super) fn timestamp(text: &str, format: &str) -> Option<i64> {
    let in_zone = || DateTime::parse_from_str(text, format).ok().map(|time| time.naive_utc());
    let date = || NaiveDate::parse_from_str(text, format).ok().map(NaiveDateTime::from);
    let time = NaiveDateTime::parse_from_str(text, format).ok().or_else(in_zone).or_else(date);
    time?.and_utc().timestamp_nanos_opt()
}

/// Days since 1970.
pub(super) fn date(text: &str, format: &str) -> Option<i32> {
    Date32Type::parse_formatted(text, format)
}

/// What the parser says of a value, with the column's name in place of its number; other messages as they are.
pub(super) fn with_column(message: &str, fields: &[Arc<Field>]) -> String {
    let reworded = || {
        let rest = message.strip_prefix("Error while parsing value '")?;
        let rest = rest.split_once(". Row data: ").map_or(rest, |(rest, _)| rest);
        let (rest, number) = rest.rsplit_once(" for column ")?;
        let (value, _) = rest.rsplit_once("' as type '")?;
        let digits = number.trim_end_matches(|letter: char| !letter.is_ascii_digit());
        let field = fields.get(digits.parse::<usize>().ok()?)?;
        Some(format!("column '{}': '{value}' is not {}", field.name(), described(field.data_type())))
    };
    reworded().unwrap_or_else(|| message.to_owned())
}

/// Whether `arrow-csv` reads values of a type.
fn is_parsed(of: &DataType) -> bool {
    of.is_integer()
        || matches!(
            of,
            DataType::Float32
                | DataType::Float64
                | DataType::Decimal128(..)
                | DataType::Decimal256(..)
                | DataType::Utf8
                | DataType::Utf8View
                | DataType::Boolean
                | DataType::Null
                | DataType::Time32(_)
                | DataType::Time64(_)
        )
}

/// A value of a type, with the name that SQL has for it.
fn described(of: &DataType) -> String {
    let name = match of {
        DataType::Boolean => "BOOLEAN",
        DataType::Int8 => "TINYINT",
        DataType::Int16 => "SMALLINT",
        DataType::Int32 => return "an INTEGER".to_owned(),
        DataType::Int64 => "BIGINT",
        DataType::UInt8 => "UTINYINT",
        DataType::UInt16 => "USMALLINT",
        DataType::UInt32 => "UINTEGER",
        DataType::UInt64 => "UBIGINT",
        DataType::Float16 | DataType::Float32 => "REAL",
        DataType::Float64 => "DOUBLE",
        DataType::Date32 | DataType::Date64 => "DATE",
        DataType::Time32(_) | DataType::Time64(_) => "TIME",
        DataType::Timestamp(_, None) => "TIMESTAMP",
        DataType::Timestamp(_, Some(_)) => "TIMESTAMP WITH TIME ZONE",
        DataType::Interval(_) => return "an INTERVAL".to_owned(),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => return format!("a DECIMAL({precision}, {scale})"),
        other => return format!("a {}", sql_type(other)),
    };
    format!("a {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(values: &[&str]) -> ArrayRef {
        Arc::new(StringArray::from_iter(values.iter().map(|text| (!text.is_empty()).then_some(*text))))
    }

    #[test]
    fn dates_have_formats() {
        let conversion = Conversion::Date("%d/%m/%Y".to_owned());
        let values = conversion.apply("d", &texts(&["02/01/1970", ""])).unwrap();
        assert_eq!(values.as_primitive::<Date32Type>().iter().collect::<Vec<_>>(), [Some(1), None]);
        let message = conversion.apply("d", &texts(&["02/01/1970", "1970-01-02"])).unwrap_err().to_string();
        assert!(
            message.ends_with("column 'd': '1970-01-02' is not a DATE of the format '%d/%m/%Y'"),
            "{message}"
        );
    }

    #[test]
    fn messages_name_columns() {
        let fields = [
            Arc::new(Field::new("a", DataType::Utf8, true)),
            Arc::new(Field::new("b", DataType::Int64, true)),
        ];
        let said = "Error while parsing value 'x' as type 'Int64' for column 1";
        assert_eq!(with_column(said, &fields), "column 'b': 'x' is not a BIGINT");
        let with_row = format!("{said}. Row data: '[y,x] for column 0'");
        assert_eq!(with_column(&with_row, &fields), "column 'b': 'x' is not a BIGINT");
        assert_eq!(with_column("other", &fields), "other");
    }
}
