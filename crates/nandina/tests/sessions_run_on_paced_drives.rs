//! A whole session on a model of a drive: its files take as long as they would there.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use nandina::{Database, OpenDevice, Options};
use nandina_simulation::PacedDrive;
use nandina_simulation::drive::DriveModel;

/// 4 MB of data at 125 MB/s, and nothing faster.
const LEAST: Duration = Duration::from_millis(28);

#[tokio::test(flavor = "multi_thread")]
async fn tables_and_files_take_their_time() {
    let folder = tempfile::tempdir().unwrap();
    let model = DriveModel::named("cloud-volume").unwrap();
    let drive = PacedDrive { model, seed: 1, discard: true };
    let open_device = OpenDevice::with(move |directory, options| drive.open(directory, options));
    let options = Options { open_device, auto_calibrate: false, threads: Some(2), ..Options::default() };
    let session = Database::open(folder.path().join("shop"), options).unwrap().session().unwrap();

    let started = Instant::now();
    session
        .run("CREATE TABLE t AS SELECT value * 1234567891 AS v FROM generate_series(1, 500000) AS series(value)")
        .await
        .unwrap();
    assert!(started.elapsed() >= LEAST, "written in {:?}", started.elapsed());

    let file = folder.path().join("t.parquet").display().to_string();
    session.run(&format!("COPY t TO '{file}'")).await.unwrap();
    for source in ["t".to_owned(), format!("'{file}'")] {
        let started = Instant::now();
        let batches = session
            .sql(&format!("SELECT sum(v % 1000) AS s FROM {source}"))
            .await
            .unwrap()
            .collect()
            .await
            .unwrap();
        assert_eq!(batches[0].num_rows(), 1);
        assert!(started.elapsed() >= LEAST / 2, "{source} read in {:?}", started.elapsed());
    }
}
