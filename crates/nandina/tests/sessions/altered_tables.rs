//! `ALTER TABLE` beside other sessions, and after databases are opened again.

use std::time::Duration;

use nandina::{Database, Options, Session};

use crate::rows_change::{error, rows, run, session};

const TABLES: &str = "
    CREATE TABLE plain (a INTEGER, b VARCHAR DEFAULT 'x', CONSTRAINT positive CHECK (a > 0));
    INSERT INTO plain VALUES (1, 'one'), (2, 'two');
    CREATE TABLE changed (a INTEGER, b VARCHAR DEFAULT 'x', CONSTRAINT positive CHECK (a > 0));
    INSERT INTO changed VALUES (1, 'none'), (2, 'two'), (3, 'three');
    UPDATE changed SET b = 'one' WHERE a = 1;
    DELETE FROM changed WHERE a = 3;
    CREATE TABLE keyed (a INTEGER PRIMARY KEY, b VARCHAR DEFAULT 'x', CONSTRAINT positive CHECK (a > 0));
    INSERT INTO keyed VALUES (1, 'one'), (2, 'two')";

const EACH: [&str; 3] = ["plain", "changed", "keyed"];

async fn of_each(session: &Session, statement: &str) {
    for table in EACH {
        run(session, &statement.replace("{t}", table)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_last() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Database::open(folder.path(), Options::default()).unwrap();
    let database = open();
    run(&session(&database), TABLES).await;
    of_each(
        &session(&database),
        "ALTER TABLE {t} RENAME a TO key, ALTER b SET DEFAULT 'y', ALTER b SET NOT NULL",
    )
    .await;
    of_each(&session(&database), "ALTER TABLE {t} RENAME TO {t}_2").await;
    drop(database);
    let database = open();
    let one = session(&database);
    for table in EACH {
        let table = format!("{table}_2");
        assert_eq!(rows(&one, &format!("SELECT * FROM {table}")).await, ["1,one", "2,two"]);
        let message = error(&one, &format!("INSERT INTO {table} VALUES (0, '')")).await;
        assert!(message.contains("CHECK (key > 0)"), "{message}");
        let message = error(&one, &format!("INSERT INTO {table} VALUES (3, NULL)")).await;
        assert!(message.contains("NOT NULL") || message.contains("non-nullable"), "{message}");
        run(&one, &format!("INSERT INTO {table} (key) VALUES (3)")).await;
        run(&one, &format!("ALTER TABLE {table} ADD c DOUBLE DEFAULT 0.5, DROP b")).await;
    }
    drop(one);
    drop(database);
    let message = format!("{:?}", open().session().unwrap().table_names());
    assert_eq!(message, r#"["changed_2", "keyed_2", "plain_2"]"#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_last() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Database::open(folder.path(), Options::default()).unwrap();
    let database = open();
    run(&session(&database), TABLES).await;
    of_each(&session(&database), "ALTER TABLE {t} ADD c DOUBLE DEFAULT 0.5, DROP b, ALTER a TYPE BIGINT")
        .await;
    drop(database);
    let database = open();
    let one = session(&database);
    for table in EACH {
        assert_eq!(rows(&one, &format!("SELECT * FROM {table}")).await, ["1,0.5", "2,0.5"]);
        run(&one, &format!("ALTER TABLE {table} DROP CONSTRAINT positive")).await;
        run(&one, &format!("INSERT INTO {table} VALUES (0, 0)")).await;
        run(&one, &format!("UPDATE {table} SET c = 7 WHERE a = 2")).await;
    }
    let message = error(&one, "INSERT INTO keyed VALUES (2, 0)").await;
    assert!(message.contains("has a row with a = 2 already"), "{message}");
    run(&one, "ALTER TABLE plain ADD PRIMARY KEY (a)").await;
    drop(one);
    drop(database);
    let database = open();
    let one = session(&database);
    for table in EACH {
        assert_eq!(rows(&one, &format!("SELECT * FROM {table}")).await, ["0,0.0", "1,0.5", "2,7.0"]);
    }
    let message = error(&one, "INSERT INTO plain VALUES (2, 0)").await;
    assert!(message.contains("has a row with a = 2 already"), "{message}");
}

/// Those that change rows meanwhile are waited for, for a while; those that began before are told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_lose_no_rows() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path(), Options::default()).unwrap();
    run(&session(&database), TABLES).await;
    for table in ["changed", "keyed"] {
        let (one, two) = (session(&database), session(&database));
        run(&one, &format!("BEGIN; INSERT INTO {table} VALUES (3, NULL)")).await;
        let alter = format!("ALTER TABLE {table} ALTER b SET NOT NULL");
        let (altered, ()) = tokio::join!(error(&two, &alter), async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            run(&one, "COMMIT").await;
        });
        assert!(altered.contains("column 'b' of table") && altered.contains("would have nulls"), "{altered}");
        run(&one, &format!("BEGIN; UPDATE {table} SET b = 'three' WHERE a = 3")).await;
        let (altered, ()) = tokio::join!(two.run(&alter), async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            run(&one, "COMMIT").await;
        });
        altered.unwrap();
        // Also where all is written anew.
        run(&one, &format!("BEGIN; INSERT INTO {table} VALUES (4, 'four')")).await;
        let alter = format!("ALTER TABLE {table} ADD c INTEGER DEFAULT 7");
        let (altered, ()) = tokio::join!(two.run(&alter), async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            run(&one, "COMMIT").await;
        });
        altered.unwrap();
        assert_eq!(
            rows(&one, &format!("SELECT * FROM {table}")).await,
            ["1,one,7", "2,two,7", "3,three,7", "4,four,7"]
        );
        // One that has begun before has seen other columns, and changes nothing.
        run(&one, "BEGIN").await;
        assert_eq!(rows(&one, &format!("SELECT count(*) FROM {table}")).await, ["4"]);
        run(&two, &format!("ALTER TABLE {table} DROP c")).await;
        error(&one, &format!("UPDATE {table} SET b = 'x'")).await;
        run(&one, "ROLLBACK").await;
        assert_eq!(rows(&one, &format!("SELECT * FROM {table} WHERE b = 'x'")).await, [] as [&str; 0]);
        run(&one, &format!("INSERT INTO {table} VALUES (5, 'five')")).await;
        assert_eq!(rows(&two, &format!("SELECT count(*) FROM {table}")).await, ["5"]);
    }
}

/// A transaction that never ends does not let a table be looked at for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_transactions_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path(), Options::default()).unwrap();
    let (one, two) = (session(&database), session(&database));
    run(&one, TABLES).await;
    run(&one, "BEGIN; UPDATE keyed SET b = 'x'").await;
    let message = error(&two, "ALTER TABLE keyed ADD c INTEGER").await;
    assert!(message.contains("being changed by a transaction that is open"), "{message}");
    // What asks for no rows need not wait, and leaves the transaction its changes.
    run(&two, "ALTER TABLE keyed RENAME b TO name").await;
    run(&one, "COMMIT").await;
    assert_eq!(rows(&two, "SELECT a, name FROM keyed").await, ["1,x", "2,x"]);
}

/// Sequences of columns that are numbered go on after a restart, and go with their table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Database::open(folder.path(), Options::default()).unwrap();
    let database = open();
    let one = session(&database);
    run(
        &one,
        "CREATE TABLE t (id SERIAL, n BIGINT GENERATED ALWAYS AS IDENTITY (INCREMENT BY 10), a INTEGER)",
    )
    .await;
    run(&one, "INSERT INTO t (a) VALUES (7)").await;
    drop(one);
    drop(database);
    let database = open();
    let one = session(&database);
    run(&one, "INSERT INTO t (a) VALUES (8); ALTER TABLE t RENAME TO u; INSERT INTO u (a) VALUES (9)").await;
    assert_eq!(rows(&one, "SELECT * FROM u").await, ["1,1,7", "2,11,8", "3,21,9"]);
    let message = error(&one, "INSERT INTO u (n, a) VALUES (1, 1)").await;
    assert!(message.contains("column 'n' is GENERATED ALWAYS AS IDENTITY"), "{message}");
    run(&one, "DROP TABLE u; CREATE TABLE t (id SERIAL, a INTEGER); INSERT INTO t (a) VALUES (1)").await;
    drop(one);
    drop(database);
    let database = open();
    let one = session(&database);
    run(&one, "INSERT INTO t (a) VALUES (2)").await;
    assert_eq!(rows(&one, "SELECT * FROM t").await, ["1,1", "2,2"]);
    assert_eq!(rows(&one, "SELECT sequence_name FROM duckdb_sequences()").await.len(), 1);
}
