//! A small run over orders of FROM: generated queries of many joins, on native tables and on Parquet.

use std::time::Duration;

use nandina_bench::orders::check::check;
use nandina_bench::orders::suites::generated;
use nandina_bench::random::Random;

#[tokio::test(flavor = "multi_thread")]
async fn orders_of_from_answer_alike() {
    let work = tempfile::tempdir().unwrap();
    let suite = generated(2, 1, &mut Random::new(2));
    let report = check(&suite, "4MiB", Duration::from_secs(60), work.path()).await.unwrap();
    assert!(report.wrong.is_empty(), "{:?}", report.wrong);
    assert_eq!(report.refused_at_limit, []);
    assert_eq!(report.runs, 2 * (3 + 4) * 4);
}
