//! Points in time: their parts, distances, and buckets.
//!
//! They are computed in microseconds, and are `TIMESTAMP`s with nanoseconds again, which refuses those that these
//! cannot hold.

mod buckets;
mod made;
mod multiples;
mod parts;
mod text;

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, Date32Array, Float64Array, Int64Array, IntervalMonthDayNanoArray,
    StringViewArray, TimestampMicrosecondArray, new_null_array,
};
use arrow::compute::cast;
use arrow::compute::kernels::temporal::{DatePart, date_part};
use arrow::datatypes::{
    DataType, Date32Type, IntervalMonthDayNano, TimeUnit, TimestampMicrosecondType, TimestampNanosecondType,
};
use chrono::{DateTime, Datelike as _, Days, Months, NaiveDate, NaiveDateTime, TimeDelta, Timelike as _};
use datafusion::common::cast::{
    as_float64_array, as_int64_array, as_interval_mdn_array, as_string_view_array,
    as_timestamp_microsecond_array,
};
use datafusion::common::{DataFusionError, Result, exec_datafusion_err, exec_err};

pub use self::made::moment_of_sum;
pub use self::multiples::interval_multiple;
pub use self::parts::function_of_part;
use crate::casts::offset_times::{is_timetz, locals};
use crate::casts::{Failed, cast_array};
use crate::function::Kind::{Any, Float, Integer, Interval, Moment, Text, Texts, Timestamp};
use crate::function::{INTERVAL, Kernel, MICROSECONDS, NANOSECONDS, arguments};

const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;
const NANOS_PER_DAY: i64 = MICROS_PER_DAY * 1000;

macro_rules! part {
    ($names:expr, $part:expr) => {
        Kernel::new($names, &[&[Moment]], integer, |given, _| part(given, $part, |value| value))
    };
    ($names:expr, $part:expr, $of:expr) => {
        Kernel::new($names, &[&[Moment]], integer, |given, _| part(given, $part, $of))
    };
}

macro_rules! length {
    ($names:expr, $months:expr, $days:expr) => {
        Kernel::new($names, &[&[Integer]], interval, |given, _| lengths(given, $months, $days, 0))
    };
    ($names:expr, $nanos:expr) => {
        Kernel::new($names, &[&[Integer]], interval, |given, _| lengths(given, 0, 0, $nanos))
    };
}

pub(crate) static FUNCTIONS: &[Kernel] = &[
    part!(&["year"], DatePart::Year),
    part!(&["quarter"], DatePart::Quarter),
    part!(&["month"], DatePart::Month),
    part!(&["week", "weekofyear"], DatePart::Week),
    part!(&["day", "dayofmonth"], DatePart::Day),
    part!(&["dayofyear"], DatePart::DayOfYear),
    part!(&["dayofweek", "weekday"], DatePart::DayOfWeekSunday0),
    part!(&["isodow"], DatePart::DayOfWeekMonday0, |day| day + 1),
    part!(&["isoyear"], DatePart::YearISO),
    part!(&["hour"], DatePart::Hour),
    part!(&["minute"], DatePart::Minute),
    part!(&["second"], DatePart::Second),
    part!(&["decade"], DatePart::Year, |year| year / 10),
    part!(&["century"], DatePart::Year, |year| periods_of(year, 100)),
    part!(&["millennium"], DatePart::Year, |year| periods_of(year, 1000)),
    part!(&["era"], DatePart::Year, |year| i64::from(year > 0)),
    Kernel::new(&["yearweek"], &[&[Moment]], integer, |given, _| {
        let (years, weeks) = (parts(given, DatePart::YearISO)?, parts(given, DatePart::Week)?);
        let number = |year: i64, week: i64| year * 100 + if year > 0 { week } else { -week };
        let numbers = years.iter().zip(weeks.iter()).map(|(year, week)| Some(number(year?, week?)));
        Ok(Arc::new(numbers.collect::<Int64Array>()))
    }),
    Kernel::new(&["millisecond"], &[&[Moment]], integer, |given, _| of_minute(given, 1_000_000)),
    Kernel::new(&["microsecond"], &[&[Moment]], integer, |given, _| of_minute(given, 1000)),
    Kernel::new(&["nanosecond"], &[&[Moment]], integer, |given, _| of_minute(given, 1)),
    Kernel::new(&["dayname"], &[&[Timestamp]], varchar, |given, _| {
        names(given, |time| text::DAYS.get(time.weekday().num_days_from_sunday() as usize))
    }),
    Kernel::new(&["monthname"], &[&[Timestamp]], varchar, |given, _| {
        names(given, |time| text::MONTHS.get(time.month0() as usize))
    }),
    Kernel::new(
        &["last_day"],
        &[&[Timestamp]],
        |_| Ok(DataType::Date32),
        |given, _| {
            let [times] = arguments(given)?;
            let last = |time: NaiveDateTime| {
                let first = time.date().with_day(1)?.checked_add_months(Months::new(1))?;
                days_after_1970(first.pred_opt()?)
            };
            let days = times_of(times)?.map(|time| last(time?));
            Ok(Arc::new(days.collect::<Date32Array>()))
        },
    ),
    Kernel::new(
        &["julian"],
        &[&[Timestamp]],
        |_| Ok(DataType::Float64),
        |given, _| {
            let [times] = arguments(given)?;
            let days = |micros: i64| micros as f64 / MICROS_PER_DAY as f64 + 2_440_588.0;
            let times = finite(times);
            let times = as_timestamp_microsecond_array(&times)?.iter();
            Ok(Arc::new(times.map(|time| time.map(days)).collect::<Float64Array>()))
        },
    ),
    Kernel::new(
        &["epoch"],
        &[&[Moment]],
        |_| Ok(DataType::Float64),
        |given, _| {
            // What has no finer parts is divided once, so that the digits of a second stay what they are.
            let seconds = nanoseconds(given)?.map(|nanos| {
                let nanos = nanos?;
                Some(if nanos % 1000 == 0 { (nanos / 1000) as f64 / 1e6 } else { nanos as f64 / 1e9 })
            });
            Ok(Arc::new(seconds.collect::<Float64Array>()))
        },
    ),
    Kernel::new(&["epoch_ms"], &[&[Integer], &[Moment]], epoch, |given, _| epoch_in(given, 1_000_000)),
    Kernel::new(&["epoch_us"], &[&[Moment]], integer, |given, _| epoch_in(given, 1000)),
    Kernel::new(&["epoch_ns"], &[&[Moment]], integer, |given, _| epoch_in(given, 1)),
    Kernel::new(
        &["make_timestamp"],
        &[&[Integer], &[Integer, Integer, Integer, Integer, Integer, Float]],
        timestamp,
        |given, _| if given.len() == 1 { from_epoch(given, 1000) } else { make_timestamp(given) },
    ),
    Kernel::new(&["make_timestamp_ms"], &[&[Integer]], timestamp, |given, _| from_epoch(given, 1_000_000)),
    Kernel::new(
        &["make_timestamp_ns"],
        &[&[Integer]],
        |_| Ok(NANOSECONDS),
        |given, _| {
            let [counts] = arguments(given)?;
            Ok(cast(counts, &NANOSECONDS)?)
        },
    ),
    Kernel::new(
        &["make_date"],
        &[&[Integer, Integer, Integer], &[Integer], &[Any]],
        |_| Ok(DataType::Date32),
        |given, _| made::dates(given),
    ),
    Kernel::new(
        &["make_time"],
        &[&[Integer, Integer, Float]],
        |_| Ok(DataType::Time64(TimeUnit::Nanosecond)),
        |given, _| made::times(given),
    ),
    Kernel::new(
        &["date_part_of"],
        &[&[Text, Moment]],
        |_| Ok(DataType::Float64),
        |given, _| parts::of_names(given),
    ),
    Kernel::new(&["timezone"], &[&[Moment]], integer, |given, _| ahead(given, |seconds| seconds)),
    Kernel::new(&["timezone_hour"], &[&[Moment]], integer, |given, _| ahead(given, |seconds| seconds / 3600)),
    Kernel::new(&["timezone_minute"], &[&[Moment]], integer, |given, _| {
        ahead(given, |seconds| seconds / 60 % 60)
    }),
    Kernel::new(&["date_diff", "datediff"], &[&[Text, Timestamp, Timestamp]], integer, |given, _| {
        between(given, boundaries)
    }),
    Kernel::new(&["date_sub", "datesub"], &[&[Text, Timestamp, Timestamp]], integer, |given, _| {
        between(given, whole_periods)
    }),
    Kernel::new(&["date_add"], &[&[Timestamp, Interval]], timestamp, |given, _| {
        let [times, lengths] = arguments(given)?;
        let rows = times_of(times)?.zip(as_interval_mdn_array(lengths)?.iter());
        timestamps(
            rows.map(|(time, length)| time.zip(length).map(|(time, length)| later(time, length)).transpose()),
        )
    }),
    Kernel::new(
        &["moment_of"],
        &[&[Timestamp, Any]],
        |given| match given {
            [_, time] if is_timetz(time) => {
                Ok(DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())))
            }
            _ => timestamp(given),
        },
        made::moments,
    ),
    Kernel::new(&["age"], &[&[Timestamp, Timestamp]], interval, |given, _| {
        let [ends, starts] = arguments(given)?;
        let ages = times_of(ends)?.zip(times_of(starts)?).map(|(end, start)| Some(age(end?, start?)));
        Ok(Arc::new(ages.collect::<IntervalMonthDayNanoArray>()))
    }),
    Kernel::new(
        &["time_bucket"],
        &[
            &[Interval, Moment],
            &[Interval, Moment, Interval],
            &[Interval, Moment, Timestamp],
            &[Interval, Moment, Text],
            &[Interval, Moment, Moment],
        ],
        |given| match given.get(1) {
            Some(date @ (DataType::Date32 | DataType::Date64)) => Ok(date.clone()),
            Some(DataType::Time32(_) | DataType::Time64(_)) => Ok(DataType::Time64(TimeUnit::Nanosecond)),
            Some(DataType::Timestamp(_, Some(zone))) => {
                Ok(DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::clone(zone))))
            }
            _ => Ok(MICROSECONDS),
        },
        buckets::time_bucket,
    ),
    Kernel::new(&["sleep_ms"], &[&[Integer]], |_| Ok(DataType::Null), sleep).volatile(),
    Kernel::new(&["strftime"], &[&[Moment, Text], &[Text, Moment]], varchar, text::strftime),
    Kernel::new(&["strptime"], &[&[Text, Text], &[Text, Texts]], timestamp, |given, _| {
        text::strptime(given, false)
    }),
    Kernel::new(&["try_strptime"], &[&[Text, Text], &[Text, Texts]], timestamp, |given, _| {
        text::strptime(given, true)
    }),
    length!(&["to_millennia"], 12_000, 0),
    length!(&["to_centuries"], 1200, 0),
    length!(&["to_decades"], 120, 0),
    length!(&["to_years"], 12, 0),
    length!(&["to_quarters"], 3, 0),
    length!(&["to_months"], 1, 0),
    length!(&["to_weeks"], 0, 7),
    length!(&["to_days"], 0, 1),
    length!(&["to_hours"], 3_600_000_000_000),
    length!(&["to_minutes"], 60_000_000_000),
    length!(&["to_microseconds"], 1000),
    Kernel::new(&["interval_times"], &[&[Interval, Float]], interval, |given, _| {
        multiples::scaled(given, false)
    }),
    Kernel::new(&["interval_part"], &[&[Interval, Float]], interval, |given, _| {
        multiples::scaled(given, true)
    }),
    Kernel::new(&["to_seconds"], &[&[Float]], interval, |given, _| float_lengths(given, 1e9)),
    Kernel::new(&["to_milliseconds"], &[&[Float]], interval, |given, _| float_lengths(given, 1e6)),
];

fn integer(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Int64)
}

/// Waits for so many milliseconds, row by row, and gives nulls.
fn sleep(given: &[ArrayRef], _: &DataType) -> Result<ArrayRef> {
    let [counts] = arguments(given)?;
    for millis in as_int64_array(counts)?.iter().flatten() {
        std::thread::sleep(Duration::from_millis(u64::try_from(millis).unwrap_or_default()));
    }
    Ok(new_null_array(&DataType::Null, counts.len()))
}

fn varchar(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Utf8View)
}

fn interval(_: &[DataType]) -> Result<DataType> {
    Ok(INTERVAL)
}

fn timestamp(_: &[DataType]) -> Result<DataType> {
    Ok(MICROSECONDS)
}

fn epoch(given: &[DataType]) -> Result<DataType> {
    Ok(if given == [DataType::Int64] { MICROSECONDS } else { DataType::Int64 })
}

/// The century of a year, or another period that begins with a year 1.
fn periods_of(year: i64, years: i64) -> i64 {
    if year > 0 { (year - 1) / years + 1 } else { year / years - 1 }
}

fn parts(given: &[ArrayRef], part: DatePart) -> Result<Int64Array> {
    let [times] = arguments(given)?;
    let times = &without_offset(times)?;
    let values = match (times.data_type(), part) {
        // Those of the day know its end, 24:00, which Arrow does not.
        (DataType::Time32(_) | DataType::Time64(_), DatePart::Hour) => of_day(times, NANOS_PER_DAY / 24, 25)?,
        (DataType::Time32(_) | DataType::Time64(_), DatePart::Minute) => of_day(times, 60_000_000_000, 60)?,
        (DataType::Time32(_) | DataType::Time64(_), DatePart::Second) => of_day(times, 1_000_000_000, 60)?,
        (DataType::Time32(_) | DataType::Time64(_), DatePart::Nanosecond) => of_day(times, 1, 1_000_000_000)?,
        _ => cast(&date_part(&finite(times), part)?, &DataType::Int64)?,
    };
    Ok(as_int64_array(&values)?.clone())
}

/// The times of the day that those with an offset show.
fn without_offset(times: &ArrayRef) -> Result<ArrayRef> {
    match is_timetz(times.data_type()) {
        true => cast_array(times, &DataType::Time64(TimeUnit::Nanosecond), Failed::IsError),
        false => Ok(Arc::clone(times)),
    }
}

/// How many whole units have passed of times of the day, of which so many make a larger one.
fn of_day(times: &ArrayRef, unit_nanos: i64, units: i64) -> Result<ArrayRef> {
    let nanos = cast(&cast(times, &DataType::Time64(TimeUnit::Nanosecond))?, &DataType::Int64)?;
    let passed: Int64Array = as_int64_array(&nanos)?.unary(|nanos| nanos / unit_nanos % units);
    Ok(Arc::new(passed))
}

/// How far points in time are ahead of UTC, in which they are shown, and times with an offset by theirs.
fn ahead(given: &[ArrayRef], of: impl Fn(i64) -> i64) -> Result<ArrayRef> {
    let [times] = arguments(given)?;
    if is_timetz(times.data_type()) {
        let parts = locals(times).map(|local| Some(of(local?.1)));
        return Ok(Arc::new(parts.collect::<Int64Array>()));
    }
    part(given, DatePart::Hour, |_| 0)
}

fn part(given: &[ArrayRef], part: DatePart, of: impl Fn(i64) -> i64) -> Result<ArrayRef> {
    let values = parts(given, part)?;
    Ok(Arc::new(values.iter().map(|value| value.map(&of)).collect::<Int64Array>()))
}

/// What has passed of the minute, in units of so many nanoseconds.
fn of_minute(given: &[ArrayRef], unit_nanos: i64) -> Result<ArrayRef> {
    let (seconds, nanos) = (parts(given, DatePart::Second)?, parts(given, DatePart::Nanosecond)?);
    let rows = seconds.iter().zip(nanos.iter());
    let passed = rows.map(|(seconds, nanos)| Some((seconds? * 1_000_000_000 + nanos?) / unit_nanos));
    Ok(Arc::new(passed.collect::<Int64Array>()))
}

/// Points in time without the infinite ones, which have no parts.
fn finite(times: &ArrayRef) -> ArrayRef {
    macro_rules! finite_of {
        ($of:ty) => {{
            let is_finite = |count: i64| (count.unsigned_abs() < i64::MAX.unsigned_abs()).then_some(count);
            let finite = times.as_primitive::<$of>().unary_opt::<_, $of>(is_finite);
            Arc::new(finite.with_data_type(times.data_type().clone()))
        }};
    }
    match times.data_type() {
        DataType::Date32 => {
            let is_finite = |days: i32| (days.unsigned_abs() < i32::MAX.unsigned_abs()).then_some(days);
            Arc::new(times.as_primitive::<Date32Type>().unary_opt::<_, Date32Type>(is_finite))
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => finite_of!(TimestampMicrosecondType),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => finite_of!(TimestampNanosecondType),
        _ => Arc::clone(times),
    }
}

/// The points in time of an array in microseconds; none where there is null, or a year that has no date.
fn times_of(times: &ArrayRef) -> Result<impl Iterator<Item = Option<NaiveDateTime>>> {
    Ok(as_timestamp_microsecond_array(times)?.iter().map(|micros| time_at(micros?)))
}

fn time_at(micros: i64) -> Option<NaiveDateTime> {
    DateTime::from_timestamp_micros(micros).map(|time| time.naive_utc())
}

fn days_after_1970(date: NaiveDate) -> Option<i32> {
    i32::try_from(date.signed_duration_since(NaiveDate::default()).num_days()).ok()
}

fn names(
    given: &[ArrayRef],
    name: impl Fn(NaiveDateTime) -> Option<&'static &'static str>,
) -> Result<ArrayRef> {
    let [times] = arguments(given)?;
    let names = times_of(times)?.map(|time| name(time?).copied());
    Ok(Arc::new(names.collect::<StringViewArray>()))
}

/// Points in time as the type `TIMESTAMP`.
fn timestamps(times: impl Iterator<Item = Result<Option<NaiveDateTime>>>) -> Result<ArrayRef> {
    let micros = times.map(|time| Ok(time?.map(micros_of)));
    Ok(Arc::new(micros.collect::<Result<TimestampMicrosecondArray>>()?))
}

/// How long after 1970 in nanoseconds, or how long an interval or time of the day is.
fn nanoseconds(given: &[ArrayRef]) -> Result<std::vec::IntoIter<Option<i128>>> {
    let [times] = arguments(given)?;
    let times = &finite(&without_offset(times)?);
    let scaled = |data_type: DataType, unit_nanos: i64| -> Result<Vec<Option<i128>>> {
        let counts = cast(&cast(times, &data_type)?, &DataType::Int64)?;
        let counts = as_int64_array(&counts)?.iter();
        Ok(counts.map(|count| Some(i128::from(count?) * i128::from(unit_nanos))).collect())
    };
    let nanos = match times.data_type() {
        DataType::Timestamp(TimeUnit::Nanosecond, _) => scaled(NANOSECONDS, 1)?,
        DataType::Time32(_) | DataType::Time64(_) => scaled(DataType::Time64(TimeUnit::Nanosecond), 1)?,
        DataType::Interval(_) | DataType::Duration(_) => {
            let lengths = cast(times, &INTERVAL)?;
            as_interval_mdn_array(&lengths)?.iter().map(|length| Some(nanos_of_interval(length?))).collect()
        }
        _ => scaled(MICROSECONDS, 1000)?,
    };
    Ok(nanos.into_iter())
}

/// Years have 365.25 days here, and further months 30.
fn nanos_of_interval(length: IntervalMonthDayNano) -> i128 {
    let day = i128::from(NANOS_PER_DAY);
    let (years, months) = (i128::from(length.months / 12), i128::from(length.months % 12));
    years * (day * 1461 / 4) + (months * 30 + i128::from(length.days)) * day + i128::from(length.nanoseconds)
}

fn epoch_in(given: &[ArrayRef], unit_nanos: i64) -> Result<ArrayRef> {
    let [times] = arguments(given)?;
    if *times.data_type() == DataType::Int64 {
        return from_epoch(given, unit_nanos);
    }
    let out_of_range = |_| exec_datafusion_err!("the time since 1970 does not fit into a BIGINT");
    let counts = nanoseconds(given)?
        .map(|nanos| nanos.map(|nanos| i64::try_from(nanos.div_euclid(unit_nanos.into()))).transpose());
    let counts = counts.collect::<Result<Int64Array, _>>();
    Ok(Arc::new(counts.map_err(out_of_range)?))
}

fn from_epoch(given: &[ArrayRef], unit_nanos: i64) -> Result<ArrayRef> {
    let [counts] = arguments(given)?;
    let micros = |count: i64| {
        let micros = (i128::from(count) * i128::from(unit_nanos)).div_euclid(1000);
        i64::try_from(micros).map_err(|_| exec_datafusion_err!("{count} is out of the range of timestamps"))
    };
    let times = as_int64_array(counts)?.iter().map(|count| count.map(micros).transpose());
    Ok(Arc::new(times.collect::<Result<TimestampMicrosecondArray>>()?))
}

fn make_timestamp(given: &[ArrayRef]) -> Result<ArrayRef> {
    let [years, months, days, hours, minutes, seconds] = arguments(given)?;
    let integers = [years, months, days, hours, minutes];
    let integers = integers.map(|values| as_int64_array(values));
    let [years, months, days, hours, minutes] = integers;
    let (years, months, days, hours, minutes) = (years?, months?, days?, hours?, minutes?);
    let seconds = as_float64_array(seconds)?;
    let at = |row: usize| {
        let is_null = [years, months, days, hours, minutes].iter().any(|values| values.is_null(row));
        if is_null || seconds.is_null(row) {
            return Ok(None);
        }
        let (year, month, day) = (years.value(row), months.value(row), days.value(row));
        let (hour, minute, second) = (hours.value(row), minutes.value(row), seconds.value(row));
        let micros = (second * MICROS_PER_SECOND as f64).round() as i64;
        let out_of_range = || {
            exec_datafusion_err!(
                "there is no time {year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}"
            )
        };
        let number = |part: i64| u32::try_from(part).map_err(|_| out_of_range());
        let date = i32::try_from(year)
            .map(|year| NaiveDate::from_ymd_opt(year, number(month).ok()?, number(day).ok()?));
        let minute_begins = date
            .ok()
            .flatten()
            .and_then(|date| date.and_hms_opt(number(hour).ok()?, number(minute).ok()?, 0));
        match minute_begins {
            Some(begins) if (0..=60 * MICROS_PER_SECOND).contains(&micros) => {
                Ok(begins.checked_add_signed(TimeDelta::microseconds(micros)))
            }
            _ => Err(out_of_range()),
        }
    };
    timestamps((0..years.len()).map(at))
}

/// Units of [`boundaries`] and [`whole_periods`].
#[derive(Debug, Clone, Copy)]
enum Unit {
    Months(i64),
    Days(i64),
    Micros(i64),
    /// Before and after the first year.
    Era,
}

fn unit(name: &str) -> Result<Unit> {
    Ok(match name.to_lowercase().as_str() {
        "era" => Unit::Era,
        "millennium" | "millennia" | "mil" | "millenniums" | "millenium" => Unit::Months(12_000),
        "century" | "centuries" | "cent" | "c" => Unit::Months(1200),
        "decade" | "decades" | "dec" | "decs" => Unit::Months(120),
        "year" | "years" | "yr" | "yrs" | "y" | "isoyear" => Unit::Months(12),
        "quarter" | "quarters" => Unit::Months(3),
        "month" | "months" | "mon" | "mons" => Unit::Months(1),
        "week" | "weeks" | "w" | "weekofyear" | "yearweek" => Unit::Days(7),
        "day" | "days" | "d" | "dayofmonth" | "dow" | "isodow" | "doy" | "dayofweek" | "weekday"
        | "dayofyear" | "julian" => Unit::Days(1),
        "hour" | "hours" | "hr" | "hrs" | "h" => Unit::Micros(3600 * MICROS_PER_SECOND),
        "minute" | "minutes" | "min" | "mins" | "m" => Unit::Micros(60 * MICROS_PER_SECOND),
        "second" | "seconds" | "sec" | "secs" | "s" | "epoch" => Unit::Micros(MICROS_PER_SECOND),
        "millisecond" | "milliseconds" | "ms" | "msec" | "msecs" | "msecond" | "mseconds" => {
            Unit::Micros(1000)
        }
        "microsecond" | "microseconds" | "us" | "usec" | "usecs" | "usecond" | "useconds" => Unit::Micros(1),
        _ => return exec_err!("'{name}' is no part of a date; there are year, month, day, hour and so on"),
    })
}

fn between(
    given: &[ArrayRef],
    count: impl Fn(Unit, NaiveDateTime, NaiveDateTime) -> i64,
) -> Result<ArrayRef> {
    let [units, starts, ends] = arguments(given)?;
    let rows = as_string_view_array(units)?.iter().zip(times_of(starts)?.zip(times_of(ends)?));
    let mut known: Option<(&str, Unit)> = None;
    let counts = rows.map(|(name, (start, end))| {
        let Some(name) = name else { return Ok(None) };
        let unit = match known {
            Some((known, unit)) if known == name => unit,
            _ => unit(name)?,
        };
        known = Some((name, unit));
        Ok(start.zip(end).map(|(start, end)| count(unit, start, end)))
    });
    Ok(Arc::new(counts.collect::<Result<Int64Array>>()?))
}

fn month_number(time: NaiveDateTime) -> i64 {
    i64::from(time.year()) * 12 + i64::from(time.month0())
}

fn day_number(time: NaiveDateTime) -> i64 {
    time.date().signed_duration_since(NaiveDate::default()).num_days()
}

fn micros_of(time: NaiveDateTime) -> i64 {
    time.and_utc().timestamp_micros()
}

/// How many beginnings of a period lie between two points; of a week, how many whole ones.
fn boundaries(unit: Unit, start: NaiveDateTime, end: NaiveDateTime) -> i64 {
    match unit {
        Unit::Months(months) => month_number(end).div_euclid(months) - month_number(start).div_euclid(months),
        Unit::Days(days) => (day_number(end) - day_number(start)) / days,
        Unit::Micros(micros) => micros_of(end).div_euclid(micros) - micros_of(start).div_euclid(micros),
        Unit::Era => i64::from(end.year() > 0) - i64::from(start.year() > 0),
    }
}

/// How many whole periods fit between two points.
fn whole_periods(unit: Unit, start: NaiveDateTime, end: NaiveDateTime) -> i64 {
    let micros = micros_of(end).saturating_sub(micros_of(start));
    match unit {
        Unit::Era => boundaries(unit, start, end),
        Unit::Months(_) if end < start => -whole_periods(unit, end, start),
        Unit::Months(months) => {
            let is_last_day = end.date().succ_opt().is_none_or(|next| next.day() == 1);
            let end_day = if is_last_day { end.day().max(start.day()) } else { end.day() };
            let lacks = (end_day, end.time()) < (start.day(), start.time());
            (month_number(end) - month_number(start) - i64::from(lacks)) / months
        }
        Unit::Days(days) => micros / (days * MICROS_PER_DAY),
        Unit::Micros(unit_micros) => micros / unit_micros,
    }
}

/// Years, months, days and time from one point to another, as a calendar counts them.
fn age(end: NaiveDateTime, start: NaiveDateTime) -> IntervalMonthDayNano {
    if end < start {
        let IntervalMonthDayNano { months, days, nanoseconds } = age(start, end);
        return IntervalMonthDayNano::new(-months, -days, -nanoseconds);
    }
    let mut months = month_number(end) - month_number(start);
    let mut days = i64::from(end.day()) - i64::from(start.day());
    let of_day = |time: NaiveDateTime| {
        i64::from(time.num_seconds_from_midnight()) * 1_000_000_000 + i64::from(time.nanosecond())
    };
    let mut nanos = of_day(end) - of_day(start);
    if nanos < 0 {
        nanos += NANOS_PER_DAY;
        days -= 1;
    }
    if days < 0 {
        // The days that are left of the month in which it begins.
        let next = start.date().with_day(1).and_then(|first| first.checked_add_months(Months::new(1)));
        days += next.and_then(|next| next.pred_opt()).map_or(30, |last| i64::from(last.day()));
        months -= 1;
    }
    IntervalMonthDayNano::new(months as i32, days as i32, nanos)
}

/// A point in time and an interval; days of months that have fewer are their last.
fn later(time: NaiveDateTime, length: IntervalMonthDayNano) -> Result<NaiveDateTime> {
    let added = || {
        let months = Months::new(length.months.unsigned_abs());
        let time = if length.months < 0 {
            time.checked_sub_months(months)?
        } else {
            time.checked_add_months(months)?
        };
        let days = Days::new(length.days.unsigned_abs().into());
        let time = if length.days < 0 { time.checked_sub_days(days)? } else { time.checked_add_days(days)? };
        time.checked_add_signed(TimeDelta::nanoseconds(length.nanoseconds))
    };
    added().ok_or_else(|| exec_datafusion_err!("{time} and the interval are out of the range of timestamps"))
}

fn negated(length: IntervalMonthDayNano) -> IntervalMonthDayNano {
    IntervalMonthDayNano::new(-length.months, -length.days, -length.nanoseconds)
}

fn lengths(given: &[ArrayRef], months: i64, days: i64, nanos: i64) -> Result<ArrayRef> {
    let [counts] = arguments(given)?;
    let length = |count: i64| {
        let out_of_range = || exec_datafusion_err!("{count} is too much for an interval");
        let scaled = |unit: i64| count.checked_mul(unit).ok_or_else(out_of_range);
        let small = |unit: i64| i32::try_from(scaled(unit)?).map_err(|_| out_of_range());
        Ok::<_, DataFusionError>(IntervalMonthDayNano::new(small(months)?, small(days)?, scaled(nanos)?))
    };
    let lengths = as_int64_array(counts)?.iter().map(|count| count.map(length).transpose());
    Ok(Arc::new(lengths.collect::<Result<IntervalMonthDayNanoArray>>()?))
}

fn float_lengths(given: &[ArrayRef], unit_nanos: f64) -> Result<ArrayRef> {
    let [counts] = arguments(given)?;
    let length = |count: f64| {
        let micros = (count * unit_nanos / 1000.0).round();
        match micros.abs() < 9e15 {
            true => Ok(IntervalMonthDayNano::new(0, 0, micros as i64 * 1000)),
            false => exec_err!("{count} is too much for an interval"),
        }
    };
    let lengths = as_float64_array(counts)?.iter().map(|count| count.map(length).transpose());
    Ok(Arc::new(lengths.collect::<Result<IntervalMonthDayNanoArray>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> NaiveDateTime {
        text.parse().unwrap()
    }

    #[test]
    fn boundaries_and_whole_periods_differ() {
        let (start, end) = (at("2020-01-31T23:59:59"), at("2020-02-01T00:00:00"));
        assert_eq!(boundaries(Unit::Months(1), start, end), 1);
        assert_eq!(boundaries(Unit::Days(1), start, end), 1);
        assert_eq!(whole_periods(Unit::Months(1), start, end), 0);
        assert_eq!(whole_periods(Unit::Days(1), start, end), 0);
        // The last day of a month is as good as a later one that it does not have.
        let (start, end) = (at("2020-01-31T00:00:00"), at("2020-02-29T00:00:00"));
        assert_eq!(whole_periods(Unit::Months(1), start, end), 1);
        assert_eq!(whole_periods(Unit::Months(1), end, start), -1);
    }

    #[test]
    fn ages_borrow_from_the_first_month() {
        let months_days = |end, start| {
            let age = age(at(end), at(start));
            (age.months, age.days, age.nanoseconds)
        };
        assert_eq!(months_days("2020-03-01T00:00:00", "2020-01-31T00:00:00"), (1, 1, 0));
        assert_eq!(months_days("2020-01-31T00:00:00", "2020-03-01T00:00:00"), (-1, -1, 0));
        assert_eq!(months_days("2001-04-10T00:00:00", "1957-06-13T00:00:00"), (43 * 12 + 9, 27, 0));
    }
}
