//! Ctrl-C cancels a query: exit code 130, and nothing is left in the folder for temporary files.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

#[path = "program/program.rs"]
mod program;

use std::process::Command;
use std::time::{Duration, Instant};

use program::{command, names_below};

/// Waits until `condition` holds; fails after a minute.
fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what} did not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn temporary_files_are_gone() {
    let folder = tempfile::tempdir().unwrap();
    let temp = folder.path().join("temp");
    let files = || {
        names_below(&temp)
            .iter()
            .filter(|name| std::fs::metadata(name).is_ok_and(|file| file.is_file() && file.len() > 0))
            .count()
    };
    // A build side of far more than fits: it spills soon and would take minutes.
    let sql =
        "SELECT min(o_comment) FROM tpch('lineitem', 20) JOIN tpch('orders', 20) ON l_orderkey = o_orderkey";
    let mut child = command(folder.path());
    let mut child =
        child.args(["-m", "64MB", "--temp-dir", "temp", "--format", "csv", "-c", sql]).spawn().unwrap();
    wait_for("spilling", || files() > 0 || child.try_wait().unwrap().is_some());
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let asked = Instant::now();
    let ran = program::ran(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(130), "{}", ran.err);
    assert_eq!(ran.err, "cancelled\n");
    assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
    assert_eq!(names_below(&temp), Vec::<String>::new());
}

#[test]
fn a_press_before_the_first_statement_is_not_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let temp = folder.path().join("temp");
    let sql = "SELECT min(l_comment) FROM tpch('lineitem', 20)";
    let mut child = command(folder.path());
    let mut child = child.args(["--temp-dir", "temp", "-c", sql]).spawn().unwrap();
    // The folder for temporary files is made before anything is executed, and after the program has begun to listen.
    wait_for("starting", || !names_below(&temp).is_empty() || child.try_wait().unwrap().is_some());
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let ran = program::ran(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.err.as_str()), (Some(130), "cancelled\n"), "{}", ran.out);
}

#[test]
fn neither_long_plans_nor_slow_functions_keep_the_program_alive() {
    let joined =
        |step: usize| format!(", t{} AS (SELECT a.x FROM t{step} a JOIN t{step} b ON a.x = b.x)", step + 1);
    let plan = format!(
        "WITH t0 AS (SELECT 1 AS x){} SELECT count(*) FROM t24",
        (0..24).map(joined).collect::<String>()
    );
    let function = "SELECT max(levenshtein(repeat('ab', 5000 + (x % 3)::INT), repeat('ba', 5000))) \
                    FROM generate_series(1, 100000) AS t(x)";
    let pairs =
        "SELECT count(DISTINCT x * y) FROM generate_series(1, 30000) a(x), generate_series(1, 30000) b(y)";
    for sql in [&plan, function, pairs] {
        let folder = tempfile::tempdir().unwrap();
        let temp = folder.path().join("temp");
        let mut child = command(folder.path());
        let mut child = child.args(["--temp-dir", "temp", "-c", sql]).spawn().unwrap();
        wait_for("starting", || !names_below(&temp).is_empty() || child.try_wait().unwrap().is_some());
        std::thread::sleep(Duration::from_millis(500));
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        let asked = Instant::now();
        let ran = program::ran(child.wait_with_output().unwrap());
        assert_eq!((ran.code, ran.err.as_str()), (Some(130), "cancelled\n"), "{sql:.60}: {}", ran.out);
        assert!(asked.elapsed() < Duration::from_secs(20), "{sql:.60}: {:?}", asked.elapsed());
    }
}
