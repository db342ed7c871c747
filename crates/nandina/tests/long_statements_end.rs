//! Statements that are nested deeply, or take longer than they may, end with a result or an error, never the process.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use std::time::{Duration, Instant};

use arrow::array::AsArray as _;
use arrow::datatypes::Int64Type;
use nandina::{Database, Error, Options, Session};

fn session() -> Session {
    Database::in_memory(Options::default()).unwrap().session().unwrap()
}

async fn number(session: &Session, sql: &str) -> i64 {
    let batches = session.sql(sql).await.unwrap().collect().await.unwrap();
    batches[0].column(0).as_primitive::<Int64Type>().value(0)
}

async fn refusal(session: &Session, sql: &str) -> Error {
    match session.sql(sql).await {
        Ok(query) => query.collect().await.err(),
        Err(error) => Some(error),
    }
    .unwrap_or_else(|| panic!("{:.100} has an answer", sql))
}

fn chain(terms: usize, operator: &str, term: impl Fn(usize) -> String) -> String {
    (0..terms).map(term).collect::<Vec<_>>().join(operator)
}

#[tokio::test]
async fn conditions_may_be_as_long_as_they_like() {
    let session = session();
    session
        .run("CREATE TABLE t AS SELECT value AS x FROM generate_series(1, 10000) AS series(value)")
        .await
        .unwrap();
    let any = chain(5000, " OR ", |i| format!("x = {i}"));
    assert_eq!(number(&session, &format!("SELECT count(*) FROM t WHERE {any}")).await, 4999);
    let all = chain(5000, " AND ", |i| format!("x <> {i}"));
    assert_eq!(number(&session, &format!("SELECT count(*) FROM t WHERE {all}")).await, 5001);
    let list = chain(5000, ", ", |i| i.to_string());
    assert_eq!(number(&session, &format!("SELECT count(*) FROM t WHERE x IN ({list})")).await, 4999);
}

#[tokio::test]
async fn unions_of_a_thousand_queries_run() {
    let sql =
        format!("SELECT count(*) FROM ({})", chain(1000, " UNION ALL ", |i| format!("SELECT {i} AS x")));
    assert_eq!(number(&session(), &sql).await, 1000);
}

#[tokio::test]
async fn what_is_nested_too_deeply_is_refused() {
    let session = session();
    for sql in [
        format!("SELECT {}", chain(10_000, " + ", |_| "1".to_owned())),
        format!("SELECT {}", chain(10_000, " || ", |_| "'a'".to_owned())),
        format!("SELECT 1{}", "::BIGINT".repeat(10_000)),
        format!("SELECT {}", chain(1_000_000, "*", |_| "1".to_owned())),
        chain(20_000, " UNION ALL ", |_| "SELECT 1".to_owned()),
    ] {
        let message = refusal(&session, &sql).await.to_string();
        assert!(message.contains("the statement is nested too deeply"), "{sql:.30}: {message}");
    }
    let message = refusal(&session, &format!("SELECT {}1{}", "(".repeat(5000), ")".repeat(5000))).await;
    assert!(message.to_string().contains("nested too deeply"), "{message}");
    assert_eq!(number(&session, "SELECT 1").await, 1, "the session goes on");
}

#[tokio::test]
async fn statements_end_when_their_time_is_up() {
    let session = session();
    session.run("SET statement_timeout = '300ms'").await.unwrap();
    let start = Instant::now();
    let endless = "WITH RECURSIVE r AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM r) SELECT count(*) FROM r";
    let pairs = "SELECT count(*) FROM generate_series(1, 1000000) a(x) JOIN generate_series(1, 1000000) b(y) ON x < y * 7";
    for sql in [endless, pairs] {
        let error = refusal(&session, sql).await;
        assert!(matches!(error, Error::TimedOut(_)), "{error}");
        assert!(error.to_string().contains("SET statement_timeout"), "{error}");
    }
    assert!(start.elapsed() < Duration::from_secs(60), "two statements of 0.3 s took {:?}", start.elapsed());
    assert_eq!(number(&session, "SELECT 1").await, 1, "the session goes on");
    // What has been done is not reported as cancelled.
    session.run("CREATE TABLE t AS SELECT 1 AS x; SET statement_timeout = '1us'").await.unwrap();
    let told = session.sql("INSERT INTO t VALUES (2)").await;
    let told = match told {
        Ok(query) => query.drain().await.is_ok(),
        Err(_) => false,
    };
    session.run("SET statement_timeout = none").await.unwrap();
    assert_eq!(number(&session, "SELECT count(*) FROM t").await, if told { 2 } else { 1 });
    session.run("RESET statement_timeout").await.unwrap();
    assert_eq!(session.settings().statement_timeout, None);
}
