//! Files of hundreds of columns under small limits: fewer lanes, small batches, the same rows.

use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::util::pretty::pretty_format_batches;
use nandina::{Database, Options, Session};

const COLUMNS: usize = 300;
/// More than a batch, or else one lane is enough.
const ROWS: usize = 9_000;

/// One that reads every file with as many lanes as it has room for.
async fn session(limit: u64) -> Session {
    let options = Options { memory_limit: Some(limit), threads: Some(2), ..Options::default() };
    let session = Database::in_memory(options).unwrap().session().unwrap();
    session.run("SET datafusion.optimizer.repartition_file_min_size = 0").await.unwrap();
    session
}

/// Numbers, nulls and texts in turn, in row groups of 1,000 rows.
async fn write_wide_file(path: &Path) {
    let column = |number: usize| match number % 3 {
        0 => format!("value * {number} AS c{number}"),
        1 => format!("md5((value + {number})::TEXT) AS c{number}"),
        _ => format!("nullif(value % {number}, 1) AS c{number}"),
    };
    let columns: Vec<String> = (0..COLUMNS).map(column).collect();
    let sql = format!(
        "COPY (SELECT {} FROM generate_series(1, {ROWS}) AS series(value)) TO '{}' OPTIONS (format.max_row_group_size 1000)",
        columns.join(", "),
        path.display()
    );
    session(2 << 30).await.run(&sql).await.unwrap();
}

async fn rows(session: &Session, sql: &str) -> Vec<RecordBatch> {
    session.sql(sql).await.unwrap().collect().await.unwrap()
}

fn shown(batches: &[RecordBatch]) -> String {
    pretty_format_batches(batches).unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wide_rows_come_in_small_batches_and_one_lane() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wide.parquet");
    write_wide_file(&file).await;
    let (small, large) = (session(32 << 20).await, session(4 << 30).await);
    let sql = format!("SELECT * FROM '{}'", file.display());
    let lanes = async |session: &Session| {
        let query = session.sql(&sql).await.unwrap();
        let mut scan = query.plan().unwrap();
        while let Some(input) = scan.children().first().map(|&input| Arc::clone(input)) {
            scan = input;
        }
        scan.properties().partitioning.partition_count()
    };
    assert_eq!((lanes(&small).await, lanes(&large).await), (1, 2));
    let (few, many) = (rows(&small, &sql).await, rows(&large, &sql).await);
    let count = |batches: &[RecordBatch]| batches.iter().map(RecordBatch::num_rows).sum::<usize>();
    assert_eq!((count(&few), count(&many)), (ROWS, ROWS));
    // 300 columns of 8 to 32 bytes in a 32nd of the limit.
    assert!(few.iter().all(|batch| batch.num_rows() <= 400), "{}", few[0].num_rows());

    let two_columns = format!("SELECT max(c3), max(c4) FROM '{}'", file.display());
    assert_eq!(shown(&rows(&small, &two_columns).await), shown(&rows(&large, &two_columns).await));
    let sorted = format!("SELECT * FROM '{}' ORDER BY c1, c0 LIMIT 7 OFFSET 4000", file.display());
    assert_eq!(shown(&rows(&small, &sorted).await), shown(&rows(&large, &sorted).await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wide_copies_hold_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wide.parquet");
    write_wide_file(&file).await;
    let large = session(4 << 30).await;
    let sums = |path: &Path| {
        let columns = (0..COLUMNS).map(|number| match number % 3 {
            1 => format!("min(c{number}) AS a{number}, max(c{number}) AS b{number}"),
            _ => format!("sum(c{number}) AS a{number}, count(c{number}) AS b{number}"),
        });
        format!("SELECT {} FROM '{}'", columns.collect::<Vec<_>>().join(", "), path.display())
    };
    let expected = shown(&rows(&large, &sums(&file)).await);
    for limit in [32 << 20, 64 << 20] {
        for copy in ["copy.parquet", "copy.csv"] {
            let copy = folder.path().join(format!("{limit}-{copy}"));
            let sql = format!("COPY (SELECT * FROM '{}') TO '{}'", file.display(), copy.display());
            session(limit).await.run(&sql).await.unwrap();
            let found = shown(&rows(&large, &sums(&copy)).await);
            assert!(found == expected, "{}: other sums than in what was copied", copy.display());
        }
    }
}
