//! A small run of the fuzzer: the same seeds every time, without DuckDB.

#![allow(clippy::unwrap_used, reason = "a test")]

use nandina_bench::fuzz::engines::Storage;
use nandina_bench::fuzz::oracle::Oracle;
use nandina_bench::fuzz::run::{Plan, run};

/// Runs the queries of some seeds, and expects no wrong answer, and many right ones.
async fn run_from(seed: u64, storage: Storage, has_nested: bool, has_odd_floats: bool) {
    let work = tempfile::tempdir().unwrap();
    let plan = Plan {
        seed,
        queries: 80,
        duration: None,
        oracles: vec![Oracle::Naive, Oracle::Tiny, Oracle::Partitions],
        duckdb: None,
        storage: Some(storage),
        has_nested,
        has_odd_floats,
        avoid: Vec::new(),
        settings: Vec::new(),
        work: work.path().to_path_buf(),
        out: None,
        most_failures: 3,
        reports_refusals: false,
        shrinks: true,
    };
    let summary = run(&plan).await.unwrap();
    assert_eq!(summary.wrong(), 0, "{}", summary.render());
    assert!(summary.right() > 30, "{}", summary.render());
}

#[tokio::test(flavor = "multi_thread")]
async fn random_sql_on_native_tables_is_answered_alike() {
    run_from(1, Storage::Native, false, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn random_sql_on_parquet_files_is_answered_alike() {
    run_from(2_001, Storage::Parquet, true, true).await;
}
