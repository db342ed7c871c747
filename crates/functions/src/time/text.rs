//! `strftime` and `strptime`: points in time written and read with formats such as `%Y-%m-%d`.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};
use chrono::{DateTime, Datelike as _, NaiveDate, NaiveDateTime, TimeDelta, Timelike as _};
use datafusion::common::cast::{as_int64_array, as_list_array, as_string_view_array};
use datafusion::common::{Result, exec_err};

use super::{times_of, timestamps};
use crate::function::{MICROSECONDS, NANOSECONDS, arguments};
use crate::types::sql_type;

pub(super) const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
pub(super) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item {
    Letter(char),
    /// A specifier, and whether numbers are filled with zeros.
    Part(char, bool),
}

/// The parts of a format. `%c`, `%x`, `%X` and `%T` stand for several.
fn items(format: &str) -> Result<Vec<Item>> {
    let mut items = Vec::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            items.push(Item::Letter(letter));
            continue;
        }
        let (specifier, is_filled) = match letters.next() {
            Some('-') => (letters.next(), false),
            specifier => (specifier, true),
        };
        match specifier {
            Some('%') => items.push(Item::Letter('%')),
            Some('c') => items.extend(self::items("%Y-%m-%d %H:%M:%S")?),
            Some('x') => items.extend(self::items("%Y-%m-%d")?),
            Some('X' | 'T') => items.extend(self::items("%H:%M:%S")?),
            Some('h') => items.push(Item::Part('b', true)),
            Some(part) if "aAwudbBmyYHIpMSfgnzZjUWGV".contains(part) => {
                items.push(Item::Part(part, is_filled))
            }
            Some(other) => {
                return exec_err!("'%{other}' in '{format}' is no part of a time; write %% for a %");
            }
            None => return exec_err!("'{format}' ends after %; write %% for a %"),
        }
    }
    Ok(items)
}

pub(super) fn strftime(given: &[ArrayRef], _: &DataType) -> Result<ArrayRef> {
    let [first, second] = arguments(given)?;
    let (times, formats) = if first.data_type().is_string() { (second, first) } else { (first, second) };
    let mut written = StringViewBuilder::with_capacity(times.len());
    let mut known: Option<(&str, Vec<Item>)> = None;
    let mut text = String::new();
    let times: Vec<Option<NaiveDateTime>> = match times.data_type() {
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            let nanos = cast(&cast(times, &NANOSECONDS)?, &DataType::Int64)?;
            let at = |nanos: Option<i64>| Some(DateTime::from_timestamp_nanos(nanos?).naive_utc());
            as_int64_array(&nanos)?.iter().map(at).collect()
        }
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => {
            times_of(&cast(times, &MICROSECONDS)?)?.collect()
        }
        other => return exec_err!("strftime writes points in time, and {} is none", sql_type(other)),
    };
    for (time, format) in times.into_iter().zip(as_string_view_array(formats)?.iter()) {
        let Some((time, format)) = time.zip(format) else {
            written.append_null();
            continue;
        };
        if known.as_ref().is_none_or(|(of, _)| *of != format) {
            known = Some((format, items(format)?));
        }
        text.clear();
        for item in known.iter().flat_map(|(_, items)| items) {
            write(&mut text, *item, time);
        }
        written.append_value(&text);
    }
    Ok(Arc::new(written.finish()))
}

fn write(text: &mut String, item: Item, time: NaiveDateTime) {
    let (part, is_filled) = match item {
        Item::Letter(letter) => return text.push(letter),
        Item::Part(part, is_filled) => (part, is_filled),
    };
    let short = |name: &'static str| name.get(..3).unwrap_or(name);
    let week_day = time.weekday().num_days_from_sunday();
    let day_name = DAYS.get(week_day as usize).copied().unwrap_or_default();
    let month_name = MONTHS.get(time.month0() as usize).copied().unwrap_or_default();
    let hour_of_12 = (time.hour() + 11) % 12 + 1;
    let (number, digits) = match part {
        'a' => return text.push_str(short(day_name)),
        'A' => return text.push_str(day_name),
        'b' => return text.push_str(short(month_name)),
        'B' => return text.push_str(month_name),
        'p' => return text.push_str(if time.hour() < 12 { "AM" } else { "PM" }),
        'z' => return text.push_str("+00"),
        'Z' => return,
        'Y' => (time.year(), 1),
        'G' => (time.iso_week().year(), 1),
        'w' => (week_day as i32, 1),
        'u' => (time.weekday().number_from_monday() as i32, 1),
        'd' => (time.day() as i32, 2),
        'm' => (time.month() as i32, 2),
        'y' => ((time.year() % 100).abs(), 2),
        'H' => (time.hour() as i32, 2),
        'I' => (hour_of_12 as i32, 2),
        'M' => (time.minute() as i32, 2),
        'S' => (time.second() as i32, 2),
        'j' => (time.ordinal() as i32, 3),
        'U' => ((time.ordinal() as i32 + 6 - week_day as i32) / 7, 2),
        'W' => ((time.ordinal() as i32 + 6 - time.weekday().num_days_from_monday() as i32) / 7, 2),
        'V' => (time.iso_week().week() as i32, 2),
        'f' => (time.nanosecond() as i32 / 1000, 6),
        'g' => (time.nanosecond() as i32 / 1_000_000, 3),
        _ => (time.nanosecond() as i32, 9),
    };
    let digits = if is_filled { digits } else { 1 };
    text.push_str(&format!("{number:0digits$}"));
}

pub(super) fn strptime(given: &[ArrayRef], tries: bool) -> Result<ArrayRef> {
    let [texts, formats] = arguments(given)?;
    let texts = as_string_view_array(texts)?;
    let lists = match formats.data_type() {
        DataType::List(_) => Some(as_list_array(formats)?),
        _ => None,
    };
    let formats = lists.map_or(formats, |lists| lists.values());
    let formats = formats.as_string_view_opt();
    let mut known: Option<(&str, Vec<Item>)> = None;
    let mut read = |text: &str, row: usize| -> Result<Option<NaiveDateTime>> {
        let Some(formats) = formats else { return Ok(None) };
        let candidates = match lists {
            Some(lists) if lists.is_null(row) => return Ok(None),
            Some(lists) => {
                let from = lists.value_offsets().get(row).copied().unwrap_or_default() as usize;
                from..from + lists.value_length(row) as usize
            }
            None => row..row + 1,
        };
        let mut last = None;
        for position in candidates {
            if formats.is_null(position) {
                return Ok(None);
            }
            let format = formats.value(position);
            last = Some(format);
            if known.as_ref().is_none_or(|(of, _)| *of != format) {
                known = Some((format, items(format)?));
            }
            let read = known.as_ref().and_then(|(_, items)| parse(text, items));
            if read.is_some() {
                return Ok(read);
            }
        }
        match last {
            Some(format) if !tries => {
                exec_err!("'{text}' is not written as '{format}'; try_strptime gives null for it")
            }
            _ => Ok(None),
        }
    };
    timestamps(texts.iter().enumerate().map(|(row, text)| match text {
        Some(text) => read(text, row),
        None => Ok(None),
    }))
}

/// What has been read of a point in time so far.
#[derive(Debug)]
struct Parts {
    year: i32,
    month: u32,
    day: u32,
    ordinal: Option<u32>,
    hour: u32,
    is_afternoon: Option<bool>,
    minute: u32,
    second: u32,
    nanos: u32,
    offset_minutes: i64,
}

fn parse(text: &str, items: &[Item]) -> Option<NaiveDateTime> {
    let mut rest = text.trim_start();
    let mut parts = Parts {
        year: 1900,
        month: 1,
        day: 1,
        ordinal: None,
        hour: 0,
        is_afternoon: None,
        minute: 0,
        second: 0,
        nanos: 0,
        offset_minutes: 0,
    };
    for item in items {
        match item {
            Item::Letter(letter) if letter.is_whitespace() => {
                let trimmed = rest.trim_start();
                if trimmed.len() == rest.len() {
                    return None;
                }
                rest = trimmed;
            }
            Item::Letter(letter) => rest = rest.strip_prefix(*letter)?,
            Item::Part(part, _) => rest = parts.read(*part, rest)?,
        }
    }
    if rest.trim_end().is_empty() { parts.time() } else { None }
}

impl Parts {
    /// Takes a part from the beginning of a text; none where there is another thing.
    fn read<'a>(&mut self, part: char, text: &'a str) -> Option<&'a str> {
        let named = |names: &[&str], letters: Option<usize>| {
            let names = names.iter().enumerate().map(|(number, name)| (number as u32, *name));
            names
                .filter_map(|(number, name)| {
                    let name = name.get(..letters.unwrap_or(name.len()))?;
                    let start = text.get(..name.len())?;
                    start
                        .eq_ignore_ascii_case(name)
                        .then(|| (number, text.get(name.len()..).unwrap_or_default()))
                })
                .next()
        };
        let digits = |most: usize| {
            let end = text.bytes().take(most).take_while(u8::is_ascii_digit).count();
            let (digits, rest) = text.split_at_checked(end)?;
            Some((digits.parse::<u32>().ok()?, rest, end as u32))
        };
        let rest = match part {
            'a' => named(&DAYS, Some(3))?.1,
            'A' => named(&DAYS, None)?.1,
            'b' | 'B' => {
                let (month, rest) = named(&MONTHS, (part == 'b').then_some(3))?;
                self.month = month + 1;
                rest
            }
            'p' => {
                let (half, rest) = named(&["AM", "PM"], None)?;
                self.is_afternoon = Some(half == 1);
                rest
            }
            'z' => {
                let (minutes, rest) = offset(text)?;
                self.offset_minutes = minutes;
                rest
            }
            'Z' => text.trim_start_matches(|letter: char| letter.is_ascii_alphabetic() || letter == '/'),
            'w' | 'u' => digits(1)?.1,
            'U' | 'W' | 'V' => digits(2)?.1,
            'Y' | 'G' => {
                let (year, rest, _) = digits(4)?;
                self.year = year as i32;
                rest
            }
            'y' => {
                let (year, rest, _) = digits(2)?;
                self.year = year as i32 + if year < 69 { 2000 } else { 1900 };
                rest
            }
            'j' => {
                let (ordinal, rest, _) = digits(3)?;
                self.ordinal = Some(ordinal);
                rest
            }
            'f' | 'g' | 'n' => {
                let (fraction, rest, count) = digits(if part == 'g' { 3 } else { 9 })?;
                self.nanos = fraction.checked_mul(10_u32.checked_pow(9 - count)?)?;
                rest
            }
            _ => {
                let (number, rest, _) = digits(2)?;
                match part {
                    'd' => self.day = number,
                    'm' => self.month = number,
                    'H' => self.hour = number,
                    'I' if !(1..=12).contains(&number) => return None,
                    'I' => self.hour = number,
                    'M' => self.minute = number,
                    _ => self.second = number,
                }
                rest
            }
        };
        Some(rest)
    }

    fn time(&self) -> Option<NaiveDateTime> {
        let date = match self.ordinal {
            Some(ordinal) => NaiveDate::from_yo_opt(self.year, ordinal),
            None => NaiveDate::from_ymd_opt(self.year, self.month, self.day),
        };
        let hour = match self.is_afternoon {
            Some(_) if self.hour > 12 => return None,
            Some(is_afternoon) => self.hour % 12 + if is_afternoon { 12 } else { 0 },
            None => self.hour,
        };
        let time = date?.and_hms_nano_opt(hour, self.minute, self.second, self.nanos)?;
        time.checked_sub_signed(TimeDelta::minutes(self.offset_minutes))
    }
}

/// An offset from UTC: `Z`, `+02`, `+0230` or `+02:30`.
fn offset(text: &str) -> Option<(i64, &str)> {
    if let Some(rest) = text.strip_prefix('Z') {
        return Some((0, rest));
    }
    let sign = match text.chars().next()? {
        '+' => 1,
        '-' => -1,
        _ => return None,
    };
    let pair = |text: &str| {
        text.get(..2).filter(|pair| pair.bytes().all(|digit| digit.is_ascii_digit()))?.parse().ok()
    };
    let after_sign = text.get(1..)?;
    let hours: i64 = pair(after_sign)?;
    let rest = after_sign.get(2..)?;
    let after_colon = rest.strip_prefix(':').unwrap_or(rest);
    let (minutes, rest): (i64, &str) = match pair(after_colon) {
        Some(minutes) => (minutes, after_colon.get(2..)?),
        None => (0, rest),
    };
    Some((sign * (hours * 60 + minutes), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, format: &str) -> Option<String> {
        parse(text, &items(format).unwrap()).map(|time| time.to_string())
    }

    fn written(time: &str, format: &str) -> String {
        let mut text = String::new();
        for item in items(format).unwrap() {
            write(&mut text, item, time.parse().unwrap());
        }
        text
    }

    #[test]
    fn times_are_written_in_every_part() {
        let time = "2020-05-07T01:02:03.456789";
        assert_eq!(
            written(time, "%a %A %w %d %-d %b %B %m %-m %y %Y"),
            "Thu Thursday 4 07 7 May May 05 5 20 2020"
        );
        assert_eq!(written(time, "%H %-H %I %p %M %S %f %g %n"), "01 1 01 AM 02 03 456789 456 456789000");
        assert_eq!(
            written(time, "%c|%x|%X|%%|%j|%U|%W|%V|%G|%u"),
            "2020-05-07 01:02:03|2020-05-07|01:02:03|%|128|18|18|19|2020|4"
        );
        assert!(items("%Q").is_err() && items("%").is_err());
    }

    #[test]
    fn times_are_read_as_they_are_written() {
        let date = |text: &str| Some(text.to_owned());
        assert_eq!(read("2020-05-07 01:02:03.4", "%Y-%m-%d %H:%M:%S.%f"), date("2020-05-07 01:02:03.400"));
        assert_eq!(read("7/5/69", "%-d/%-m/%y"), date("1969-05-07 00:00:00"));
        assert_eq!(
            read("Mon, 4 May 2020 - 05:06:07 PM", "%a, %-d %B %Y - %I:%M:%S %p"),
            date("2020-05-04 17:06:07")
        );
        assert_eq!(read("12:00 am", "%I:%M %p"), date("1900-01-01 00:00:00"));
        assert_eq!(read("2020-135", "%Y-%j"), date("2020-05-14 00:00:00"));
        assert_eq!(read("2020-01-01 00:00+02:30", "%Y-%m-%d %H:%M%z"), date("2019-12-31 21:30:00"));
        assert_eq!(read("2020-02-30", "%Y-%m-%d"), None);
        assert_eq!(read("2020-02-03x", "%Y-%m-%d"), None);
    }
}
