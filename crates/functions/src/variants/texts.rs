//! `VARIANT`s as texts: of SQL, and as JSON.

use std::fmt::Write as _;

use arrow::array::{ArrayRef, StringViewArray, StringViewBuilder};
use arrow::datatypes::Field;
use datafusion::common::{Result, ScalarValue};

use super::{Value, decoded};
use crate::casts::{texts_of as plain_texts, write_part, write_quoted};
use crate::json::{JsonEncoder, TimeFormats, write_text};

/// How values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As a cast to text.
    Text,
    /// As a part of the text of a list or struct, in quotes where it would be read as something else.
    Part,
    Json,
    /// As JSON, but texts that stand alone as they are.
    PlainJson,
}

/// The text of each row; null where the value is.
pub(crate) fn texts_of(variants: &ArrayRef, form: Form) -> Result<StringViewArray> {
    let mut texts = StringViewBuilder::new();
    let mut text = String::new();
    for value in decoded(variants)? {
        if value == Value::Null {
            texts.append_null();
            continue;
        }
        text.clear();
        write(&value, form, &mut text)?;
        texts.append_value(&text);
    }
    Ok(texts.finish())
}

pub(super) fn write(value: &Value, form: Form, out: &mut String) -> Result<()> {
    let is_json = matches!(form, Form::Json | Form::PlainJson);
    let separator = if is_json { "," } else { ", " };
    let inside = if is_json { Form::Json } else { Form::Part };
    match value {
        Value::Null => out.push_str(if is_json { "null" } else { "NULL" }),
        Value::Plain(value) => plain(value, form, out)?,
        Value::Bits(digits) if form == Form::Json => write_text(digits, out),
        Value::Bits(digits) => out.push_str(digits),
        Value::List(elements) => {
            out.push('[');
            for (place, element) in elements.iter().enumerate() {
                out.push_str(if place > 0 { separator } else { "" });
                write(element, inside, out)?;
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (place, (name, value)) in members.iter().enumerate() {
                out.push_str(if place > 0 { separator } else { "" });
                if is_json {
                    write_text(name, out);
                    out.push(':');
                } else {
                    write_quoted(out, name);
                    out.push_str(": ");
                }
                write(value, inside, out)?;
            }
            out.push('}');
        }
    }
    Ok(())
}

fn plain(value: &ScalarValue, form: Form, out: &mut String) -> Result<()> {
    match (value, form) {
        (ScalarValue::Utf8View(Some(text)), Form::Text | Form::PlainJson) => out.push_str(text),
        (ScalarValue::Utf8View(Some(text)), Form::Part) => write_part(out, text),
        (ScalarValue::Utf8View(Some(text)), Form::Json) => write_text(text, out),
        (ScalarValue::Boolean(Some(value)), _) => write!(out, "{value}")?,
        (ScalarValue::Int32(Some(number)), _) => write!(out, "{number}")?,
        (ScalarValue::Int64(Some(number)), _) => write!(out, "{number}")?,
        (ScalarValue::UInt64(Some(number)), _) => write!(out, "{number}")?,
        (value, form) => {
            let values = value.to_array()?;
            let is_number = value.data_type().is_numeric();
            match form {
                Form::Text => out.push_str(plain_texts(&values)?.value(0)),
                Form::Part => write_part(out, plain_texts(&values)?.value(0)),
                Form::PlainJson if !is_number => out.push_str(plain_texts(&values)?.value(0)),
                Form::Json | Form::PlainJson => {
                    let field = Field::new("", value.data_type(), true);
                    JsonEncoder::new(&field, &values, &TimeFormats::default())?.write(0, out);
                }
            }
        }
    }
    Ok(())
}
