//! Values as texts, the way DuckDB writes them.
//!
//! | value | text |
//! |---|---|
//! | floating-point numbers | `1.0`, `1e+20`, `1e-05`, `nan`, `-inf` |
//! | points in time | `2008-01-01 00:00:01.5`, with a zone `+00` or `+05:30` behind it; `0044-03-15 (BC)`, `infinity` |
//! | intervals | `1 year 2 months -3 days 04:05:06.7` |
//! | lists, structs, maps | `[1, NULL]`, `{'a': 1}`, `{k=1}`; in quotes what would be read as something else |

use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray as _, PrimitiveArray, StringViewArray, StringViewBuilder,
};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Float32Type, Float64Type, Int64Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use chrono::{DateTime, Offset as _, TimeZone as _};
use datafusion::common::cast::as_string_view_array;
use datafusion::common::{Result, exec_datafusion_err};

use super::calendar::{
    INFINITE_DATE, INFINITE_TIMESTAMP, NANOSECONDS_OF_DAY, write_date, write_fraction, write_time,
};
use super::{bits, bytes, enums, offset_times, unions};
use crate::variants;

/// The texts of values of any type that has some.
pub fn of_values(values: &ArrayRef) -> Result<StringViewArray> {
    match values.data_type() {
        of if enums::enum_texts(of).is_some() => Ok(enums::texts_of(values)),
        of if bits::is_bit(of) => Ok(bits::texts_of(values)),
        of if variants::is_variant(of) => variants::texts_of(values, variants::Form::Text),
        of if unions::is_union(of) => unions::texts_of(values),
        of if offset_times::is_timetz(of) => offset_times::texts_of(values),
        of if of.is_nested() => super::nested_texts::of_values(values),
        DataType::Float32 => texts(values.as_primitive::<Float32Type>(), |text, value| {
            write_float(text, value.into(), format_args!("{value:e}"))
        }),
        DataType::Float64 => texts(values.as_primitive::<Float64Type>(), |text, value| {
            write_float(text, value, format_args!("{value:e}"))
        }),
        DataType::Date32 => texts(values.as_primitive::<Date32Type>(), |text, days| match days {
            INFINITE_DATE => Ok(write!(text, "infinity")?),
            days if days == -INFINITE_DATE => Ok(write!(text, "-infinity")?),
            days => Ok(write_date(text, days.into())?),
        }),
        DataType::Time32(_) | DataType::Time64(_) => {
            let unit = DataType::Time64(TimeUnit::Nanosecond);
            let times = cast(&cast(values, &unit)?, &DataType::Int64)?;
            texts(times.as_primitive::<Int64Type>(), |text, nanoseconds| Ok(write_time(text, nanoseconds)?))
        }
        DataType::Timestamp(unit, zone) => timestamps(values, *unit, zone.as_deref()),
        DataType::Interval(_) | DataType::Duration(_) => {
            let intervals = cast(values, &DataType::Interval(IntervalUnit::MonthDayNano))?;
            texts(intervals.as_primitive::<IntervalMonthDayNanoType>(), write_interval)
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            bytes::texts_of(values)
        }
        _ => Ok(as_string_view_array(&cast(values, &DataType::Utf8View)?)?.clone()),
    }
}

/// The texts that a function writes.
fn texts<T: ArrowPrimitiveType>(
    values: &PrimitiveArray<T>,
    write: impl Fn(&mut String, T::Native) -> Result<()>,
) -> Result<StringViewArray> {
    let mut texts = StringViewBuilder::with_capacity(values.len());
    let mut text = String::new();
    for value in values {
        let Some(value) = value else {
            texts.append_null();
            continue;
        };
        text.clear();
        write(&mut text, value)?;
        texts.append_value(&text);
    }
    Ok(texts.finish())
}

/// Writes the digits of `1.5e20` with their exponent, if it is large or small.
fn write_float(text: &mut String, value: f64, scientific: std::fmt::Arguments<'_>) -> Result<()> {
    const PLAIN_EXPONENTS: std::ops::Range<i32> = -4..16;
    if !value.is_finite() {
        let sign = if value.is_sign_negative() { "-" } else { "" };
        write!(text, "{sign}{}", if value.is_nan() { "nan" } else { "inf" })?;
        return Ok(());
    }
    let begin = text.len();
    write!(text, "{scientific}")?;
    let written = text.split_off(begin);
    let Some((digits, Ok(exponent))) = written.split_once('e').map(|(digits, e)| (digits, e.parse::<i32>()))
    else {
        unreachable!("the scientific form of a finite number has an exponent");
    };
    if !PLAIN_EXPONENTS.contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(text, "{digits}e{sign}{:02}", exponent.abs())?;
        return Ok(());
    }
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |digits| ("-", digits));
    let digits: String = digits.chars().filter(|&digit| digit != '.').collect();
    text.push_str(sign);
    let Ok(before_point) = usize::try_from(exponent + 1) else {
        let zeros = "0".repeat(exponent.unsigned_abs() as usize - 1);
        write!(text, "0.{zeros}{digits}")?;
        return Ok(());
    };
    if before_point == 0 {
        write!(text, "0.{digits}")?;
        return Ok(());
    }
    match digits.split_at_checked(before_point) {
        Some((whole, "")) => write!(text, "{whole}.0")?,
        Some((whole, fraction)) => write!(text, "{whole}.{fraction}")?,
        None => write!(text, "{digits:0<before_point$}.0")?,
    }
    Ok(())
}

fn timestamps(values: &ArrayRef, unit: TimeUnit, zone: Option<&str>) -> Result<StringViewArray> {
    let nanoseconds_of_unit = match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    };
    let per_day = NANOSECONDS_OF_DAY / nanoseconds_of_unit;
    let zone: Option<Tz> = zone.map(str::parse).transpose()?;
    let numbers = cast(values, &DataType::Int64)?;
    texts(numbers.as_primitive::<Int64Type>(), |text, number| {
        if number.unsigned_abs() == INFINITE_TIMESTAMP.unsigned_abs() {
            text.push_str(if number < 0 { "-infinity" } else { "infinity" });
            return Ok(());
        }
        let ahead = match zone {
            Some(zone) => seconds_ahead(zone, number.div_euclid(per_day / 86_400))?,
            None => 0,
        };
        let local = i128::from(number) + i128::from(ahead) * i128::from(per_day / 86_400);
        let days = local.div_euclid(per_day.into());
        let of_day = local.rem_euclid(per_day.into());
        let (Ok(days), Ok(of_day)) = (i64::try_from(days), i64::try_from(of_day)) else {
            unreachable!("a day and a part of it are less than the 64 bits that they are taken from");
        };
        write_date(text, days)?;
        text.push(' ');
        write_time(text, of_day * nanoseconds_of_unit)?;
        if zone.is_some() {
            write_offset(text, ahead)?;
        }
        Ok(())
    })
}

fn seconds_ahead(zone: Tz, seconds: i64) -> Result<i64> {
    let utc = DateTime::from_timestamp(seconds, 0)
        .ok_or_else(|| exec_datafusion_err!("no time zone is known {seconds} seconds from 1970"))?;
    Ok(zone.offset_from_utc_datetime(&utc.naive_utc()).fix().local_minus_utc().into())
}

/// Writes how far a zone is ahead of UTC.
pub(super) fn write_offset(text: &mut String, seconds: i64) -> Result<()> {
    let sign = if seconds < 0 { '-' } else { '+' };
    let (hours, rest) = (seconds.abs() / 3600, seconds.abs() % 3600);
    write!(text, "{sign}{hours:02}")?;
    if rest > 0 {
        write!(text, ":{:02}", rest / 60)?;
    }
    if rest % 60 > 0 {
        write!(text, ":{:02}", rest % 60)?;
    }
    Ok(())
}

fn write_interval(text: &mut String, interval: IntervalMonthDayNano) -> Result<()> {
    let parts = [(interval.months / 12, "year"), (interval.months % 12, "month"), (interval.days, "day")];
    for (number, unit) in parts.into_iter().filter(|(number, _)| *number != 0) {
        let space = if text.is_empty() { "" } else { " " };
        let plural = if number.abs() == 1 { "" } else { "s" };
        write!(text, "{space}{number} {unit}{plural}")?;
    }
    let nanoseconds = interval.nanoseconds;
    if nanoseconds == 0 && !text.is_empty() {
        return Ok(());
    }
    let space = if text.is_empty() { "" } else { " " };
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let (seconds, fraction) =
        (nanoseconds.unsigned_abs() / 1_000_000_000, nanoseconds.unsigned_abs() % 1_000_000_000);
    write!(text, "{space}{sign}{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)?;
    write_fraction(text, fraction as i64)?;
    Ok(())
}

/// An array of texts in the form that a type asks for.
pub(super) fn in_form(texts: StringViewArray, to: &DataType) -> Result<ArrayRef> {
    let texts: ArrayRef = Arc::new(texts);
    Ok(if to == texts.data_type() { texts } else { cast(&texts, to)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_have_a_point_or_an_exponent() {
        for (value, written) in [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (123_456_789.123, "123456789.123"),
            (0.0001, "0.0001"),
            (0.25, "0.25"),
            (0.00001, "1e-05"),
            (1.5e300, "1.5e+300"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            let mut text = String::new();
            write_float(&mut text, value, format_args!("{value:e}")).unwrap();
            assert_eq!(text, written);
        }
    }

    #[test]
    fn intervals_are_written_in_years_and_days() {
        for (months, days, nanoseconds, written) in [
            (14, -3, 14_706_700_000_000, "1 year 2 months -3 days 04:05:06.7"),
            (0, 0, 0, "00:00:00"),
            (0, 1, 0, "1 day"),
            (-12, 0, -1_000_000_000, "-1 year -00:00:01"),
        ] {
            let mut text = String::new();
            write_interval(&mut text, IntervalMonthDayNano::new(months, days, nanoseconds)).unwrap();
            assert_eq!(text, written);
        }
    }
}
