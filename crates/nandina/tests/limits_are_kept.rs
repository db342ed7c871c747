//! The same answers under any memory limit, and temporary files that are gone afterwards.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::util::pretty::pretty_format_batches;
use futures::TryStreamExt as _;
use nandina::{Database, Options, Profile, Session};

const JOIN: &str = "SELECT o_orderpriority, count(*) AS n, min(l_comment) AS l, max(o_comment) AS o
                    FROM lineitem JOIN orders ON l_orderkey = o_orderkey GROUP BY 1 ORDER BY 1";

fn session(database: &Database, limit: &str) -> Session {
    let session = database.session().unwrap();
    futures::executor::block_on(session.run(&format!("SET memory_limit = '{limit}'"))).unwrap();
    session
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_gives_the_same_rows_when_it_spills() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { threads: Some(2), ..Options::default() };
    let database = Database::open(folder.path().join("db"), options).unwrap();
    let roomy = session(&database, "1GB");
    for table in ["orders", "lineitem"] {
        roomy.run(&format!("CREATE TABLE {table} AS SELECT * FROM tpch('{table}', 0.1)")).await.unwrap();
    }
    let rows = |batches: Vec<RecordBatch>| pretty_format_batches(&batches).unwrap().to_string();
    let expected = rows(roomy.sql(JOIN).await.unwrap().collect().await.unwrap());
    assert!(expected.contains("1-URGENT") && expected.contains("5-LOW"), "{expected}");

    let cramped = session(&database, "8MB");
    let query = cramped.sql(JOIN).await.unwrap();
    let plan = query.plan().unwrap();
    assert_eq!(rows(query.collect().await.unwrap()), expected);
    let profile = Profile::of(&plan);
    assert!(profile.spilled_bytes() > 1 << 20, "{profile}");
    assert!(profile.spill_read_bytes() >= profile.spilled_bytes() / 2, "{profile}");

    drop((plan, roomy, cramped));
    let temp = folder.path().join("db/temp");
    assert_eq!(std::fs::read_dir(&temp).unwrap().count(), 0, "temporary files are left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compressed_pages_are_told_apart() {
    let options = Options { memory_limit: Some(8 << 20), threads: Some(2), ..Options::default() };
    let session = Database::in_memory(options).unwrap().session().unwrap();
    let sql = "SELECT count(*), min(l_comment), max(o_comment) FROM tpch('lineitem', 0.1) AS l
               JOIN tpch('orders', 0.1) AS o ON l_orderkey = o_orderkey";
    let mut answers = Vec::new();
    for setting in ["off", "on"] {
        session.run(&format!("SET temp_compression = {setting}")).await.unwrap();
        let query = session.sql(sql).await.unwrap();
        let plan = query.plan().unwrap();
        answers.push(pretty_format_batches(&query.collect().await.unwrap()).unwrap().to_string());
        let profile = Profile::of(&plan);
        let (written, pages) = (profile.spilled_bytes(), profile.spilled_page_bytes());
        assert!(pages > 1 << 20, "{profile}");
        assert_eq!(written < pages * 3 / 4, setting == "on", "{profile}");
        assert_eq!(written == pages, setting == "off", "{profile}");
        assert_eq!(profile.to_string().contains("uncompressed) · "), setting == "on", "{profile}");
    }
    assert_eq!(answers[0], answers[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_is_dropped_frees_its_space() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        memory_limit: Some(8 << 20),
        temp_directory: Some(folder.path().to_path_buf()),
        threads: Some(2),
        ..Options::default()
    };
    let session = Database::in_memory(options).unwrap().session().unwrap();
    let sql = "SELECT l_comment, o_comment FROM tpch('lineitem', 0.1) AS l JOIN tpch('orders', 0.1) AS o
               ON l_orderkey = o_orderkey";
    let mut query = session.sql(sql).await.unwrap();
    let first = futures::StreamExt::next(&mut query).await.unwrap().unwrap();
    assert!(first.num_rows() > 0);
    let spilled_bytes = || -> u64 {
        let folders = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let files = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap());
        files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
    };
    assert!(spilled_bytes() > 1 << 20, "{}", spilled_bytes());
    drop(query);
    drop(session);
    // Its workers are cancelled, not waited for: the last one takes the folder with it.
    let start = Instant::now();
    while std::fs::read_dir(folder.path()).unwrap().count() > 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "temporary files are left");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_table_in_memory_counts_against_the_limit() {
    let options = Options { memory_limit: Some(8 << 20), ..Options::default() };
    let session = Database::in_memory(options).unwrap().session().unwrap();
    let error =
        session.run("CREATE TABLE t AS SELECT * FROM tpch('orders', 0.1)").await.unwrap_err().to_string();
    assert!(error.contains("table 't' does not fit into the memory limit"), "{error}");
    session.run("CREATE TABLE t AS SELECT * FROM tpch('nation')").await.unwrap();
    assert!(session.governor().used_bytes() > 0);
    session.run("DROP TABLE t").await.unwrap();
    assert_eq!(session.governor().used_bytes(), 0);
}

/// Even with writes in flight, which nobody waits for.
#[test]
fn a_cancelled_build_leaves_nothing_when_the_runtime_ends() {
    for millis in [20, 50, 100, 200, 400] {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let options = Options {
                memory_limit: Some(8 << 20),
                temp_directory: Some(folder.path().to_path_buf()),
                threads: Some(2),
                ..Options::default()
            };
            let session = Database::in_memory(options).unwrap().session().unwrap();
            let sql = "SELECT min(o_comment) FROM tpch('lineitem', 20) JOIN tpch('orders', 20)
                       ON l_orderkey = o_orderkey";
            let mut query = session.sql(sql).await.unwrap();
            let running = tokio::spawn(async move { futures::StreamExt::next(&mut query).await });
            tokio::time::sleep(Duration::from_millis(millis)).await;
            running.abort();
            assert!(running.await.unwrap_err().is_cancelled());
        });
        runtime.shutdown_timeout(Duration::from_secs(20));
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 0, "cancelled after {millis} ms");
    }
}

/// 3 GB of text in all, and more than an array of 8,192 rows can hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_computed_texts_come_in_small_batches() {
    let options = Options { memory_limit: Some(64 << 20), threads: Some(2), ..Options::default() };
    let session = Database::in_memory(options).unwrap().session().unwrap();
    let sql = "SELECT value AS i, repeat('x', 300000) || value AS t FROM generate_series(1, 10000) AS series(value)";
    let mut query = session.sql(sql).await.unwrap();
    let (mut rows, mut widest) = (0, 0);
    while let Some(batch) = query.try_next().await.unwrap() {
        rows += batch.num_rows();
        widest = widest.max(batch.get_array_memory_size());
    }
    assert_eq!(rows, 10_000);
    assert!(widest < 8 << 20, "a batch of {widest} bytes");
}

/// Rows that pass a filter and lie scattered: a list of them would be larger than the column.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filters_of_parquet_scans_are_coarse_where_memory_is_short() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("numbers.parquet");
    let database = Database::in_memory(Options { threads: Some(1), ..Options::default() }).unwrap();
    let roomy = session(&database, "2GB");
    let copy = format!(
        "COPY (SELECT value * 7919 % 400000 AS k, value % 7 AS v FROM generate_series(1, 400000) AS series(value)) TO '{}'",
        file.display()
    );
    roomy.run(&copy).await.unwrap();
    let cramped = session(&database, "16MB");
    for condition in ["k % 3 > 0", "k % 1000 = 7", "k BETWEEN 1000 AND 200000 AND v <> 3"] {
        let sql = format!("SELECT count(*), sum(k), sum(v) FROM '{}' WHERE {condition}", file.display());
        let answer = async |session: &Session| {
            let query = session.sql(&sql).await.unwrap();
            let plan = query.plan().unwrap();
            let has_filter = datafusion::physical_plan::displayable(plan.as_ref())
                .indent(false)
                .to_string()
                .contains("FilterExec");
            (pretty_format_batches(&query.collect().await.unwrap()).unwrap().to_string(), has_filter)
        };
        let (expected, is_above) = answer(&roomy).await;
        assert!(!is_above, "with much memory the scan filters alone");
        assert_eq!(answer(&cramped).await, (expected, true), "{condition}");
    }
}
