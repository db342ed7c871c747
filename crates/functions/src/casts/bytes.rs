//! Bytes and texts of bytes: `\xAA` stands for the byte 0xAA.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, BinaryArray, BinaryBuilder, StringViewArray, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::common::cast::as_binary_array;

use super::Failed;

pub(super) fn of_texts(texts: &StringViewArray, to: &DataType, failed: Failed) -> Result<ArrayRef> {
    let mut values = BinaryBuilder::with_capacity(texts.len(), 0);
    let mut bytes = Vec::new();
    for text in texts {
        let Some(text) = text else {
            values.append_null();
            continue;
        };
        bytes.clear();
        match read(text, &mut bytes) {
            Some(()) => values.append_value(&bytes),
            None => {
                failed.check(text, to)?;
                values.append_null();
            }
        }
    }
    let values: ArrayRef = Arc::new(values.finish());
    Ok(cast(&values, to)?)
}

/// The bytes of a text: its letters, which are ASCII, and those written in hexadecimal digits.
fn read(text: &str, bytes: &mut Vec<u8>) -> Option<()> {
    let mut rest = text.as_bytes();
    loop {
        rest = match rest {
            [] => return Some(()),
            [b'\\', b'x', high, low, rest @ ..] => {
                let digit = |digit: &u8| char::from(*digit).to_digit(16);
                bytes.push(u8::try_from(digit(high)? * 16 + digit(low)?).ok()?);
                rest
            }
            [b'\\', ..] => return None,
            [letter, rest @ ..] if letter.is_ascii() => {
                bytes.push(*letter);
                rest
            }
            _ => return None,
        };
    }
}

/// Bytes as texts that read as the same bytes.
pub(super) fn texts_of(values: &ArrayRef) -> Result<StringViewArray> {
    let plain = cast(values, &DataType::Binary)?;
    let plain: &BinaryArray = as_binary_array(&plain)?;
    let mut texts = StringViewBuilder::with_capacity(plain.len());
    let mut text = String::new();
    for bytes in plain {
        let Some(bytes) = bytes else {
            texts.append_null();
            continue;
        };
        text.clear();
        for &byte in bytes {
            match byte {
                b'\\' | b'\'' | b'"' | ..b' ' | b'\x7f'.. => write!(text, "\\x{byte:02X}")?,
                plain => text.push(plain.into()),
            }
        }
        texts.append_value(&text);
    }
    Ok(texts.finish())
}
