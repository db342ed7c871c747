//! Dates, times of day and points in time as they are written, and days of the calendar.
//!
//! ```text
//!   2020-1-2   2020/01/02   0044-03-15 (BC)   epoch   infinity        a date
//!   2020-01-02 3:4:5.678   …T03:04:05Z   … +02:30   … Europe/Berlin   with a time of day, and a zone
//! ```
//!
//! The calendar is Gregorian for all times; the year 0 is 1 BC.

use std::fmt::{self, Write};

use arrow::array::timezone::Tz;

pub(super) const NANOSECONDS_OF_DAY: i64 = 86_400_000_000_000;

/// The last year of the calendar that functions of times know; the first has this number with a minus.
const LAST_YEAR: i64 = 262_142;

/// The dates behind and before all others.
pub(super) const INFINITE_DATE: i32 = i32::MAX;
pub(super) const INFINITE_TIMESTAMP: i64 = i64::MAX;

/// Whether a timestamp is `infinity` or `-infinity`.
pub(crate) fn is_infinite_time(time: i64) -> bool {
    time.unsigned_abs() == INFINITE_TIMESTAMP.unsigned_abs()
}

/// Days since 1970 of a date; none if the month has no such day.
pub(super) fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=days_of_month(year, month)).contains(&day) {
        return None;
    }
    // Years begin in March, so that the day of a leap year is their last: Hinnant, chrono-Compatible Low-Level Date
    // Algorithms, days_from_civil.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

fn days_of_month(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Year, month and day of a number of days since 1970: the inverse, civil_from_days.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Writes `2020-01-02`, or `0044-03-15 (BC)`.
pub(super) fn write_date(text: &mut String, days: i64) -> fmt::Result {
    let (year, month, day) = date(days);
    match year {
        1.. => write!(text, "{year:04}-{month:02}-{day:02}"),
        before => write!(text, "{:04}-{month:02}-{day:02} (BC)", 1 - before),
    }
}

/// Writes `03:04:05.678`, without zeros at the end.
pub(super) fn write_time(text: &mut String, nanoseconds: i64) -> fmt::Result {
    let seconds = nanoseconds / 1_000_000_000;
    write!(text, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)?;
    write_fraction(text, nanoseconds % 1_000_000_000)
}

/// Writes a part of a second, if there is any.
pub(super) fn write_fraction(text: &mut String, nanoseconds: i64) -> fmt::Result {
    if nanoseconds == 0 {
        return Ok(());
    }
    write!(text, ".{nanoseconds:09}")?;
    text.truncate(text.trim_end_matches('0').len());
    Ok(())
}

/// A point in time, or one of the two ends of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    At { days: i64, nanoseconds: i64 },
    Infinite { is_negative: bool },
}

/// What is said behind a time of day about where it is one.
#[derive(Debug, Clone, Copy)]
pub(super) enum Zone {
    Unsaid,
    /// Seconds ahead of UTC.
    Offset(i64),
    Named(Tz),
}

/// A date, which may have a time of day and a zone behind it.
pub(super) fn moment(text: &str) -> Option<(Moment, Zone)> {
    let text = text.trim_ascii();
    if let Some(moment) = named(text) {
        return Some((moment, Zone::Unsaid));
    }
    let (days, rest) = read_date(text)?;
    let at = |nanoseconds| Moment::At { days, nanoseconds };
    if rest.is_empty() {
        return Some((at(0), Zone::Unsaid));
    }
    let time = match rest.strip_prefix('T') {
        Some(time) => time,
        None => rest.strip_prefix(' ')?.trim_start_matches(' '),
    };
    let (nanoseconds, rest) = read_time(time)?;
    Some((at(nanoseconds), zone(rest)?))
}

/// A time of day in nanoseconds; of a point in time, the one that is written.
pub(super) fn time_of_day(text: &str) -> Option<i64> {
    let text = text.trim_ascii();
    if let Some((nanoseconds, rest)) = read_time(text) {
        zone(rest)?;
        return Some(nanoseconds);
    }
    match moment(text)? {
        (Moment::At { nanoseconds, .. }, _) => Some(nanoseconds % NANOSECONDS_OF_DAY),
        (Moment::Infinite { .. }, _) => None,
    }
}

/// A time of day in nanoseconds, and how many seconds it is ahead of UTC, if nothing is said none.
pub(super) fn offset_time(text: &str) -> Option<(i64, i64)> {
    const MOST_SECONDS_AHEAD: i64 = 16 * 3600 - 1;
    let (nanoseconds, rest) = read_time(text.trim_ascii())?;
    match zone(rest)? {
        Zone::Unsaid => Some((nanoseconds, 0)),
        Zone::Offset(seconds) if seconds.abs() <= MOST_SECONDS_AHEAD => Some((nanoseconds, seconds)),
        Zone::Offset(_) | Zone::Named(_) => None,
    }
}

fn named(text: &str) -> Option<Moment> {
    let is = |name: &str| text.eq_ignore_ascii_case(name);
    if is("epoch") {
        return Some(Moment::At { days: 0, nanoseconds: 0 });
    }
    let is_negative = is("-infinity") || is("-inf");
    (is_negative || is("infinity") || is("inf")).then_some(Moment::Infinite { is_negative })
}

fn read_date(text: &str) -> Option<(i64, &str)> {
    const MOST_DIGITS_OF_YEAR: usize = 6;
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(unsigned) => (-1, unsigned),
        None => (1, text),
    };
    let (year, rest) = number(unsigned, MOST_DIGITS_OF_YEAR)?;
    let separator = rest.chars().next().filter(|separator| "-/\\ ".contains(*separator))?;
    let (month, rest) = number(rest.strip_prefix(separator)?, 2)?;
    let (day, rest) = number(rest.strip_prefix(separator)?, 2)?;
    let (year, rest) = match rest.trim_start().split_at_checked("(BC)".len()) {
        Some((era, rest)) if era.eq_ignore_ascii_case("(BC)") => (1 - year, rest),
        _ => (sign * year, rest),
    };
    (year.abs() <= LAST_YEAR).then_some(())?;
    Some((days(year, month, day)?, rest))
}

/// Hours, minutes, seconds and parts of a second, of which nine digits count.
fn read_time(text: &str) -> Option<(i64, &str)> {
    let (hours, rest) = number(text, 2)?;
    let (minutes, rest) = number(rest.strip_prefix(':')?, 2)?;
    let (seconds, rest) = match rest.strip_prefix(':') {
        Some(rest) => number(rest, 2)?,
        None => (0, rest),
    };
    let (nanoseconds, rest) = match rest.strip_prefix('.') {
        Some(fraction) => {
            let length = fraction.bytes().take_while(u8::is_ascii_digit).count();
            let (digits, rest) = fraction.split_at(length);
            let digits = digits.bytes().chain(std::iter::repeat(b'0')).take(9);
            (digits.fold(0, |number, digit| number * 10 + i64::from(digit - b'0')), rest)
        }
        None => (0, rest),
    };
    let time = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + nanoseconds;
    (minutes < 60 && seconds < 60 && time <= NANOSECONDS_OF_DAY).then_some((time, rest))
}

/// One or more digits, up to a number of them.
fn number(text: &str, most_digits: usize) -> Option<(i64, &str)> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    if length == 0 || length > most_digits {
        return None;
    }
    let (digits, rest) = text.split_at(length);
    Some((digits.parse().ok()?, rest))
}

/// `Z`, `+02`, `-0230`, `+02:30:15` or the name of a zone.
fn zone(text: &str) -> Option<Zone> {
    let text = text.trim_ascii();
    match text {
        "" => return Some(Zone::Unsaid),
        "Z" => return Some(Zone::Offset(0)),
        _ => {}
    }
    let (sign, offset) = match text.as_bytes() {
        [b'+', ..] => (1, text.get(1..)?),
        [b'-', ..] => (-1, text.get(1..)?),
        _ => return text.parse().ok().map(Zone::Named),
    };
    let (hours, rest) = match offset.split_at_checked(2) {
        Some((hours, minutes)) if offset.len() == 4 && !offset.contains(':') => {
            (number(hours, 2)?.0, minutes)
        }
        _ => number(offset, 2)?,
    };
    let (minutes, rest) = match rest {
        "" => (0, rest),
        rest => number(rest.strip_prefix(':').unwrap_or(rest), 2)?,
    };
    let (seconds, rest) = match rest.strip_prefix(':') {
        Some(rest) => number(rest, 2)?,
        None => (0, rest),
    };
    let is_offset = rest.is_empty() && minutes < 60 && seconds < 60;
    is_offset.then_some(Zone::Offset(sign * ((hours * 60 + minutes) * 60 + seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_is_found_again() {
        for day in (-800_000_000..800_000_000).step_by(9_973).chain(-1_000..1_000) {
            let (year, month, day_of_month) = date(day);
            assert_eq!(days(year, month, day_of_month), Some(day));
        }
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(days(2021, 2, 29), None);
        assert_eq!(days(2000, 13, 1), None);
    }

    #[test]
    fn points_in_time_are_read() {
        let at = |year, month, day, seconds: i64, zone| {
            let days = days(year, month, day).unwrap();
            Some((Moment::At { days, nanoseconds: seconds * 1_000_000_000 }, zone))
        };
        for (text, read) in [
            ("2020-1-2", at(2020, 1, 2, 0, Zone::Unsaid)),
            ("2020/01/02 3:4", at(2020, 1, 2, 11_040, Zone::Unsaid)),
            ("2020-01-02T03:04:05Z", at(2020, 1, 2, 11_045, Zone::Offset(0))),
            ("2020-01-02 03:04:05 +02:30", at(2020, 1, 2, 11_045, Zone::Offset(9_000))),
            ("2020-01-02 03:04:05-0230", at(2020, 1, 2, 11_045, Zone::Offset(-9_000))),
            ("0044-03-15 (BC) 00:00:01", at(-43, 3, 15, 1, Zone::Unsaid)),
            ("-5-01-01", at(-5, 1, 1, 0, Zone::Unsaid)),
            ("2020-01-02 24:00:00", at(2020, 1, 2, 86_400, Zone::Unsaid)),
            ("-Infinity", Some((Moment::Infinite { is_negative: true }, Zone::Unsaid))),
            ("2020-01/02", None),
            ("2020-01-02x", None),
            ("2020-01-02T", None),
            ("2020-01-02 24:00:01", None),
            ("2020-01-02 03:60", None),
            ("2020-01-02 03:04:05 nowhere", None),
            ("é", None),
            ("", None),
        ] {
            // Zones cannot be compared.
            assert_eq!(format!("{:?}", moment(text)), format!("{read:?}"), "{text}");
        }
        assert_eq!(time_of_day("12:34:56.1234567899"), Some(45_296_123_456_789));
        assert_eq!(time_of_day("11"), None);
    }
}
