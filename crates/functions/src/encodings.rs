//! Bytes as texts, and sizes read from them.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, BinaryArray, Int64Array, StringViewArray, UInt64Array};
use arrow::datatypes::DataType;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use datafusion::common::cast::{as_binary_array, as_list_array, as_string_view_array};
use datafusion::common::{Result, exec_datafusion_err, exec_err, plan_err};

use crate::casts::bits::is_bit;
use crate::function::Kind::{Any, Blob, Text};
use crate::function::{Kernel, arguments};
use crate::types::sql_type;

pub(crate) static FUNCTIONS: &[Kernel] = &[
    Kernel::new(
        &["base64", "to_base64"],
        &[&[Blob]],
        |_| Ok(DataType::Utf8View),
        |given, _| {
            let [bytes] = arguments(given)?;
            let texts = as_binary_array(bytes)?.iter().map(|bytes| Some(STANDARD.encode(bytes?)));
            Ok(Arc::new(texts.collect::<StringViewArray>()))
        },
    ),
    Kernel::new(
        &["bytes_of_text"],
        &[&[Text]],
        |_| Ok(DataType::Binary),
        |given, _| {
            let [texts] = arguments(given)?;
            Ok(Arc::new(
                as_string_view_array(texts)?
                    .iter()
                    .map(|text| text.map(str::as_bytes))
                    .collect::<BinaryArray>(),
            ))
        },
    ),
    Kernel::new(&["octet_length"], &[&[Text], &[Blob], &[Any]], bigint, |given, _| {
        lengths(given, |bytes| bytes as i64, |bits| bits.div_ceil(8) as i64)
    }),
    Kernel::new(&["bit_length"], &[&[Text], &[Blob], &[Any]], bigint, |given, _| {
        lengths(given, |bytes| 8 * bytes as i64, |bits| bits as i64)
    }),
    Kernel::new(
        &["text_of_bytes"],
        &[&[Blob]],
        |_| Ok(DataType::Utf8View),
        |given, _| {
            let [bytes] = arguments(given)?;
            let texts = as_binary_array(bytes)?.iter().map(|bytes| {
                let text = bytes.map(str::from_utf8).transpose();
                text.map_err(|_| exec_datafusion_err!("decode: the bytes are no text in UTF-8"))
            });
            Ok(Arc::new(texts.collect::<Result<StringViewArray>>()?))
        },
    ),
    Kernel::new(
        &["from_base64"],
        &[&[Text]],
        |_| Ok(DataType::Binary),
        |given, _| {
            let [texts] = arguments(given)?;
            let decoded = |text: &str| {
                STANDARD
                    .decode(text)
                    .map_err(|error| exec_datafusion_err!("'{text}' is not written in base64: {error}"))
            };
            let bytes = as_string_view_array(texts)?.iter().map(|text| text.map(decoded).transpose());
            Ok(Arc::new(
                bytes.collect::<Result<Vec<_>>>()?.iter().map(Option::as_ref).collect::<BinaryArray>(),
            ))
        },
    ),
    Kernel::new(
        &["parse_formatted_bytes"],
        &[&[Text]],
        |_| Ok(DataType::UInt64),
        |given, _| {
            let [texts] = arguments(given)?;
            let sizes = as_string_view_array(texts)?.iter().map(|text| text.map(size).transpose());
            Ok(Arc::new(sizes.collect::<Result<UInt64Array>>()?))
        },
    ),
];

fn bigint(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Int64)
}

/// Lengths of texts and bytes, and of strings of bits.
fn lengths(
    given: &[ArrayRef],
    of_bytes: impl Fn(usize) -> i64,
    of_bits: impl Fn(usize) -> i64,
) -> Result<ArrayRef> {
    let [values] = arguments(given)?;
    let lengths: Int64Array = match values.data_type() {
        DataType::Utf8View => {
            as_string_view_array(values)?.iter().map(|text| Some(of_bytes(text?.len()))).collect()
        }
        DataType::Binary => {
            as_binary_array(values)?.iter().map(|bytes| Some(of_bytes(bytes?.len()))).collect()
        }
        of if is_bit(of) => as_list_array(values)?.iter().map(|bits| Some(of_bits(bits?.len()))).collect(),
        other => return plan_err!("{} has no length in bytes; cast it to VARCHAR or BLOB", sql_type(other)),
    };
    Ok(Arc::new(lengths))
}

/// The bytes of `1.5 GiB`.
fn size(text: &str) -> Result<u64> {
    let lower = text.trim().to_lowercase();
    let is_unit = |(place, letter): &(usize, char)| {
        // An exponent is part of the number.
        let is_exponent = *letter == 'e'
            && lower
                .get(place + 1..)
                .is_some_and(|rest| rest.starts_with(|next: char| next.is_ascii_digit()));
        letter.is_alphabetic() && !is_exponent || letter.is_whitespace()
    };
    let end = lower.char_indices().find(is_unit).map_or(lower.len(), |(place, _)| place);
    let (number, unit) = lower.split_at(end);
    let Ok(number) = number.parse::<f64>() else {
        return exec_err!("'{text}' is no size; write a number and a unit, as '1.5 GiB'");
    };
    let bytes: f64 = match unit.trim() {
        "b" | "byte" | "bytes" => 1.0,
        "kb" | "kilobyte" | "kilobytes" => 1e3,
        "mb" | "megabyte" | "megabytes" => 1e6,
        "gb" | "gigabyte" | "gigabytes" => 1e9,
        "tb" | "terabyte" | "terabytes" => 1e12,
        "kib" => 1024.0,
        "mib" => 1_048_576.0,
        "gib" => 1_073_741_824.0,
        "tib" => 1_099_511_627_776.0,
        other => {
            return exec_err!(
                "'{other}' is no unit of sizes; there are B, KB, MB, GB, TB, and KiB, MiB, GiB, TiB"
            );
        }
    };
    let size = number * bytes;
    match (0.0..u64::MAX as f64).contains(&size) {
        true => Ok(size as u64),
        false => exec_err!("'{text}' is out of the range of sizes"),
    }
}
