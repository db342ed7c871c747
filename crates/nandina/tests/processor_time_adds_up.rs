//! What `EXPLAIN ANALYZE` says of its operators, together, is what the process has used. In a process of its own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use futures::StreamExt as _;
use nandina::{Database, Options, Session};

/// Runs a query a few times, since a short one is over within few ticks of the process's clock.
async fn shares(session: &Session, name: &str, query: &str) {
    let (mut told, mut used) = (0.0, 0.0);
    let mut shown = String::new();
    for _ in 0..4 {
        // Planned here, run from the first poll on.
        let mut running = session.sql(&format!("EXPLAIN ANALYZE {query}")).await.unwrap();
        let before = nandina_device::processor_time();
        while let Some(batch) = running.next().await {
            batch.unwrap();
        }
        used += (nandina_device::processor_time() - before).as_secs_f64();
        let profile = running.profile().unwrap();
        told += profile.compute().as_secs_f64();
        shown = profile.to_string();
    }
    eprintln!("{name}: {told:.3} of {used:.3} s");
    assert!((0.9..=1.1).contains(&(told / used)), "{name}: {told} of {used} s\n{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_tell_what_the_process_has_used() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        memory_limit: Some(64 << 20),
        auto_calibrate: false,
        threads: Some(2),
        ..Options::default()
    };
    let session = Database::open(folder.path().join("shop"), options).unwrap().session().unwrap();
    let rows = "SELECT value AS k, value * 7919 % 1000003 AS v, repeat('x', CAST(value % 60 AS INT)) AS s \
                FROM generate_series(1, 1000000) AS series(value)";
    session.run(&format!("CREATE TABLE t AS {rows}")).await.unwrap();
    let file = folder.path().join("t.parquet").display().to_string();
    session.run(&format!("COPY t TO '{file}'")).await.unwrap();
    let csv = folder.path().join("t.csv").display().to_string();
    session.run(&format!("COPY (SELECT * FROM t LIMIT 300000) TO '{csv}'")).await.unwrap();
    let wide = folder.path().join("wide.parquet").display().to_string();
    let columns: Vec<String> = (0..400).map(|column| format!("k + {column} AS c{column}")).collect();
    session
        .run(&format!("COPY (SELECT {} FROM t LIMIT 5000) TO '{wide}'", columns.join(", ")))
        .await
        .unwrap();
    let copy = folder.path().join("copy.parquet").display().to_string();
    for (name, query) in [
        ("scan of a file", format!("SELECT sum(v), max(s) FROM '{file}' WHERE v % 3 = 0")),
        ("scan of text", format!("SELECT sum(v), max(s) FROM '{csv}'")),
        (
            "join that spills",
            format!("SELECT count(*), max(a.s || b.s) FROM t a JOIN '{file}' b ON a.k = b.v"),
        ),
        (
            "groups that spill",
            "SELECT count(*) FROM (SELECT s, v, count(*), min(k) FROM t GROUP BY s, v)".to_owned(),
        ),
        (
            "sort that spills",
            "SELECT max(k), max(s) FROM (SELECT * FROM t ORDER BY v, s OFFSET 1)".to_owned(),
        ),
        (
            "window",
            "SELECT sum(r) FROM (SELECT row_number() OVER (PARTITION BY v % 1000 ORDER BY k) AS r FROM t)"
                .to_owned(),
        ),
        (
            "spool",
            "WITH c AS (SELECT v % 5000 AS x, count(*) AS n, max(s) AS m FROM t GROUP BY 1) \
                   SELECT count(*) FROM c a JOIN c b ON a.n = b.x"
                .to_owned(),
        ),
        (
            "recursion",
            "WITH RECURSIVE r(i) AS (SELECT 0 UNION SELECT (i * 7 + k) % 40000 FROM r, t WHERE k < 30) \
                       SELECT count(*), max(i) FROM r"
                .to_owned(),
        ),
        ("columns in groups", format!("SELECT * FROM '{wide}'")),
        ("copy", format!("COPY t TO '{copy}'")),
    ] {
        shares(&session, name, &query).await;
    }
}
