//! Random statements that change a database, and what it must hold after each: an oracle outside the process that may be
//! killed.
//!
//! A table's rows are ranges of numbers, each beside its MD5 as text, so that its count, its sum and a comparison of every
//! text tell what was lost, doubled or damaged.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use crate::error::Result;
use crate::program::{Program, run};
use crate::random::Random;

const TABLES: [&str; 3] = ["a", "b", "c"];
const PATIENCE: Duration = Duration::from_secs(120);

/// The rows of every table, as ranges of their numbers.
pub type State = BTreeMap<&'static str, Vec<Range<u64>>>;

/// A statement.
#[derive(Debug, Clone)]
pub enum Change {
    Create(&'static str, Range<u64>),
    Replace(&'static str, Range<u64>),
    Insert(&'static str, Range<u64>),
    Copy(&'static str),
    Drop(&'static str),
}

impl Change {
    /// Something that can be done in `state`.
    pub fn random(random: &mut Random, state: &State) -> Self {
        let table = random.one_of(TABLES);
        let start = random.below(1_000_000) as u64;
        let rows = random.one_of([1, 10, 5_000, 100_000, 400_000]);
        let range = start..start + rows;
        match (state.contains_key(table), random.below(10)) {
            (false, _) => Change::Create(table, range),
            (true, 0..=5) => Change::Insert(table, range),
            (true, 6 | 7) => Change::Replace(table, range),
            (true, 8) => Change::Copy(table),
            (true, _) => Change::Drop(table),
        }
    }

    pub fn sql(&self) -> String {
        let rows = |range: &Range<u64>| {
            let (first, last) = (range.start, range.end - 1);
            format!(
                "SELECT value AS i, md5(value::TEXT) AS s FROM generate_series({first}, {last}) AS series(value)"
            )
        };
        match self {
            Change::Create(table, range) => format!("CREATE TABLE {table} AS {}", rows(range)),
            Change::Replace(table, range) => format!("CREATE OR REPLACE TABLE {table} AS {}", rows(range)),
            Change::Insert(table, range) => format!("INSERT INTO {table} {}", rows(range)),
            Change::Copy(table) => format!("COPY {table} TO 'copy-of-{table}.parquet'"),
            Change::Drop(table) => format!("DROP TABLE {table}"),
        }
    }

    pub fn apply(&self, state: &mut State) {
        match self {
            Change::Create(table, range) | Change::Replace(table, range) => {
                state.insert(table, vec![range.clone()]);
            }
            Change::Insert(table, range) => state.entry(table).or_default().push(range.clone()),
            Change::Copy(_) => {}
            Change::Drop(table) => {
                state.remove(table);
            }
        }
    }
}

/// Statements, each followed by one that tells it is done.
pub fn script(changes: &[Change]) -> String {
    let said = |(number, change): (usize, &Change)| {
        format!("{};\nSELECT 'done {}' AS done;\n", change.sql(), number + 1)
    };
    changes.iter().enumerate().map(said).collect()
}

/// How many statements of a script a run has told to be done.
pub fn acknowledged(printed: &str) -> usize {
    // A last line without an end may be a part of one.
    let whole = printed.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().filter_map(|line| line.strip_prefix("done ")?.parse().ok()).max().unwrap_or(0)
}

/// What a state looks like to a query: the tables, and of each the rows, their sum, and how many are damaged.
pub fn expected(state: &State) -> String {
    let of = |(table, ranges): (&&str, &Vec<Range<u64>>)| {
        let rows: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let sum: u64 = ranges.iter().flat_map(Range::clone).sum();
        format!("{table},{rows},{sum},0\n")
    };
    state.iter().map(of).collect()
}

/// What the database in `folder` holds, as [`expected`] writes it, or what is wrong with it.
pub fn found(
    program: &Program,
    folder: &Path,
    database: &Path,
) -> Result<std::result::Result<String, String>> {
    let ask = |sql: &str| {
        let mut command = program.command(folder);
        command.arg(database).args(["--format", "csv", "-c", sql]);
        run(&mut command, &folder.join("check"), PATIENCE)
    };
    let tables =
        ask("SELECT table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE' ORDER BY 1")?;
    if !tables.is_ok() {
        return Ok(Err(tables.describe("the database does not open")));
    }
    let of = |table: &str| {
        format!(
            "SELECT '{table}' AS t, count(*) AS n, coalesce(sum(i), 0) AS s, count(*) FILTER (WHERE s IS DISTINCT FROM md5(i::TEXT)) AS damaged FROM {table}"
        )
    };
    let queries: Vec<String> = tables.out.lines().skip(1).map(of).collect();
    if queries.is_empty() {
        return Ok(Ok(String::new()));
    }
    let rows = ask(&format!("{} ORDER BY 1", queries.join(" UNION ALL ")))?;
    if !rows.is_ok() {
        return Ok(Err(rows.describe("the tables cannot be read")));
    }
    let left = names_below(&database.join("temp"));
    if !left.is_empty() {
        return Ok(Err(format!("temporary files are left: {}", left.join(", "))));
    }
    Ok(Ok(rows.out.lines().skip(1).flat_map(|line| [line, "\n"]).collect()))
}

/// Names in a folder and the folders below it.
pub fn names_below(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        names.push(entry.path().display().to_string());
        names.extend(names_below(&entry.path()));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_follow_statements() {
        let mut state = State::new();
        for change in [Change::Create("a", 1..4), Change::Insert("a", 3..5), Change::Create("b", 7..8)] {
            change.apply(&mut state);
        }
        assert_eq!(expected(&state), "a,5,13,0\nb,1,7,0\n");
        Change::Replace("a", 0..1).apply(&mut state);
        Change::Drop("b").apply(&mut state);
        assert_eq!(expected(&state), "a,1,0,0\n");
    }

    #[test]
    fn half_a_line_acknowledges_nothing() {
        assert_eq!(acknowledged("done\ndone 1\ndone\ndone 12"), 1);
        assert_eq!(acknowledged("done\ndone 1\ndone\ndone 12\n"), 12);
        assert_eq!(acknowledged(""), 0);
    }
}
