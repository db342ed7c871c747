//! Numbers with units, as people write them, and medians.

pub use nandina::byte_size::format as bytes;

/// Reads `512MB`, `2GB`, `64 MiB` or a plain number of bytes, for arguments.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    nandina::byte_size::parse(text, 0)
}

/// The same with `none` for no limit.
pub fn parse_limit(text: &str) -> Result<Option<u64>, String> {
    if text == "none" { Ok(None) } else { parse_bytes(text).map(Some) }
}

/// How a memory limit is called in tables.
pub fn limit(limit_bytes: Option<u64>) -> String {
    limit_bytes.map_or_else(|| "no limit".to_owned(), bytes)
}

/// Seconds with as many decimals as three digits need.
pub fn seconds(seconds: f64) -> String {
    match seconds {
        s if s >= 100.0 => format!("{s:.0}"),
        s if s >= 10.0 => format!("{s:.1}"),
        s => format!("{s:.2}"),
    }
}

/// A time of some microseconds to some seconds.
pub fn short_time(seconds: f64) -> String {
    let micros = seconds * 1e6;
    match micros {
        ..10.0 => format!("{micros:.1} µs"),
        ..1000.0 => format!("{micros:.0} µs"),
        ..1e6 => format!("{:.1} ms", micros / 1000.0),
        _ => format!("{seconds:.1} s"),
    }
}

/// The middle value; of an even number of values the lower of the two in the middle, so that it is a value
/// that was measured.
pub fn median<T: Copy + PartialOrd>(values: impl IntoIterator<Item = T>) -> Option<T> {
    let mut values: Vec<T> = values.into_iter().collect();
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    values.get(values.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_measured_values() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.0));
        assert_eq!(median::<f64>([]), None);
        assert_eq!(
            (seconds(0.123), seconds(12.34), seconds(123.4)),
            ("0.12".into(), "12.3".into(), "123".into())
        );
    }
}
