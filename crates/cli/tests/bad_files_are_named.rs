//! Whatever is wrong with a file, the message says which file and what.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

mod program;

use program::{csv, folder_with_files};

#[track_caller]
fn message(sql: &str) -> String {
    let folder = folder_with_files();
    std::fs::write(folder.path().join("empty.csv"), "").unwrap();
    std::fs::write(folder.path().join("broken.parquet"), "this is not Parquet at all").unwrap();
    std::fs::write(folder.path().join("letter.docx"), "Dear Sir").unwrap();
    let message = csv(folder.path(), sql).failed(1);
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

#[test]
fn missing_files_get_the_nearest_name() {
    assert_eq!(
        message("SELECT * FROM 'good.parquet'"),
        "error: file 'good.parquet': no such file; did you mean 'goods.parquet'?\n"
    );
    assert!(message("SELECT * FROM 'nowhere/x.csv'").contains("there is no folder"));
    assert_eq!(message("SELECT * FROM '*.ndjson'"), "error: file '*.ndjson': no file matches this pattern\n");
}

#[test]
fn unreadable_contents_are_reported() {
    assert_eq!(message("SELECT * FROM 'empty.csv'"), "error: file 'empty.csv': the file is empty\n");
    let broken = message("SELECT * FROM 'broken.parquet'");
    assert!(broken.contains("broken.parquet': not a readable Parquet file"), "{broken}");
    assert!(message("SELECT * FROM './letter.docx'").contains("its format is not known"));
}

#[test]
fn mixed_formats_are_refused() {
    let mixed = message("SELECT * FROM 'goods.*'");
    assert!(mixed.contains("a table is of one format"), "{mixed}");
}
