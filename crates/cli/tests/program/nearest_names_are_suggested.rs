//! A mistyped option, command, table, column or setting gets the nearest one that exists.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use crate::program;

use program::{csv, folder_with_files, run};

#[test]
fn options_and_commands() {
    let folder = tempfile::tempdir().unwrap();
    assert!(run(folder.path(), ["--memory-limt", "1GB"]).failed(2).contains("'--memory-limit'"));
    assert!(run(folder.path(), ["--format", "tabel", "-c", "SELECT 1"]).failed(2).contains("'table'"));
    assert!(run(folder.path(), ["improt"]).failed(2).contains("did you mean 'import'?"));
}

#[test]
fn tables_and_columns() {
    let folder = folder_with_files();
    let message = csv(folder.path(), "CREATE TABLE customers (id INT); SELECT * FROM customer").failed(1);
    assert_eq!(
        message,
        "error: there is no table 'customer'; did you mean 'customers'?\n\
         LINE 1: CREATE TABLE customers (id INT); SELECT * FROM customer\n\
         \u{20}                                                      ^\n"
    );
    let message = csv(folder.path(), "SELECT prize FROM 'goods.parquet'").failed(1);
    assert_eq!(
        message,
        "error: there is no column 'prize'; did you mean 'price'?\n\
         LINE 1: SELECT prize FROM 'goods.parquet'\n\
         \u{20}              ^\n"
    );
    let message = csv(folder.path(), "SELECT goods.zebra FROM 'goods.parquet'").failed(1);
    assert_eq!(
        message,
        "error: there is no column 'goods.zebra'; there are: id, name, price\n\
         LINE 1: SELECT goods.zebra FROM 'goods.parquet'\n\
         \u{20}              ^\n"
    );
}

#[test]
fn settings_and_tpch_tables() {
    let folder = tempfile::tempdir().unwrap();
    let message = csv(folder.path(), "SET memory_limti = '1GB'").failed(1);
    assert_eq!(message, "error: there is no setting 'memory_limti'; did you mean 'memory_limit'?\n");
    let message = run(folder.path(), ["tpch", "out", "--tables", "linitem"]).failed(2);
    assert!(message.contains("did you mean 'lineitem'?"), "{message}");
}
