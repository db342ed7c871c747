//! A process that is killed while it writes leaves the database as it was before the statement, and no files.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use crate::program;

use std::time::{Duration, Instant};

use program::{command, csv_in, names_below};

#[test]
fn the_next_start_finds_the_state_before() {
    let folder = tempfile::tempdir().unwrap();
    csv_in(folder.path(), "db", "CREATE TABLE t AS SELECT 1 AS a").ok();
    let files = || names_below(&folder.path().join("db"));
    let before = files();
    let sql = "CREATE OR REPLACE TABLE t AS SELECT l_orderkey AS a, l_comment FROM tpch('lineitem', 10)";
    let mut child = command(folder.path()).args(["db", "-c", sql]).spawn().unwrap();
    let start = Instant::now();
    let is_writing = || {
        let new = files().into_iter().filter(|name| !before.contains(name) && name.contains("segment"));
        new.filter_map(|name| std::fs::metadata(name).ok()).any(|file| file.len() > 1 << 20)
    };
    while !is_writing() {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", files());
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(csv_in(folder.path(), "db", "SELECT * FROM t").ok(), "a\n1\n");
    let mut after = files();
    after.retain(|name| !before.contains(name));
    assert_eq!(after, Vec::<String>::new());
}
