//! `nandina calibrate` and its SQL: what is measured is shown, kept, used by the next session, and leaves nothing.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

#[path = "program/program.rs"]
mod program;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use program::{Ran, command, names_below, ran};

/// A run with a folder of its own for profiles.
fn run(folder: &Path, arguments: &[&str]) -> Ran {
    ran(command(folder).env("XDG_CACHE_HOME", folder.join("cache")).args(arguments).output().unwrap())
}

/// Measures until it is quiet enough for the result to be kept: other tests keep the machine busy.
fn calibrated(folder: &Path, arguments: &[&str]) -> Ran {
    for _ in 0..20 {
        let ran = run(folder, arguments);
        if ran.code == Some(0) {
            return ran;
        }
        assert!(ran.err.contains("something else keeps the device or the processor busy"), "{}", ran.err);
    }
    panic!("the machine never became quiet enough");
}

#[test]
fn the_next_session_knows_what_was_found() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("data")).unwrap();
    let before = run(folder.path(), &["-c", "SHOW DEVICE 'data'"]).ok();
    assert!(before.contains("CALIBRATE measures yours"), "{before}");

    let shown = calibrated(folder.path(), &["calibrate", "data"]).ok();
    for fact in
        ["device ", "measured ", "read 4 KiB, one at a time ", "write bandwidth ", "noise ", "kept in "]
    {
        assert!(shown.contains(fact), "{fact}: {shown}");
    }
    assert_eq!(names_below(&folder.path().join("data")), Vec::<String>::new());

    let after = run(folder.path(), &["-c", "SHOW DEVICE 'data'"]).ok();
    assert!(after.contains("quick, ") && !after.contains("CALIBRATE measures yours"), "{after}");
    let again = calibrated(folder.path(), &["-c", "CALIBRATE 'data'"]).ok();
    assert!(again.contains("quick, "), "{again}");
    // Without a folder: where temporary files go.
    let of_temp = run(folder.path(), &["--temp-dir", "data", "-c", "show device;"]).ok();
    assert!(of_temp.contains("quick, "), "{of_temp}");
}

#[test]
fn json_and_page_hold_the_same_profile() {
    let folder = tempfile::tempdir().unwrap();
    let ran = calibrated(folder.path(), &["calibrate", ".", "--json", "--report", "device.html"]);
    let profile: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(profile["kind"], "quick");
    let page = std::fs::read_to_string(folder.path().join("device.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") || page.starts_with("<!DOCTYPE html>"));
    let data: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(folder.path().join("device.json")).unwrap()).unwrap();
    assert_eq!(data["profile"]["reads"], profile["reads"]);
}

#[test]
fn what_is_asked_of_the_engine_counts_for_measuring_too() {
    let folder = tempfile::tempdir().unwrap();
    let json = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_str(&calibrated(folder.path(), arguments).out).unwrap()
    };
    let modelled = json(&["calibrate", ".", "--json", "--drive", "cloud-volume"]);
    // The median: a point that is measured just after the machine has stalled sees the model make up for it.
    let median_rate = |profile: &serde_json::Value| {
        let rows = profile["writes"]["bytes_per_second"].as_array().unwrap();
        let of_row = |row: &serde_json::Value| {
            row.as_array().unwrap().iter().map(|rate| rate.as_f64().unwrap()).collect()
        };
        let mut rates: Vec<f64> = rows.iter().flat_map(|row| -> Vec<f64> { of_row(row) }).collect();
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    assert!(median_rate(&modelled) < 1.1 * 125e6, "{modelled}");
    let threads = json(&["calibrate", ".", "--json", "--io-backend", "threads"]);
    assert_eq!(threads["backend"], "thread pool");
    let wrong = run(folder.path(), &["calibrate", ".", "--drive", "cloud-volum"]);
    assert!(wrong.failed(2).contains("did you mean 'cloud-volume'?"));
}

#[test]
fn queries_that_cannot_be_analyzed_are_not_drawn() {
    let folder = program::folder_with_files();
    let refused = run(
        folder.path(),
        &["-c", "CREATE VIEW t AS SELECT 1 AS a; EXPLAIN ANALYZE (REPORT 'x.html') DELETE FROM t"],
    );
    assert!(refused.failed(1).contains("rows of 't' cannot be changed"));
    let copied = "EXPLAIN ANALYZE (REPORT 'copy.html') COPY (SELECT 1 AS a) TO 'one.csv'";
    run(folder.path(), &["-c", copied]).ok();
    let [page, file] = ["copy.html", "one.csv"].map(|name| folder.path().join(name).exists());
    assert!(page && file);
    assert!(!folder.path().join("x.html").exists());
}

#[test]
fn folders_that_cannot_be_written_to_are_named() {
    let folder = tempfile::tempdir().unwrap();
    assert!(run(folder.path(), &["calibrate", "missing"]).failed(1).contains("missing"));
    let proc = run(folder.path(), &["calibrate", "/proc"]).failed(1);
    assert!(proc.contains("/proc"), "{proc}");
    std::fs::write(folder.path().join("file"), "x").unwrap();
    assert!(run(folder.path(), &["calibrate", "file"]).failed(1).contains("file"));
    let wrong = run(folder.path(), &["-c", "CALIBRATE FULLY"]).failed(1);
    assert!(wrong.contains("CALIBRATE [FULL] ['folder']"), "{wrong}");
    assert!(!folder.path().join("cache").exists(), "nothing was kept");
}

#[test]
fn memory_is_said_to_be_memory() {
    let memory = Path::new("/dev/shm");
    if !memory.is_dir() {
        eprintln!("skipped: there is no /dev/shm");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let inside = tempfile::tempdir_in(memory).unwrap();
    let ran = run(folder.path(), &["calibrate", inside.path().to_str().unwrap()]);
    // Containers may leave too little there to measure with.
    if ran.code != Some(0) {
        assert!(ran.err.contains("are free there") || ran.err.contains("% apart"), "{}", ran.err);
        return;
    }
    assert!(ran.out.contains("files are kept in memory here"), "{}", ran.out);
}

#[test]
fn a_damaged_profile_is_reported_and_replaced() {
    let folder = tempfile::tempdir().unwrap();
    calibrated(folder.path(), &["calibrate", "."]);
    let kept = folder.path().join("cache/nandina");
    let file = std::fs::read_dir(&kept).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&file, &bytes).unwrap();
    let shown = run(folder.path(), &["-c", "SHOW DEVICE '.'"]).ok();
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(shown.contains(name) && shown.contains("checksum"), "{shown}");
    calibrated(folder.path(), &["calibrate", "."]);
    let shown = run(folder.path(), &["-c", "SHOW DEVICE '.'"]).ok();
    assert!(shown.contains("quick, ") && !shown.contains("checksum"), "{shown}");
}

#[test]
fn ctrl_c_stops_a_full_one_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("data")).unwrap();
    let mut child = command(folder.path());
    child.env("XDG_CACHE_HOME", folder.path().join("cache"));
    let child = child.args(["calibrate", "data", "--full"]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let asked = Instant::now();
    let ran = ran(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(130), "{}", ran.err);
    assert!(ran.err.contains("takes about") && ran.err.contains("writes up to"), "{}", ran.err);
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    assert_eq!(names_below(&folder.path().join("data")), Vec::<String>::new());
    assert!(!folder.path().join("cache").exists());
}

#[test]
fn queries_are_drawn() {
    let folder = program::folder_with_files();
    let sql = "EXPLAIN ANALYZE (REPORT 'query.html') SELECT a.name FROM 'goods.parquet' a JOIN 'goods.csv' b ON a.id = b.id";
    let text = run(folder.path(), &["-c", sql]).ok();
    assert!(
        text.contains("HashJoin") && text.contains("query.html") && text.contains("query.json"),
        "{text}"
    );
    let page = std::fs::read_to_string(folder.path().join("query.html")).unwrap();
    assert!(page.contains("HashJoinExec") || page.contains("HybridHashJoinExec"), "{page}");
    let data: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(folder.path().join("query.json")).unwrap()).unwrap();
    assert_eq!(data["result_rows"], 3);
    assert_eq!(data["sql"], "SELECT a.name FROM 'goods.parquet' a JOIN 'goods.csv' b ON a.id = b.id");
    let refused =
        run(folder.path(), &["-c", "EXPLAIN ANALYZE (REPORT 'no/such/folder.html') SELECT 1"]).failed(1);
    assert!(refused.contains("folder.html"), "{refused}");
}
