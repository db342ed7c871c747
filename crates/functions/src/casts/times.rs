//! Texts that are dates, times of day, points in time and intervals.
//!
//! What is finer than a type is cut off by microseconds and nanoseconds, and rounded by seconds and milliseconds, as in
//! DuckDB. A timestamp without a time zone keeps the date and time that are written, whatever zone stands behind them.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{Array as _, ArrayRef, AsArray as _, Date32Array, Int64Array, StringViewArray};
use arrow::compute::kernels::zip::zip;
use arrow::compute::{cast, is_not_null, nullif};
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Int64Type, IntervalMonthDayNanoType, IntervalUnit,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use chrono::{DateTime, LocalResult, Offset as _, TimeDelta, TimeZone as _};
use datafusion::common::Result;

use super::calendar::{
    INFINITE_DATE, INFINITE_TIMESTAMP, Moment, NANOSECONDS_OF_DAY, Zone, is_infinite_time, moment,
    time_of_day,
};
use super::{Failed, primitives};
use crate::interval_text::parse_interval;

/// The times that texts say, if the type is one of times.
pub(super) fn of_texts(texts: &StringViewArray, to: &DataType, failed: Failed) -> Option<Result<ArrayRef>> {
    let per_day = |nanoseconds_of_unit| NANOSECONDS_OF_DAY / nanoseconds_of_unit;
    Some(match to {
        DataType::Date32 => primitives::<Date32Type>(texts, to, failed, date),
        DataType::Date64 => primitives::<Date64Type>(texts, to, failed, |text| {
            Some(i64::from(date(text)?) * per_day(1_000_000))
        }),
        DataType::Time32(TimeUnit::Second) => primitives::<Time32SecondType>(texts, to, failed, |text| {
            i32::try_from(time_of_day(text)? / 1_000_000_000).ok()
        }),
        DataType::Time32(_) => primitives::<Time32MillisecondType>(texts, to, failed, |text| {
            i32::try_from(time_of_day(text)? / 1_000_000).ok()
        }),
        DataType::Time64(TimeUnit::Microsecond) => {
            primitives::<Time64MicrosecondType>(texts, to, failed, |text| Some(time_of_day(text)? / 1_000))
        }
        DataType::Time64(_) => primitives::<Time64NanosecondType>(texts, to, failed, time_of_day),
        DataType::Timestamp(unit, zone) => {
            let zone: Option<Tz> = match zone.as_deref().map(str::parse).transpose() {
                Ok(zone) => zone,
                Err(error) => return Some(Err(error.into())),
            };
            let read = |text: &str| timestamp(text, *unit, zone);
            match unit {
                TimeUnit::Second => primitives::<TimestampSecondType>(texts, to, failed, read),
                TimeUnit::Millisecond => primitives::<TimestampMillisecondType>(texts, to, failed, read),
                TimeUnit::Microsecond => primitives::<TimestampMicrosecondType>(texts, to, failed, read),
                TimeUnit::Nanosecond => primitives::<TimestampNanosecondType>(texts, to, failed, read),
            }
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            primitives::<IntervalMonthDayNanoType>(texts, to, failed, parse_interval)
        }
        _ => return None,
    })
}

fn date(text: &str) -> Option<i32> {
    match moment(text)?.0 {
        Moment::At { days, nanoseconds } => {
            let days = i32::try_from(days + nanoseconds / NANOSECONDS_OF_DAY).ok()?;
            (days.unsigned_abs() < INFINITE_DATE.unsigned_abs()).then_some(days)
        }
        Moment::Infinite { is_negative } => Some(if is_negative { -INFINITE_DATE } else { INFINITE_DATE }),
    }
}

/// Units since 1970. A timestamp with a time zone that says no other is one of the session's.
fn timestamp(text: &str, unit: TimeUnit, session_zone: Option<Tz>) -> Option<i64> {
    let (moment, zone) = moment(text)?;
    let (days, nanoseconds) = match moment {
        Moment::At { days, nanoseconds } => (days, nanoseconds),
        Moment::Infinite { is_negative: true } => return Some(-INFINITE_TIMESTAMP),
        Moment::Infinite { is_negative: false } => return Some(INFINITE_TIMESTAMP),
    };
    let (per_day, of_day) = match unit {
        TimeUnit::Nanosecond => (NANOSECONDS_OF_DAY, nanoseconds),
        TimeUnit::Microsecond => (NANOSECONDS_OF_DAY / 1_000, nanoseconds / 1_000),
        TimeUnit::Millisecond => (NANOSECONDS_OF_DAY / 1_000_000, (nanoseconds / 1_000 + 500) / 1_000),
        TimeUnit::Second => (86_400, (nanoseconds / 1_000 + 500_000) / 1_000_000),
    };
    let seconds_ahead = match (session_zone, zone) {
        (None, _) => 0,
        (Some(_), Zone::Offset(seconds)) => seconds,
        (Some(_), Zone::Named(zone)) | (Some(zone), Zone::Unsaid) => seconds_ahead(zone, days, nanoseconds)?,
    };
    let ahead = seconds_ahead * (per_day / 86_400);
    // The first day that there is may begin before the first timestamp.
    let units = i128::from(days) * i128::from(per_day) + i128::from(of_day - ahead);
    let units = i64::try_from(units).ok()?;
    (units.unsigned_abs() < INFINITE_TIMESTAMP.unsigned_abs()).then_some(units)
}

/// How far a zone is ahead of UTC at a local time. In the hour that a clock goes through twice, the first time counts; in one
/// that it leaves out, what held before.
fn seconds_ahead(zone: Tz, days: i64, nanoseconds: i64) -> Option<i64> {
    let seconds = days.checked_mul(86_400)? + nanoseconds / 1_000_000_000;
    let local = DateTime::from_timestamp(seconds, 0)?.naive_utc();
    let offset = match zone.offset_from_local_datetime(&local) {
        LocalResult::Single(offset) | LocalResult::Ambiguous(offset, _) => offset,
        LocalResult::None => zone.offset_from_utc_datetime(&local.checked_sub_signed(TimeDelta::days(1))?),
    };
    Some(offset.fix().local_minus_utc().into())
}

/// Points in time of a coarser unit, rounded, or as dates; none if the types are others. What is infinite stays so.
pub(super) fn of_timestamps(values: &ArrayRef, to: &DataType) -> Option<Result<ArrayRef>> {
    let DataType::Timestamp(unit, zone) = values.data_type() else { return None };
    let per_second = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000_i64,
    };
    let is_infinite = is_infinite_time;
    let numbers = || cast(values, &DataType::Int64);
    let computed = match to {
        DataType::Timestamp(coarser, same) if coarser < unit && same == zone => {
            let ratio = per_second(unit) / per_second(coarser);
            let round = |number: i64| match is_infinite(number) {
                true => number,
                false => number.div_euclid(ratio) + i64::from(number.rem_euclid(ratio) >= ratio / 2),
            };
            numbers().and_then(|numbers| {
                let rounded: Int64Array = numbers.as_primitive::<Int64Type>().unary(round);
                cast(&rounded, to)
            })
        }
        DataType::Timestamp(coarser, _) if coarser < unit => numbers().and_then(|numbers| {
            let there = cast(&cast(values, to)?, &DataType::Int64)?;
            let pairs = there.as_primitive::<Int64Type>().iter().zip(numbers.as_primitive::<Int64Type>());
            let kept: Int64Array =
                pairs.map(|(there, number)| number.filter(|&number| is_infinite(number)).or(there)).collect();
            cast(&kept, to)
        }),
        DataType::Date32 if zone.is_none() => {
            let per_day = per_second(unit) * 86_400;
            let day = |number: i64| match is_infinite(number) {
                true => INFINITE_DATE * if number < 0 { -1 } else { 1 },
                // 64 bits of seconds have more days than a date.
                false => i32::try_from(number.div_euclid(per_day)).unwrap_or(INFINITE_DATE),
            };
            numbers().map(|numbers| {
                let days: Date32Array = numbers.as_primitive::<Int64Type>().unary(day);
                Arc::new(days) as ArrayRef
            })
        }
        _ => return None,
    };
    Some(computed.map_err(Into::into))
}

/// Dates and points in time among which some are infinite, which stay so; none if there are none.
pub(super) fn of_infinite(values: &ArrayRef, to: &DataType, failed: Failed) -> Option<Result<ArrayRef>> {
    let end = match (values.data_type(), to) {
        (DataType::Date32, DataType::Timestamp(..)) => INFINITE_DATE.into(),
        (DataType::Timestamp(..), DataType::Timestamp(..)) => INFINITE_TIMESTAMP,
        _ => return None,
    };
    let ends = || -> Result<Option<ArrayRef>> {
        let numbers = cast(values, &DataType::Int64)?;
        let infinite = |number: i64| {
            (number.unsigned_abs() == end.unsigned_abs()).then(|| INFINITE_TIMESTAMP * number.signum())
        };
        let ends: Int64Array = numbers.as_primitive::<Int64Type>().unary_opt(infinite);
        if ends.null_count() == ends.len() {
            return Ok(None);
        }
        let is_infinite = is_not_null(&ends)?;
        let finite = super::of_arrow(&nullif(values, &is_infinite)?, to, failed)?;
        Ok(Some(zip(&is_infinite, &cast(&ends, to)?, &finite)?))
    };
    ends().transpose()
}

/// Whether [`of_timestamps`] or [`of_infinite`] casts between these types.
pub(super) fn is_of_timestamps(from: &DataType, to: &DataType) -> bool {
    match (from, to) {
        (DataType::Timestamp(unit, zone), DataType::Timestamp(other, other_zone)) => {
            unit != other || (zone.is_none() && other_zone.is_some())
        }
        (DataType::Timestamp(_, None), DataType::Date32) | (DataType::Date32, DataType::Timestamp(..)) => {
            true
        }
        _ => false,
    }
}

/// Whether a cast keeps the order of points in time, and would be Arrow's but for those that are infinite.
pub(super) fn is_but_for_infinite(from: &DataType, to: &DataType) -> bool {
    match (from, to) {
        (DataType::Timestamp(unit, zone), DataType::Timestamp(finer, other)) => unit < finer && zone == other,
        (DataType::Date32, DataType::Timestamp(_, None)) => true,
        _ => false,
    }
}
