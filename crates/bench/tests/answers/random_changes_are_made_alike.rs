//! A small run of `sql_changes`: the same seeds every time.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use nandina_bench::changes::run::{Plan, run};

async fn run_from(seed: u64, sessions: usize, memory_limit: Option<u64>) {
    let work = tempfile::tempdir().unwrap();
    let plan = Plan {
        seed,
        statements: 300,
        duration: None,
        sessions,
        memory_limit,
        steps_of_tables: 100,
        shrinking: Duration::from_secs(60),
        work: work.path().to_path_buf(),
    };
    let summary = run(&plan).await.unwrap();
    assert!(summary.difference.is_none(), "{}", summary.render());
    assert!(summary.changes() > 80, "{}", summary.render());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_changes_are_made_alike() {
    run_from(1, 1, None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_changes_in_little_memory_are_made_alike() {
    run_from(1_001, 1, Some(1 << 20)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_changes_beside_readers_are_made_alike() {
    run_from(2_001, 3, None).await;
}
