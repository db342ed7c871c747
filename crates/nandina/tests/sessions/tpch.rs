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

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::DataType;
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
    include_str!("../tpch/q01.sql"),
    include_str!("../tpch/q02.sql"),
    include_str!("../tpch/q03.sql"),
    include_str!("../tpch/q04.sql"),
    include_str!("../tpch/q05.sql"),
    include_str!("../tpch/q06.sql"),
    include_str!("../tpch/q07.sql"),
    include_str!("../tpch/q08.sql"),
    include_str!("../tpch/q09.sql"),
    include_str!("../tpch/q10.sql"),
    include_str!("../tpch/q11.sql"),
    include_str!("../tpch/q12.sql"),
    include_str!("../tpch/q13.sql"),
    include_str!("../tpch/q14.sql"),
    include_str!("../tpch/q15.sql"),
    include_str!("../tpch/q16.sql"),
    include_str!("../tpch/q17.sql"),
    include_str!("../tpch/q18.sql"),
    include_str!("../tpch/q19.sql"),
    include_str!("../tpch/q20.sql"),
    include_str!("../tpch/q21.sql"),
    include_str!("../tpch/q22.sql"),
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

/// What two answers of a column may differ by: nothing, if neither has floats in it; else the last digit of a decimal.
#[derive(Clone, Copy)]
enum Comparison {
    Exact,
    Within(f64),
}

fn comparisons(ours: &[RecordBatch], right: &[RecordBatch]) -> Vec<Comparison> {
    let (Some(ours), Some(right)) = (ours.first(), right.first()) else { return Vec::new() };
    let types = ours.columns().iter().zip(right.columns());
    let comparison = |(ours, right): (&ArrayRef, &ArrayRef)| match (ours.data_type(), right.data_type()) {
        (DataType::Float64, DataType::Decimal128(_, scale)) => {
            Comparison::Within(10_f64.powi(-i32::from(*scale)))
        }
        (DataType::Float64, DataType::Float64) => Comparison::Within(0.0),
        _ => Comparison::Exact,
    };
    types.map(comparison).collect()
}

fn sorted_rows(batches: &[RecordBatch], comparisons: &[Comparison]) -> Vec<Row> {
    let options = FormatOptions::default().with_null("∅");
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let (mut exact, mut floats) = (Vec::new(), Vec::<f64>::new());
            for (column, comparison) in batch.columns().iter().zip(comparisons) {
                let formatter = ArrayFormatter::try_new(column.as_ref(), &options).expect("a formatter");
                let text = formatter.value(row).to_string();
                match comparison {
                    Comparison::Within(_) if column.is_valid(row) => {
                        floats.push(text.parse().expect("a number"));
                    }
                    _ => exact.push(text),
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

/// Decimals and all else equal, floats up to the order in which they were added; averages of decimals are decimals of a
/// few digits in DataFusion.
fn assert_same_answer(ours: &[RecordBatch], right: &[RecordBatch], what: &str) {
    let comparisons = comparisons(ours, right);
    let (ours, right) = (sorted_rows(ours, &comparisons), sorted_rows(right, &comparisons));
    assert_eq!(ours.len(), right.len(), "{what}: number of rows");
    let margins = comparisons.iter().filter_map(|comparison| match comparison {
        Comparison::Within(margin) => Some(*margin),
        Comparison::Exact => None,
    });
    let margins: Vec<f64> = margins.collect();
    for ((exact, floats), (right_exact, right_floats)) in ours.iter().zip(&right) {
        assert_eq!(exact, right_exact, "{what}");
        assert_eq!(floats.len(), right_floats.len(), "{what}: {exact:?}");
        // A null is among the exact values.
        let margins = if floats.len() == margins.len() { margins.as_slice() } else { &[] };
        let margins = margins.iter().copied().chain(std::iter::repeat(0.0));
        for ((ours, right), margin) in floats.iter().zip(right_floats).zip(margins) {
            assert!(
                (ours - right).abs() <= margin + 1e-9 * right.abs().max(1e-300),
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
