//! What was measured, as it stands in the JSON file.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::machine::Machine;
use crate::{quantity, runner};

/// Everything in one file; cells are added to it run by run, so that an interrupted measurement continues.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Results {
    pub machine: Machine,
    pub scale: f64,
    pub threads: usize,
    pub timeout_seconds: u64,
    /// The options of the last call, those that name places on the machine left out.
    pub command: String,
    /// Engine to version.
    pub versions: BTreeMap<String, String>,
    /// Query to the row that the other engines' results are compared with, and the engine it came from.
    pub answers: BTreeMap<String, Answer>,
    pub cells: Vec<Cell>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    pub engine: String,
    pub row: Vec<String>,
}

/// One engine on one query at one limit.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cell {
    pub query: String,
    pub engine: String,
    pub limit_bytes: Option<u64>,
    pub cap_bytes: Option<u64>,
    pub outcome: Outcome,
    /// What the engine said when it failed, or how its result differs.
    pub message: Option<String>,
    pub runs: Vec<Run>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Ok,
    /// It ended with an error of its own.
    Failed,
    /// The kernel ended it at the cap.
    Killed,
    TimedOut,
    /// Its result is not the one that the first engine gave.
    Mismatch,
}

/// One process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// From handing over the query to having all rows, as the engine or its driver tells; else the whole process.
    pub seconds: f64,
    #[serde(flatten)]
    pub usage: Usage,
}

/// What the capping program reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    pub wall_s: f64,
    pub user_s: f64,
    pub sys_s: f64,
    pub peak_rss: u64,
    pub peak_charged: u64,
    /// Of this process alone, where the capping program can tell.
    pub own_read: Option<u64>,
    pub own_written: Option<i64>,
    /// Of all disks meanwhile.
    pub disk_read: u64,
    pub disk_written: u64,
    pub status: i32,
    pub timed_out: bool,
}

impl Usage {
    pub fn read_bytes(&self) -> u64 {
        self.own_read.unwrap_or(self.disk_read)
    }

    pub fn written_bytes(&self) -> u64 {
        self.own_written.map_or(self.disk_written, |bytes| bytes.max(0) as u64)
    }
}

impl Cell {
    /// The run whose time is the median.
    pub fn median_run(&self) -> Option<&Run> {
        let seconds = quantity::median(self.runs.iter().map(|run| run.seconds))?;
        self.runs.iter().find(|run| run.seconds == seconds)
    }

    /// The median time, if the engine answered correctly.
    pub fn seconds(&self) -> Option<f64> {
        self.median_run().filter(|_| self.outcome == Outcome::Ok).map(|run| run.seconds)
    }

    /// The greatest resident set of all runs.
    pub fn peak_rss(&self) -> u64 {
        self.runs.iter().map(|run| run.usage.peak_rss).max().unwrap_or(0)
    }

    pub fn is_for(&self, query: &str, engine: &str, limit_bytes: Option<u64>) -> bool {
        self.query == query && self.engine == engine && self.limit_bytes == limit_bytes
    }
}

impl Results {
    /// What an earlier call left, if anything.
    pub fn load(path: &Path) -> Result<Option<Self>> {
        runner::read_json(path)
    }

    pub fn save(&self, path: &Path) -> Result<()> {
        runner::write_json(path, self)
    }

    pub fn cell(&self, query: &str, engine: &str, limit_bytes: Option<u64>) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.is_for(query, engine, limit_bytes))
    }

    /// Adds a cell or replaces the one measured before.
    pub fn put(&mut self, cell: Cell) {
        self.cells.retain(|old| !old.is_for(&cell.query, &cell.engine, cell.limit_bytes));
        self.cells.push(cell);
    }

    /// Compares a row with the answer; the first row of a query becomes the answer. Says how they differ. Unless that is
    /// to be exact, numbers may differ by a millionth.
    pub fn check(&mut self, query: &str, engine: &str, row: &[String], is_exact: bool) -> Option<String> {
        let row: Vec<String> = row.iter().map(|value| canonical(value)).collect();
        let Some(answer) = self.answers.get(query) else {
            self.answers.insert(query.to_owned(), Answer { engine: engine.to_owned(), row });
            return None;
        };
        let are_same = |theirs: &str, ours: &str| theirs == ours || !is_exact && are_close(theirs, ours);
        let pairs = answer.row.iter().zip(&row).enumerate();
        let differing = pairs.filter(|(_, (theirs, ours))| !are_same(theirs, ours));
        let columns: Vec<String> = differing
            .map(|(column, (theirs, ours))| {
                format!("column {}: '{ours}', {} has '{theirs}'", column + 1, answer.engine)
            })
            .collect();
        if columns.is_empty() {
            if answer.row.len() == row.len() {
                return None;
            }
            return Some(format!("{} columns, {} has {}", row.len(), answer.engine, answer.row.len()));
        }
        const MOST_NAMED: usize = 5;
        Some(columns.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join("; "))
    }
}

/// Whether both are numbers that differ by a millionth at most.
fn are_close(theirs: &str, ours: &str) -> bool {
    match (theirs.parse::<f64>(), ours.parse::<f64>()) {
        (Ok(theirs), Ok(ours)) => (theirs - ours).abs() <= 1e-6 * theirs.abs().max(1.0),
        _ => false,
    }
}

/// A value as text, decimals without trailing zeros: engines differ in the scale of sums.
fn canonical(value: &str) -> String {
    let is_decimal =
        value.contains('.') && value.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | '-'));
    if is_decimal && value.matches('.').count() == 1 {
        value.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        value.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(seconds: f64) -> Run {
        let usage = Usage {
            wall_s: seconds,
            user_s: 0.0,
            sys_s: 0.0,
            peak_rss: (seconds * 1000.0) as u64,
            peak_charged: 0,
            own_read: None,
            own_written: Some(-5),
            disk_read: 7,
            disk_written: 9,
            status: 0,
            timed_out: false,
        };
        Run { seconds, usage }
    }

    fn cell(outcome: Outcome, seconds: &[f64]) -> Cell {
        Cell {
            query: "J1".into(),
            engine: "ours".into(),
            limit_bytes: Some(64),
            cap_bytes: None,
            outcome,
            message: None,
            runs: seconds.iter().map(|seconds| run(*seconds)).collect(),
        }
    }

    fn results() -> Results {
        Results {
            machine: Machine::this(Path::new(".")),
            scale: 1.0,
            threads: 2,
            timeout_seconds: 600,
            command: String::new(),
            versions: BTreeMap::new(),
            answers: BTreeMap::new(),
            cells: Vec::new(),
        }
    }

    #[test]
    fn medians_and_peaks() {
        let measured = cell(Outcome::Ok, &[3.0, 1.0, 2.0]);
        assert_eq!(measured.seconds(), Some(2.0));
        assert_eq!(measured.peak_rss(), 3000);
        assert_eq!(cell(Outcome::Killed, &[1.0]).seconds(), None);
        let usage = run(1.0).usage;
        assert_eq!((usage.read_bytes(), usage.written_bytes()), (7, 0));
    }

    #[test]
    fn rows_are_compared_value_by_value() {
        let row = |values: &[&str]| values.iter().map(|value| value.to_string()).collect::<Vec<_>>();
        let mut results = results();
        assert_eq!(results.check("J1", "one", &row(&["12.50", "x", "1.2.0"]), true), None);
        assert_eq!(results.check("J1", "two", &row(&["12.5", "x", "1.2.0"]), true), None);
        let difference = results.check("J1", "two", &row(&["12.6", "x", "1.2.0"]), true).unwrap();
        assert_eq!(difference, "column 1: '12.6', one has '12.5'");
        assert_eq!(results.check("J1", "two", &row(&["12.500001", "x", "1.2.0"]), false), None);
        assert!(results.check("J1", "two", &row(&["12.5", "x"]), true).unwrap().starts_with("2 columns"));
    }

    #[test]
    fn cells_are_replaced_and_come_back_from_the_file() {
        let mut results = results();
        results.put(cell(Outcome::Failed, &[]));
        results.put(cell(Outcome::Ok, &[1.5]));
        let path = std::env::temp_dir().join(format!("nandina-cells-{}.json", std::process::id()));
        results.save(&path).unwrap();
        let loaded = Results::load(&path).unwrap().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(loaded.cells.len(), 1);
        assert_eq!(loaded.cell("J1", "ours", Some(64)).unwrap().seconds(), Some(1.5));
        assert!(loaded.cell("J1", "ours", None).is_none());
        assert!(Results::load(&path).unwrap().is_none());
    }
}
