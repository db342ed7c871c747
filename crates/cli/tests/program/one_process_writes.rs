//! One process has a database open for writing; others may read it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use crate::program;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use program::{command, csv_in, run};

#[test]
fn the_second_is_told_and_may_read() {
    let folder = tempfile::tempdir().unwrap();
    csv_in(folder.path(), "db", "CREATE TABLE t AS SELECT 1 AS a").ok();
    // A first process that keeps the database open while it waits for a pipe that is never written to.
    let mut first = command(folder.path());
    let mut first = first.args(["db", "--format", "csv", "-c", "SELECT 'open' AS state", "-f", "/dev/stdin"]);
    first = first.stdin(Stdio::piped());
    let mut first = first.spawn().unwrap();
    let mut lines = BufReader::new(first.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "state");

    let message = csv_in(folder.path(), "db", "SELECT 1").failed(1);
    assert!(message.contains("open for writing in another process"), "{message}");
    let reader = run(folder.path(), ["db", "--read-only", "--format", "csv", "-c", "SELECT a FROM t"]);
    assert_eq!(reader.ok(), "a\n1\n");
    let message = run(folder.path(), ["db", "--read-only", "-c", "CREATE TABLE u (a INT)"]).failed(1);
    assert!(message.contains("read-only"), "{message}");

    first.stdin.take().unwrap().write_all(b"SELECT 'done' AS state").unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(0));
    csv_in(folder.path(), "db", "SELECT 1").ok();
}
