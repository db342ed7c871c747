//! What queries have read of tables is found in memory by later ones, and leaves for those that need the memory.

use arrow::array::AsArray as _;
use arrow::datatypes::Int64Type;
use nandina::{Database, Options, Session};
use tempfile::TempDir;

const ROWS: i64 = 400_000;

async fn filled(directory: &TempDir, limit: u64) -> (Database, Session) {
    let options = Options {
        memory_limit: Some(limit),
        threads: Some(2),
        temp_directory: Some(directory.path().join("temp")),
        auto_calibrate: false,
        ..Options::default()
    };
    let database = Database::open(directory.path(), options).unwrap();
    let session = database.session().unwrap();
    // Some megabytes that no encoding makes much smaller.
    let made = format!(
        "CREATE TABLE t AS SELECT range AS k, md5(range::VARCHAR) AS text, (range * 7919) % {ROWS} AS other FROM range({ROWS})"
    );
    session.run(&made).await.unwrap();
    (database, session)
}

async fn plan(session: &Session, query: &str) -> String {
    let rows = session.sql(&format!("EXPLAIN ANALYZE {query}")).await.unwrap().collect().await.unwrap();
    let texts = rows.iter().flat_map(|batch| {
        let column = batch.column(batch.num_columns() - 1);
        let texts = arrow::compute::cast(column, &arrow::datatypes::DataType::Utf8).unwrap();
        texts.as_string::<i32>().iter().flatten().map(str::to_owned).collect::<Vec<_>>()
    });
    texts.collect::<Vec<_>>().join("\n")
}

async fn numbers(session: &Session, query: &str) -> Vec<i64> {
    let rows = session.sql(query).await.unwrap().collect().await.unwrap();
    assert_eq!(rows.iter().map(arrow::array::RecordBatch::num_rows).sum::<usize>(), 1);
    let row = rows.iter().find(|batch| batch.num_rows() > 0).unwrap();
    row.columns().iter().map(|column| column.as_primitive::<Int64Type>().value(0)).collect()
}

const QUERY: &str = "SELECT count(*), count(DISTINCT text), sum(k)::BIGINT, sum(other)::BIGINT FROM t";

#[tokio::test]
async fn the_third_query_reads_nothing() {
    let directory = TempDir::new().unwrap();
    let (_database, session) = filled(&directory, 256 << 20).await;
    let right = vec![ROWS, ROWS, ROWS * (ROWS - 1) / 2, ROWS * (ROWS - 1) / 2];
    for _ in 0..2 {
        let shown = plan(&session, QUERY).await;
        assert!(shown.contains("scanned") && !shown.contains("found in memory"), "{shown}");
    }
    let shown = plan(&session, QUERY).await;
    assert!(!shown.contains("scanned") && shown.contains("found in memory"), "{shown}");
    assert_eq!(numbers(&session, QUERY).await, right);
    // Some of the columns, and rows of other places.
    let shown = plan(&session, "SELECT max(text) FROM t WHERE k > 300000").await;
    assert!(!shown.contains("scanned") && shown.contains("found in memory"), "{shown}");

    session.run("SET table_cache = off").await.unwrap();
    let shown = plan(&session, QUERY).await;
    assert!(shown.contains("scanned") && !shown.contains("found in memory"), "{shown}");
    assert_eq!(numbers(&session, QUERY).await, right);
    session.run("RESET table_cache").await.unwrap();

    // A table of the same name has nothing of the old one.
    numbers(&session, QUERY).await;
    numbers(&session, QUERY).await;
    session.run("DROP TABLE t; CREATE TABLE t AS SELECT range AS k, range::VARCHAR AS text, 1::BIGINT AS other FROM range(10)").await.unwrap();
    assert_eq!(numbers(&session, QUERY).await, [10, 10, 45, 10]);
}

#[tokio::test]
async fn queries_that_need_the_memory_get_it() {
    let directory = TempDir::new().unwrap();
    let (_database, session) = filled(&directory, 64 << 20).await;
    let scan = "SELECT sum(k), sum(other), max(text) FROM t";
    plan(&session, scan).await;
    for _ in 0..3 {
        plan(&session, scan).await;
        let shown = plan(&session, scan).await;
        assert!(shown.contains("found in memory"), "{shown}");
        // A join and a sort that spill answer as ever.
        let joined = "SELECT count(*), sum(a.k)::BIGINT, sum(length(b.text || a.text))::BIGINT FROM t a JOIN t b ON a.k = b.other";
        assert_eq!(numbers(&session, joined).await, [ROWS, ROWS * (ROWS - 1) / 2, ROWS * 64]);
        let sorted = "SELECT sum(k)::BIGINT, count(*) FROM (SELECT k, text FROM t ORDER BY text LIMIT 1000 OFFSET 300000)";
        let found = numbers(&session, sorted).await;
        session.run("SET table_cache = off").await.unwrap();
        assert_eq!(numbers(&session, sorted).await, found);
        session.run("SET table_cache = on").await.unwrap();
    }
    session.run("SET memory_limit = '16MB'").await.unwrap();
    assert_eq!(numbers(&session, QUERY).await[..2], [ROWS, ROWS]);
    let shown = plan(&session, scan).await;
    assert!(!shown.contains("found in memory"), "{shown}");
}
