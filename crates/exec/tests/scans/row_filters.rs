//! Filters on native tables, evaluated where rows are read: the same rows as from memory, for every form of filter, of
//! page and of column.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "test code"
)]

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray, StringViewArray,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::datasource::MemTable;
use datafusion::physical_plan::displayable;
use datafusion::prelude::{SessionConfig, SessionContext};
use nandina_exec::scan::NativeTableProvider;
use nandina_simulation::FaultPlan;
use nandina_storage::*;

const ROWS: i64 = 60_000;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("mode", DataType::Utf8View, true),
        Field::new("comment", DataType::Utf8View, true),
        Field::new("word", DataType::Utf8, false),
        Field::new("price", DataType::Decimal128(15, 2), true),
        Field::new("day", DataType::Date32, true),
        Field::new("ratio", DataType::Float64, true),
        Field::new("flag", DataType::Boolean, true),
        Field::new("nothing", DataType::Int32, true),
        Field::new("digit", DataType::Utf8View, true),
    ]))
}

fn rows() -> RecordBatch {
    let scattered = |id: i64| (id as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    let modes = ["AIR", "MAIL", "SHIP", "RAIL", "a mode too long for a view to hold"];
    // For a long while only one value, then all: pages differ in how they are encoded.
    let mode = |id: i64| {
        (id % 11 != 4).then(|| modes[if id < ROWS / 3 { 0 } else { scattered(id) as usize % modes.len() }])
    };
    let comment = |id: i64| (id % 5 != 0).then(|| format!("the {} of row {id}", scattered(id) % 1000));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(0..ROWS)),
        Arc::new((0..ROWS).map(mode).collect::<StringViewArray>()),
        Arc::new((0..ROWS).map(comment).collect::<StringViewArray>()),
        Arc::new(StringArray::from_iter_values((0..ROWS).map(|id| format!("word {}", id % 40)))),
        Arc::new(
            (0..ROWS)
                .map(|id| (id % 13 != 0).then_some(i128::from(scattered(id) % 1_000_000)))
                .collect::<Decimal128Array>()
                .with_precision_and_scale(15, 2)
                .unwrap(),
        ),
        Arc::new(
            (0..ROWS).map(|id| (id % 17 != 1).then_some((id / 100) as i32 + 9000)).collect::<Date32Array>(),
        ),
        Arc::new(
            (0..ROWS)
                .map(|id| match id % 9 {
                    0 => None,
                    1 => Some(f64::NAN),
                    2 => Some(-0.0),
                    _ => Some(scattered(id) as f64 / 1e9),
                })
                .collect::<Float64Array>(),
        ),
        Arc::new((0..ROWS).map(|id| (id % 7 != 2).then_some(id % 3 == 0)).collect::<BooleanArray>()),
        Arc::new(Int32Array::new_null(ROWS as usize)),
        Arc::new(
            (0..ROWS).map(|id| (id % 6 != 2).then(|| (id % 10).to_string())).collect::<StringViewArray>(),
        ),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

/// The same rows as native table `t` and as table `m` in memory.
fn context() -> SessionContext {
    let config = SessionConfig::new().with_target_partitions(2).with_batch_size(1000);
    let context = SessionContext::new_with_config(config);
    let (device, _) = nandina_simulation::in_memory(FaultPlan::none());
    let store = Store::open(device, Mode::Write).unwrap();
    let definition = TableDefinition::new("t", schema()).with_page_bytes(32 << 10);
    let writer = store.create_table_with_rows(definition, IfExists::Fail, WriteOptions::default()).unwrap();
    let mut lane = writer.lane();
    lane.append_blocking(&rows()).unwrap();
    lane.finish_blocking().unwrap();
    writer.commit_blocking().unwrap();
    let table = store.table("t").unwrap();
    assert!(table.pages() > 40, "{} pages", table.pages());
    context.register_table("t", Arc::new(NativeTableProvider::new(table))).unwrap();
    let memory = MemTable::try_new(schema(), vec![vec![rows()]]).unwrap();
    context.register_table("m", Arc::new(memory)).unwrap();
    context
}

async fn answer(context: &SessionContext, sql: &str) -> String {
    let batches =
        context.sql(sql).await.unwrap().collect().await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    pretty_format_batches(&batches).unwrap().to_string()
}

const FILTERS: &[&str] = &[
    "id < 10",
    "id >= 0",
    "id < 0",
    "id % 1000 = 7",
    "id BETWEEN 20000 AND 40100 AND mode = 'SHIP'",
    "mode = 'AIR'",
    "mode <> 'AIR'",
    "mode IS NULL",
    "mode IS NOT NULL AND id % 2 = 0",
    "mode IS DISTINCT FROM 'MAIL'",
    "mode IN ('MAIL', 'SHIP')",
    "mode NOT IN ('MAIL', 'SHIP')",
    "mode IN ('MAIL', 'no such mode', NULL)",
    "mode LIKE '%too long%'",
    "mode = 'no such mode'",
    "mode = 'AIR' OR id > 59990",
    "coalesce(mode, 'none') = 'none'",
    "comment LIKE 'the 7%' AND mode = 'RAIL'",
    "comment = 'the 1 of row 1' OR comment IS NULL AND id < 100",
    "upper(word) = 'WORD 13' AND price > 5000",
    "length(comment) > length(mode) + 18",
    "word = mode",
    "price BETWEEN 100 AND 101.5",
    "price IS NULL AND day IS NULL",
    "price > 9990 AND day >= DATE '1995-01-01' AND word IN ('word 3', 'word 4') AND flag",
    "day = DATE '1994-09-01'",
    "extract(year FROM day) = 1995 AND id % 3 = 1",
    "ratio = 0",
    "ratio > 5 AND ratio < 6",
    "ratio = 'NaN'",
    "isnan(ratio) AND flag",
    "NOT flag",
    "flag IS NOT TRUE",
    "flag IS UNKNOWN",
    "nothing = 1",
    "nothing IS NULL AND id < 5",
    "CASE WHEN flag THEN id < 100 WHEN mode = 'AIR' THEN id > 19990 ELSE price > 9999 END",
    "id IN (SELECT id * 7 FROM m WHERE id < 50)",
    "price > (SELECT avg(price) + 4900 FROM m)",
    "EXISTS (SELECT 1 FROM m WHERE m.id = x.id AND m.id % 5000 = 0)",
    "CAST(digit AS INT) > 7",
    "flag AND CAST(digit AS INT) IN (3, 4)",
    "true",
    "false",
    "NULL",
];

#[tokio::test(flavor = "multi_thread")]
async fn every_filter_keeps_the_rows_that_it_keeps_in_memory() {
    let context = context();
    for filter in FILTERS {
        for columns in
            ["*", "id, mode", "count(*), count(mode), sum(id), min(comment), max(word)", "price, word"]
        {
            let order = if columns.contains('(') { "" } else { "ORDER BY id LIMIT 2000" };
            let native = answer(&context, &format!("SELECT {columns} FROM t x WHERE {filter} {order}")).await;
            let memory = answer(&context, &format!("SELECT {columns} FROM m x WHERE {filter} {order}")).await;
            assert_eq!(native, memory, "SELECT {columns} … WHERE {filter}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_count_the_rows_that_pass() {
    let context = context();
    for (filter, rows) in [("mode = 'MAIL'", 25), ("id > 59990", 9), ("id < 0", 0)] {
        let sql = format!("SELECT id FROM t WHERE {filter} LIMIT 25");
        let found = context.sql(&sql).await.unwrap().collect().await.unwrap();
        assert_eq!(found.iter().map(RecordBatch::num_rows).sum::<usize>(), rows, "{sql}");
    }
    // The filter is on what the limit leaves.
    let sql = "SELECT count(*) FROM (SELECT id FROM t LIMIT 10) WHERE id >= 0";
    assert!(answer(&context, sql).await.contains("| 10       |"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_differs_from_call_to_call_stays_above_the_scan() {
    let context = context();
    let plan = context.sql("SELECT id FROM t WHERE random() < 2 AND id < 5").await.unwrap();
    let plan = plan.create_physical_plan().await.unwrap();
    let text = displayable(plan.as_ref()).indent(false).to_string();
    assert!(text.contains("FilterExec: random()") && text.contains("filter=id@0 < 5"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_guards_what_stands_behind_it() {
    let context = context();
    let sql = "SELECT count(*) FROM t WHERE id <> 0 AND 10 / id > 1";
    assert!(answer(&context, sql).await.contains("| 5        |"));
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_a_filter_are_the_users() {
    let context = context();
    let sql = "SELECT id FROM t WHERE 1 / (id - 30000) = 0 AND mode = 'SHIP'";
    let error = context.sql(sql).await.unwrap().collect().await.unwrap_err().to_string();
    assert!(error.contains("Divide by zero"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn estimates_follow_the_data() {
    let context = context();
    let sql = "EXPLAIN SELECT count(*) FROM t JOIN m ON t.id = m.id WHERE t.comment LIKE '%7 of row %9'";
    context.sql("SET datafusion.explain.show_statistics = true").await.unwrap();
    let plan = answer(&context, sql).await;
    // One in ten, twice, of four fifths of 60000 rows; without a sample it would be a fifth of all.
    let scan = plan.lines().find(|line| line.contains("TableScanExec")).unwrap();
    let rows = scan.split("Rows=Inexact(").nth(1).unwrap().split(')').next().unwrap();
    let rows: usize = rows.parse().unwrap();
    assert!((300..800).contains(&rows), "{rows} rows in\n{plan}");
}
