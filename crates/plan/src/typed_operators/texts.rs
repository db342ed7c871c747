//! Points in time and bytes as texts, the way DuckDB writes and reads them.
//!
//! - `2008-01-01 00:00:01.5`: no `T`, and no zeros at the end. With a time zone the offset follows: `+00`, `+05:30`.
//! - Years before the first are counted from it: `0044-03-15 (BC)`.
//! - A text that is cast to a timestamp without time zone keeps its date and time; its offset does not count.
//! - `\\xAA` in a text that is cast to bytes is the byte 0xAA.

use std::fmt::Write as _;
use std::sync::Arc;

use chrono::{Datelike, NaiveDate, NaiveDateTime, NaiveTime, Offset, TimeZone, Timelike, Utc};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{
    ArrayRef, ArrowPrimitiveType, AsArray, BinaryArray, StringArray, StringBuilder,
};
use datafusion::arrow::compute::cast as cast_array;
use datafusion::arrow::compute::kernels::cast_utils::string_to_datetime;
use datafusion::arrow::datatypes::{
    DataType, Date32Type, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use datafusion::arrow::temporal_conversions::as_datetime;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, exec_datafusion_err, exec_err, internal_err};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::{Cast, TryCast};

use crate::meanings::{Compute, call_giving};

const SECONDS_OF_HOUR: i32 = 3600;
const SECONDS_OF_MINUTE: i32 = 60;

pub(super) fn cast(Cast { expr, field }: Cast, from: &DataType) -> Transformed<Expr> {
    let expr = cast_value(*expr, from, field.data_type(), false);
    expr.update_data(|expr| Expr::Cast(Cast { expr: Box::new(expr), field }))
}

pub(super) fn try_cast(TryCast { expr, field }: TryCast, from: &DataType) -> Transformed<Expr> {
    let expr = cast_value(*expr, from, field.data_type(), true);
    expr.update_data(|expr| Expr::TryCast(TryCast { expr: Box::new(expr), field }))
}

/// The expression to cast in place of a value; a cast that tries makes nulls of texts that say nothing.
fn cast_value(value: Expr, from: &DataType, to: &DataType, tries: bool) -> Transformed<Expr> {
    let computed = |data_type: &DataType, name, compute: Compute| {
        Transformed::yes(call_giving(data_type.clone(), name, compute, vec![value.clone()]))
    };
    match (from, to) {
        (DataType::Timestamp(..), to) if to.is_string() => {
            computed(&DataType::Utf8, "text_of_timestamp", timestamps)
        }
        (DataType::Date32, to) if to.is_string() => computed(&DataType::Utf8, "text_of_date", dates),
        (from, DataType::Timestamp(_, zone)) if from.is_string() && !is_of_timestamp(&value) => {
            match (zone, tries) {
                (None, false) => computed(from, "text_of_local_time", without_offsets),
                (None, true) => computed(from, "known_text_of_local_time", local_times_in_range),
                (Some(_), true) => computed(from, "known_text_of_time", in_range),
                (Some(_), false) => Transformed::no(value),
            }
        }
        (from, DataType::Binary | DataType::LargeBinary | DataType::BinaryView) if from.is_string() => {
            computed(&DataType::Binary, "bytes_of_text", if tries { known_bytes } else { bytes })
        }
        _ => Transformed::no(value),
    }
}

/// Whether an expression has been rewritten before.
fn is_of_timestamp(value: &Expr) -> bool {
    let names = ["text_of_local_time", "known_text_of_local_time", "known_text_of_time"];
    matches!(value, Expr::ScalarFunction(function) if names.contains(&function.func.name()))
}

fn only(values: &[ArrayRef]) -> Result<&ArrayRef> {
    match values {
        [values] => Ok(values),
        _ => internal_err!("a text of one value, not of {}", values.len()),
    }
}

fn timestamps(values: &[ArrayRef]) -> Result<ArrayRef> {
    let values = only(values)?;
    let DataType::Timestamp(unit, zone) = values.data_type() else {
        return internal_err!("a timestamp's text of a {}", values.data_type());
    };
    let zone: Option<Tz> = zone.as_deref().map(str::parse).transpose()?;
    match unit {
        TimeUnit::Second => timestamps_of::<TimestampSecondType>(values, zone),
        TimeUnit::Millisecond => timestamps_of::<TimestampMillisecondType>(values, zone),
        TimeUnit::Microsecond => timestamps_of::<TimestampMicrosecondType>(values, zone),
        TimeUnit::Nanosecond => timestamps_of::<TimestampNanosecondType>(values, zone),
    }
}

fn timestamps_of<T: ArrowPrimitiveType<Native = i64>>(
    values: &ArrayRef,
    zone: Option<Tz>,
) -> Result<ArrayRef> {
    let mut texts = StringBuilder::new();
    for value in values.as_primitive::<T>() {
        let Some(value) = value else {
            texts.append_null();
            continue;
        };
        let utc = as_datetime::<T>(value)
            .ok_or_else(|| exec_datafusion_err!("the timestamp {value} is beyond the calendar"))?;
        match zone {
            None => write_timestamp(&mut texts, utc, None)?,
            Some(zone) => {
                let there = zone.from_utc_datetime(&utc);
                let seconds = there.offset().fix().local_minus_utc();
                write_timestamp(&mut texts, there.naive_local(), Some(seconds))?;
            }
        }
        texts.append_value("");
    }
    Ok(Arc::new(texts.finish()))
}

fn dates(values: &[ArrayRef]) -> Result<ArrayRef> {
    let values = only(values)?;
    let mut texts = StringBuilder::new();
    for value in values.as_primitive::<Date32Type>() {
        let Some(value) = value else {
            texts.append_null();
            continue;
        };
        let date = as_datetime::<Date32Type>(value.into())
            .ok_or_else(|| exec_datafusion_err!("the date {value} is beyond the calendar"))?;
        write_date(&mut texts, date.date())?;
        texts.append_value("");
    }
    Ok(Arc::new(texts.finish()))
}

fn write_timestamp(texts: &mut StringBuilder, at: NaiveDateTime, offset: Option<i32>) -> Result<()> {
    write_date(texts, at.date())?;
    write_time(texts, at.time())?;
    let Some(offset) = offset else { return Ok(()) };
    let sign = if offset < 0 { '-' } else { '+' };
    let (hours, rest) = (offset.abs() / SECONDS_OF_HOUR, offset.abs() % SECONDS_OF_HOUR);
    write!(texts, "{sign}{hours:02}")?;
    if rest > 0 {
        write!(texts, ":{:02}", rest / SECONDS_OF_MINUTE)?;
    }
    Ok(())
}

fn write_date(texts: &mut StringBuilder, date: NaiveDate) -> Result<()> {
    let (year, month, day) = (date.year(), date.month(), date.day());
    match year {
        1.. => write!(texts, "{year:04}-{month:02}-{day:02}")?,
        // There is no year 0.
        before => write!(texts, "{:04}-{month:02}-{day:02} (BC)", 1 - before)?,
    }
    Ok(())
}

fn write_time(texts: &mut StringBuilder, time: NaiveTime) -> Result<()> {
    write!(texts, " {:02}:{:02}:{:02}", time.hour(), time.minute(), time.second())?;
    if time.nanosecond() > 0 {
        let digits = format!("{:09}", time.nanosecond());
        write!(texts, ".{}", digits.trim_end_matches('0'))?;
    }
    Ok(())
}

fn without_offsets(texts: &[ArrayRef]) -> Result<ArrayRef> {
    let texts = only(texts)?;
    let plain = cast_array(texts, &DataType::Utf8)?;
    let plain: &StringArray = plain.as_string();
    let bare: StringArray = plain.iter().map(|text| text.map(without_offset)).collect();
    Ok(cast_array(&bare, texts.data_type())?)
}

fn local_times_in_range(texts: &[ArrayRef]) -> Result<ArrayRef> {
    without_offsets(&[in_range(texts)?])
}

/// The texts, unless one is a timestamp beyond those that there are: a null would say that it is none.
fn in_range(texts: &[ArrayRef]) -> Result<ArrayRef> {
    let texts = only(texts)?;
    let plain = cast_array(texts, &DataType::Utf8)?;
    let plain: &StringArray = plain.as_string();
    let is_beyond = |text: &&str| {
        string_to_datetime(&Utc, text).is_ok_and(|timestamp| timestamp.timestamp_nanos_opt().is_none())
    };
    match plain.iter().flatten().find(is_beyond) {
        Some(beyond) => exec_err!("'{beyond}' is beyond the timestamps, which go from 1677 to 2262"),
        None => Ok(Arc::clone(texts)),
    }
}

/// A date and time without the offset or the name of a zone that may stand behind it.
fn without_offset(text: &str) -> &str {
    let Some(colon) = text.find(':') else { return text };
    let is_of_time = |byte: u8| byte.is_ascii_digit() || matches!(byte, b':' | b'.');
    let length = text.bytes().skip(colon).take_while(|&byte| is_of_time(byte)).count();
    let (time, rest) = text.split_at(colon + length);
    let is_zone = |rest: &str| rest.eq_ignore_ascii_case("z") || rest.parse::<Tz>().is_ok();
    if is_zone(rest.trim()) || is_offset(rest.trim()) { time } else { text }
}

/// Whether a text is `+08`, `-0530` or `+05:30`.
fn is_offset(text: &str) -> bool {
    let Some(digits) = text.strip_prefix(['+', '-']) else { return false };
    let digits = digits.replacen(':', "", 1);
    matches!(digits.len(), 1 | 2 | 4) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn bytes(texts: &[ArrayRef]) -> Result<ArrayRef> {
    let plain = cast_array(only(texts)?, &DataType::Utf8)?;
    let plain: &StringArray = plain.as_string();
    let bytes = plain.iter().map(|text| text.map(unescaped).transpose());
    Ok(Arc::new(bytes.collect::<Result<BinaryArray>>()?))
}

/// Null where a text is no text of bytes.
fn known_bytes(texts: &[ArrayRef]) -> Result<ArrayRef> {
    let plain = cast_array(only(texts)?, &DataType::Utf8)?;
    let plain: &StringArray = plain.as_string();
    Ok(Arc::new(plain.iter().map(|text| text.and_then(|text| unescaped(text).ok())).collect::<BinaryArray>()))
}

fn unescaped(text: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('\\');
    bytes.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let digits = part.strip_prefix('x').and_then(|digits| digits.get(..2));
        let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) else {
            return exec_err!(
                "'{text}' is no text of bytes: behind \\ stand an x and two hexadecimal digits, as in \\xAA"
            );
        };
        bytes.push(byte);
        bytes.extend_from_slice(part.as_bytes().get(3..).unwrap_or_default());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_dropped_and_nothing_else() {
        for (text, bare) in [
            ("2025-01-01T08:00:00+08", "2025-01-01T08:00:00"),
            ("2025-01-01 08:00:00.25 -05:30", "2025-01-01 08:00:00.25"),
            ("2021-05-25 04:55:03.382494 EST", "2021-05-25 04:55:03.382494"),
            ("2021-05-25 04:55:03Z", "2021-05-25 04:55:03"),
            ("2021-05-25 04:55", "2021-05-25 04:55"),
            ("2021-05-25", "2021-05-25"),
            ("2021-05-25 04:55:03 PM", "2021-05-25 04:55:03 PM"),
            ("2021-05-25 04:55:03 nowhere", "2021-05-25 04:55:03 nowhere"),
            ("é:é", "é:é"),
        ] {
            assert_eq!(without_offset(text), bare);
        }
    }
}
