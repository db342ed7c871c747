//! Schemas, views, macros, sequences and defaults are there again after a restart, and after a crash.

use std::fs;
use std::path::Path;

use arrow::array::AsArray as _;
use arrow::datatypes::Int64Type;
use nandina::{Database, Options, Session};
use tempfile::TempDir;

fn open(directory: &Path) -> (Database, Session) {
    let database = Database::open(directory, Options::default()).unwrap();
    let session = database.session().unwrap();
    (database, session)
}

async fn number(session: &Session, query: &str) -> i64 {
    let rows = session.sql(query).await.unwrap().collect().await.unwrap();
    rows[0].column(0).as_primitive::<Int64Type>().value(0)
}

const MADE: &str = "CREATE SCHEMA s; CREATE TABLE s.t (a BIGINT DEFAULT nextval('s.ids'), b BIGINT DEFAULT 7);
    CREATE SEQUENCE s.ids START 10; CREATE MACRO s.twice(x) AS 2 * x; CREATE MACRO above(n) AS TABLE SELECT * FROM s.t WHERE a > n;
    INSERT INTO s.t (b) VALUES (1); CREATE VIEW s.v AS SELECT s.twice(a) AS a, b FROM s.t; CREATE TEMP TABLE gone (x BIGINT)";

#[tokio::test]
async fn after_a_restart() {
    let directory = TempDir::new().unwrap();
    let (database, session) = open(directory.path());
    session.run(&MADE.replace("CREATE TABLE s.t", "CREATE SEQUENCE unused; CREATE TABLE s.t")).await.unwrap();
    assert_eq!(number(&session, "SELECT a FROM s.v").await, 20);
    drop((database, session));

    let (_database, session) = open(directory.path());
    assert_eq!(number(&session, "SELECT a FROM s.v").await, 20);
    assert_eq!(number(&session, "SELECT count(*) FROM above(9)").await, 1);
    session.run("INSERT INTO s.t DEFAULT VALUES").await.unwrap();
    // The sequence goes on where it was.
    assert_eq!(number(&session, "SELECT max(a) * 100 + max(b) FROM s.t").await, 1107);
    assert_eq!(number(&session, "SELECT nextval('unused')").await, 1);
    assert!(session.sql("SELECT * FROM gone").await.is_err());
    session.run("DROP SCHEMA s CASCADE").await.unwrap();
    assert!(session.sql("SELECT s.twice(1)").await.is_err());
}

/// What lies in the directory at any time is what a killed process leaves.
#[tokio::test]
async fn after_a_crash_no_number_comes_again() {
    let (directory, copy) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (_database, session) = open(directory.path());
    session.run(MADE).await.unwrap();
    let mut given = Vec::new();
    for _ in 0..100 {
        given.push(number(&session, "SELECT nextval('s.ids')").await);
    }
    assert_eq!(given, (11..111).collect::<Vec<_>>());
    for file in fs::read_dir(directory.path()).unwrap() {
        let file = file.unwrap();
        if file.file_type().unwrap().is_file() {
            fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
        }
    }
    let (_database, session) = open(copy.path());
    let next = number(&session, "SELECT nextval('s.ids')").await;
    assert!((111..=111 + 32).contains(&next), "{next}");
}

#[tokio::test]
async fn temporary_tables_end_with_their_session() {
    let (directory, temp) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let options = Options { temp_directory: Some(temp.path().to_path_buf()), ..Options::default() };
    let database = Database::open(directory.path(), options).unwrap();
    let session = database.session().unwrap();
    session.run("CREATE TEMP TABLE t AS SELECT * FROM range(10)").await.unwrap();
    assert!(fs::read_dir(temp.path()).unwrap().count() > 0);
    drop(session);
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn lasting_views_do_not_see_temporary_tables() {
    let database = Database::in_memory(Options::default()).unwrap();
    let session = database.session().unwrap();
    session.run("CREATE TABLE t AS SELECT CAST(1 AS BIGINT) AS x; CREATE TEMP TABLE t AS SELECT CAST(2 AS BIGINT) AS x").await.unwrap();
    session.run("CREATE VIEW v AS SELECT x FROM t; CREATE TEMP VIEW w AS SELECT x FROM t").await.unwrap();
    assert_eq!(number(&session, "SELECT v.x * 10 + w.x FROM v, w").await, 12);
    session.run("CREATE TEMP TABLE only (x BIGINT)").await.unwrap();
    let refused = session.run("CREATE VIEW u AS SELECT x FROM only").await;
    assert!(refused.unwrap_err().to_string().contains("there is no table 'only'"));
}
