//! Whether two answers are the same, as sqllogictest understands it.
//!
//! Values are compared by what they mean: `1.50` is `1.5`, `true` is `1`, midnight is its day, and floating point
//! numbers are the same if they agree in nine digits, or in the digits that were written down. Rows are compared
//! in their order only as far as the query orders them.

use std::cmp::Ordering;
use std::sync::LazyLock;

use regex::Regex;

use super::cells::{Kind, Row};
use super::record::SortMode;

/// Share by which floating point numbers may differ: sums of parts differ in the last digits.
const FLOAT_TOLERANCE: f64 = 1e-9;
/// Above this many rows that are not equal when sorted nobody looks for the partner of each one.
const MOST_ROWS_TO_PAIR: usize = 1500;

/// In which order rows are to come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// In any.
    Any,
    /// Values in any order, whatever their rows.
    AnyValues,
    /// Sorted by these columns; in any order where those are equal.
    By(Vec<usize>),
}

impl Order {
    /// What a query's own order and the file's sort mode come to.
    pub fn of(sort: SortMode, keys: Option<Vec<usize>>) -> Self {
        match (sort, keys) {
            (SortMode::Values, _) => Order::AnyValues,
            (SortMode::Rows, _) | (SortMode::None, None) => Order::Any,
            (SortMode::None, Some(keys)) => Order::By(keys),
        }
    }
}

/// Whether our rows are the other ones. The other ones may have patterns as values.
pub fn same_rows(ours: &[Row], theirs: &[Row], kinds: &[Kind], order: &Order) -> bool {
    if ours.len() != theirs.len() {
        return false;
    }
    match order {
        Order::AnyValues => {
            let single =
                |rows: &[Row]| -> Vec<Row> { rows.iter().flatten().map(|cell| vec![cell.clone()]).collect() };
            // Values of all columns are mixed: the most lenient of the kinds holds for all.
            let kind = if kinds.iter().all(|kind| *kind == Kind::Text) { Kind::Text } else { Kind::Floating };
            same_in_any_order(&single(ours), &single(theirs), &[kind])
        }
        Order::Any => same_in_any_order(ours, theirs, kinds),
        Order::By(keys) => {
            let is_same = |(ours, theirs): (&Row, &Row)| same_row(ours, theirs, kinds);
            if ours.iter().zip(theirs).all(is_same) {
                return true;
            }
            let only_keys =
                |row: &Row| -> Row { keys.iter().map(|key| row.get(*key).cloned().flatten()).collect() };
            let key_kinds: Vec<Kind> =
                keys.iter().map(|key| kinds.get(*key).copied().unwrap_or(Kind::Other)).collect();
            ours.iter()
                .zip(theirs)
                .all(|(ours, theirs)| same_row(&only_keys(ours), &only_keys(theirs), &key_kinds))
                && same_in_any_order(ours, theirs, kinds)
        }
    }
}

fn same_in_any_order(ours: &[Row], theirs: &[Row], kinds: &[Kind]) -> bool {
    let (mut ours, mut theirs): (Vec<&Row>, Vec<&Row>) = (ours.iter().collect(), theirs.iter().collect());
    let by_text = |left: &&Row, right: &&Row| sort_key(left).cmp(&sort_key(right));
    ours.sort_by(by_text);
    theirs.sort_by(by_text);
    if ours.iter().zip(&theirs).all(|(ours, theirs)| same_row(ours, theirs, kinds)) {
        return true;
    }
    if ours.len() > MOST_ROWS_TO_PAIR {
        return false;
    }
    // Values that are the same but written differently may be sorted differently.
    let mut left_over = theirs;
    for row in ours {
        let Some(at) = left_over.iter().position(|other| same_row(row, other, kinds)) else { return false };
        left_over.swap_remove(at);
    }
    true
}

/// Brings rows whose values are the same, but are written differently, to the same place as well as it can.
fn sort_key(row: &Row) -> Vec<String> {
    row.iter().map(|cell| canonical(cell.as_deref(), 6)).collect()
}

/// A text that is the same for values that are the same: numbers with so many digits.
pub fn canonical(cell: Option<&str>, digits: usize) -> String {
    match cell {
        None => "NULL".to_owned(),
        Some("true") => "1".to_owned(),
        Some("false") => "0".to_owned(),
        Some(text) => match Number::read(text) {
            Some(Number { decimal: Some(decimal), .. }) if decimal.fraction.is_empty() => decimal.to_string(),
            Some(number) => format!("{:.digits$e}", number.value + 0.0),
            None => nested_atoms(text).unwrap_or_else(|| text.to_owned()),
        },
    }
}

/// The parts of a list, struct or map without spaces and quotes.
fn nested_atoms(text: &str) -> Option<String> {
    text.starts_with(['[', '{']).then(|| text.replace([' ', '\'', '"'], ""))
}

fn same_row(ours: &Row, theirs: &Row, kinds: &[Kind]) -> bool {
    ours.len() == theirs.len()
        && ours.iter().zip(theirs).enumerate().all(|(column, (ours, theirs))| {
            same_cell(ours.as_deref(), theirs.as_deref(), kinds.get(column).copied().unwrap_or(Kind::Other))
        })
}

/// Whether a value of ours is the other one.
pub fn same_cell(ours: Option<&str>, theirs: Option<&str>, kind: Kind) -> bool {
    let (Some(ours), Some(theirs)) = (ours, theirs) else { return ours == theirs };
    if ours == theirs {
        return true;
    }
    if let Some(pattern) = theirs.strip_prefix("<REGEX>:") {
        return matches(pattern, ours);
    }
    if let Some(pattern) = theirs.strip_prefix("<!REGEX>:") {
        return !matches(pattern, ours);
    }
    match kind {
        Kind::Text => visible(ours) == visible(theirs),
        Kind::Boolean => boolean(ours).is_some() && boolean(ours) == boolean(theirs),
        Kind::Exact => same_exact(ours, theirs) || boolean(theirs).is_some_and(|theirs| theirs == ours),
        Kind::Floating => same_number(ours, theirs),
        Kind::Time => same_time(ours, theirs),
        Kind::Other => same_time(ours, theirs) || same_nested(ours, theirs),
    }
}

/// Texts in files have their line feeds and zero bytes written out.
fn visible(text: &str) -> String {
    let text = if text == "(empty)" { "" } else { text };
    text.replace('\0', "\\0").replace('\n', "\\n").trim_end_matches('\r').to_owned()
}

fn boolean(text: &str) -> Option<&'static str> {
    match text {
        "true" | "True" | "1" => Some("1"),
        "false" | "False" | "0" => Some("0"),
        _ => None,
    }
}

/// A pattern means the whole value, and its points mean line feeds, too.
fn matches(pattern: &str, text: &str) -> bool {
    Regex::new(&format!("^(?s:{pattern})$")).is_ok_and(|pattern| pattern.is_match(text))
}

fn same_exact(ours: &str, theirs: &str) -> bool {
    match (Number::read(ours), Number::read(theirs)) {
        (Some(ours), Some(theirs)) => ours.is_same(&theirs, true),
        _ => false,
    }
}

fn same_number(ours: &str, theirs: &str) -> bool {
    match (Number::read(ours), Number::read(theirs)) {
        (Some(ours), Some(theirs)) => ours.is_same(&theirs, false),
        _ => boolean(theirs).is_some_and(|number| number != theirs && same_number(ours, number)),
    }
}

/// A number as it was written.
#[derive(Debug, Clone)]
struct Number {
    value: f64,
    /// How many digits were written, without zeros before them.
    digits: usize,
    /// All its digits, if it was written without an exponent.
    decimal: Option<Decimal>,
}

/// Sign, digits before and behind the point, without zeros that mean nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    whole: String,
    fraction: String,
    /// How many digits behind the point were written.
    written: usize,
}

impl std::fmt::Display for Decimal {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}{}.{}", if self.is_negative { "-" } else { "" }, self.whole, self.fraction)
    }
}

impl Number {
    fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        let starts_like_one = |rest: &str| {
            rest.starts_with(|first: char| first.is_ascii_digit() || first == '.')
                || ["inf", "nan", "infinity"].contains(&rest.to_ascii_lowercase().as_str())
        };
        if !starts_like_one(text.strip_prefix(['-', '+']).unwrap_or(text)) {
            return None;
        }
        let value: f64 = text.parse().ok()?;
        let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
        let digits = mantissa.chars().filter(char::is_ascii_digit).skip_while(|digit| *digit == '0').count();
        Some(Number { value, digits, decimal: Decimal::read(text) })
    }

    fn is_same(&self, theirs: &Number, is_exact: bool) -> bool {
        if let (Some(ours), Some(theirs)) = (&self.decimal, &theirs.decimal) {
            if ours.is_same(theirs) {
                return true;
            }
            if is_exact && ours.written <= theirs.written {
                return false;
            }
            if ours.written == 0 && theirs.written == 0 {
                return false;
            }
        }
        let difference = (self.value - theirs.value).abs();
        if self.value.is_nan() || theirs.value.is_nan() {
            return self.value.is_nan() && theirs.value.is_nan();
        }
        if self.value == theirs.value || self.value.is_infinite() || theirs.value.is_infinite() {
            return self.value == theirs.value;
        }
        if difference <= FLOAT_TOLERANCE * self.value.abs().max(theirs.value.abs()) {
            return true;
        }
        // Sums that come to nothing leave a rest.
        if !is_exact && difference < 1e-12 {
            return true;
        }
        // Numbers in single precision, of which others have more digits.
        if !is_exact && theirs.digits < 10 && self.digits > theirs.digits {
            let tolerance = f64::from(f32::EPSILON) * theirs.value.abs();
            if difference <= tolerance {
                return true;
            }
        }
        // Files have floating point numbers rounded to a few digits, if at least two.
        let digits = theirs.decimal.as_ref().map_or(0, |theirs| theirs.written);
        let is_longer = self.decimal.as_ref().is_none_or(|ours| ours.written > digits);
        digits >= 2 && is_longer && difference <= 0.5 * 10f64.powi(-(digits as i32)) * (1.0 + 1e-6)
    }
}

impl Decimal {
    fn read(text: &str) -> Option<Self> {
        let (is_negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_digits(whole) || !is_digits(fraction) {
            return None;
        }
        let written = fraction.len();
        let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
        let is_negative = is_negative && !(whole.is_empty() && fraction.is_empty());
        Some(Decimal { is_negative, whole: whole.to_owned(), fraction: fraction.to_owned(), written })
    }

    fn is_same(&self, other: &Decimal) -> bool {
        (self.is_negative, &self.whole, &self.fraction) == (other.is_negative, &other.whole, &other.fraction)
    }
}

static ZONE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(\+00(:00)?|Z)$").ok());
static SHORT_ZONE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(\d[+-]\d\d):00$").ok());
static FRACTION: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(\.\d*?)0+($|[^\d])").ok());

static UNNAMED: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"'c\d+': ").ok());

/// Times are the same to the microsecond, which is as far as DuckDB's go.
fn same_time(ours: &str, theirs: &str) -> bool {
    let (ours, theirs) = (canonical_time(ours), canonical_time(theirs));
    if ours == theirs {
        return true;
    }
    let fraction = |text: &str| -> Option<(String, f64)> {
        let (before, fraction) = text.rsplit_once('.')?;
        let is_fine = fraction.len() > 6 && fraction.bytes().all(|digit| digit.is_ascii_digit());
        let value = format!("0.{fraction}").parse().ok()?;
        (is_fine || fraction.len() == 6).then(|| (before.to_owned(), value))
    };
    match (fraction(&ours), fraction(&theirs)) {
        (Some((ours, our_fraction)), Some((theirs, their_fraction))) => {
            let is_finer = our_fraction != their_fraction;
            ours == theirs && is_finer && (our_fraction - their_fraction).abs() < 1e-6 * (1.0 - 1e-3)
        }
        _ => false,
    }
}

/// Without what means nothing: the zone UTC, zeros at the end of a fraction, midnight.
fn canonical_time(text: &str) -> String {
    let mut text = text.to_owned();
    if let Some(zone) = ZONE.as_ref() {
        text = zone.replace(&text, "").into_owned();
    }
    if let Some(zone) = SHORT_ZONE.as_ref() {
        text = zone.replace(&text, "$1").into_owned();
    }
    if text.as_bytes().get(10) == Some(&b'T') {
        text.replace_range(10..11, " ");
    }
    if let Some(fraction) = FRACTION.as_ref() {
        text = fraction.replace(&text, "$1$2").into_owned();
    }
    let text = text.trim_end_matches('.');
    text.strip_suffix(" 00:00:00").unwrap_or(text).to_owned()
}

/// Whether lists, structs and maps have the same parts.
fn same_nested(ours: &str, theirs: &str) -> bool {
    // A colon that separates has a space behind it; others are those of times.
    const COLON: char = '\u{1}';
    let separators = |letter: char| "[]{},=()".contains(letter) || letter == COLON;
    // Tuples have no names.
    let ours = match (theirs.starts_with('('), UNNAMED.as_ref()) {
        (true, Some(names)) => names.replace_all(ours, "").replace('{', "(").replace('}', ")"),
        _ => ours.to_owned(),
    };
    let atoms = |text: &str| -> Vec<String> {
        let plain = text.replace(['\'', '"'], "").replace(": ", "\u{1}");
        let mut atoms: Vec<String> = Vec::new();
        let mut atom = String::new();
        for letter in plain.chars() {
            if separators(letter) {
                atoms.push(atom.trim().to_owned());
                atoms.push(letter.to_string());
                atom.clear();
            } else {
                atom.push(letter);
            }
        }
        atoms.push(atom.trim().to_owned());
        atoms
    };
    let (ours, theirs) = (atoms(&ours), atoms(theirs));
    ours.len() == theirs.len()
        && ours.iter().zip(&theirs).all(|(ours, theirs)| {
            ours == theirs
                || same_number(ours, theirs)
                || boolean(ours).is_some_and(|ours| Some(ours) == boolean(theirs))
                || canonical_time(ours) == canonical_time(theirs)
        })
}

/// Whether two answers have the same values if the parts of lists and texts may come in any order.
pub fn same_collections(ours: &[Row], theirs: &[Row]) -> bool {
    let sorted = |rows: &[Row]| -> Vec<Vec<String>> {
        let atoms = |row: &Row| -> Vec<String> {
            let text = row.iter().map(|cell| cell.as_deref().unwrap_or("NULL")).collect::<Vec<_>>().join(",");
            let separators = |letter: char| !(letter.is_alphanumeric() || ".-+_".contains(letter));
            let mut atoms: Vec<String> = text
                .split(separators)
                .map(|atom| canonical(Some(atom), 6))
                .filter(|atom| !atom.is_empty())
                .collect();
            atoms.sort();
            atoms
        };
        let mut rows: Vec<Vec<String>> = rows.iter().map(atoms).collect();
        rows.sort();
        rows
    };
    sorted(ours) == sorted(theirs)
}

/// A number for the values of an answer, whatever their order, for comparing the answers under several limits.
pub fn fingerprint(rows: &[Row]) -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let texts = |row: &Row| -> Vec<String> { row.iter().map(|cell| canonical(cell.as_deref(), 7)).collect() };
    let mut rows: Vec<Vec<String>> = rows.iter().map(texts).collect();
    rows.sort_by(|left, right| match left.len().cmp(&right.len()) {
        Ordering::Equal => left.cmp(right),
        other => other,
    });
    let mut hasher = DefaultHasher::new();
    rows.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(cells: &[&[&str]]) -> Vec<Row> {
        let cell = |cell: &&str| (*cell != "NULL").then(|| (*cell).to_owned());
        cells.iter().map(|row| row.iter().map(cell).collect()).collect()
    }

    fn same(ours: &str, theirs: &str, kind: Kind) -> bool {
        same_cell(Some(ours), Some(theirs), kind)
    }

    #[test]
    fn numbers() {
        assert!(same("1.50", "1.5", Kind::Exact));
        assert!(same("-0.00", "0", Kind::Exact));
        assert!(!same("9007199254740993", "9007199254740992", Kind::Exact));
        assert!(!same("9007199254740993", "9007199254740992", Kind::Floating));
        assert!(same("0.1", "0.10000000000000001", Kind::Floating));
        assert!(same("1e20", "1e+20", Kind::Floating));
        assert!(same("100000000000000000000.0", "1e+20", Kind::Floating));
        assert!(same("3.14159", "3.14", Kind::Floating));
        assert!(!same("3.15", "3.14", Kind::Floating));
        assert!(!same("2.4", "2", Kind::Floating));
        assert!(!same("1.01", "1.02", Kind::Exact));
        assert!(same("10.392304845413264", "10.392304", Kind::Floating));
        assert!(!same("10.3924", "10.392304", Kind::Floating));
        assert!(same("NaN", "nan", Kind::Floating));
        assert!(same("inf", "Infinity", Kind::Floating));
        assert!(!same("inf", "-inf", Kind::Floating));
        assert!(!same("1.0", "1", Kind::Text));
    }

    #[test]
    fn other_values() {
        assert!(same("true", "1", Kind::Boolean));
        assert!(!same("true", "0", Kind::Boolean));
        assert!(same("", "(empty)", Kind::Text));
        assert!(same("2020-01-01 00:00:00", "2020-01-01", Kind::Time));
        assert!(same("2020-01-01 10:00:00+00:00", "2020-01-01 10:00:00+00", Kind::Time));
        assert!(same("10:20:30.5", "10:20:30.500", Kind::Time));
        assert!(!same("10:20:30.5", "10:20:30.05", Kind::Time));
        assert!(same("10:20:30.123456789", "10:20:30.123457", Kind::Time));
        assert!(!same("10:20:30.123456", "10:20:30.123457", Kind::Time));
        assert!(same("[1, NULL, 2.0]", "[1, NULL, 2]", Kind::Other));
        assert!(same("{'a': x y}", "{'a': 'x y'}", Kind::Other));
        assert!(!same("[1, 2]", "[2, 1]", Kind::Other));
        let zones = ("[2020-01-01 00:00:00-08:00, NULL]", "['2020-01-01 00:00:00-08', NULL]");
        assert!(same(zones.0, zones.1, Kind::Other));
        assert!(same("{'c0': 1, 'c1': a}", "(1, a)", Kind::Other));
        assert!(same("2020-01-01 10:00:00-08:00", "2020-01-01 10:00:00-08", Kind::Time));
        assert!(same("some text", "<REGEX>:.*text", Kind::Text));
        assert!(same("some text", "<!REGEX>:.*other.*", Kind::Text));
        assert!(!same_cell(None, Some("0"), Kind::Exact));
    }

    #[test]
    fn orders() {
        let kinds = [Kind::Exact, Kind::Text];
        let ours = rows(&[&["1", "a"], &["1", "b"], &["2", "NULL"]]);
        let ties = rows(&[&["1", "b"], &["1", "a"], &["2", "NULL"]]);
        let other = rows(&[&["2", "NULL"], &["1", "a"], &["1", "b"]]);
        assert!(same_rows(&ours, &ties, &kinds, &Order::By(vec![0])));
        assert!(!same_rows(&ours, &ties, &kinds, &Order::By(vec![0, 1])));
        assert!(!same_rows(&ours, &other, &kinds, &Order::By(vec![0])));
        assert!(same_rows(&ours, &other, &kinds, &Order::Any));
        assert!(!same_rows(&ours, &rows(&[&["1", "a"], &["1", "a"], &["2", "NULL"]]), &kinds, &Order::Any));
        let mixed = rows(&[&["a", "1"], &["b", "NULL"], &["1", "2"]]);
        assert!(same_rows(&ours, &mixed, &kinds, &Order::AnyValues));
    }

    #[test]
    fn rows_that_are_written_differently_are_paired() {
        let ours = rows(&[&["0.30000000000000004"], &["10.0"], &["9.0"]]);
        let theirs = rows(&[&["9"], &["0.3"], &["10"]]);
        assert!(same_rows(&ours, &theirs, &[Kind::Floating], &Order::Any));
    }

    #[test]
    fn fingerprints_and_collections() {
        let (ours, theirs) = (rows(&[&["0.30000000000000004"], &["1"]]), rows(&[&["1.0"], &["0.3"]]));
        assert_eq!(fingerprint(&ours), fingerprint(&rows(&[&["1"], &["0.3"]])));
        assert_ne!(fingerprint(&ours), fingerprint(&theirs[..1]));
        assert!(same_collections(&rows(&[&["[1, 2]"]]), &rows(&[&["[2, 1]"]])));
        assert!(!same_collections(&rows(&[&["[1, 2]"]]), &rows(&[&["[2, 2]"]])));
    }
}
