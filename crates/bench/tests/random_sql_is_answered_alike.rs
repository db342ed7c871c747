//! A small run of the fuzzer: the same seeds every time, without DuckDB.

use nandina_bench::fuzz::engines::Storage;
use nandina_bench::fuzz::oracle::Oracle;
use nandina_bench::fuzz::run::{Plan, run};

#[tokio::test(flavor = "multi_thread")]
async fn random_sql_is_answered_alike() {
    let work = tempfile::tempdir().unwrap();
    let plan = Plan {
        seed: 1,
        queries: 80,
        duration: None,
        oracles: vec![Oracle::Naive, Oracle::Tiny, Oracle::Partitions],
        duckdb: None,
        storage: Some(Storage::Native),
        has_nested: false,
        has_odd_floats: false,
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
