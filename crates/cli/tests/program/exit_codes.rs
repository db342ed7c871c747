//! 0 for success, 1 for a query or its data, 2 for the command line.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use crate::program;

use program::run;

#[test]
fn success_is_zero() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), ["-c", "SELECT 1"]).ok();
    run(folder.path(), ["--version"]).ok();
    run(folder.path(), ["--help"]).ok();
}

#[test]
fn query_errors_are_one() {
    let folder = tempfile::tempdir().unwrap();
    for sql in
        ["SELEC 1", "SELECT * FROM nothing", "SELECT 1 / 0", "SELECT * FROM 'nothing.csv'", "SET threads = 0"]
    {
        let message = run(folder.path(), ["-c", sql]).failed(1);
        let mut lines = message.lines();
        assert!(lines.next().is_some_and(|line| line.starts_with("error: ")), "{sql}: {message}");
        let place: Vec<&str> = lines.collect();
        assert!(place.is_empty() || (place.len() == 2 && place[0] == format!("LINE 1: {sql}")), "{message}");
    }
    assert!(run(folder.path(), ["-f", "nothing.sql"]).failed(1).contains("nothing.sql"));
}

#[test]
fn usage_errors_are_two() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in
        [vec!["--nonsense"], vec!["-m", "lots", "-c", "SELECT 1"], vec!["import", "db"], vec!["dmeo"]]
    {
        run(folder.path(), &arguments).failed(2);
    }
    assert_eq!(program::names_below(folder.path()), Vec::<String>::new(), "nothing is made by mistake");
}

#[test]
fn statements_after_an_error_do_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let ran = run(folder.path(), ["--format", "csv", "-c", "SELECT 1 AS a; SELECT nothing; SELECT 2 AS b"]);
    assert_eq!(ran.out, "a\n1\n");
    assert_eq!(ran.code, Some(1));
}
