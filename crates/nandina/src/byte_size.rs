//! Amounts of bytes as people write and read them.
//!
//! Written: `256MB`, `1.5 GiB`, `64k`, `1048576`, and `60%` of a whole. As in other engines and in every
//! tool that sizes memory, `KB` and `KiB` both mean 1024 bytes: a limit given as `256MB` and one given as
//! `256MiB` should not differ by 12 MB for no reason.
//! Read: [`format`] writes three significant digits with a binary unit, as on the pages of reports.

pub use nandina_report::quantity::bytes as format;

/// Parses an amount of bytes. `whole_bytes` is what a percentage refers to.
///
/// Errors are sentences that say which text was not understood and what would be.
pub fn parse(text: &str, whole_bytes: u64) -> Result<u64, String> {
    let trimmed = text.trim();
    let unit_start =
        trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(trimmed.len());
    let (digits, unit) = trimmed.split_at(unit_start);
    let not_understood =
        || format!("'{text}' is not an amount of memory; write for example 256MB, 1.5GiB or 60%");
    let number: f64 = digits.replace('_', "").parse().map_err(|_| not_understood())?;
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" | "byte" | "bytes" => 1.0,
        "k" | "kb" | "kib" => 1024.0,
        "m" | "mb" | "mib" => 1024.0 * 1024.0,
        "g" | "gb" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "t" | "tb" | "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "%" => {
            if whole_bytes == 0 {
                return Err(format!("'{text}' is a share of nothing; write an amount such as 20GB"));
            }
            if !(0.0..=100.0).contains(&number) {
                return Err(format!("'{text}' is not a share between 0% and 100%"));
            }
            whole_bytes as f64 / 100.0
        }
        _ => return Err(not_understood()),
    };
    let bytes = number * factor;
    if !bytes.is_finite() || bytes >= u64::MAX as f64 {
        return Err(format!("'{text}' is more memory than any machine has"));
    }
    Ok(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_binary_and_case_does_not_matter() {
        assert_eq!(parse("256MB", 0), Ok(256 << 20));
        assert_eq!(parse("256 mib", 0), Ok(256 << 20));
        assert_eq!(parse("1.5GiB", 0), Ok(3 << 29));
        assert_eq!(parse("64k", 0), Ok(64 << 10));
        assert_eq!(parse("1_000", 0), Ok(1000));
        assert_eq!(parse("2T", 0), Ok(2 << 40));
    }

    #[test]
    fn a_percentage_is_of_the_whole() {
        assert_eq!(parse("60%", 1000), Ok(600));
        assert_eq!(parse("12.5 %", 1000), Ok(125));
        assert!(parse("101%", 1000).is_err());
    }

    #[test]
    fn nonsense_is_named_in_the_error() {
        for text in ["", "MB", "12 parsecs", "-5MB", "1e3", "1.2.3"] {
            let message = parse(text, 1).unwrap_err();
            assert!(message.contains(text), "{message}");
        }
        assert!(parse("99999999999999999999T", 1).is_err());
    }
}
