//! Intervals written as texts, as Postgres and DuckDB read them.

use arrow::datatypes::IntervalMonthDayNano;

const NANOSECONDS_OF_SECOND: i128 = 1_000_000_000;
const NANOSECONDS_OF_DAY: i128 = 86_400 * NANOSECONDS_OF_SECOND;
const DAYS_OF_MONTH: i128 = 30;

/// The interval that a text says: `1 year 2 mons -3 days 04:05:06.7`, `1.5 weeks ago`, `P1Y2M3DT4H5M6S`, or a number of
/// seconds.
///
/// Fractions of years and longer are rounded to months; those of months and days go on to days and to the time, with 30 days
/// in a month and 24 hours in a day. Units are spelled as in Postgres and DuckDB (`m` is a minute), and nanoseconds are one.
/// None if the text says something else, or an interval that is too long.
pub fn parse_interval(text: &str) -> Option<IntervalMonthDayNano> {
    let text = text.trim();
    let lower = text.to_lowercase();
    let sum = match text.strip_prefix('P') {
        Some(designators) => iso(designators)?,
        None => match lower.strip_suffix("ago") {
            Some(before) if before.ends_with(char::is_whitespace) => -parts(before)?,
            _ => parts(&lower)?,
        },
    };
    Some(IntervalMonthDayNano::new(
        sum.months.try_into().ok()?,
        sum.days.try_into().ok()?,
        sum.nanoseconds.try_into().ok()?,
    ))
}

/// What has been added up so far, in numbers that hold any sum of parts.
#[derive(Default, Clone, Copy)]
struct Sum {
    months: i128,
    days: i128,
    nanoseconds: i128,
}

impl std::ops::Neg for Sum {
    type Output = Sum;

    fn neg(self) -> Sum {
        let Sum { months, days, nanoseconds } = self;
        Sum {
            months: months.saturating_neg(),
            days: days.saturating_neg(),
            nanoseconds: nanoseconds.saturating_neg(),
        }
    }
}

impl Sum {
    fn add(&mut self, number: Number, unit: Unit) {
        match unit {
            Unit::Months(1) => {
                self.add_parts(number.mantissa / number.one, 0, 0);
                let days = Number { mantissa: number.mantissa % number.one * DAYS_OF_MONTH, ..number };
                self.add(days, Unit::Days(1));
            }
            Unit::Months(months) => self.add_parts(rounded(number.mantissa * months, number.one), 0, 0),
            Unit::Days(days) => {
                let days = number.mantissa * days;
                let rest = rounded(days % number.one * NANOSECONDS_OF_DAY, number.one);
                self.add_parts(0, days / number.one, rest);
            }
            Unit::Nanoseconds(nanoseconds) => {
                self.add_parts(0, 0, rounded(number.mantissa * nanoseconds, number.one));
            }
        }
    }

    /// What goes beyond these numbers is beyond an interval's, too.
    fn add_parts(&mut self, months: i128, days: i128, nanoseconds: i128) {
        self.months = self.months.saturating_add(months);
        self.days = self.days.saturating_add(days);
        self.nanoseconds = self.nanoseconds.saturating_add(nanoseconds);
    }
}

/// The nearest quotient; away from zero of two that are as near.
fn rounded(dividend: i128, divisor: i128) -> i128 {
    (dividend + dividend.signum() * (divisor / 2)) / divisor
}

/// A decimal number: `mantissa / one`.
#[derive(Clone, Copy)]
struct Number {
    mantissa: i128,
    one: i128,
}

#[derive(Clone, Copy)]
enum Unit {
    Months(i128),
    Days(i128),
    Nanoseconds(i128),
}

fn unit(name: &str) -> Option<Unit> {
    Some(match name {
        "mil" | "mils" | "millennium" | "millennia" | "millenniums" => Unit::Months(12_000),
        "c" | "cent" | "century" | "centuries" => Unit::Months(1_200),
        "dec" | "decs" | "decade" | "decades" => Unit::Months(120),
        "y" | "yr" | "yrs" | "year" | "years" => Unit::Months(12),
        "quarter" | "quarters" => Unit::Months(3),
        "mon" | "mons" | "month" | "months" => Unit::Months(1),
        "w" | "week" | "weeks" => Unit::Days(7),
        "d" | "day" | "days" | "dayofmonth" => Unit::Days(1),
        "h" | "hr" | "hrs" | "hour" | "hours" => Unit::Nanoseconds(3_600 * NANOSECONDS_OF_SECOND),
        "m" | "min" | "mins" | "minute" | "minutes" => Unit::Nanoseconds(60 * NANOSECONDS_OF_SECOND),
        "s" | "sec" | "secs" | "second" | "seconds" => Unit::Nanoseconds(NANOSECONDS_OF_SECOND),
        "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => Unit::Nanoseconds(1_000_000),
        "us" | "usec" | "usecs" | "microsecond" | "microseconds" => Unit::Nanoseconds(1_000),
        "ns" | "nsec" | "nsecs" | "nanosecond" | "nanoseconds" => Unit::Nanoseconds(1),
        _ => return None,
    })
}

/// Takes the characters from the beginning that are of a kind.
fn taken<'a>(rest: &mut &'a str, is_part: impl Fn(char) -> bool) -> &'a str {
    let end = rest.find(|character| !is_part(character)).unwrap_or(rest.len());
    let (part, behind) = rest.split_at(end);
    *rest = behind;
    part
}

/// Takes a number: digits, a point, digits.
fn number(rest: &mut &str, sign: i128) -> Option<Number> {
    // More digits than these would not fit with the largest unit.
    const MOST_DIGITS: usize = 15;
    let whole = taken(rest, |character| character.is_ascii_digit());
    let fraction = match rest.strip_prefix('.') {
        Some(behind) => {
            *rest = behind;
            taken(rest, |character| character.is_ascii_digit())
        }
        None => "",
    };
    if whole.is_empty() && fraction.is_empty() || whole.trim_start_matches('0').len() > 2 * MOST_DIGITS {
        return None;
    }
    let fraction = fraction.get(..MOST_DIGITS).unwrap_or(fraction);
    let one = 10_i128.pow(fraction.len().try_into().ok()?);
    let digits = |digits: &str| if digits.is_empty() { Some(0) } else { digits.parse::<i128>().ok() };
    // The product with any unit fits.
    let mantissa = digits(whole)?.checked_mul(one)?.checked_add(digits(fraction)?)?;
    (mantissa < i128::MAX / NANOSECONDS_OF_DAY / DAYS_OF_MONTH / 32)
        .then_some(Number { mantissa: sign * mantissa, one })
}

fn sign(rest: &mut &str) -> i128 {
    for (sign, factor) in [('-', -1), ('+', 1)] {
        if let Some(behind) = rest.strip_prefix(sign) {
            *rest = behind.trim_start();
            return factor;
        }
    }
    1
}

fn parts(text: &str) -> Option<Sum> {
    let mut rest = text.trim().trim_start_matches('@').trim_start();
    let mut sum = Sum::default();
    let mut is_first = true;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let sign = sign(&mut rest);
        let number = number(&mut rest, sign)?;
        if rest.starts_with(':') {
            sum.add_parts(0, 0, time(&mut rest, number, sign)?);
        } else {
            rest = rest.trim_start();
            let name = taken(&mut rest, char::is_alphabetic);
            match unit(name) {
                Some(unit) => sum.add(number, unit),
                None if name.is_empty() && is_first && rest.is_empty() => {
                    sum.add(number, Unit::Nanoseconds(NANOSECONDS_OF_SECOND));
                }
                None => return None,
            }
        }
        is_first = false;
        rest = rest.trim_start();
    }
    Some(sum)
}

/// Takes minutes and seconds behind the hours; gives nanoseconds.
fn time(rest: &mut &str, hours: Number, sign: i128) -> Option<i128> {
    if hours.one != 1 {
        return None;
    }
    let mut nanoseconds = hours.mantissa * 3_600 * NANOSECONDS_OF_SECOND;
    for seconds in [60, 1] {
        let Some(behind) = rest.strip_prefix(':') else { break };
        *rest = behind;
        if !rest.starts_with(|character: char| character.is_ascii_digit()) {
            // `00:00:` ends with the minutes.
            return (seconds == 1 && rest.is_empty()).then_some(nanoseconds);
        }
        let number = number(rest, sign)?;
        let is_in_range = number.mantissa.abs() < 60 * number.one && (seconds == 1 || number.one == 1);
        if !is_in_range {
            return None;
        }
        nanoseconds += rounded(number.mantissa * seconds * NANOSECONDS_OF_SECOND, number.one);
    }
    Some(nanoseconds)
}

/// What stands behind the `P` of ISO 8601, section 4.4.3.2.
fn iso(designators: &str) -> Option<Sum> {
    let mut rest = designators;
    let mut sum = Sum::default();
    let mut is_time = false;
    let mut is_empty = true;
    while !rest.is_empty() {
        if let Some(behind) = rest.strip_prefix('T') {
            (rest, is_time) = (behind, true);
            continue;
        }
        let sign = sign(&mut rest);
        let number = number(&mut rest, sign)?;
        let designator = rest.chars().next()?;
        rest = rest.get(designator.len_utf8()..)?;
        let unit = match (designator, is_time) {
            ('Y', false) => Unit::Months(12),
            ('M', false) => Unit::Months(1),
            ('W', false) => Unit::Days(7),
            ('D', false) => Unit::Days(1),
            ('H', true) => Unit::Nanoseconds(3_600 * NANOSECONDS_OF_SECOND),
            ('M', true) => Unit::Nanoseconds(60 * NANOSECONDS_OF_SECOND),
            ('S', true) => Unit::Nanoseconds(NANOSECONDS_OF_SECOND),
            _ => return None,
        };
        sum.add(number, unit);
        is_empty = false;
    }
    (!is_empty).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;
    const HOUR: i64 = 3_600 * SECOND;

    #[test]
    fn intervals_are_read_as_in_postgres_and_duckdb() {
        for (text, months, days, nanoseconds) in [
            ("3", 0, 0, 3 * SECOND),
            (" 42 ", 0, 0, 42 * SECOND),
            ("1 day ago", 0, -1, 0),
            ("1.5 days", 0, 1, 12 * HOUR),
            ("0.5 month", 0, 15, 0),
            ("0.05 MONTH", 0, 1, 12 * HOUR),
            ("0.05 year", 1, 0, 0),
            ("0.04 year", 0, 0, 0),
            ("1.5 years", 18, 0, 0),
            ("0.0005 century", 1, 0, 0),
            ("-1.5 months", -1, -15, 0),
            ("1.5 weeks", 0, 10, 12 * HOUR),
            ("3 decades", 360, 0, 0),
            ("2 millenniums", 24_000, 0, 0),
            ("1:2", 0, 0, HOUR + 120 * SECOND),
            ("-01:02:03.5", 0, 0, -(HOUR + 123 * SECOND + SECOND / 2)),
            ("1 day -01:00:00", 0, 1, -HOUR),
            ("00:00:", 0, 0, 0),
            ("@ 1 m 2 s", 0, 0, 62 * SECOND),
            ("1year2mons3d", 14, 3, 0),
            ("1d 2h -3 ms", 0, 1, 2 * HOUR - 3_000_000),
            ("2147483647 days", 0, i32::MAX, 0),
            ("9223372036854775807 ns", 0, 0, i64::MAX),
            ("P1Y2M3DT4H5M6S", 14, 3, 4 * HOUR + 306 * SECOND),
            ("P-1DT0.5H", 0, -1, HOUR / 2),
        ] {
            let expected = IntervalMonthDayNano::new(months, days, nanoseconds);
            assert_eq!(parse_interval(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_interval_is_none() {
        for text in [
            "",
            " ",
            "day",
            "1 day 1",
            "1 fortnight",
            "1e3 days",
            "1-2",
            "1:60",
            "1:2:3:4",
            "1.5:30",
            "ago",
            "P",
            "P1",
            "PT1Y",
            "2147483648 days",
            "9223372036854775808 ns",
            "1 day é",
            "-",
            "+ days",
            "99999999999999999999999999999999999999 days",
            "999999999999999999999999999.999999999999999 years",
        ] {
            assert_eq!(parse_interval(text), None, "{text}");
        }
    }
}
