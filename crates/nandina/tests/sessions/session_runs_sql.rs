//! Statements run in a session and return their rows.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use arrow::array::AsArray as _;
use arrow::datatypes::Int64Type;
use arrow::util::pretty::pretty_format_batches;
use nandina::{Answer, Database, Options, Session};

fn session() -> Session {
    Database::in_memory(Options::default()).unwrap().session().unwrap()
}

async fn table(session: &Session, text: &str) -> String {
    pretty_format_batches(&session.sql(text).await.unwrap().collect().await.unwrap()).unwrap().to_string()
}

#[tokio::test]
async fn the_last_statement_gives_the_result() {
    let session = session();
    let text = table(
        &session,
        "CREATE TABLE t (a INT, b TEXT); INSERT INTO t VALUES (1, 'x'), (2, NULL); SELECT * FROM t",
    )
    .await;
    assert_eq!(text, "+---+---+\n| a | b |\n+---+---+\n| 1 | x |\n| 2 |   |\n+---+---+");
    assert_eq!(session.table_names(), ["t"]);
}

#[tokio::test]
async fn answers_say_what_they_are() {
    let session = session();
    assert_eq!(session.sql("SELECT 1").await.unwrap().answer(), Answer::Rows);
    assert_eq!(session.sql("CREATE TABLE u (a INT)").await.unwrap().answer(), Answer::Nothing);
    assert_eq!(session.sql("CREATE TABLE u AS SELECT 1 AS a").await.unwrap().answer(), Answer::RowsWritten);
    session.run("CREATE TABLE t (a INT)").await.unwrap();
    assert_eq!(session.sql("INSERT INTO t VALUES (2)").await.unwrap().answer(), Answer::RowsWritten);
    assert_eq!(session.sql("EXPLAIN SELECT 1").await.unwrap().answer(), Answer::Text);
    assert_eq!(session.sql("-- nothing").await.unwrap().answer(), Answer::Nothing);
}

#[tokio::test]
async fn only_rows_of_tables_are_changed() {
    let session = session();
    session.run("CREATE TABLE t AS SELECT 1 AS a; CREATE VIEW v AS SELECT * FROM t").await.unwrap();
    for statement in [
        "DELETE FROM v WHERE a IN (SELECT a FROM t)",
        "UPDATE v SET a = 2",
        "TRUNCATE TABLE v",
        "EXPLAIN ANALYZE DELETE FROM v",
    ] {
        let message = session.sql(statement).await.err().unwrap().to_string();
        assert!(message.contains("cannot be changed or deleted"), "{statement}: {message}");
    }
    assert!(table(&session, "SELECT count(*) AS n FROM t").await.contains("| 1 |"));
}

#[tokio::test]
async fn mistakes_get_suggestions() {
    let session = session();
    session.run("CREATE TABLE customers AS SELECT 1 AS custkey, 'a' AS name").await.unwrap();
    let error = async |text: &str| session.sql(text).await.err().unwrap().to_string();
    assert_eq!(
        error("SELECT * FROM customer").await,
        "there is no table 'customer'; did you mean 'customers'?"
    );
    assert_eq!(
        error("SELECT cusktey FROM customers").await,
        "there is no column 'cusktey'; did you mean 'custkey'?"
    );
    assert!(error("SELEC 1").await.starts_with("syntax error: expected"));
    assert_eq!(error("DROP TABLE nothing").await, "there is no table 'nothing'; there are: customers");
}

#[tokio::test]
async fn views_are_kept_with_the_database() {
    let folder = tempfile::tempdir().unwrap();
    let open = |options: Options| Database::open(folder.path(), options).unwrap().session().unwrap();
    let session = open(Options::default());
    session
        .run(
            "CREATE TABLE t AS SELECT value AS x FROM generate_series(1, 5) AS series(value);
             CREATE VIEW late AS SELECT x * 2 AS y FROM t WHERE x > 2;
             CREATE VIEW total AS SELECT sum(y) AS s FROM late;
             CREATE VIEW gone AS SELECT 1 AS one; DROP VIEW gone;
             CREATE VIEW changed AS SELECT 1 AS one; CREATE OR REPLACE VIEW changed AS SELECT 2 AS two",
        )
        .await
        .unwrap();
    drop(session);

    let session = open(Options::default());
    assert_eq!(session.table_names(), ["changed", "late", "t", "total"]);
    assert!(table(&session, "SELECT * FROM total").await.contains("| 24 |"));
    assert!(table(&session, "SELECT * FROM changed").await.contains("| two |"));
    session.run("INSERT INTO t VALUES (10)").await.unwrap();
    assert!(table(&session, "SELECT * FROM total").await.contains("| 44 |"));
    // A view of a view that is made anew from the former is made of itself when both are planned anew.
    session.run("CREATE OR REPLACE VIEW late AS SELECT s AS y FROM total").await.unwrap();
    drop(session);

    let session = open(Options::default());
    let message = session.sql("SELECT * FROM total").await.err().unwrap().to_string();
    assert!(message.contains("view 'total' is made of itself"), "{message}");
    session.run("CREATE OR REPLACE VIEW late AS SELECT x AS y FROM t; DROP TABLE t").await.unwrap();
    drop(session);

    let session = open(Options::default());
    let message = session.sql("SELECT * FROM late").await.err().unwrap().to_string();
    assert!(message.contains("view 'late' cannot be used any more: there is no table 't'"), "{message}");
    assert!(table(&session, "SHOW TABLES").await.contains("| late    |"));
    session.run("DROP VIEW late; DROP VIEW total").await.unwrap();
    assert_eq!(session.table_names(), ["changed"]);
    drop(session);

    let session = open(Options { read_only: true, ..Options::default() });
    assert!(table(&session, "SELECT * FROM changed").await.contains("| 2   |"));
    let message = session.sql("DROP VIEW changed").await.err().unwrap().to_string();
    assert!(message.contains("read-only") || message.contains("only"), "{message}");
    assert!(table(&session, "SELECT * FROM changed").await.contains("| 2   |"));
}

#[tokio::test]
async fn a_view_is_not_a_table_and_keeps_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let session = Database::open(folder.path(), Options::default()).unwrap().session().unwrap();
    session.run("CREATE TABLE t AS SELECT 1 AS a; CREATE VIEW v AS SELECT a FROM t").await.unwrap();
    for (statement, expected) in [
        ("CREATE TABLE v AS SELECT 1 AS a", "there is a view 'v' already"),
        ("CREATE OR REPLACE TABLE v AS SELECT 1 AS a", "'v' is a view"),
        ("DROP TABLE v", "'v' is a view"),
        ("CREATE VIEW t AS SELECT 1 AS a", "there is a table 't' already"),
        ("CREATE VIEW v AS SELECT 2 AS a", "there is a view 'v' already"),
        ("DROP VIEW t", "'t' is a table"),
    ] {
        let message = session.sql(statement).await.err().unwrap().to_string();
        assert!(message.contains(expected), "{statement}: {message}");
    }
    assert!(table(&session, "SELECT a FROM v").await.contains("| 1 |"));
}

#[tokio::test]
async fn the_first_line_of_a_csv_file_is_a_header_only_if_it_looks_like_one() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let session = session();
    for (text, rows) in [
        ("id,name\n1,a\n2,b\n", 2),
        ("1,a\n2,b\n", 2),
        ("name,city\nada,london\n", 1),
        ("2024-07-01;1,5\n2024-07-02;2,5\n", 2),
    ] {
        let path = write("some.csv", text);
        let count = table(&session, &format!("SELECT count(*) AS n FROM '{path}'")).await;
        assert!(count.contains(&format!("| {rows} |")), "{text}: {count}");
    }
    session.run("CREATE TABLE people (name TEXT, city TEXT)").await.unwrap();
    for (text, rows) in
        [("ada,london\ngrace,new york\n", 2), ("City,Name\nlondon,ada\n", 3), ("NAME,city\nx,y\n", 4)]
    {
        let path = write("people.csv", text);
        session.run(&format!("COPY people FROM '{path}'")).await.unwrap();
        let count = table(&session, "SELECT count(*) AS n FROM people").await;
        assert!(count.contains(&format!("| {rows} |")), "{text}: {count}");
    }
}

#[tokio::test]
async fn explain_shows_what_was_expected_of_ways_that_were_not_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path().join("db"), Options::default()).unwrap();
    let session = database.session().unwrap();
    // Too large to be left aside when columns could be fetched later.
    let rows = "SELECT range AS k, md5(range::TEXT) || md5((range + 1)::TEXT) AS text FROM range(200000)";
    session.run(&format!("CREATE TABLE t AS {rows}")).await.unwrap();
    let estimated = async |sql: &str| -> String {
        let text = table(&session, sql).await;
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("estimated=[")).collect();
        assert_eq!(lines.len(), 1, "{text}");
        lines[0].to_owned()
    };
    for analyze in ["", " ANALYZE VERBOSE"] {
        let sort = estimated(&format!("EXPLAIN{analyze} SELECT * FROM t ORDER BY k DESC")).await;
        assert!(sort.contains("ExternalSortExec"), "{sort}");
        assert!(sort.contains("estimated=[rows 200000, ssd ") && sort.contains(" ms, merge "), "{sort}");
        let sql = format!("EXPLAIN{analyze} SELECT a.k, b.text FROM t a JOIN t b ON a.k = b.k");
        let join = estimated(&sql).await;
        assert!(join.contains("HybridHashJoinExec") && join.contains(", grace_pax "), "{join}");
    }
    // A fetch shows it itself.
    let first = estimated("EXPLAIN SELECT * FROM t ORDER BY k LIMIT 3").await;
    assert!(first.contains("FetchExec") && first.contains("merge "), "{first}");
    session.run("SET join_algorithm = 'rare'").await.unwrap();
    let joined = estimated("EXPLAIN SELECT a.k, b.text FROM t a JOIN t b ON a.k = b.k").await;
    assert!(joined.contains("FetchExec") && joined.contains(", hybrid "), "{joined}");
}

#[tokio::test]
async fn tables_in_memory_take_what_their_rows_take() {
    // Batches of a sort's output are slices of larger ones, each of which would count as all of it.
    let options = Options { memory_limit: Some(128 << 20), ..Options::default() };
    let session = Database::in_memory(options).unwrap().session().unwrap();
    session
        .run("CREATE TABLE t AS SELECT range AS x, md5(range::VARCHAR) AS y FROM range(400000) ORDER BY y")
        .await
        .unwrap();
    let rows = session.sql("SELECT count(*) FROM t").await.unwrap().collect().await.unwrap();
    assert_eq!(rows[0].column(0).as_primitive::<Int64Type>().value(0), 400_000);
}
