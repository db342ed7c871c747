//! Folders by value hold what DataFusion without a limit writes into them, in the same order, under any limit.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use datafusion::prelude::SessionContext;
use nandina::{Database, Options};
use tempfile::TempDir;

/// Values with nulls, odd characters and skew, and rows that are wide.
const ROWS: &str = "SELECT x AS id, CASE WHEN x % 10 > 0 THEN 'v/ =%' || (x * x % 151) END AS p, \
    CASE WHEN x % 7 > 0 THEN CAST(x % 4 AS INT) END AS q, x % 3 = 0 AS b, CAST('2024-02-29' AS DATE) AS d, \
    repeat(md5(CAST(x AS VARCHAR)), 8) AS s FROM generate_series(1, 12000) AS t(x)";

/// The lines of the one file in each folder, by the folder's name.
fn lines(folder: &Path) -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            found.extend(lines(&path).into_iter().map(|(below, lines)| (format!("{name}/{below}"), lines)));
        } else {
            let text = fs::read_to_string(&path).unwrap();
            let before = found.insert(String::new(), text.lines().map(str::to_owned).collect());
            assert!(before.is_none(), "two files in {}", folder.display());
        }
    }
    found
}

fn copy(rows: &str, columns: &str, folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "COPY ({rows}) TO '{folder}/' STORED AS CSV PARTITIONED BY ({columns}) OPTIONS (format.has_header true)"
    )
}

async fn same_everywhere(rows: &str, columns: &str) {
    let right = TempDir::new().unwrap();
    let frame = SessionContext::new().sql(&copy(rows, columns, right.path())).await.unwrap();
    frame.collect().await.unwrap();
    let right = lines(right.path());
    for memory_limit in [None, Some(8 << 20), Some(1 << 20)] {
        for threads in [1, 3] {
            let (temp, ours) = (TempDir::new().unwrap(), TempDir::new().unwrap());
            let options = Options {
                memory_limit,
                threads: Some(threads),
                temp_directory: Some(temp.path().to_path_buf()),
                auto_calibrate: false,
                ..Options::default()
            };
            let session = Database::in_memory(options).unwrap().session().unwrap();
            session.run(&copy(rows, columns, ours.path())).await.unwrap();
            let ours = lines(ours.path());
            let what = format!("{rows} by {columns} at {memory_limit:?} of {threads}");
            assert!(ours.keys().eq(right.keys()), "{what}: {:?}", ours.keys());
            for (folder, lines) in &ours {
                assert!(*lines == right[folder], "{what}: {folder}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_one_column() {
    for columns in ["p", "b", "d"] {
        same_everywhere(&format!("{ROWS} ORDER BY s"), columns).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_several_columns() {
    let filled = format!("SELECT * FROM ({ROWS}) WHERE q > 0");
    same_everywhere(&format!("{filled} ORDER BY id DESC"), "p, b").await;
    same_everywhere(&format!("{filled} ORDER BY id DESC"), "q, p, d").await;
    // In order of the values already, in the other direction.
    same_everywhere(&format!("{filled} ORDER BY b DESC, q DESC, s"), "b, q").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_by_what_is_not_written_is_kept() {
    let hidden = format!("SELECT p, id FROM ({ROWS}) ORDER BY s");
    same_everywhere(&hidden, "p").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_rows() {
    same_everywhere(&format!("{ROWS} LIMIT 0"), "p").await;
}
