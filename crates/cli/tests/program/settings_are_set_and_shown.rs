//! `SET`, `SHOW` and `RESET` of Nandina's settings; DataFusion's stay reachable.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use crate::program;

use program::{csv, run};

#[test]
fn the_command_line_sets_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["-m", "256MB", "--threads", "3", "--temp-quota", "2GB", "--format", "csv"];
    let show = "SHOW memory_limit; SHOW threads; SHOW temp_quota";
    let text = run(folder.path(), arguments.into_iter().chain(["-c", show])).ok();
    assert_eq!(
        text,
        "name,value\nmemory_limit,256 MiB\nname,value\nthreads,3\nname,value\ntemp_quota,2 GiB\n"
    );
}

#[test]
fn statements_change_and_reset_it() {
    let folder = tempfile::tempdir().unwrap();
    let sql = "SET memory_limit = '64MB'; SHOW memory_limit; SET memory_limit TO 100MB; SHOW memory_limit";
    let text = run(
        folder.path(),
        ["-m", "1GB", "--format", "csv", "-c", sql, "-c", "RESET memory_limit; SHOW memory_limit"],
    )
    .ok();
    assert_eq!(
        text,
        "name,value\nmemory_limit,64 MiB\nname,value\nmemory_limit,100 MiB\nname,value\nmemory_limit,1 GiB\n"
    );
}

#[test]
fn a_percentage_is_of_what_the_process_may_use() {
    let folder = tempfile::tempdir().unwrap();
    let full = csv(folder.path(), "SET memory_limit = '100%'; SHOW memory_limit").ok();
    let default = csv(folder.path(), "SET memory_limit = '60%'; SHOW memory_limit").ok();
    assert_ne!(full, default);
    assert_eq!(default, csv(folder.path(), "SHOW memory_limit").ok());
}

#[test]
fn datafusions_settings_are_reachable() {
    let folder = tempfile::tempdir().unwrap();
    let sql = "SET datafusion.explain.logical_plan_only = true; SHOW datafusion.explain.logical_plan_only";
    assert_eq!(csv(folder.path(), sql).ok(), "name,value\ndatafusion.explain.logical_plan_only,true\n");
    let all = csv(folder.path(), "SHOW ALL").ok();
    assert!(all.contains("\nmemory_limit,") && all.contains("\ndatafusion.execution.time_zone,"));
}

#[test]
fn a_temp_directory_is_made_when_needed() {
    let folder = tempfile::tempdir().unwrap();
    let sql = "SET temp_directory = 'spill/here'; SHOW temp_directory; SELECT 1 AS a";
    let text = csv(folder.path(), sql).ok();
    assert!(text.contains("spill/here\n") && text.ends_with("a\n1\n"), "{text}");
    let message =
        csv(folder.path(), "COPY (SELECT 1 AS a) TO 'x.csv'; SET temp_directory = 'x.csv'").failed(1);
    assert!(message.contains("is a file, not a folder"), "{message}");
}
