//! A small run of `kill_rounds`. A round that fails leaves its files where the message says.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::path::PathBuf;
use std::time::Duration;

use nandina_bench::kill_rounds::run::{Plan, run};

#[test]
fn what_was_acknowledged_is_there_after_kills() {
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan {
        program: PathBuf::from(env!("CARGO_BIN_EXE_kill_rounds")),
        folder: folder.path().to_path_buf(),
        seed: 1,
        rounds: 8,
        transactions: 300,
        longest_life: Duration::from_millis(500),
        lookups: 12,
        most_failures: 1,
    };
    let summary = run(&plan, |_| {}).unwrap();
    let failures: Vec<String> = summary.failures.iter().map(|failure| failure.what.clone()).collect();
    if !failures.is_empty() {
        let kept = folder.keep();
        panic!("{}\nin {}", failures.join("\n"), kept.display());
    }
    assert!(summary.killed >= 3, "{}", summary.render());
    assert!(summary.acknowledged > 20, "{}", summary.render());
}
