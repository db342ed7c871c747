//! A running query tells how far it has come.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use futures::StreamExt as _;
use nandina::{Database, Options};

#[tokio::test]
async fn the_share_grows_to_one() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { threads: Some(1), batch_size: Some(1000), ..Options::default() };
    let session = Database::in_memory(options).unwrap().session().unwrap();
    let file = folder.path().join("numbers.parquet").display().to_string();
    session
        .run(&format!("COPY (SELECT value AS v FROM generate_series(1, 50000) AS series(value)) TO '{file}'"))
        .await
        .unwrap();
    let mut query = session.sql(&format!("SELECT v FROM '{file}'")).await.unwrap();
    let meter = query.progress_meter();
    assert_eq!(meter.now().rows_read, 0);
    let mut last = 0.0;
    let mut steps = 0;
    while let Some(batch) = query.next().await {
        batch.unwrap();
        let fraction = meter.now().fraction.unwrap();
        assert!((last..=1.0).contains(&fraction), "{fraction} after {last}");
        steps += usize::from(fraction > last);
        last = fraction;
    }
    assert_eq!(last, 1.0);
    assert!(steps > 10, "{steps}");
    assert_eq!(meter.now().rows_read, 50_000);
    assert_eq!(meter.now().spilled_bytes, 0);
}
