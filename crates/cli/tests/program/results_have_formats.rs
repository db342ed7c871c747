//! Results as a table, CSV, JSON or Parquet, on standard output or into a file.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use crate::program;

use program::{csv, folder_with_files, names_below, run};

const SQL: &str = "SELECT * FROM 'goods.csv' ORDER BY id";

#[test]
fn tables_are_for_people() {
    let folder = folder_with_files();
    let text = run(folder.path(), ["-c", SQL]).ok();
    assert_eq!(
        text,
        "┌────┬───────┬───────┐\n\
         │ id │ name  │ price │\n\
         ├────┼───────┼───────┤\n\
         │  1 │ anvil │  12.5 │\n\
         │  2 │ rope  │  NULL │\n\
         │  3 │ lamp  │  3.25 │\n\
         └────┴───────┴───────┘\n"
    );
}

#[test]
fn long_tables_are_cut_and_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let sql = "SELECT * FROM generate_series(1, 100000)";
    let text = run(folder.path(), ["-c", sql]).ok();
    assert!(text.ends_with("… 99,960 more rows\n"), "{text}");
    assert_eq!(text.lines().count(), 40 + 5);
    let text = run(folder.path(), ["--rows", "2", "-c", sql]).ok();
    assert!(text.ends_with("… 99,998 more rows\n"), "{text}");
}

#[test]
fn json_is_an_object_per_line() {
    let folder = folder_with_files();
    let text = run(folder.path(), ["--format", "json", "-c", SQL]).ok();
    let rows: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[0], serde_json::json!({"id": 1, "name": "anvil", "price": 12.5}));
    assert_eq!(rows[1]["price"], serde_json::Value::Null);
}

#[test]
fn the_name_of_the_output_says_its_format() {
    let folder = folder_with_files();
    for name in ["out.parquet", "out.csv", "out.json"] {
        assert_eq!(run(folder.path(), ["-o", name, "-c", SQL]).ok(), "");
        let sql = format!("SELECT sum(id) AS s, count(price) AS n FROM '{name}'");
        assert_eq!(csv(folder.path(), &sql).ok(), "s,n\n6,2\n", "{name}");
    }
}

#[test]
fn an_empty_result_has_its_header() {
    let folder = folder_with_files();
    assert_eq!(csv(folder.path(), "SELECT id, name FROM 'goods.csv' WHERE id > 9").ok(), "id,name\n");
}

#[test]
fn an_output_that_failed_is_not_left() {
    let folder = folder_with_files();
    let before = names_below(folder.path());
    run(folder.path(), ["-o", "out.csv", "-c", "SELECT 1 / (id - 3) FROM 'goods.csv'"]).failed(1);
    assert_eq!(names_below(folder.path()), before);
}

#[test]
fn all_rows_of_a_long_result_are_streamed() {
    let folder = tempfile::tempdir().unwrap();
    let text = csv(folder.path(), "SELECT value AS v FROM generate_series(1, 200000) AS series(value)").ok();
    assert_eq!(text.lines().count(), 200_001);
    let sum: u64 = text.lines().skip(1).map(|line| line.parse::<u64>().unwrap()).sum();
    assert_eq!(sum, 200_000 * 200_001 / 2);
}

#[cfg(unix)]
#[test]
fn only_files_are_replaced() {
    let folder = folder_with_files();
    let path = |name: &str| folder.path().join(name);
    // Behind a link, the file that it leads to.
    std::fs::write(path("real.csv"), "before").unwrap();
    std::os::unix::fs::symlink("real.csv", path("link.csv")).unwrap();
    std::fs::write(path("real.csv.unfinished"), "of somebody else").unwrap();
    run(folder.path(), ["-o", "link.csv", "-c", "SELECT 1 AS a"]).ok();
    assert!(std::fs::symlink_metadata(path("link.csv")).unwrap().is_symlink());
    assert_eq!(std::fs::read_to_string(path("real.csv")).unwrap(), "a\n1\n");
    assert_eq!(std::fs::read_to_string(path("real.csv.unfinished")).unwrap(), "of somebody else");
    run(folder.path(), ["-c", "COPY (SELECT 2 AS a) TO 'link.csv'"]).ok();
    assert!(std::fs::symlink_metadata(path("link.csv")).unwrap().is_symlink());
    assert_eq!(std::fs::read_to_string(path("real.csv")).unwrap(), "a\n2\n");
    // Whose name says nothing about a format.
    std::fs::write(path("plain"), "before").unwrap();
    std::os::unix::fs::symlink("plain", path("named.csv")).unwrap();
    run(folder.path(), ["-c", "COPY (SELECT 4 AS a) TO 'named.csv'"]).ok();
    assert!(std::fs::symlink_metadata(path("named.csv")).unwrap().is_symlink());
    assert_eq!(std::fs::read_to_string(path("plain")).unwrap(), "a\n4\n");
    // A pipe is written to.
    let pipe = path("pipe.csv");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let message = run(folder.path(), ["-c", "COPY (SELECT 2 AS a) TO 'pipe.csv'"]).failed(1);
    assert!(message.contains("pipe.csv': it is not a regular file"), "{message}");
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read_to_string(pipe).unwrap()
    });
    run(folder.path(), ["-o", "pipe.csv", "-c", "SELECT 3 AS a"]).ok();
    assert_eq!(reader.join().unwrap(), "a\n3\n");
    assert!(!std::fs::symlink_metadata(&pipe).unwrap().is_file());
}
