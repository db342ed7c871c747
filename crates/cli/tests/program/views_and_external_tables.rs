//! Views and external tables stand beside the database's own tables while it is open.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use crate::program;

use program::{csv_in, folder_with_files};

#[test]
fn they_are_listed_queried_and_dropped() {
    let folder = folder_with_files();
    let sql = "CREATE TABLE t AS SELECT * FROM 'goods.csv';
               CREATE VIEW cheap AS SELECT id FROM t WHERE price < 10;
               CREATE EXTERNAL TABLE outside STORED AS PARQUET LOCATION 'goods.parquet';
               SELECT (SELECT count(*) FROM cheap) AS c, (SELECT count(*) FROM outside) AS o;
               SHOW TABLES; DROP VIEW cheap; DROP TABLE outside; DROP TABLE t; SHOW TABLES";
    assert_eq!(
        csv_in(folder.path(), "db", sql).ok(),
        "c,o\n1,3\ntable,columns,rows\ncheap,1,\noutside,3,\nt,3,3\ntable,columns,rows\n"
    );
}

#[test]
fn a_view_is_not_a_table() {
    let folder = folder_with_files();
    let sql = "CREATE VIEW v AS SELECT 1 AS a; DROP TABLE v";
    assert!(csv_in(folder.path(), "db", sql).failed(1).contains("DROP VIEW v removes it"));
    let sql = "CREATE TABLE t (a INT); CREATE VIEW t AS SELECT 1 AS a";
    assert!(csv_in(folder.path(), "db", sql).failed(1).contains("already"));
}

#[test]
fn statements_can_be_prepared() {
    let folder = folder_with_files();
    let sql = "PREPARE p(INT) AS SELECT name FROM 'goods.csv' WHERE id = $1; EXECUTE p(3); DEALLOCATE p";
    assert_eq!(csv_in(folder.path(), "db", sql).ok(), "name\nlamp\n");
}
