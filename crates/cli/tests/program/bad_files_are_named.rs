//! Whatever is wrong with a file, the message says which file and what.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use crate::program;

use program::{csv, folder_with_files};

#[track_caller]
fn message(sql: &str) -> String {
    let folder = folder_with_files();
    std::fs::write(folder.path().join("empty.csv"), "").unwrap();
    std::fs::write(folder.path().join("broken.parquet"), "this is not Parquet at all").unwrap();
    std::fs::write(folder.path().join("magic.parquet"), "PAR1PAR1").unwrap();
    std::fs::write(folder.path().join("long-footer.parquet"), "PAR1xxxx\0\0\0\x01PAR1").unwrap();
    std::fs::write(folder.path().join("cut.arrow"), "ARROW1\0\0\x7F\x7F\x7F\x7F").unwrap();
    std::fs::write(folder.path().join("long.arrow"), "\x7F\x7F\x7F\x7F\0\0\0\0").unwrap();
    std::fs::write(folder.path().join("long-footer.arrow"), "ARROW1\0\0\0\0\0\x7FARROW1").unwrap();
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
    let magic = message("SELECT * FROM 'magic.parquet'");
    assert!(magic.contains("magic.parquet': not a readable Parquet file (it is too short"), "{magic}");
    let long = message("SELECT * FROM 'long-footer.parquet'");
    assert!(long.contains("long-footer.parquet': not a readable Parquet file (its footer"), "{long}");
    let cut = message("SELECT * FROM 'cut.arrow'");
    assert!(cut.contains("cut.arrow': not a readable Arrow IPC file"), "{cut}");
    let long = message("SELECT * FROM 'long-footer.arrow'");
    assert!(long.contains("long-footer.arrow': not a readable Arrow IPC file"), "{long}");
    let long = message("SELECT * FROM 'long.arrow'");
    assert!(long.contains("long.arrow': not a readable Arrow IPC file (it begins neither"), "{long}");
    assert!(message("SELECT * FROM './letter.docx'").contains("its format is not known"));
}

/// One row of one column, written by pyarrow with `write_page_checksum`.
const PARQUET_WITH_CHECKSUMS: &str = "504152311500151c151c15faacb8a8081c15021500150615061c000000020000000201cb04fb711f01\
     00001504192c35001806736368656d6115020015042502180161001602191c191c26001c1504192506001918016115001602164e164e2608491c\
     150015001502003c290619260002000000164e16022608164e002820706172717565742d6370702d6172726f772076657273696f6e2032362e30\
     2e31191c1c0000007a00000050415231";

#[test]
fn pages_that_do_not_match_their_checksums_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let digits: Vec<char> = PARQUET_WITH_CHECKSUMS.chars().collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
    let mut file: Vec<u8> = digits.chunks(2).map(byte).collect();
    std::fs::write(folder.path().join("page.parquet"), &file).unwrap();
    let sql = "SELECT a FROM 'page.parquet'";
    assert_eq!(csv(folder.path(), sql).ok(), "a\n1234567890123\n");
    // The first byte of the value.
    file[35] ^= 1;
    std::fs::write(folder.path().join("page.parquet"), &file).unwrap();
    let message = csv(folder.path(), sql).failed(1);
    assert!(message.contains("CRC checksum mismatch"), "{message}");
    assert!(message.contains("page.parquet'"), "{message}");
    let message = csv(folder.path(), "SELECT a FROM 'page.parquet' WHERE a > 0").failed(1);
    assert!(message.contains("page.parquet'"), "{message}");
}

#[test]
fn mixed_formats_are_refused() {
    let mixed = message("SELECT * FROM 'goods.*'");
    assert!(mixed.contains("a table is of one format"), "{mixed}");
}

#[test]
fn external_tables_are_checked_as_files_are() {
    let table = |format: &str, file: &str| {
        message(&format!("CREATE EXTERNAL TABLE e STORED AS {format} LOCATION '{file}'; SELECT * FROM e"))
    };
    let long = table("ARROW", "long-footer.arrow");
    assert!(long.contains("long-footer.arrow': not a readable Arrow IPC file"), "{long}");
    let broken = table("PARQUET", "broken.parquet");
    assert!(broken.contains("broken.parquet': not a readable Parquet file"), "{broken}");
    let sql = "CREATE EXTERNAL TABLE e (i BIGINT) STORED AS ARROW LOCATION 'long.arrow'; SELECT * FROM e";
    assert!(message(sql).contains("long.arrow': not a readable Arrow IPC file"));
}

#[test]
fn a_value_that_cannot_be_cast_names_its_column() {
    let folder = folder_with_files();
    std::fs::write(folder.path().join("odd.csv"), "i,s\n1,a\n]240,b\n").unwrap();
    let message = csv(folder.path(), "SELECT s FROM 'odd.csv' WHERE i > 10").failed(1);
    assert!(message.contains("']240'") && message.contains("column \"i\""), "{message}");
    let message = csv(folder.path(), "SELECT CAST(i AS TIMESTAMP) FROM 'odd.csv'").failed(1);
    assert!(message.contains("column \"i\""), "{message}");
    let message =
        csv(folder.path(), "CREATE TABLE t AS SELECT CAST(i AS DECIMAL(5, 2)) AS d FROM 'odd.csv'").failed(1);
    assert!(message.contains("column \"i\""), "{message}");
}

/// A reader that panics over a type that there is not, which is nothing that anybody should have to read.
#[test]
fn damage_that_readers_panic_over_is_one_line() {
    let folder = folder_with_files();
    csv(
        folder.path(),
        "COPY (SELECT value AS i FROM generate_series(1, 10) AS series(value)) TO 'odd.arrow'",
    )
    .ok();
    let path = folder.path().join("odd.arrow");
    let mut file = std::fs::read(&path).unwrap();
    let footer = file.len() - 400;
    let widths: Vec<usize> =
        (footer..file.len() - 4).filter(|&at| file[at..at + 4] == [64, 0, 0, 0]).collect();
    assert!(!widths.is_empty(), "the footer tells the width of the column's integers");
    for at in widths {
        file[at] = 65;
    }
    std::fs::write(&path, file).unwrap();
    let message = csv(folder.path(), "SELECT * FROM 'odd.arrow'").failed(1);
    assert!(message.contains("odd.arrow'") && message.contains("bit width of 65"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
}
