//! `nandina tpch` writes the benchmark's tables.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use crate::program;

use program::{csv, names_below, run};

#[test]
fn files_hold_the_rows_of_the_scale() {
    let folder = tempfile::tempdir().unwrap();
    for format in ["parquet", "csv"] {
        let report = run(folder.path(), ["tpch", "data", "--scale", "0.01", "--format", format]).ok();
        assert!(report.contains("orders") && report.contains("15,000 rows"), "{report}");
        let sql = format!(
            "SELECT (SELECT count(*) FROM 'data/orders.{format}') AS o, (SELECT count(*) FROM 'data/nation.{format}') AS n"
        );
        assert_eq!(csv(folder.path(), &sql).ok(), "o,n\n15000,25\n");
    }
    assert_eq!(names_below(&folder.path().join("data")).len(), 16);
}

#[test]
fn sql_generates_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), ["tpch", ".", "--scale", "0.01", "--tables", "customer"]).ok();
    let sql = "SELECT count(*) AS n FROM (SELECT * FROM tpch('customer', 0.01) EXCEPT SELECT * FROM 'customer.parquet')";
    assert_eq!(csv(folder.path(), sql).ok(), "n\n0\n");
}
