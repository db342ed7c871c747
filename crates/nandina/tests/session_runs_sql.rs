//! Statements run in a session and return their rows.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

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
async fn changing_rows_is_refused() {
    let session = session();
    session.run("CREATE TABLE t AS SELECT 1 AS a").await.unwrap();
    for statement in [
        "DELETE FROM t WHERE a IN (SELECT a FROM t)",
        "UPDATE t SET a = 2",
        "TRUNCATE TABLE t",
        "EXPLAIN ANALYZE DELETE FROM t",
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
