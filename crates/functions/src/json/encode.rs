//! Values as JSON: structs and maps are objects, lists arrays, numbers and booleans themselves, all else texts.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, Float64Array, MapArray, StringViewArray, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::{Result, exec_datafusion_err};

use super::is_json;
use crate::casts::offset_times::{self, is_timetz};
use crate::casts::unions::{self, is_union};
use crate::casts::{Failed, cast_array, element_range};
use crate::function::{element, list_of};
use crate::variants::{self, is_variant};

/// How dates and timestamps are written, where not as in casts to texts; in the format of `chrono`.
#[derive(Debug, Clone, Default)]
pub struct TimeFormats {
    pub date: Option<String>,
    pub timestamp: Option<String>,
    pub timestamp_in_zone: Option<String>,
    pub time: Option<String>,
}

impl TimeFormats {
    /// Dates and timestamps as texts in these formats; none for other types, and without a format.
    pub fn texts(&self, values: &ArrayRef) -> Result<Option<StringViewArray>> {
        let options = FormatOptions::new().with_display_error(false);
        let options = match (values.data_type(), &self.date, &self.timestamp) {
            (DataType::Date32 | DataType::Date64, Some(format), _) => {
                options.with_date_format(Some(format)).with_datetime_format(Some(format))
            }
            (DataType::Timestamp(_, None), _, Some(format)) => options.with_timestamp_format(Some(format)),
            (DataType::Timestamp(_, Some(_)), ..) if self.timestamp_in_zone.is_some() => {
                options.with_timestamp_tz_format(self.timestamp_in_zone.as_deref())
            }
            (DataType::Time32(_) | DataType::Time64(_), ..) if self.time.is_some() => {
                options.with_time_format(self.time.as_deref())
            }
            _ => return Ok(None),
        };
        let formatter = ArrayFormatter::try_new(values, &options)?;
        let text = |row| match values.is_valid(row) {
            true => formatter.value(row).try_to_string().map(Some),
            false => Ok(None),
        };
        Ok(Some((0..values.len()).map(text).collect::<Result<StringViewArray, _>>()?))
    }
}

/// Writes the values of a column as JSON.
#[derive(Debug)]
pub struct JsonEncoder {
    nulls: Option<NullBuffer>,
    of: Of,
}

#[derive(Debug)]
enum Of {
    Null,
    /// What is JSON already.
    Plain(StringViewArray),
    Floats(Float64Array),
    Texts(StringViewArray),
    Lists(OffsetBuffer<i32>, Box<JsonEncoder>),
    Maps(OffsetBuffer<i32>, StringViewArray, Box<JsonEncoder>),
    /// Names with their quotes.
    Structs(Vec<(String, JsonEncoder)>),
    /// The same of members, and which of them each row has.
    Unions(Vec<Option<usize>>, Vec<(String, JsonEncoder)>),
}

impl JsonEncoder {
    /// For the values of a column, of which `field` tells whether they are JSON.
    pub fn new(field: &Field, values: &ArrayRef, formats: &TimeFormats) -> Result<Self> {
        let of = match values.data_type() {
            DataType::Null => Of::Null,
            of if is_timetz(of) => Of::Texts(offset_times::texts_of(values)?),
            of if is_variant(of) => Of::Plain(variants::texts_of(values, variants::Form::Json)?),
            of if is_union(of) => {
                let unions = values.as_struct();
                let members = of_fields(unions, formats)?.into_iter().skip(1).collect();
                Of::Unions(unions::tags(unions), members)
            }
            DataType::Struct(_) => Of::Structs(of_fields(values.as_struct(), formats)?),
            DataType::Map(..) => of_map(values.as_map(), formats)?,
            DataType::Dictionary(_, of) => {
                return Self::new(
                    &field.clone().with_data_type(of.as_ref().clone()),
                    &cast(values, of)?,
                    formats,
                );
            }
            list if element(list).is_some() => {
                let DataType::List(inner) = list_of(element(list).cloned().unwrap_or(DataType::Null)) else {
                    unreachable!("a list is made of its element")
                };
                let values = cast(values, &DataType::List(Arc::clone(&inner)))?;
                let lists = values.as_list::<i32>();
                let encoder = Self::new(&inner, lists.values(), formats)?;
                Of::Lists(lists.offsets().clone(), Box::new(encoder))
            }
            DataType::Float16 | DataType::Float32 | DataType::Float64 => {
                // The shortest digits of a number of 32 bits are more in 64.
                let texts = cast_array(values, &DataType::Utf8, Failed::IsError)?;
                Of::Floats(cast(&texts, &DataType::Float64)?.as_primitive::<Float64Type>().clone())
            }
            of if of.is_numeric() || *of == DataType::Boolean => Of::Plain(texts(values)?),
            of if of.is_string() && is_json(field) => Of::Plain(texts(values)?),
            _ => Of::Texts(match formats.texts(values)? {
                Some(texts) => texts,
                None => texts(values)?,
            }),
        };
        Ok(JsonEncoder { nulls: values.logical_nulls(), of })
    }

    pub fn is_null(&self, row: usize) -> bool {
        matches!(self.of, Of::Null) || self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// Writes the value of a row.
    pub fn write(&self, row: usize, out: &mut String) {
        if self.is_null(row) {
            out.push_str("null");
            return;
        }
        match &self.of {
            Of::Null => out.push_str("null"),
            Of::Plain(texts) => out.push_str(texts.value(row)),
            Of::Floats(values) => write_float(values.value(row), out),
            Of::Texts(texts) => write_text(texts.value(row), out),
            Of::Lists(offsets, elements) => {
                out.push('[');
                for (place, element) in element_range(offsets, row).enumerate() {
                    out.push_str(if place > 0 { "," } else { "" });
                    elements.write(element, out);
                }
                out.push(']');
            }
            Of::Maps(offsets, keys, values) => {
                out.push('{');
                for (place, entry) in element_range(offsets, row).enumerate() {
                    out.push_str(if place > 0 { "," } else { "" });
                    write_text(keys.value(entry), out);
                    out.push(':');
                    values.write(entry, out);
                }
                out.push('}');
            }
            Of::Unions(present, members) => {
                let member = present.get(row).copied().flatten().and_then(|number| members.get(number));
                match member {
                    Some((name, values)) => {
                        out.push('{');
                        out.push_str(name);
                        out.push(':');
                        values.write(row, out);
                        out.push('}');
                    }
                    None => out.push_str("null"),
                }
            }
            Of::Structs(fields) => {
                out.push('{');
                for (place, (name, values)) in fields.iter().enumerate() {
                    out.push_str(if place > 0 { "," } else { "" });
                    out.push_str(name);
                    out.push(':');
                    values.write(row, out);
                }
                out.push('}');
            }
        }
    }
}

fn texts(values: &ArrayRef) -> Result<StringViewArray> {
    Ok(cast_array(values, &DataType::Utf8View, Failed::IsError)?.as_string_view().clone())
}

fn of_fields(values: &StructArray, formats: &TimeFormats) -> Result<Vec<(String, JsonEncoder)>> {
    let fields = values.fields().iter().zip(values.columns());
    let encoder = |(field, values): (&Arc<Field>, &ArrayRef)| {
        let mut name = String::new();
        write_text(field.name(), &mut name);
        Ok((name, JsonEncoder::new(field, values, formats)?))
    };
    fields.map(encoder).collect()
}

fn of_map(map: &MapArray, formats: &TimeFormats) -> Result<Of> {
    let entries = map.entries();
    let [_, value] = entries.fields().as_ref() else {
        return Err(exec_datafusion_err!("a map has keys and values"));
    };
    let values = JsonEncoder::new(value, map.values(), formats)?;
    Ok(Of::Maps(map.offsets().clone(), texts(map.keys())?, Box::new(values)))
}

/// A text in quotes.
pub(crate) fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            letter if letter < ' ' => *out += &format!("\\u{:04X}", letter as u32),
            letter => out.push(letter),
        }
    }
    out.push('"');
}

/// A number with a point or an exponent. JSON has neither infinity nor what is no number: they are texts, as in Postgres.
pub(super) fn write_float(value: f64, out: &mut String) {
    let size = value.abs();
    if !value.is_finite() {
        let name = if value.is_nan() { "NaN" } else { "Infinity" };
        *out += &format!("\"{}{name}\"", if value < 0.0 { "-" } else { "" });
    } else if size != 0.0 && !(1e-6..1e21).contains(&size) {
        *out += &format!("{value:e}");
    } else {
        let digits = value.to_string();
        out.push_str(&digits);
        out.push_str(if digits.contains('.') { "" } else { ".0" });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_numbers() {
        let written = |value| {
            let mut out = String::new();
            write_float(value, &mut out);
            out
        };
        assert_eq!(written(1.0), "1.0");
        assert_eq!(written(-0.25), "-0.25");
        assert_eq!(written(1e20), "100000000000000000000.0");
        assert_eq!(written(1e300), "1e300");
        assert_eq!(written(f64::NEG_INFINITY), "\"-Infinity\"");
    }

    #[test]
    fn texts_are_escaped() {
        let mut out = String::new();
        write_text("a\"\\\n\u{1}ü", &mut out);
        assert_eq!(out, "\"a\\\"\\\\\\n\\u0001ü\"");
    }
}
