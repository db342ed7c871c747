//! Our answer beside the one that a file has.

use std::fmt::Write as _;

use md5::{Digest as _, Md5};

use super::cells::{Kind, Row, Rows};
use super::compare::{Order, same_rows};
use super::record::{Query, Recorded, SortMode};

/// Whether our answer is the recorded one; none if there is none.
pub fn agrees(ours: &Rows, query: &Query, order: &Order) -> Option<bool> {
    match &query.recorded {
        Recorded::Nothing => None,
        Recorded::Hash { values, digest } => {
            let count: usize = ours.rows.iter().map(Vec::len).sum();
            Some(count == *values && hashes(ours, query).contains(digest))
        }
        Recorded::Lines(lines) => {
            let theirs = rows(lines, ours.kinds.len(), query.types.len());
            Some(theirs.is_some_and(|theirs| same_rows(&ours.rows, &theirs, &ours.kinds, order)))
        }
    }
}

/// The recorded rows, if the lines can be so many columns.
fn rows(lines: &[String], columns: usize, letters: usize) -> Option<Vec<Row>> {
    let cell = |text: &str| {
        (text != "NULL").then(|| if text == "(empty)" { String::new() } else { text.to_owned() })
    };
    if lines.is_empty() {
        return Some(Vec::new());
    }
    if columns <= 1 {
        return Some(lines.iter().map(|line| vec![cell(line)]).collect());
    }
    let split = |line: &String| line.split('\t').map(cell).collect::<Row>();
    let by_tabs: Vec<Row> = lines.iter().map(split).collect();
    if by_tabs.iter().all(|row| row.len() == columns) {
        return Some(by_tabs);
    }
    let is_a_value_a_line = by_tabs.iter().all(|row| row.len() == 1) && letters == columns;
    if !is_a_value_a_line || !lines.len().is_multiple_of(columns) {
        return None;
    }
    Some(lines.chunks(columns).map(|chunk| chunk.iter().map(|line| cell(line)).collect()).collect())
}

/// The digests that our answer has: as SQLite writes values, by the letters of the query, and as DuckDB does.
fn hashes(ours: &Rows, query: &Query) -> Vec<String> {
    let by_letter = |column: usize, cell: &Option<String>| {
        let Some(text) = cell else { return "NULL".to_owned() };
        let number = text.parse::<f64>().ok();
        match (query.types.chars().nth(column), number, text.as_str()) {
            (Some('I'), _, "true") => "1".to_owned(),
            (Some('I'), _, "false") => "0".to_owned(),
            (Some('I'), Some(number), _) if text.contains(['.', 'e']) => format!("{}", number.trunc() as i64),
            (Some('R'), Some(number), _) => format!("{number:.3}"),
            (_, _, "") => "(empty)".to_owned(),
            _ => text.clone(),
        }
    };
    let as_duckdb = |column: usize, cell: &Option<String>| match (cell.as_deref(), ours.kinds.get(column)) {
        (None, _) => "NULL".to_owned(),
        (Some(""), _) => "(empty)".to_owned(),
        (Some("true"), Some(Kind::Boolean)) => "1".to_owned(),
        (Some("false"), Some(Kind::Boolean)) => "0".to_owned(),
        (Some(text), _) => text.to_owned(),
    };
    vec![hash(ours, query.sort, by_letter), hash(ours, query.sort, as_duckdb)]
}

fn hash(ours: &Rows, sort: SortMode, write: impl Fn(usize, &Option<String>) -> String) -> String {
    let texts = |row: &Row| -> Vec<String> {
        row.iter().enumerate().map(|(column, cell)| write(column, cell)).collect()
    };
    let mut rows: Vec<Vec<String>> = ours.rows.iter().map(texts).collect();
    if sort == SortMode::Rows {
        rows.sort();
    }
    let mut values = rows.concat();
    if sort == SortMode::Values {
        values.sort();
    }
    let mut digest = Md5::new();
    for value in values {
        digest.update(value.as_bytes());
        digest.update(b"\n");
    }
    let mut text = String::new();
    for byte in digest.finalize() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// For people.
pub fn shown(recorded: &Recorded) -> String {
    match recorded {
        Recorded::Nothing => "(nothing recorded)".to_owned(),
        Recorded::Hash { values, digest } => format!("{values} values hashing to {digest}"),
        Recorded::Lines(lines) if lines.is_empty() => "(no rows)".to_owned(),
        Recorded::Lines(lines) => {
            let more = if lines.len() > 24 { format!("\n… {} lines", lines.len()) } else { String::new() };
            lines.iter().take(24).map(|line| line.replace('\t', " | ")).collect::<Vec<_>>().join("\n") + &more
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(types: &str, sort: SortMode, recorded: Recorded) -> Query {
        Query {
            connection: String::new(),
            sql: String::new(),
            types: types.to_owned(),
            sort,
            label: None,
            recorded,
        }
    }

    fn lines(texts: &[&str]) -> Recorded {
        Recorded::Lines(texts.iter().map(|text| (*text).to_owned()).collect())
    }

    fn ours(kinds: &[Kind], cells: &[&[&str]]) -> Rows {
        let cell = |cell: &&str| (*cell != "NULL").then(|| (*cell).to_owned());
        let rows = cells.iter().map(|row| row.iter().map(cell).collect()).collect();
        Rows { kinds: kinds.to_vec(), names: vec![], rows }
    }

    #[test]
    fn rows_by_tabs_and_by_lines() {
        let answer = ours(&[Kind::Exact, Kind::Text], &[&["1", "a"], &["2", "NULL"]]);
        let order = Order::By(vec![]);
        for recorded in [lines(&["1\ta", "2\tNULL"]), lines(&["1", "a", "2", "NULL"])] {
            assert_eq!(agrees(&answer, &query("IT", SortMode::None, recorded), &order), Some(true));
        }
        let other = query("IT", SortMode::None, lines(&["1\ta"]));
        assert_eq!(agrees(&answer, &other, &order), Some(false));
        assert_eq!(agrees(&answer, &query("IT", SortMode::None, Recorded::Nothing), &order), None);
    }

    #[test]
    fn hashes_of_sorted_values() {
        // printf '1.500\n10\n2\nNULL\n' | md5sum
        let digest = "1d7a2a3795623c1325b2cd763fd54f18".to_owned();
        let answer = ours(&[Kind::Exact, Kind::Floating], &[&["2", "1.5"], &["10", "NULL"]]);
        let values = query("IR", SortMode::Values, Recorded::Hash { values: 4, digest });
        assert_eq!(hash(&answer, SortMode::Values, |_, cell| cell.clone().unwrap_or_default()).len(), 32);
        assert_eq!(agrees(&answer, &values, &Order::AnyValues), Some(true));
    }
}
