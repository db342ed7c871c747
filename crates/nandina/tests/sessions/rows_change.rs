//! Transactions of several sessions, and what becomes of them when a database is closed, copied or only read.

use arrow::util::display::array_value_to_string;
use nandina::{Database, Options, Session};

pub(crate) async fn run(session: &Session, statements: &str) {
    session.run(statements).await.unwrap();
}

/// The rows of a query, with commas between values.
pub(crate) async fn rows(session: &Session, query: &str) -> Vec<String> {
    let batches = session.sql(query).await.unwrap().collect().await.unwrap();
    let mut rows = Vec::new();
    for batch in &batches {
        for row in 0..batch.num_rows() {
            let value = |column: &arrow::array::ArrayRef| array_value_to_string(column, row).unwrap();
            rows.push(batch.columns().iter().map(value).collect::<Vec<_>>().join(","));
        }
    }
    rows.sort();
    rows
}

pub(crate) async fn error(session: &Session, statement: &str) -> String {
    match session.sql(statement).await {
        Ok(query) => query.collect().await.unwrap_err().to_string(),
        Err(error) => error.to_string(),
    }
}

pub(crate) fn session(database: &Database) -> Session {
    database.session().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_sees_one_state() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path(), Options::default()).unwrap();
    let reset = "DELETE FROM test; INSERT INTO test VALUES (1, 10), (2, 20)";
    has_snapshots(&database, "id INTEGER PRIMARY KEY", reset).await;
}

/// The same of tables whose rows are in segments, where they are left at each change, or beside them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_sees_one_state_of_segments() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path(), Options::default()).unwrap();
    let in_heap = "DELETE FROM test; INSERT INTO test VALUES (1, 10), (2, 20)";
    has_snapshots(&database, "id INTEGER", &format!("{in_heap}; VACUUM test")).await;
    run(&session(&database), "DROP TABLE test").await;
    has_snapshots(&database, "id INTEGER", in_heap).await;
    has_snapshots(&Database::in_memory(Options::default()).unwrap(), "id INTEGER", in_heap).await;
}

/// After the cases of Hermitage (Martin Kleppmann): which anomalies snapshot isolation has.
async fn has_snapshots(database: &Database, id: &str, reset: &str) {
    let (one, two) = (session(database), session(database));
    run(&one, &format!("CREATE TABLE test ({id}, value INTEGER)")).await;
    let all = "SELECT * FROM test";

    // Dirty write (G0): the second writer is told.
    run(&one, reset).await;
    run(&one, "BEGIN; UPDATE test SET value = 11 WHERE id = 1").await;
    run(&two, "BEGIN").await;
    let message = error(&two, "UPDATE test SET value = 12 WHERE id = 1").await;
    assert!(message.contains("another transaction changes the same row"), "{message}");
    run(&two, "ROLLBACK").await;
    run(&one, "COMMIT").await;
    assert_eq!(rows(&two, all).await, ["1,11", "2,20"]);

    // Aborted and intermediate reads (G1a, G1b).
    run(&one, reset).await;
    run(&one, "BEGIN; UPDATE test SET value = 101 WHERE id = 1").await;
    run(&two, "BEGIN").await;
    assert_eq!(rows(&two, all).await, ["1,10", "2,20"]);
    run(&one, "UPDATE test SET value = 11 WHERE id = 1; ROLLBACK").await;
    assert_eq!(rows(&two, all).await, ["1,10", "2,20"]);
    run(&two, "COMMIT").await;

    // Read skew (G-single) and phantoms (PMP), also for rows that an index finds.
    run(&two, "BEGIN").await;
    assert_eq!(rows(&two, "SELECT value FROM test WHERE id = 1").await, ["10"]);
    run(&one, "UPDATE test SET value = value + 2; INSERT INTO test VALUES (3, 30)").await;
    assert_eq!(rows(&two, "SELECT value FROM test WHERE id = 2").await, ["20"]);
    assert_eq!(rows(&two, "SELECT count(*) FROM test WHERE id IN (2, 3)").await, ["1"]);
    assert_eq!(rows(&two, all).await, ["1,10", "2,20"]);
    run(&two, "COMMIT").await;
    assert_eq!(rows(&two, all).await, ["1,12", "2,22", "3,30"]);

    // Lost update (P4): the first one wins, though it has ended.
    run(&one, reset).await;
    run(&two, "BEGIN").await;
    assert_eq!(rows(&two, "SELECT value FROM test WHERE id = 1").await, ["10"]);
    run(&one, "UPDATE test SET value = 11 WHERE id = 1").await;
    let message = error(&two, "UPDATE test SET value = 12 WHERE id = 1").await;
    assert!(message.contains("another transaction changes the same row"), "{message}");
    run(&two, "ROLLBACK").await;

    // Write skew (G2-item) is what snapshot isolation lets happen.
    run(&one, reset).await;
    run(&one, "BEGIN; UPDATE test SET value = 11 WHERE id = 1").await;
    run(&two, "BEGIN; UPDATE test SET value = 21 WHERE id = 2").await;
    run(&one, "COMMIT").await;
    run(&two, "COMMIT").await;
    assert_eq!(rows(&two, all).await, ["1,11", "2,21"]);

    if !id.contains("KEY") {
        return;
    }
    // A key that another transaction may yet have, and one that comes back within a transaction.
    run(&one, "BEGIN; INSERT INTO test VALUES (4, 40)").await;
    let message = error(&two, "INSERT INTO test VALUES (4, 41)").await;
    assert!(message.contains("another transaction"), "{message}");
    run(&one, "UPDATE test SET id = 5 WHERE id = 4; UPDATE test SET id = 4 WHERE id = 5; COMMIT").await;
    assert_eq!(rows(&two, "SELECT * FROM test WHERE id = 4").await, ["4,40"]);
    assert_eq!(rows(&two, "SELECT * FROM test WHERE id = 5").await, [] as [&str; 0]);
    let message = error(&two, "INSERT INTO test VALUES (4, 41)").await;
    assert!(message.contains("has a row with id = 4 already"), "{message}");
}

#[tokio::test]
async fn what_is_committed_is_there_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let reading = || Options { read_only: true, ..Options::default() };
    {
        let database = Database::open(&path, Options::default()).unwrap();
        let session = session(&database);
        run(&session, "CREATE TABLE t (id BIGINT PRIMARY KEY, s VARCHAR)").await;
        run(&session, "INSERT INTO t SELECT range, 'row ' || range FROM range(5000)").await;
        run(
            &session,
            "CREATE INDEX by_s ON t (s); SET durability = 'relaxed'; DELETE FROM t WHERE id % 2 = 0",
        )
        .await;
        run(&session, "BEGIN; DELETE FROM t").await;
        // While it is open here, rows that change are not for other processes to read.
        let other = Database::open(&path, reading()).unwrap().session().unwrap();
        let message = error(&other, "SELECT count(*) FROM t").await;
        assert!(message.contains("close it there"), "{message}");
    }
    {
        let other = Database::open(&path, reading()).unwrap().session().unwrap();
        assert_eq!(rows(&other, "SELECT count(*), min(id) FROM t").await, ["2500,1"]);
        assert_eq!(rows(&other, "SELECT id FROM t WHERE s = 'row 77'").await, ["77"]);
        let message = error(&other, "DELETE FROM t").await;
        assert!(message.contains("read"), "{message}");
    }
    let database = Database::open(&path, Options::default()).unwrap();
    let session = session(&database);
    assert_eq!(rows(&session, "SELECT count(*), min(id) FROM t").await, ["2500,1"]);
    assert_eq!(rows(&session, "SELECT id FROM t WHERE s = 'row 77'").await, ["77"]);
    assert_eq!(rows(&session, "SELECT id FROM t WHERE id = 78").await, [] as [&str; 0]);
    run(&session, "CHECKPOINT").await;
    let mut lines = 0;
    nandina::list_log(&path, &Options::default(), |_| lines += 1).unwrap();
    run(&session, "UPDATE t SET s = 'other' WHERE id = 1").await;
    let before = std::mem::take(&mut lines);
    nandina::list_log(&path, &Options::default(), |_| lines += 1).unwrap();
    assert!(lines > before, "{lines} lines after {before}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_is_one_state() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path().join("db"), Options::default()).unwrap();
    let (writer, copier) = (session(&database), session(&database));
    run(&writer, "CREATE TABLE plain AS SELECT range AS x FROM range(1000)").await;
    run(&writer, "CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance BIGINT)").await;
    run(&writer, "INSERT INTO accounts SELECT range, 100 FROM range(200)").await;
    let writing = tokio::spawn(async move {
        for turn in 0..150 {
            let (from, to) = (turn * 7 % 200, turn * 13 % 200);
            run(&writer, "BEGIN").await;
            run(&writer, &format!("UPDATE accounts SET balance = balance - 5 WHERE id = {from}")).await;
            run(&writer, &format!("UPDATE accounts SET balance = balance + 5 WHERE id = {to}")).await;
            run(&writer, "COMMIT").await;
        }
    });
    for number in 0..3 {
        let copy = folder.path().join(format!("copy{number}"));
        let into = format!("VACUUM INTO '{}'", copy.display());
        run(&copier, &into).await;
        assert!(error(&copier, &into).await.contains("is not empty"));
        let copied = Database::open(&copy, Options::default()).unwrap().session().unwrap();
        assert_eq!(rows(&copied, "SELECT count(*), sum(balance)::BIGINT FROM accounts").await, ["200,20000"]);
        assert_eq!(rows(&copied, "SELECT count(*) FROM plain").await, ["1000"]);
        assert_eq!(rows(&copied, "SELECT count(*) FROM accounts WHERE id = 17").await, ["1"]);
    }
    writing.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_not_changed_under_a_query() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path(), Options::default()).unwrap();
    let one = session(&database);
    run(&one, "CREATE TABLE t AS SELECT range AS k FROM range(100000); DELETE FROM t WHERE k < 10").await;
    run(&one, "INSERT INTO t VALUES (-1)").await;
    run(&one, "BEGIN").await;
    let mut query = one.sql("SELECT * FROM t").await.unwrap();
    let first = futures::StreamExt::next(&mut query).await.unwrap().unwrap();
    assert!(first.num_rows() > 0);
    let message = error(&one, "UPDATE t SET k = -k").await;
    assert!(message.contains("are still being read"), "{message}");
    drop(query);
    run(&one, "UPDATE t SET k = -k - 1000000").await;
    assert_eq!(
        rows(&one, "SELECT count(*), count(DISTINCT k), max(k) FROM t").await,
        ["99991,99991,-999999"]
    );
    run(&one, "COMMIT").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_follow_a_table_that_leaves_memory() {
    let database = Database::in_memory(Options::default()).unwrap();
    let (one, two) = (session(&database), session(&database));
    run(&two, "CREATE TABLE t AS SELECT range AS k FROM range(10)").await;
    run(&one, "CREATE TEMP VIEW v AS SELECT sum(k)::BIGINT FROM t").await;
    assert_eq!(rows(&one, "SELECT * FROM v").await, ["45"]);
    // A statement that inserts keeps the table where it is.
    let insert = one.sql("INSERT INTO t VALUES (100)").await.unwrap();
    let message = error(&two, "UPDATE t SET k = k + 1").await;
    assert!(message.contains("cannot be changed while others are inserted"), "{message}");
    insert.drain().await.unwrap();
    let late = one.sql("INSERT INTO t VALUES (1000)").await.unwrap();
    drop(late);
    run(&two, "UPDATE t SET k = k + 1").await;
    assert_eq!(rows(&one, "SELECT * FROM v").await, ["156"]);
    run(&two, "CREATE OR REPLACE TABLE t AS SELECT 7 AS k").await;
    assert_eq!(rows(&one, "SELECT * FROM v").await, ["7"]);
    run(&two, "DELETE FROM t; DROP TABLE t; CREATE TABLE t AS SELECT 8 AS k").await;
    assert_eq!(rows(&one, "SELECT * FROM v").await, ["8"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_segments_are_there_again() {
    let (folder, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let all = "SELECT count(*), sum(k)::BIGINT, count(name) FROM t";
    let copy_of = copy.path().join("copy");
    {
        let database = Database::open(folder.path(), Options::default()).unwrap();
        let one = session(&database);
        run(&one, "CREATE TABLE t AS SELECT range AS k, 'row' AS name FROM range(50000)").await;
        run(&one, "DELETE FROM t WHERE k % 2 = 0; UPDATE t SET name = NULL WHERE k < 100").await;
        run(&one, "INSERT INTO t SELECT range + 50000, 'more' FROM range(20000)").await;
        assert_eq!(rows(&one, all).await, ["45000,1824990000,44950"]);
        run(&one, &format!("VACUUM INTO '{}'", copy_of.display())).await;
        run(&one, "BEGIN; DELETE FROM t").await;
    }
    for path in [folder.path(), copy_of.as_path()] {
        for options in [Options { read_only: true, ..Options::default() }, Options::default()] {
            let database = Database::open(path, options).unwrap();
            assert_eq!(rows(&session(&database), all).await, ["45000,1824990000,44950"]);
        }
        let database = Database::open(path, Options::default()).unwrap();
        let (one, two) = (session(&database), session(&database));
        run(&two, "BEGIN; DELETE FROM t WHERE k = 1").await;
        run(&two, "ROLLBACK").await;
        run(&one, "VACUUM t").await;
        assert_eq!(rows(&one, all).await, ["45000,1824990000,44950"]);
        run(&one, "UPDATE t SET k = 0 WHERE k = 1").await;
        assert_eq!(rows(&one, all).await, ["45000,1824989999,44950"]);
    }
}

fn files(folder: &std::path::Path) -> usize {
    std::fs::read_dir(folder).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_file()).count()
}

fn segments(folder: &std::path::Path) -> usize {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().ends_with(".pax")).count()
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !is_so().await {
        assert!(begin.elapsed() < std::time::Duration::from_secs(120), "{what}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

fn unattended() -> Options {
    Options { background_vacuum: false, ..Options::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_inserts_leave_few_files() {
    let folder = tempfile::tempdir().unwrap();
    let all = "SELECT count(*), sum(k)::BIGINT, count(DISTINCT name), min(at) FROM t";
    let expected = ["2000,1999000,2000,2020-01-01"];
    {
        let database = Database::open(folder.path(), unattended()).unwrap();
        let (one, two) = (session(&database), session(&database));
        run(&one, "CREATE TABLE t (k BIGINT NOT NULL, name VARCHAR, at DATE DEFAULT DATE '2020-01-01')")
            .await;
        assert!(error(&one, "INSERT INTO t (name) VALUES ('x')").await.to_lowercase().contains("null"));
        // Two sessions at the same time, into a table that has had no rows.
        let other = tokio::spawn(async move {
            for number in 1000..2000 {
                run(&two, &format!("INSERT INTO t (k, name) VALUES ({number}, 'row {number}')")).await;
            }
        });
        for number in 0..1000 {
            run(&one, &format!("INSERT INTO t (k, name) VALUES ({number}, 'row {number}')")).await;
        }
        other.await.unwrap();
        assert_eq!(rows(&one, all).await, expected);
        assert_eq!(segments(folder.path()), 0);
        assert!(files(folder.path()) < 12, "{} files", files(folder.path()));
    }
    let database = Database::open(folder.path(), unattended()).unwrap();
    let one = session(&database);
    assert_eq!(rows(&one, all).await, expected);
    // Many rows are a segment, and many bytes.
    run(&one, "INSERT INTO t SELECT range, 'many', NULL FROM range(10001)").await;
    assert_eq!(segments(folder.path()), 1);
    run(&one, "INSERT INTO t SELECT range, repeat('x', 10000), NULL FROM range(1000)").await;
    assert_eq!(segments(folder.path()), 2);
    run(&one, "INSERT INTO t SELECT range, 'few', NULL FROM range(10000)").await;
    assert_eq!(segments(folder.path()), 2);
    assert_eq!(rows(&one, "SELECT count(*) FROM t").await, ["23001"]);
    run(&one, "VACUUM").await;
    assert_eq!(rows(&one, "SELECT count(*), count(at) FROM t").await, ["23001,2000"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_rows_go_back_into_segments_by_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path(), Options::default()).unwrap();
    let (one, two) = (session(&database), session(&database));
    run(&one, "CREATE TABLE t AS SELECT range AS k, 0 AS n FROM range(100000)").await;
    run(&one, "CREATE TABLE keyed (k INTEGER PRIMARY KEY); INSERT INTO keyed VALUES (1), (2)").await;
    run(&one, "PREPARE change AS UPDATE t SET n = n + 1 WHERE k % 10 = 7").await;
    run(&one, "EXECUTE change; DELETE FROM t WHERE k % 10 = 3; INSERT INTO t VALUES (-1, 5)").await;
    let all = "SELECT count(*), sum(n)::BIGINT, min(k), count(DISTINCT k) FROM t";
    assert_eq!(rows(&one, all).await, ["90001,10005,-1,90001"]);
    // One that may change what it has found keeps it where it is.
    run(&two, "BEGIN").await;
    assert_eq!(rows(&two, all).await, ["90001,10005,-1,90001"]);
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    let plan = "EXPLAIN SELECT k FROM t";
    assert!(rows(&one, plan).await.concat().contains("RowScanExec"));
    run(&two, "UPDATE t SET n = n + 1 WHERE k = -1; COMMIT").await;
    // A query that has begun sees one state to its end.
    let mut query = two.sql("SELECT k, n FROM t").await.unwrap();
    let first = futures::StreamExt::next(&mut query).await.unwrap().unwrap();
    until("rows go back", async || !rows(&one, plan).await.concat().contains("RowScanExec")).await;
    run(&one, "UPDATE t SET n = 1000").await;
    let rest = query.collect().await.unwrap();
    assert_eq!(first.num_rows() + rest.iter().map(|batch| batch.num_rows()).sum::<usize>(), 90001);
    let largest = |batch: &arrow::array::RecordBatch| {
        let column = arrow::compute::cast(batch.column(1), &arrow::datatypes::DataType::Int64).unwrap();
        arrow::compute::max(arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>(&column))
    };
    assert!(rest.iter().chain([&first]).all(|batch| largest(batch) <= Some(6)));
    until("rows go back again", async || !rows(&one, plan).await.concat().contains("RowScanExec")).await;
    // A statement that was prepared before goes on.
    run(&one, "EXECUTE change").await;
    assert_eq!(rows(&one, all).await, ["90001,90011000,-1,90001"]);
    assert_eq!(rows(&one, "SELECT * FROM keyed").await, ["1", "2"]);
    // The statement that was prepared has one of them.
    until("few files are left", async || segments(folder.path()) <= 2).await;
    // The thread ends with the database, which can be opened again.
    drop((one, two, database));
    let database = Database::open(folder.path(), Options::default()).unwrap();
    assert_eq!(rows(&session(&database), all).await, ["90001,90011000,-1,90001"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn background_vacuum_is_a_setting() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path(), unattended()).unwrap();
    let one = session(&database);
    let setting = "SHOW background_vacuum";
    assert_eq!(rows(&one, setting).await, ["background_vacuum,off"]);
    run(&one, "CREATE TABLE t (k BIGINT); INSERT INTO t VALUES (1)").await;
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    assert_eq!(segments(folder.path()), 0);
    run(&one, "SET background_vacuum = on").await;
    assert_eq!(rows(&one, setting).await, ["background_vacuum,on"]);
    until("rows go into a segment", async || segments(folder.path()) == 1).await;
    // Then others can read them beside the process that writes.
    until("the table is one of segments", async || {
        let reading = Options { read_only: true, ..Options::default() };
        let other = Database::open(folder.path(), reading).unwrap();
        let query = session(&other).sql("SELECT * FROM t").await;
        match query {
            Ok(query) => query.collect().await.is_ok(),
            Err(_) => false,
        }
    })
    .await;
    run(&one, "RESET background_vacuum").await;
    assert_eq!(rows(&one, setting).await, ["background_vacuum,off"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_closed_is_for_many_readers() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..5 {
        let database = Database::open(folder.path(), Options::default()).unwrap();
        let one = session(&database);
        run(&one, "CREATE TABLE IF NOT EXISTS t (k BIGINT)").await;
        run(&one, &format!("INSERT INTO t VALUES ({number})")).await;
    }
    assert_eq!(segments(folder.path()), 1);
    let reading = || Options { read_only: true, ..Options::default() };
    let (one, two) = (Database::open(folder.path(), reading()), Database::open(folder.path(), reading()));
    for database in [one.unwrap(), two.unwrap()] {
        assert_eq!(rows(&session(&database), "SELECT count(*), sum(k)::BIGINT FROM t").await, ["5,10"]);
    }
}

/// Rows come in all the time, and go into segments all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_come_in_are_not_in_the_way() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path(), Options::default()).unwrap();
    let (one, two) = (session(&database), session(&database));
    run(&one, "SET durability = relaxed; CREATE TABLE t (k BIGINT, text VARCHAR)").await;
    let begin = std::time::Instant::now();
    let mut number = 0;
    while segments(folder.path()) == 0 {
        assert!(begin.elapsed() < std::time::Duration::from_secs(120), "rows stay in the heap");
        let text = format!("INSERT INTO t SELECT range + {number}, repeat('x', 500) FROM range(100)");
        run(&one, &text).await;
        number += 100;
        let seen = rows(&two, "SELECT count(*), count(DISTINCT k), max(k) FROM t").await;
        assert_eq!(seen, [format!("{number},{number},{}", number - 1)]);
    }
    let seen = rows(&two, "SELECT count(*), count(DISTINCT k), max(k) FROM t").await;
    assert_eq!(seen, [format!("{number},{number},{}", number - 1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_of_segments_is_made_beside_transactions() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path(), unattended()).unwrap();
    let (one, two) = (session(&database), session(&database));
    run(&one, "CREATE TABLE t AS SELECT range AS k, range % 10 AS g FROM range(50000)").await;
    // One that only reads is not waited for, and sees what it saw.
    run(&two, "BEGIN").await;
    assert_eq!(rows(&two, "SELECT count(*) FROM t WHERE k < 10").await, ["10"]);
    run(&one, "DELETE FROM t WHERE k = 3; CREATE INDEX t_g ON t (g)").await;
    assert_eq!(rows(&two, "SELECT k FROM t WHERE g = 3 AND k < 20").await, ["13", "3"]);
    run(&two, "COMMIT").await;
    assert_eq!(rows(&two, "SELECT k FROM t WHERE g = 3 AND k < 20").await, ["13"]);
    // One that has changed something is, and goes on meanwhile.
    run(&two, "BEGIN; UPDATE t SET g = 100 WHERE k = 5; INSERT INTO t VALUES (60000, 100)").await;
    let making = tokio::spawn(async move {
        run(&one, "CREATE UNIQUE INDEX t_k ON t (k)").await;
        one
    });
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert!(!making.is_finished());
    assert_eq!(rows(&two, "SELECT k FROM t WHERE g = 100").await, ["5", "60000"]);
    run(&two, "DELETE FROM t WHERE k = 7; INSERT INTO t VALUES (7, 100), (60001, 0); COMMIT").await;
    let one = making.await.unwrap();
    let hold = async |session: &Session| {
        assert_eq!(rows(session, "SELECT g FROM t WHERE k = 5").await, ["100"]);
        assert_eq!(rows(session, "SELECT k FROM t WHERE k IN (3, 7, 60000, 70000)").await, ["60000", "7"]);
        assert_eq!(rows(session, "SELECT k FROM t WHERE g = 100").await, ["5", "60000", "7"]);
        let joined =
            "SELECT count(*), sum(t.g)::BIGINT FROM (VALUES (5), (3), (49999)) AS v(k) JOIN t ON t.k = v.k";
        assert_eq!(rows(session, joined).await, ["2,109"]);
        let plan = rows(session, "EXPLAIN SELECT g FROM t WHERE k = 5").await.concat();
        assert!(plan.contains("IndexedScanExec") && plan.contains("index=t_k, keys=1"), "{plan}");
    };
    hold(&one).await;
    hold(&two).await;
    let message = error(&two, "INSERT INTO t VALUES (5, 0)").await;
    assert!(message.contains("has a row with k = 5 already"), "{message}");
    // A key that another transaction may yet give up, or keep.
    run(&one, "BEGIN; DELETE FROM t WHERE k = 9").await;
    let message = error(&two, "INSERT INTO t VALUES (9, 0)").await;
    assert!(message.contains("another transaction"), "{message}");
    run(&one, "ROLLBACK").await;
    drop((one, two, database));
    for read_only in [true, false] {
        let options = Options { read_only, ..unattended() };
        let database = Database::open(folder.path(), options).unwrap();
        hold(&session(&database)).await;
    }
}
