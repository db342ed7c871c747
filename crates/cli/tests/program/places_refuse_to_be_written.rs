//! Where the system says no to a write, a statement ends with an error and what it wrote is gone.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use crate::program;

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::Command;

use program::{Ran, command, csv_in, names_below, ran, run};

/// Runs the program below a limit of the shell.
fn below<const N: usize>(folder: &Path, limit: &str, arguments: [&str; N]) -> Ran {
    let mut shell = Command::new("sh");
    shell.current_dir(folder).env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    shell.args(["-c", &format!("ulimit {limit} && exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_nandina")]);
    ran(shell.args(arguments).output().unwrap())
}

/// Runs the program where no file may be larger than 256 KiB.
fn with_small_files<const N: usize>(folder: &Path, arguments: [&str; N]) -> Ran {
    below(folder, "-f 512", arguments)
}

#[test]
fn too_few_open_files_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    for files in 3..16 {
        let ran =
            below(folder.path(), &format!("-n {files}"), ["db", "-c", "CREATE TABLE t AS SELECT 1 AS a"]);
        assert!(matches!(ran.code, Some(0 | 1 | 127)) && !ran.err.contains("panicked"), "{files}: {ran:?}");
    }
}

#[test]
fn files_that_may_not_become_larger_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("temp")).unwrap();
    csv_in(folder.path(), "db", "CREATE TABLE t AS SELECT 1 AS a").ok();
    let before = names_below(folder.path());
    for file in ["out.csv", "out.json", "out.parquet"] {
        let copy = format!(
            "COPY (SELECT value, md5(value::TEXT) AS m FROM generate_series(1, 200000) AS series(value)) TO '{file}'"
        );
        let message = with_small_files(folder.path(), ["--temp-dir", "temp", "-c", &copy]).failed(1);
        assert!(message.contains("error: "), "{message}");
        assert_eq!(names_below(folder.path()), before, "{file}");
    }
    let create = "CREATE TABLE u AS SELECT value, md5(value::TEXT) AS m FROM generate_series(1, 200000) AS series(value)";
    let message = with_small_files(folder.path(), ["db", "-c", create]).failed(1);
    assert!(message.contains("ulimit -f"), "{message}");
    assert_eq!(names_below(folder.path()), before);

    let sort = "SELECT m FROM (SELECT value, md5(value::TEXT) AS m FROM generate_series(1, 400000) AS series(value)) ORDER BY m LIMIT 1 OFFSET 399990";
    let spill = ["--temp-dir", "temp", "--memory-limit", "4MB", "-c", sort];
    let message = with_small_files(folder.path(), spill).failed(1);
    assert!(message.contains("ulimit -f"), "{message}");
    assert_eq!(names_below(folder.path()), before);
    assert_eq!(csv_in(folder.path(), "db", "SELECT a FROM t").ok(), "a\n1\n");
}

#[test]
fn readers_need_not_write_into_the_database() {
    let folder = tempfile::tempdir().unwrap();
    csv_in(
        folder.path(),
        "db",
        "CREATE TABLE t AS SELECT value AS a FROM generate_series(1, 3) AS series(value)",
    )
    .ok();
    // No user, root included, can make a folder where there is a file.
    std::fs::remove_dir_all(folder.path().join("db/temp")).unwrap();
    File::create(folder.path().join("db/temp")).unwrap();
    let message = csv_in(folder.path(), "db", "SELECT sum(a) FROM t").failed(1);
    assert!(message.contains("--temp-dir"), "{message}");
    let arguments = ["db", "--read-only", "--format", "csv", "-c", "SELECT sum(a) AS s FROM t"];
    assert_eq!(run(folder.path(), arguments).ok(), "s\n6\n");
}

#[test]
fn full_devices_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
    let code = |arguments: &[&str], out: bool| {
        let mut program = command(folder.path());
        let program = program.args(arguments);
        let program = if out { program.stdout(full()) } else { program.stderr(full()) };
        program.output().unwrap().status.code()
    };
    assert_eq!(code(&["-c", "SELECT 1"], true), Some(1));
    assert_eq!(code(&["tpch", "data", "--scale", "0.001"], true), Some(1));
    assert_eq!(code(&["-c", "SELECT nothing"], false), Some(1));
    assert_eq!(code(&["-c", "SELECT 1"], false), Some(0));
}
