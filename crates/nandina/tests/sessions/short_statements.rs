//! Statements that read or change few rows by a key are not planned each time, and mean the same.

use arrow::util::display::array_value_to_string;
use nandina::{Database, Options, ScalarValue, Session};

async fn run(session: &Session, statements: &str) {
    session.run(statements).await.unwrap();
}

fn texts(batches: &[arrow::array::RecordBatch]) -> Vec<String> {
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let value = |column: &arrow::array::ArrayRef| array_value_to_string(column, row).unwrap();
            rows.push(batch.columns().iter().map(value).collect::<Vec<_>>().join(","));
        }
    }
    rows
}

fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort();
    rows
}

/// The rows of a statement that is not planned.
async fn short(session: &Session, statement: &str) -> Vec<String> {
    let query = session.sql(statement).await.unwrap();
    assert!(query.plan().is_none(), "'{statement}' has been planned");
    sorted(texts(&query.collect().await.unwrap()))
}

/// The rows of a statement that is planned.
async fn planned(session: &Session, statement: &str) -> Vec<String> {
    let query = session.sql(statement).await.unwrap();
    assert!(query.plan().is_some(), "'{statement}' has not been planned");
    sorted(texts(&query.collect().await.unwrap()))
}

async fn error(session: &Session, statement: &str) -> String {
    match session.sql(statement).await {
        Ok(query) => query.collect().await.unwrap_err().to_string(),
        Err(error) => error.to_string(),
    }
}

/// A row store with people.
async fn people() -> (tempfile::TempDir, Database, Session) {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path(), Options::default()).unwrap();
    let session = database.session().unwrap();
    run(
        &session,
        "CREATE TABLE people (id INTEGER PRIMARY KEY, name VARCHAR, age BIGINT DEFAULT 18, wage DECIMAL(9, 2),
             born DATE, CHECK (age < 200));
         CREATE INDEX people_name ON people (name, age);
         INSERT INTO people SELECT range::INTEGER, 'p' || (range % 10), range % 7, range * 1.25,
             DATE '2000-01-01' + range::INTEGER FROM range(400)",
    )
    .await;
    (folder, database, session)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_read_by_their_keys() {
    let (_folder, _database, session) = people().await;
    assert_eq!(short(&session, "SELECT name, wage FROM people WHERE id = 7").await, ["p7,8.75"]);
    assert_eq!(short(&session, "SELECT name, wage FROM people WHERE id = 8").await, ["p8,10.00"]);
    assert_eq!(short(&session, "SELECT name FROM people WHERE id = -8").await, [""; 0]);
    for condition in [
        "id = 3",
        "3 = id AND name = 'p3'",
        "id = 3 AND name = 'p4'",
        "id BETWEEN 10 AND 20 AND age > 3",
        "id >= 195 AND wage < 247",
        "name = 'p3'",
        "name = 'p3' AND age = 3",
        "name = 'p3' AND age BETWEEN 2 AND 4",
        "name = 'p3' AND age > 5 AND age <= 6",
        "name = 'it''s'",
        "name = 'p3' AND (age = 1 OR wage > 30)",
        "name >= 'p8' AND name < 'p9' AND age IN (1, 2)",
        "id = 7 AND born IS NOT NULL AND age + 1 = 1",
    ] {
        let own = short(&session, &format!("SELECT * FROM people WHERE {condition}")).await;
        let others =
            planned(&session, &format!("WITH w AS (SELECT 1) SELECT * FROM people WHERE {condition}")).await;
        assert_eq!(own, others, "{condition}");
        let own =
            short(&session, &format!("SELECT p.wage, \"name\" FROM people AS p WHERE {condition}")).await;
        let others = planned(
            &session,
            &format!("WITH w AS (SELECT 1) SELECT wage, name FROM people WHERE {condition}"),
        )
        .await;
        assert_eq!(own, others, "{condition}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_rows_of_a_range_come_in_order() {
    let (_folder, _database, session) = people().await;
    for (condition, ids) in [
        ("id > 10 AND id < 100 ORDER BY id DESC LIMIT 2", ["99", "98"].as_slice()),
        ("id BETWEEN 10 AND 60 ORDER BY age DESC, id LIMIT 2 OFFSET 1", ["20", "27"].as_slice()),
        ("name = 'p9' AND age = 2 ORDER BY born DESC", ["359", "289", "219", "149", "79", "9"].as_slice()),
    ] {
        let query = session.sql(&format!("SELECT id FROM people WHERE {condition}")).await.unwrap();
        assert!(query.plan().is_none(), "{condition}");
        assert_eq!(texts(&query.collect().await.unwrap()), ids, "{condition}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_are_planned() {
    let (_folder, _database, session) = people().await;
    for condition in [
        "id = 3.5",
        "id = 12.0",
        "id = 5 AND 0.1 + 0.2 = 0.3",
        "id = 7 AND wage < 30.5",
        "id = 3000000000",
        "id = 1e1",
        "id = '3'",
        "id = NULL",
        "id >= 0",
        "age = 3",
        "lower(name) = 'p3'",
        "name LIKE 'p3'",
        "id = 3 OR id = 4",
        "id = 3 AND born < now()",
        "id = (SELECT max(id) FROM people)",
        "born = DATE '2000-01-03'",
    ] {
        let own = planned(&session, &format!("SELECT * FROM people WHERE {condition}")).await;
        let others =
            planned(&session, &format!("WITH w AS (SELECT 1) SELECT * FROM people WHERE {condition}")).await;
        assert_eq!(own, others, "{condition}");
    }
    for query in [
        "SELECT count(*) FROM people WHERE id = 3",
        "SELECT DISTINCT name FROM people WHERE id = 3",
        "SELECT 5, name FROM people WHERE id = 3",
        "SELECT age + 1 FROM people WHERE id = 3",
        "SELECT p.name FROM people p, people q WHERE p.id = 3 AND q.id = 3",
        "SELECT name FROM (SELECT * FROM people) WHERE id = 3",
    ] {
        planned(&session, query).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_changed_by_their_keys() {
    let (_folder, database, session) = people().await;
    let row = "SELECT * FROM people WHERE id = 1000";
    let insert = "INSERT INTO people (id, name, born) VALUES (1000, 'new', '2024-02-29')";
    assert_eq!(short(&session, insert).await, ["1"]);
    assert_eq!(short(&session, row).await, ["1000,new,18,,2024-02-29"]);
    assert_eq!(short(&session, "UPDATE people SET age = age + 2, wage = 3 WHERE id = 1000").await, ["1"]);
    assert_eq!(short(&session, row).await, ["1000,new,20,3.00,2024-02-29"]);
    assert_eq!(short(&session, "UPDATE people SET id = 1001 WHERE id = 1000").await, ["1"]);
    assert_eq!(short(&session, "UPDATE people SET age = 1 WHERE id = 1000").await, ["0"]);
    assert_eq!(short(&session, "SELECT id FROM people WHERE name = 'new' AND age = 20").await, ["1001"]);
    assert_eq!(short(&session, "DELETE FROM people WHERE id = 1001 AND age = 21").await, ["0"]);
    assert_eq!(short(&session, "DELETE FROM people WHERE id = 1001 AND age = 20").await, ["1"]);
    assert_eq!(short(&session, "SELECT id FROM people WHERE name = 'new'").await, [""; 0]);

    // The messages are those of planned statements.
    let planned_too = |statement: &str| statement.replace("VALUES", "SELECT * FROM (VALUES") + ")";
    for statement in [
        "INSERT INTO people VALUES (1, 'x', 2, 3.5, NULL)",
        "INSERT INTO people VALUES (NULL, 'x', 2, 3.5, NULL)",
        "INSERT INTO people VALUES (2001, 'x', 2000, 3.5, NULL)",
    ] {
        let message = error(&session, statement).await;
        assert_eq!(message, error(&session, &planned_too(statement)).await, "{statement}");
    }
    let message = error(&session, "INSERT INTO people VALUES (2001, 'x', 'many', 3.5, NULL)").await;
    assert!(message.contains("many"), "{message}");
    assert_eq!(planned(&session, "SELECT count(*) FROM people").await, ["400"]);

    // Nothing is done before the result is read.
    drop(session.sql("DELETE FROM people WHERE id = 5").await.unwrap());
    assert_eq!(short(&session, "SELECT id FROM people WHERE id = 5").await, ["5"]);

    // As part of transactions.
    let other = database.session().unwrap();
    run(
        &session,
        "BEGIN; DELETE FROM people WHERE id = 5; SAVEPOINT s; INSERT INTO people VALUES (5, 'a', 1, 1, NULL)",
    )
    .await;
    assert_eq!(short(&session, "SELECT name FROM people WHERE id = 5").await, ["a"]);
    assert_eq!(short(&other, "SELECT name FROM people WHERE id = 5").await, ["p5"]);
    let message = error(&other, "UPDATE people SET age = 1 WHERE id = 5").await;
    assert!(message.contains("another transaction changes the same row"), "{message}");
    run(&session, "ROLLBACK TO s").await;
    assert_eq!(short(&session, "SELECT name FROM people WHERE id = 5").await, [""; 0]);
    run(&session, "ROLLBACK").await;
    assert_eq!(short(&session, "SELECT name FROM people WHERE id = 5").await, ["p5"]);
    run(&session, "BEGIN READ ONLY").await;
    assert!(error(&session, "DELETE FROM people WHERE id = 5").await.contains("READ ONLY"));
    run(&session, "ROLLBACK").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_name_means_is_asked_each_time() {
    let (_folder, database, session) = people().await;
    let (query, by_name) =
        ("SELECT name FROM people WHERE id = 7", "SELECT id FROM people WHERE name = 'p7' AND age = 0");
    assert_eq!(short(&session, query).await, ["p7"]);
    let ids = short(&session, by_name).await;
    run(&session, "DROP INDEX people_name").await;
    assert_eq!(planned(&session, by_name).await, ids);
    run(&session, "CREATE INDEX people_name ON people (name)").await;
    assert_eq!(short(&session, by_name).await, ids);

    // Another session makes another table of the name.
    let other = database.session().unwrap();
    run(&other, "DROP TABLE people; CREATE TABLE people (name VARCHAR PRIMARY KEY, id BIGINT UNIQUE); INSERT INTO people VALUES ('other', 7)").await;
    assert_eq!(short(&session, query).await, ["other"]);
    run(&other, "DROP TABLE people; CREATE TABLE people AS SELECT 'segment' AS name, 7 AS id").await;
    assert_eq!(planned(&session, query).await, ["segment"]);
    run(&other, "DROP TABLE people; CREATE VIEW people AS SELECT 'view' AS name, 7 AS id").await;
    assert_eq!(planned(&session, query).await, ["view"]);
    run(&session, "CREATE TEMP TABLE people (id INTEGER PRIMARY KEY, name VARCHAR); INSERT INTO people VALUES (7, 'temp')").await;
    assert_eq!(short(&session, query).await, ["temp"]);
    run(&session, "CREATE SCHEMA s; CREATE TABLE s.people (id INTEGER PRIMARY KEY, name VARCHAR); INSERT INTO s.people VALUES (7, 's')").await;
    assert_eq!(short(&session, "SELECT name FROM s.people WHERE id = 7").await, ["s"]);
    run(&session, "DROP TABLE people; USE s").await;
    assert_eq!(short(&session, query).await, ["s"]);

    // Macros, of other sessions and in checks, too.
    run(&session, "CREATE MACRO small(x) AS x < 100; CREATE TABLE t (id INTEGER PRIMARY KEY, a INTEGER CHECK (small(a)))").await;
    assert_eq!(short(&session, "INSERT INTO t VALUES (1, 50)").await, ["1"]);
    run(&other, "USE s; CREATE OR REPLACE MACRO small(x) AS x < 10").await;
    assert!(error(&session, "INSERT INTO t VALUES (2, 50)").await.contains("CHECK"));
    assert_eq!(short(&session, "SELECT upper(name) FROM people WHERE id = 7").await, ["S"]);
    run(&other, "CREATE MACRO upper(x) AS 'new'").await;
    assert_eq!(planned(&session, "SELECT upper(name) FROM people WHERE id = 7").await, ["new"]);
    run(&session, "CREATE MACRO twice(x) AS x || x").await;
    assert_eq!(planned(&session, "SELECT twice(name) FROM people WHERE id = 7").await, ["ss"]);
    run(&session, "CREATE OR REPLACE MACRO twice(x) AS 'new'").await;
    assert_eq!(planned(&session, "SELECT twice(name) FROM people WHERE id = 7").await, ["new"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_has_one_row_however_often_it_was_another_one() {
    let (_folder, database, session) = people().await;
    run(&session, "BEGIN").await;
    for _ in 0..300 {
        run(&session, "DELETE FROM people WHERE id = 5; INSERT INTO people VALUES (5, 'x', 1, 1, NULL)")
            .await;
    }
    assert_eq!(short(&session, "UPDATE people SET age = 2 WHERE id = 5").await, ["1"]);
    run(&session, "COMMIT").await;
    assert_eq!(
        planned(&session, "WITH w AS (SELECT 1) SELECT name, age FROM people WHERE id = 5").await,
        ["x,2"]
    );

    // An index that has come since the transaction began makes no conflict.
    run(&session, "BEGIN").await;
    planned(&session, "SELECT count(*) FROM people").await;
    run(&database.session().unwrap(), "CREATE INDEX people_born ON people (born)").await;
    run(&session, "UPDATE people SET age = 3 WHERE id = 5; COMMIT").await;
    assert_eq!(short(&session, "SELECT age FROM people WHERE id = 5").await, ["3"]);

    // Numbers with a point are floating-point numbers, as in plans.
    run(&session, "CREATE TABLE d (k INTEGER PRIMARY KEY, x DOUBLE, t VARCHAR)").await;
    assert_eq!(short(&session, "INSERT INTO d VALUES (1, 0.9007199254740993, 'a')").await, ["1"]);
    assert_eq!(short(&session, "SELECT t FROM d WHERE k = 1 AND x = 0.9007199254740993").await, ["a"]);
    planned(&session, "INSERT INTO d VALUES (2, 0.5, 1.50)").await;
    assert_eq!(short(&session, "SELECT t FROM d WHERE k = 2").await, ["1.5"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepared_statements_run_with_values() {
    let (_folder, _database, session) = people().await;
    run(&session, "PREPARE get AS SELECT name, age FROM people WHERE id = ?; PREPARE raise AS UPDATE people SET age = age + $2 WHERE id = $1").await;
    assert_eq!(short(&session, "EXECUTE get(7)").await, ["p7,0"]);
    assert_eq!(short(&session, "EXECUTE raise(7, 30)").await, ["1"]);
    assert_eq!(short(&session, "execute get (7)").await, ["p7,30"]);
    assert_eq!(planned(&session, "EXECUTE get(3 + 4)").await, ["p7,30"]);
    assert!(error(&session, "EXECUTE get(1, 2)").await.contains("2 arguments"));

    let get = session.prepare("SELECT name, age FROM people WHERE id = ?").await.unwrap();
    let int = |value: i32| ScalarValue::Int32(Some(value));
    for id in [7, 8] {
        let query = get.run(&[int(id)]).await.unwrap();
        assert!(query.plan().is_none());
        assert_eq!(texts(&query.collect().await.unwrap()).len(), 1);
    }
    let none = get.run(&[ScalarValue::Int32(None)]).await.unwrap().collect().await.unwrap();
    assert_eq!(texts(&none), [""; 0]);
    assert!(get.run(&[]).await.err().unwrap().to_string().contains("0 arguments"));
    let insert = session.prepare("INSERT INTO people VALUES ($1, $2, $3, $4, $5)").await.unwrap();
    let values = [
        int(500),
        ScalarValue::from("it's"),
        ScalarValue::Int64(Some(4)),
        ScalarValue::Decimal128(Some(125), 5, 2),
        ScalarValue::Date32(Some(19_000)),
    ];
    insert.run(&values).await.unwrap().drain().await.unwrap();
    let all = session.prepare("SELECT * FROM people WHERE id >= $1 AND born = $2 ORDER BY id").await.unwrap();
    let rows = all.run(&[int(400), ScalarValue::Date32(Some(19_000))]).await.unwrap();
    assert!(rows.plan().is_none());
    assert_eq!(texts(&rows.collect().await.unwrap()), ["500,it's,4,1.25,2022-01-08"]);
    let make = session.prepare("CREATE TABLE made AS SELECT $1 AS a").await.unwrap();
    make.run(&[ScalarValue::Float64(Some(0.1))]).await.unwrap().drain().await.unwrap();
    assert_eq!(planned(&session, "SELECT * FROM made").await, ["0.1"]);
}
