//! Numbers with units, as people write them, and medians.

const UNITS: [(&str, u64); 3] = [("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)];

/// Bytes in the largest unit that they reach, with a decimal if it is not a whole number: `452 MB`, `1.5 GB`.
pub fn bytes(bytes: u64) -> String {
    match UNITS.iter().find(|(_, size)| bytes >= *size) {
        Some((unit, size)) if bytes.is_multiple_of(*size) => format!("{} {unit}", bytes / size),
        Some((unit, size)) => format!("{:.1} {unit}", bytes as f64 / *size as f64),
        None => format!("{bytes} B"),
    }
}

/// Reads `512MB`, `2GB`, `64 MiB` or a plain number of bytes. Units are powers of two.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let upper = text.trim().to_ascii_uppercase();
    let digits = upper.trim_end_matches(|c: char| c.is_ascii_alphabetic()).trim();
    let unit = match upper.trim_start_matches(|c: char| !c.is_ascii_alphabetic()) {
        "" | "B" => 1,
        "K" | "KB" | "KIB" => 1 << 10,
        "M" | "MB" | "MIB" => 1 << 20,
        "G" | "GB" | "GIB" => 1 << 30,
        other => return Err(format!("'{other}' is no unit of memory: write KB, MB or GB")),
    };
    let number: f64 = digits.parse().map_err(|_| format!("'{text}' is no size: write one like 512MB"))?;
    Ok((number * unit as f64) as u64)
}

/// Seconds with as many decimals as three digits need.
pub fn seconds(seconds: f64) -> String {
    match seconds {
        s if s >= 100.0 => format!("{s:.0}"),
        s if s >= 10.0 => format!("{s:.1}"),
        s => format!("{s:.2}"),
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
    fn sizes_read_and_write() {
        for (text, value) in [("64 MB", 64 << 20), ("2 GB", 2 << 30), ("1.5 KB", 1536), ("12 B", 12)] {
            assert_eq!(bytes(value), text);
            assert_eq!(parse_bytes(text), Ok(value));
        }
        assert_eq!(parse_bytes("1GiB"), Ok(1 << 30));
        assert_eq!(parse_bytes("77"), Ok(77));
        assert!(parse_bytes("5 parsecs").unwrap_err().contains("PARSECS"));
        assert!(parse_bytes("MB").is_err());
    }

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
