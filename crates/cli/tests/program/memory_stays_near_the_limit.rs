//! Memory of the process, as the system counts it, while a query needs many times its limit.

#![allow(clippy::unwrap_used, reason = "what a test cannot run is its failure")]

use std::path::Path;
use std::process::Child;
use std::time::Duration;

use crate::program::command;

const MIB: usize = 1 << 20;
const LIMIT: usize = 64 * MIB;
/// What a process has beside its limit: the program's own structures, stacks, and what the allocator keeps.
const BESIDE: usize = 64 * MIB;

/// Memory of a process that is not a file's, in bytes; `None` when it has ended.
fn anonymous_bytes(child: &Child) -> Option<usize> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib: usize = line.trim().trim_end_matches(" kB").parse().unwrap();
    Some(kib << 10)
}

/// The most memory that a statement takes at [`LIMIT`], looked at every few milliseconds.
fn peak(folder: &Path, sql: &str) -> usize {
    let mut child = command(folder);
    child.args(["--memory-limit", "64MB", "--threads", "2", "--format", "csv", "-c", sql]);
    let mut child = child.spawn().unwrap();
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        peak = peak.max(anonymous_bytes(&child).unwrap_or(0));
        std::thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    peak
}

#[track_caller]
fn assert_near_the_limit(peak: usize) {
    assert!(peak > LIMIT / 4, "{} MiB: the query was to need more than its limit", peak / MIB);
    assert!(peak < LIMIT + BESIDE, "{} MiB at a limit of {} MiB", peak / MIB, LIMIT / MIB);
}

#[test]
fn a_join_that_spills_both_sides() {
    let folder = tempfile::tempdir().unwrap();
    let side = |column: &str| {
        format!(
            "(SELECT value * 7 % 1500000 AS {column}, repeat('{column}', 100) AS {column}_text FROM range(1500000) AS series(value))"
        )
    };
    let sql = format!(
        "SELECT count(*), sum(length(a_text)), sum(length(b_text)) FROM {} x JOIN {} y ON a = b",
        side("a"),
        side("b"),
    );
    assert_near_the_limit(peak(folder.path(), &sql));
}

/// As TPC-H's query 10 is: a join below an aggregation by many wide columns, below a sort, from Parquet.
#[test]
fn groups_with_wide_keys_from_parquet() {
    let folder = tempfile::tempdir().unwrap();
    let write = "COPY (SELECT value AS id, repeat('name', 5) || value AS name, repeat('address', 8) || value AS address, \
                 repeat('comment', 12) || value AS comment FROM range(400000) AS series(value)) TO 'customers.parquet'; \
                 COPY (SELECT value AS id, value * 31 % 400000 AS customer, value % 1000 AS price FROM range(2000000) AS series(value)) \
                 TO 'orders.parquet'";
    let output = command(folder.path()).args(["-c", write]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let sql = "SELECT c.id, name, address, comment, sum(price) FROM 'orders.parquet' o JOIN 'customers.parquet' c \
               ON customer = c.id GROUP BY c.id, name, address, comment ORDER BY sum(price) DESC, c.id LIMIT 20";
    assert_near_the_limit(peak(folder.path(), sql));
}
