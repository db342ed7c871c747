//! `COPY … TO` writes a whole file or none.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use crate::program;

use program::{csv, folder_with_files, names_below};

#[test]
fn a_failed_copy_leaves_no_file() {
    let folder = folder_with_files();
    let before = names_below(folder.path());
    for file in ["out.csv", "out.parquet", "out.json"] {
        csv(folder.path(), &format!("COPY (SELECT 1 / (id - 3) AS x FROM 'goods.csv') TO '{file}'"))
            .failed(1);
        assert_eq!(names_below(folder.path()), before, "{file}");
    }
}

#[test]
fn options_and_missing_folders_are_understood() {
    let folder = folder_with_files();
    let sql = "COPY (SELECT id, name FROM 'goods.csv' ORDER BY id) TO 'out.csv' STORED AS CSV
               OPTIONS ('format.delimiter' ';', 'format.has_header' 'false')";
    csv(folder.path(), sql).ok();
    assert_eq!(std::fs::read_to_string(folder.path().join("out.csv")).unwrap(), "1;anvil\n2;rope\n3;lamp\n");
    let message = csv(folder.path(), "COPY (SELECT 1 AS a) TO 'nowhere/out.csv'").failed(1);
    assert!(message.contains("file 'nowhere/out.csv': there is no folder"), "{message}");
}
