//! Numbers as people read them: `1.4 GB/s`, `85 µs`, `256 KiB`, `11,997,996`.
//!
//! Three digits that count, no zeros behind them. Sizes are in powers of 1,024 (KiB), as buffers and pages are; rates
//! in powers of 1,000 (MB/s), as data sheets give them. `NaN` and infinity become a dash.

use chrono::DateTime;

/// A value that cannot be said.
pub(crate) const NOTHING: &str = "–";

/// `640 B`, `61.3 MiB`, `1.25 GiB`.
pub fn bytes(bytes: u64) -> String {
    size(bytes as f64)
}

/// The same for a size that was calculated.
pub(crate) fn size(bytes: f64) -> String {
    scaled(bytes, 1024.0, 1.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}

/// `1.4 GB/s`.
pub(crate) fn rate(bytes_per_second: f64) -> String {
    scaled(bytes_per_second, 1000.0, 1.0, &["B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"])
}

/// `85 µs`, `3.21 s`, `2 min 5 s`, `1 h 30 min`, `3 d 4 h`.
pub(crate) fn seconds(seconds: f64) -> String {
    if !seconds.is_finite() {
        return NOTHING.to_owned();
    }
    if seconds.abs() < 99.95 {
        return scaled(seconds, 1000.0, 1e-9, &["ns", "µs", "ms", "s"]);
    }
    let sign = if seconds < 0.0 { "−" } else { "" };
    let whole = seconds.abs().round() as u64;
    let (days, hours, minutes) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60);
    let parts = match (days, hours) {
        (0, 0) => [(minutes, "min"), (whole % 60, "s")],
        (0, _) => [(hours, "h"), (minutes, "min")],
        _ => [(days, "d"), (hours, "h")],
    };
    let words: Vec<String> = parts
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, unit)| format!("{} {unit}", count(*number)))
        .collect();
    format!("{sign}{}", words.join(" "))
}

/// Microseconds as a time.
pub(crate) fn micros(micros: f64) -> String {
    seconds(micros * 1e-6)
}

/// `1,234,567`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 row`, `12 rows`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// A number of whatever: `0.25`, `31.4`, `150 k`, `2.1 M`.
pub(crate) fn plain(value: f64) -> String {
    if value.is_finite() && value.abs() < 9_999.5 {
        return digits(value, 3);
    }
    scaled(value, 1000.0, 1.0, &["", "k", "M", "G", "T"])
}

/// `12 %`.
pub(crate) fn percent(share: f64) -> String {
    if share.is_finite() { format!("{} %", digits(share * 100.0, 2)) } else { NOTHING.to_owned() }
}

/// Seconds since 1970 as `2026-11-21 14:05 UTC`.
pub(crate) fn moment(unix_seconds: u64) -> String {
    let moment = i64::try_from(unix_seconds).ok().and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    moment.map_or_else(|| NOTHING.to_owned(), |moment| moment.format("%Y-%m-%d %H:%M UTC").to_string())
}

/// Prose in which no line ends between a number and its unit.
pub(crate) fn kept_together(prose: &str) -> String {
    const UNITS: [&str; 24] = [
        "%", "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s",
        "ns", "µs", "ms", "s", "min", "h", "d", "k", "M", "G",
    ];
    let mut words = prose.split(' ');
    let mut text = words.next().unwrap_or_default().to_owned();
    for word in words {
        let is_unit = UNITS.contains(&word.trim_end_matches(['.', ',', ':', ';', ')']));
        let follows_a_number = text.ends_with(|last: char| last.is_ascii_digit());
        text.push(if is_unit && follows_a_number { '\u{a0}' } else { ' ' });
        text.push_str(word);
    }
    text
}

/// The value in the unit in which it has one to three digits before the point; `first` is what the first unit is worth.
fn scaled(value: f64, step: f64, first: f64, units: &[&str]) -> String {
    if !value.is_finite() {
        return NOTHING.to_owned();
    }
    let mut amount = value / first;
    let mut unit = units.first().copied().unwrap_or_default();
    let mut wanted = 3;
    for next in units.iter().skip(1) {
        // What would be written with a fourth digit is one of the next unit; only single bytes are counted to the end.
        if amount.abs() < if unit == "B" { step - 0.5 } else { 999.5 } {
            break;
        }
        amount /= step;
        unit = next;
        wanted = if amount.abs() < 1.0 { 2 } else { 3 };
    }
    // No time is measured in less than these.
    if value == 0.0 {
        unit = units.last().filter(|unit| **unit == "s").copied().unwrap_or(unit);
    }
    format!("{} {unit}", digits(amount, wanted)).trim_end().to_owned()
}

/// With so many digits that count, and no zeros behind the point.
fn digits(value: f64, wanted: usize) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let before_point = value.abs().log10().floor() as i64 + 1;
    let decimals = (wanted as i64 - before_point).clamp(0, 6) as usize;
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    match text {
        "-0" | "" => "0".to_owned(),
        _ => text.replace('-', "−"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_rates() {
        let sizes = [
            0,
            1,
            1023,
            1024,
            1536,
            256 << 10,
            (1 << 20) - 1,
            64_300_000,
            1023 << 20,
            1_342_177_280,
            8 << 30,
            u64::MAX,
        ];
        assert_eq!(
            sizes.map(bytes),
            [
                "0 B", "1 B", "1023 B", "1 KiB", "1.5 KiB", "256 KiB", "1 MiB", "61.3 MiB", "1 GiB",
                "1.25 GiB", "8 GiB", "16 EiB"
            ]
        );
        let rates = [0.0, 999.7, 1.4e9, 1_657_000_000.0, 125e6, f64::NAN, 3.2e3];
        assert_eq!(
            rates.map(rate),
            ["0 B/s", "1 kB/s", "1.4 GB/s", "1.66 GB/s", "125 MB/s", "–", "3.2 kB/s"]
        );
    }

    #[test]
    fn times_from_nanoseconds_to_days() {
        let times =
            [0.0, 2.5e-8, 85e-6, 0.0812, 3.214, 99.96, 125.0, 3600.0, 5400.0, 273_600.0, -2.0, f64::INFINITY];
        assert_eq!(
            times.map(seconds),
            [
                "0 s",
                "25 ns",
                "85 µs",
                "81.2 ms",
                "3.21 s",
                "1 min 40 s",
                "2 min 5 s",
                "1 h",
                "1 h 30 min",
                "3 d 4 h",
                "−2 s",
                "–"
            ]
        );
        assert_eq!(micros(86.04), "86 µs");
    }

    #[test]
    fn plain_numbers() {
        assert_eq!([0.0, 0.25, 31.42, 9_999.0, 152_340.0].map(plain), ["0", "0.25", "31.4", "9999", "152 k"]);
        assert_eq!([0, 999, 1_234_567].map(count), ["0", "999", "1,234,567"]);
        assert_eq!((counted(1, "row"), counted(2, "row")), ("1 row".into(), "2 rows".into()));
        assert_eq!([0.0, 0.042, 1.0, 0.0001].map(percent), ["0 %", "4.2 %", "100 %", "0.01 %"]);
    }

    #[test]
    fn units_stay_with_their_numbers() {
        assert_eq!(
            kept_together("It took 1.4 GB/s, after 16 KiB (39 % of 2 s). 8 s1 is B"),
            "It took 1.4\u{a0}GB/s, after 16\u{a0}KiB (39\u{a0}% of 2\u{a0}s). 8 s1 is B"
        );
        assert_eq!(kept_together("  "), "  ");
    }

    #[test]
    fn moments() {
        let of = [0, 951_782_399, 951_782_400, 1_795_269_900, 4_102_444_800, u64::MAX];
        assert_eq!(
            of.map(moment),
            [
                "1970-01-01 00:00 UTC",
                "2000-02-28 23:59 UTC",
                "2000-02-29 00:00 UTC",
                "2026-11-21 14:05 UTC",
                "2100-01-01 00:00 UTC",
                "–"
            ]
        );
    }
}
