//! All TPC-H queries give DataFusion's answers at scale factor 0.1 from native tables, in sessions with plenty of memory,
//! with 16 MB and with 4.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::datasource::MemTable;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{SessionConfig, SessionContext};
use nandina::{Database, Options, Profile, Session};

const SCALE_FACTOR: f64 = 0.1;
const LIMITS: [&str; 3] = ["4GB", "16MB", "4MB"];
const THREADS: usize = 2;
const TABLES: [&str; 8] =
    ["lineitem", "orders", "customer", "part", "partsupp", "supplier", "nation", "region"];

/// The queries' texts, with the parameters that the specification gives for validation.
const QUERIES: [&str; 22] = [
    include_str!("tpch/q01.sql"),
    include_str!("tpch/q02.sql"),
    include_str!("tpch/q03.sql"),
    include_str!("tpch/q04.sql"),
    include_str!("tpch/q05.sql"),
    include_str!("tpch/q06.sql"),
    include_str!("tpch/q07.sql"),
    include_str!("tpch/q08.sql"),
    include_str!("tpch/q09.sql"),
    include_str!("tpch/q10.sql"),
    include_str!("tpch/q11.sql"),
    include_str!("tpch/q12.sql"),
    include_str!("tpch/q13.sql"),
    include_str!("tpch/q14.sql"),
    include_str!("tpch/q15.sql"),
    include_str!("tpch/q16.sql"),
    include_str!("tpch/q17.sql"),
    include_str!("tpch/q18.sql"),
    include_str!("tpch/q19.sql"),
    include_str!("tpch/q20.sql"),
    include_str!("tpch/q21.sql"),
    include_str!("tpch/q22.sql"),
];

async fn load(session: &Session) {
    for table in TABLES {
        let create = format!("CREATE TABLE {table} AS SELECT * FROM tpch('{table}', {SCALE_FACTOR})");
        session.run(&create).await.unwrap();
    }
}

/// Plain DataFusion over the rows of the session's tables, in as many partitions as the queries run in.
async fn plain(session: &Session) -> SessionContext {
    let config = SessionConfig::new().with_target_partitions(THREADS);
    let context = SessionContext::new_with_config(config);
    for table in TABLES {
        let rows = session.sql(&format!("SELECT * FROM {table}")).await.unwrap().collect().await.unwrap();
        let schema = rows[0].schema();
        let mut partitions = vec![Vec::new(); THREADS];
        for (number, batch) in rows.into_iter().enumerate() {
            partitions[number % THREADS].push(batch);
        }
        context.register_table(table, Arc::new(MemTable::try_new(schema, partitions).unwrap())).unwrap();
    }
    context
}

/// How many nodes of this name a plan has.
fn count_nodes(plan: &Arc<dyn ExecutionPlan>, name: &str) -> usize {
    usize::from(plan.name() == name)
        + plan.children().into_iter().map(|child| count_nodes(child, name)).sum::<usize>()
}

/// No memory is left of a query. Tasks that were told to stop may take a moment to do so.
async fn assert_nothing_is_reserved(session: &Session, of_what: &str) {
    for _ in 0..200 {
        if session.governor().used_bytes() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(session.governor().used_bytes(), 0, "bytes left by {of_what}");
}

/// A row: its exact values as text, and its floats.
type Row = (Vec<String>, Vec<f64>);

fn sorted_rows(batches: &[RecordBatch]) -> Vec<Row> {
    let options = FormatOptions::default().with_null("∅");
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let (mut exact, mut floats) = (Vec::new(), Vec::new());
            for column in batch.columns() {
                if column.data_type() == &DataType::Float64 && column.is_valid(row) {
                    floats.push(column.as_primitive::<Float64Type>().value(row));
                } else {
                    let formatter = ArrayFormatter::try_new(column.as_ref(), &options).expect("a formatter");
                    exact.push(formatter.value(row).to_string());
                }
            }
            rows.push((exact, floats));
        }
    }
    rows.sort_by(|(exact, floats), (other_exact, other_floats)| {
        let by_floats =
            || floats.iter().zip(other_floats).map(|(a, b)| a.total_cmp(b)).find(|order| order.is_ne());
        exact.cmp(other_exact).then_with(|| by_floats().unwrap_or(std::cmp::Ordering::Equal))
    });
    rows
}

/// Decimals and all else equal, floats up to the order in which they were added.
fn assert_same_answer(ours: &[RecordBatch], right: &[RecordBatch], what: &str) {
    let (ours, right) = (sorted_rows(ours), sorted_rows(right));
    assert_eq!(ours.len(), right.len(), "{what}: number of rows");
    for ((exact, floats), (right_exact, right_floats)) in ours.iter().zip(&right) {
        assert_eq!(exact, right_exact, "{what}");
        assert_eq!(floats.len(), right_floats.len(), "{what}: {exact:?}");
        for (ours, right) in floats.iter().zip(right_floats) {
            assert!(
                (ours - right).abs() <= 1e-9 * right.abs().max(1e-300),
                "{what}: {ours} instead of {right}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_queries_have_the_same_answers() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { threads: Some(THREADS), auto_calibrate: false, ..Options::default() };
    let database = Database::open(folder.path().join("db"), options).unwrap();
    let mut sessions = Vec::new();
    for limit in LIMITS {
        let session = database.session().unwrap();
        session.run(&format!("SET memory_limit = '{limit}'")).await.unwrap();
        sessions.push((limit, session));
    }
    let (_, roomy) = &sessions[0];
    load(roomy).await;
    let context = plain(roomy).await;
    let rows = context.table("lineitem").await.unwrap().count().await.unwrap();
    assert_eq!(rows, 600_572);

    let mut spilled = Vec::new();
    for (number, sql) in (1..).zip(QUERIES) {
        let right = context.sql(sql).await.unwrap().collect().await.unwrap();
        for (limit, session) in &sessions {
            let what = format!("query {number} under {limit}");
            let query = session.sql(sql).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            let plan = query.plan().unwrap();
            assert_eq!(count_nodes(&plan, "HashJoinExec"), 0, "{what}");
            let joins = count_nodes(&plan, "HybridHashJoinExec");
            assert_eq!(joins == 0, [1, 6].contains(&number), "{what}: {joins} joins");
            let ours = query.collect().await.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_same_answer(&ours, &right, &what);
            if Profile::of(&plan).spilled_bytes() > 0 {
                spilled.push((number, *limit));
            }
            drop(plan);
            assert_nothing_is_reserved(session, &what).await;
        }
    }
    // These have build sides beyond the limit.
    for expected in [(9, "4MB"), (18, "4MB")] {
        assert!(spilled.contains(&expected), "{expected:?} did not spill, only {spilled:?} did");
    }
    drop((sessions, context));
    assert_eq!(
        std::fs::read_dir(folder.path().join("db/temp")).unwrap().count(),
        0,
        "temporary files are left"
    );
}
