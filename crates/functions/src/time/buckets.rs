//! `time_bucket`: periods of one width, which the calendar is cut into.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{
    Array as _, ArrayRef, AsArray as _, BooleanArray, IntervalMonthDayNanoArray, StringViewArray,
    Time64NanosecondArray, TimestampMicrosecondArray,
};
use arrow::compute::kernels::zip::zip;
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, IntervalMonthDayNano, TimeUnit};
use chrono::{LocalResult, NaiveDate, NaiveDateTime, Offset as _, TimeDelta, TimeZone as _};
use datafusion::common::cast::as_interval_mdn_array;
use datafusion::common::{DataFusionError, Result, exec_datafusion_err, exec_err};

use super::{
    MICROS_PER_DAY, MICROS_PER_SECOND, finite, later, micros_of, month_number, negated, time_at, times_of,
    timestamps,
};
use crate::function::{INTERVAL, MICROSECONDS, arguments};

/// Where the buckets of days begin: a Monday. Those of months begin with the year.
const MONDAY_2000: i64 = 946_857_600 * MICROS_PER_SECOND;

pub(super) fn time_bucket(given: &[ArrayRef], returned: &DataType) -> Result<ArrayRef> {
    let buckets = finite_buckets(given, returned)?;
    let [_, times] = arguments(given)?;
    let finite = finite(times);
    if finite.null_count() == times.null_count() || times.data_type() != returned {
        return Ok(buckets);
    }
    // What is infinite is a bucket of its own.
    let is_infinite = |row| finite.is_null(row) && given.iter().all(|argument| argument.is_valid(row));
    let is_infinite: BooleanArray = (0..times.len()).map(|row| Some(is_infinite(row))).collect();
    Ok(zip(&is_infinite, times, &buckets)?)
}

fn finite_buckets(given: &[ArrayRef], returned: &DataType) -> Result<ArrayRef> {
    let [widths, times] = arguments(given)?;
    let times = of_first_day(times)?;
    let widths = as_interval_mdn_array(widths)?;
    if let Some(zones) = given.get(2).and_then(|third| third.as_string_view_opt()) {
        return in_zones(widths, &times, zones, returned);
    }
    let third = match given.get(2) {
        Some(third) if *third.data_type() != INTERVAL => Some(of_first_day(third)?),
        third => third.cloned(),
    };
    let third = third.as_ref();
    let offsets =
        third.filter(|third| *third.data_type() == INTERVAL).map(|third| as_interval_mdn_array(third));
    let origins = third.filter(|third| *third.data_type() != INTERVAL).map(times_of).transpose()?;
    let offsets = offsets.transpose()?;
    let mut origins = origins.map(|origins| origins.collect::<Vec<_>>().into_iter());
    let rows = widths.iter().zip(times_of(&times)?).enumerate();
    let buckets = rows.map(|(row, (width, time))| {
        let origin = match &mut origins {
            Some(origins) => match origins.next().flatten() {
                Some(origin) => Some(origin),
                None => return Ok(None),
            },
            None => None,
        };
        let Some((width, time)) = width.zip(time) else { return Ok(None) };
        match offsets {
            Some(offsets) if offsets.is_null(row) => Ok(None),
            Some(offsets) => {
                let offset = offsets.value(row);
                Ok(Some(later(bucket(width, later(time, negated(offset))?, origin)?, offset)?))
            }
            None => Ok(Some(bucket(width, time, origin)?)),
        }
    });
    if *returned == MICROSECONDS {
        return timestamps(buckets);
    }
    let micros: TimestampMicrosecondArray =
        buckets.map(|bucket| Ok(bucket?.map(micros_of))).collect::<Result<_>>()?;
    if let DataType::Time64(_) = returned {
        let of_day: Time64NanosecondArray = micros.unary(|micros| micros.rem_euclid(MICROS_PER_DAY) * 1000);
        return Ok(Arc::new(of_day));
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    Ok(cast_with_options(&micros, returned, &options)?)
}

/// Points in time in microseconds; times of the day are of the first day of 1970.
fn of_first_day(times: &ArrayRef) -> Result<ArrayRef> {
    if !matches!(times.data_type(), DataType::Time32(_) | DataType::Time64(_)) {
        return Ok(cast(times, &MICROSECONDS)?);
    }
    let of_day = cast(times, &DataType::Time64(TimeUnit::Microsecond))?;
    Ok(cast(&cast(&of_day, &DataType::Int64)?, &MICROSECONDS)?)
}

/// The buckets of the calendars of zones.
fn in_zones(
    widths: &IntervalMonthDayNanoArray,
    times: &ArrayRef,
    zones: &StringViewArray,
    returned: &DataType,
) -> Result<ArrayRef> {
    let mut known: Option<(&str, Tz)> = None;
    let rows = widths.iter().zip(times_of(times)?).zip(zones);
    let buckets = rows.map(|((width, time), name)| {
        let (Some(width), Some(time), Some(name)) = (width, time, name) else { return Ok(None) };
        let zone = match known {
            Some((known, zone)) if known == name => zone,
            _ => name.parse().map_err(|_| exec_datafusion_err!("there is no time zone '{name}'"))?,
        };
        known = Some((name, zone));
        if width.months == 0 && width.days == 0 {
            // What is shorter than a day goes on over changes of the clock.
            let monday = time_at(MONDAY_2000).map(|monday| of_local(zone, monday));
            return bucket(width, time, monday).map(Some);
        }
        let local = time.checked_add_signed(ahead(zone, time));
        let local = local.ok_or_else(|| exec_datafusion_err!("{time} is out of the range of timestamps"))?;
        Ok(Some(of_local(zone, bucket(width, local, None)?)))
    });
    Ok(cast(&timestamps(buckets)?, returned)?)
}

/// How far a zone is ahead of UTC.
fn ahead(zone: Tz, time: NaiveDateTime) -> TimeDelta {
    TimeDelta::seconds(zone.offset_from_utc_datetime(&time).fix().local_minus_utc().into())
}

/// The time that a clock of a zone shows. Of an hour that it goes through twice, the first counts; of one that it leaves out,
/// what held before.
fn of_local(zone: Tz, local: NaiveDateTime) -> NaiveDateTime {
    match zone.offset_from_local_datetime(&local) {
        LocalResult::Single(offset) | LocalResult::Ambiguous(offset, _) => {
            local - TimeDelta::seconds(offset.fix().local_minus_utc().into())
        }
        LocalResult::None => local - ahead(zone, local - TimeDelta::days(1)),
    }
}

fn bucket(
    width: IntervalMonthDayNano,
    time: NaiveDateTime,
    origin: Option<NaiveDateTime>,
) -> Result<NaiveDateTime, DataFusionError> {
    let out_of_range = || exec_datafusion_err!("the bucket of {time} is out of the range of timestamps");
    let (months, rest) =
        (i64::from(width.months), i64::from(width.days) * MICROS_PER_DAY + width.nanoseconds / 1000);
    match (months, rest) {
        (1.., 0) => {
            let first = origin.map_or(2000 * 12, month_number);
            let month = (month_number(time) - first).div_euclid(months) * months + first;
            let year = i32::try_from(month.div_euclid(12)).map_err(|_| out_of_range())?;
            let date = NaiveDate::from_ymd_opt(year, month.rem_euclid(12) as u32 + 1, 1);
            date.and_then(|date| date.and_hms_opt(0, 0, 0)).ok_or_else(out_of_range)
        }
        (0, 1..) => {
            let first = origin.map_or(MONDAY_2000, micros_of);
            let passed = micros_of(time).checked_sub(first).ok_or_else(out_of_range)?;
            let begins =
                passed.checked_sub(passed.rem_euclid(rest)).and_then(|begins| begins.checked_add(first));
            begins.and_then(time_at).ok_or_else(out_of_range)
        }
        (0, _) => exec_err!("time_bucket: the width of buckets must be more than nothing"),
        (_, 0) => exec_err!("time_bucket: the width of buckets must be more than nothing"),
        _ => exec_err!("time_bucket: buckets have either months or days and hours as their width"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> NaiveDateTime {
        text.parse().unwrap()
    }

    #[test]
    fn buckets_begin_on_mondays_and_with_years() {
        let days = |days| IntervalMonthDayNano::new(0, days, 0);
        let time = at("2020-05-17T10:47:11");
        assert_eq!(bucket(days(14), time, None).unwrap(), at("2020-05-11T00:00:00"));
        assert_eq!(
            bucket(days(7), time, Some(at("2020-05-01T00:00:00"))).unwrap(),
            at("2020-05-15T00:00:00")
        );
        let months = IntervalMonthDayNano::new(3, 0, 0);
        assert_eq!(bucket(months, at("1999-05-17T10:00:00"), None).unwrap(), at("1999-04-01T00:00:00"));
        assert!(bucket(IntervalMonthDayNano::new(1, 1, 0), time, None).is_err());
        assert!(bucket(days(-1), time, None).is_err());
    }
}
