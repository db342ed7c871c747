//! What a statement stored is there in the next process; what was dropped is not.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use crate::program;

use program::{csv_in, run};

#[test]
fn tables_stay_in_their_folder() {
    let folder = tempfile::tempdir().unwrap();
    let sql = "CREATE TABLE t (a INT NOT NULL, b TEXT); INSERT INTO t VALUES (1, 'x'), (2, NULL);
               CREATE TABLE u AS SELECT a * 10 AS c FROM t; CREATE TABLE gone AS SELECT 1 AS x; DROP TABLE gone";
    csv_in(folder.path(), "db", sql).ok();
    assert_eq!(csv_in(folder.path(), "db", "SELECT * FROM t ORDER BY a").ok(), "a,b\n1,x\n2,\n");
    csv_in(folder.path(), "db", "INSERT INTO t SELECT c, 'more' FROM u").ok();
    assert_eq!(csv_in(folder.path(), "db", "SELECT sum(a) AS s, count(b) AS n FROM t").ok(), "s,n\n33,3\n");
    let message = csv_in(folder.path(), "db", "SELECT * FROM gone").failed(1);
    assert!(message.starts_with("error: there is no table 'gone'; there are: t, u\nLINE 1: "), "{message}");
    csv_in(
        folder.path(),
        "db",
        "CREATE OR REPLACE TABLE u AS SELECT 7 AS c; CREATE TABLE IF NOT EXISTS u AS SELECT 8 AS c",
    )
    .ok();
    assert_eq!(csv_in(folder.path(), "db", "SELECT c FROM u").ok(), "c\n7\n");
}

#[test]
fn a_database_is_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("data.csv"), "a\n1\n").unwrap();
    let message = run(folder.path(), ["data.csv", "-c", "SELECT 1"]).failed(1);
    assert!(message.contains("'data.csv': is a file; a database is a directory"), "{message}");
}

#[test]
fn types_come_back_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let sql = "CREATE TABLE t AS SELECT true AS b, CAST(1.25 AS DECIMAL(9, 2)) AS d, DATE '2026-02-03' AS day,
               TIMESTAMP '2026-02-03 04:05:06' AS at, INTERVAL '1 day' AS i, [1, 2] AS l, 'ä' AS s, NULL AS n";
    csv_in(folder.path(), "db", sql).ok();
    let types = "SELECT b, d, day, at, i, l, s, n, arrow_typeof(d) AS td, arrow_typeof(l) AS tl FROM t";
    let stored = run(folder.path(), ["db", "--format", "json", "-c", types]).ok();
    let fresh =
        types.replace(" FROM t", &format!(" FROM ({})", sql.strip_prefix("CREATE TABLE t AS ").unwrap()));
    assert_eq!(stored, run(folder.path(), ["--format", "json", "-c", &fresh]).ok());
    assert!(stored.contains("1.25") && stored.contains("2026-02-03T04:05:06"), "{stored}");
}
