//! A copy into folders by value that is cancelled, or cannot write, leaves whole files and nothing else.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use nandina::{Database, Options, Profile, Session};
use tempfile::TempDir;

/// So many values, of as many rows each.
const VALUES: usize = 500;
const ROWS: i64 = 60_000;

fn session(temp: &Path) -> Session {
    let options = Options {
        memory_limit: Some(8 << 20),
        threads: Some(2),
        temp_directory: Some(temp.to_path_buf()),
        auto_calibrate: false,
        ..Options::default()
    };
    Database::in_memory(options).unwrap().session().unwrap()
}

fn copy(folder: &Path, format: &str) -> String {
    format!(
        "COPY (SELECT x AS id, x % {VALUES} AS v, repeat(md5(CAST(x AS VARCHAR)), 6) AS s
               FROM generate_series(1, {ROWS}) AS t(x))
         TO '{}/' STORED AS {format} PARTITIONED BY (v)",
        folder.display()
    )
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let below = entries.flat_map(|entry| match entry.unwrap().path() {
        path if path.is_dir() => files(&path),
        path => vec![path],
    });
    below.collect()
}

async fn nothing_is_held(session: &Session) {
    for _ in 0..1000 {
        if session.governor().used_bytes() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} bytes are still reserved", session.governor().used_bytes());
}

fn is_whole(file: &Path) -> bool {
    !file.to_string_lossy().contains('#')
}

/// The files below a folder once none is there under a provisional name: those of a cancelled copy go a moment later.
async fn whole_files(folder: &Path) -> Vec<PathBuf> {
    for _ in 0..1000 {
        let found = files(folder);
        if found.iter().all(|file| is_whole(file)) {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("provisional files are left: {:?}", files(folder));
}

/// Rows of the files in a folder, all of which can be read.
async fn rows(session: &Session, folder: &Path) -> i64 {
    let sql = format!("SELECT count(*) FROM '{}'", folder.display());
    let batches = session.sql(&sql).await.unwrap().collect().await.unwrap();
    batches[0].column(0).as_primitive::<Int64Type>().value(0)
}

/// Cancels a copy when it has written so many files. How many there are.
async fn cancelled_after(wanted: usize, format: &str) -> usize {
    let (temp, folder) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let session = session(temp.path());
    let query = session.sql(&copy(folder.path(), format)).await.unwrap();
    let running = tokio::spawn(query.drain());
    while files(folder.path()).iter().filter(|file| is_whole(file)).count() < wanted {
        assert!(!running.is_finished(), "{wanted} files were never there");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    nothing_is_held(&session).await;
    let written = whole_files(folder.path()).await;
    if !written.is_empty() {
        let per_value = ROWS / VALUES as i64;
        let rows = rows(&session, folder.path()).await;
        assert_eq!(rows % per_value, 0, "{rows} rows of {per_value} for each value");
    }
    drop(session);
    // Its workers are cancelled, not waited for: the last one takes the folder with it.
    let left = || fs::read_dir(temp.path()).unwrap().count();
    for _ in 0..1000 {
        if left() == 0 {
            return written.len();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("temporary files are left")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_copy_leaves_whole_files() {
    for format in ["PARQUET", "CSV"] {
        for wanted in [0, 1, 40] {
            let written = cancelled_after(wanted, format).await;
            assert!(written >= wanted && written < VALUES, "{format}: {written} after {wanted}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_file_is_written_for_each_value_and_all_are_counted() {
    let (temp, folder) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let session = session(temp.path());
    let query = session.sql(&copy(folder.path(), "PARQUET")).await.unwrap();
    let plan = query.plan().unwrap();
    query.drain().await.unwrap();
    assert_eq!(files(folder.path()).len(), VALUES);
    let metrics = plan.metrics().unwrap();
    assert_eq!(metrics.sum_by_name("rows_written").unwrap().as_usize(), ROWS as usize);
    assert!(metrics.sum_by_name("bytes_written").unwrap().as_usize() > 1 << 20);
    assert!(metrics.iter().count() < 10, "metrics do not grow with values");
    assert!(Profile::of(&plan).spilled_bytes() > 1 << 20);
    assert_eq!(rows(&session, folder.path()).await, ROWS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_cannot_be_written_is_named() {
    let (temp, folder) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let session = session(temp.path());
    // A file in the place of a folder.
    fs::write(folder.path().join("v=250"), "taken").unwrap();
    let query = session.sql(&copy(folder.path(), "PARQUET")).await.unwrap();
    let error = query.drain().await.unwrap_err().to_string();
    assert!(error.contains("v=250/") && error.contains("Not a directory"), "{error}");
    nothing_is_held(&session).await;
    // Those before it, in the order of values, and the one that is in the way.
    assert_eq!(files(folder.path()).len(), 250 + 1);
}
