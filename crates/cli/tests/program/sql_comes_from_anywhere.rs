//! SQL is read from -c, from -f and from standard input.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use crate::program;

use program::{run, run_with_input};

#[test]
fn standard_input_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let sql = "-- a script\nCREATE TABLE t AS SELECT ';' AS a;\nSELECT a FROM t; SELECT 2 AS b";
    assert_eq!(run_with_input(folder.path(), &["--format", "csv"], sql).ok(), "a\n;\nb\n2\n");
    assert_eq!(run_with_input(folder.path(), &[], "").ok(), "");
}

#[test]
fn commands_and_files_run_in_the_order_given() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("two.sql"), "SELECT 2 AS b;").unwrap();
    let text = run(
        folder.path(),
        ["--format", "csv", "-c", "SELECT 1 AS a", "-f", "two.sql", "-c", "SELECT 3 AS c"],
    )
    .ok();
    assert_eq!(text, "a\n1\nb\n2\nc\n3\n");
}
