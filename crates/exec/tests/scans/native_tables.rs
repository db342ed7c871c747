//! Native tables in queries: the same answers as from memory, with few pages read, within the memory limit.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "test code"
)]

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringViewArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::catalog::TableProvider;
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::{ExecutionPlan, collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use nandina_exec::rows::RowTableProvider;
use nandina_exec::scan::{NativeTableProvider, TableScanExec};
use nandina_simulation::FaultPlan;
use nandina_storage::*;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("key", DataType::Int64, false),
        Field::new("price", DataType::Float64, true),
        Field::new("name", DataType::Utf8View, true),
    ]))
}

fn rows(keys: std::ops::Range<i64>) -> RecordBatch {
    let price = |key: i64| (key % 7 != 0).then_some(key as f64 / 4.0);
    let name = |key: i64| (key % 3 != 0).then(|| format!("name {}", key % 1000));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(keys.clone())),
        Arc::new(keys.clone().map(price).collect::<Float64Array>()),
        Arc::new(keys.map(name).collect::<StringViewArray>()),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

struct Fixture {
    store: Store,
    context: SessionContext,
    pool: Arc<dyn MemoryPool>,
}

const ROWS: i64 = 4_000_000;

/// Table `t` of four million rows in pages of 64 KiB: three stripes.
fn fixture(limit_bytes: usize) -> Fixture {
    let (device, _) = nandina_simulation::in_memory(FaultPlan::none());
    let store = Store::open(device, Mode::Write).unwrap();
    let definition = TableDefinition::new("t", schema()).with_page_bytes(64 << 10);
    let writer = store.create_table_with_rows(definition, IfExists::Fail, WriteOptions::default()).unwrap();
    let mut lane = writer.lane();
    for part in 0..ROWS / 50_000 {
        lane.append_blocking(&rows(part * 50_000..(part + 1) * 50_000)).unwrap();
    }
    lane.finish_blocking().unwrap();
    writer.commit_blocking().unwrap();
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(limit_bytes));
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(&pool)).build_arc().unwrap();
    let config = SessionConfig::new().with_target_partitions(2).with_batch_size(1000);
    let context = SessionContext::new_with_config_rt(config, runtime);
    let fixture = Fixture { store, context, pool };
    fixture.refresh();
    fixture
}

impl Fixture {
    /// The catalog's part: a provider of the current snapshot.
    fn refresh(&self) {
        let table = self.store.table("t").unwrap();
        let _ = self.context.deregister_table("t").unwrap();
        // Few rows that were inserted are in a heap beside the segments.
        let provider: Arc<dyn TableProvider> = match table.has_changeable_rows() {
            true => Arc::new(RowTableProvider::new(table)),
            false => Arc::new(NativeTableProvider::new(table)),
        };
        self.context.register_table("t", provider).unwrap();
    }

    async fn run(&self, sql: &str) -> (String, Arc<dyn ExecutionPlan>) {
        let plan = self.context.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
        let batches = collect(Arc::clone(&plan), self.context.task_ctx()).await.unwrap();
        assert!(batches.iter().all(|batch| batch.num_rows() <= 1000));
        (pretty_format_batches(&batches).unwrap().to_string(), plan)
    }

    async fn answer(&self, sql: &str) -> String {
        self.run(sql).await.0
    }
}

/// The sum of a metric over the scans of a plan.
fn metric(plan: &Arc<dyn ExecutionPlan>, name: &str) -> usize {
    let own = plan.downcast_ref::<TableScanExec>().map_or(0, |scan| {
        scan.metrics().unwrap().sum_by_name(name).unwrap_or_else(|| panic!("no metric {name}")).as_usize()
    });
    own + plan.children().iter().map(|child| metric(child, name)).sum::<usize>()
}

fn output_rows(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let own = plan.downcast_ref::<TableScanExec>().and_then(|scan| scan.metrics()?.output_rows());
    own.unwrap_or(0) + plan.children().iter().map(|child| output_rows(child)).sum::<usize>()
}

fn text(plan: &Arc<dyn ExecutionPlan>) -> String {
    displayable(plan.as_ref()).indent(false).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn aggregates_over_all_rows() {
    let fixture = fixture(1 << 30);
    let sql = "SELECT count(*) n, sum(key) s, count(price) p, min(name) a, max(name) z FROM t WHERE key >= 0";
    let (answer, plan) = fixture.run(sql).await;
    assert!(answer.contains("| 4000000 | 7999998000000 | 3428571 | name 0 | name 999 |"), "{answer}");
    assert_eq!(metric(&plan, "pages_pruned"), 0);
    assert_eq!(output_rows(&plan), ROWS as usize);
    assert!(metric(&plan, "bytes_read") > 30 << 20);
    assert_eq!(fixture.pool.reserved(), 0, "read-ahead was not given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_and_extremes_come_from_the_page_index() {
    let fixture = fixture(1 << 30);
    let (answer, plan) = fixture.run("SELECT count(*) n, min(key) a, max(key) z FROM t").await;
    assert!(answer.contains("| 4000000 | 0 | 3999999 |"), "{answer}");
    assert!(!text(&plan).contains("TableScanExec"), "{}", text(&plan));
}

#[tokio::test(flavor = "multi_thread")]
async fn static_filters_skip_pages() {
    let fixture = fixture(1 << 30);
    let sql =
        "SELECT count(*) n, sum(price) s FROM t WHERE key BETWEEN 700000 AND 700999 AND name IS NOT NULL";
    let (answer, plan) = fixture.run(sql).await;
    let matching = (700_000..701_000).filter(|key| key % 3 != 0);
    let count = matching.clone().count();
    let sum: f64 = matching.filter(|key| key % 7 != 0).map(|key| key as f64 / 4.0).sum();
    assert!(answer.contains(&format!("| {count} | {sum:?}")), "{answer} {count} {sum}");
    assert!(text(&plan).contains("filter=key@0 >= 700000"), "{}", text(&plan));
    assert!(!text(&plan).contains("FilterExec"), "{}", text(&plan));
    assert_eq!(output_rows(&plan), count, "rows are filtered where they are read");
    assert!(metric(&plan, "pages_read") <= 3, "{} pages", metric(&plan, "pages_read"));
    assert!(metric(&plan, "pages_pruned") > 400, "{} pages", metric(&plan, "pages_pruned"));
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_on_text_skip_pages() {
    let fixture = fixture(1 << 30);
    let (answer, plan) = fixture.run("SELECT count(*) n FROM t WHERE name > 'zebra'").await;
    assert!(answer.contains("| 0 |"), "{answer}");
    assert_eq!(metric(&plan, "pages_read"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn dynamic_filters_of_joins_skip_pages() {
    let fixture = fixture(1 << 30);
    let sql = "SELECT count(*) n, sum(t.key) s FROM (VALUES (123456), (123457), (124000)) AS b(k) JOIN t ON t.key = b.k";
    let (answer, plan) = fixture.run(sql).await;
    assert!(answer.contains("| 3 | 370913 |"), "{answer}");
    assert!(text(&plan).contains("DynamicFilter"), "{}", text(&plan));
    assert!(metric(&plan, "pages_read") <= 3, "{} pages read\n{}", metric(&plan, "pages_read"), text(&plan));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_rows_in_order_skip_pages() {
    let fixture = fixture(1 << 30);
    let (answer, plan) = fixture.run("SELECT key FROM t ORDER BY key LIMIT 3").await;
    assert_eq!(
        answer,
        ["+-----+", "| key |", "+-----+", "| 0   |", "| 1   |", "| 2   |", "+-----+"].join("\n")
    );
    // Stripes that were taken before the first rows were known are read; the last one is skipped.
    assert!(metric(&plan, "pages_pruned") > 50, "{}", metric(&plan, "pages_pruned"));
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_stop_the_scan() {
    let fixture = fixture(1 << 30);
    let (answer, plan) = fixture.run("SELECT key, name FROM t LIMIT 2500").await;
    assert_eq!(answer.lines().count(), 2504);
    assert!(text(&plan).contains("limit=2500"), "{}", text(&plan));
    assert!(metric(&plan, "pages_read") < 20);
    let (answer, _) = fixture.run("SELECT key FROM t WHERE key > 1400000 LIMIT 5").await;
    assert_eq!(answer.lines().count(), 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn small_limits_shrink_the_window() {
    let fixture = fixture(2 << 20);
    let (answer, plan) = fixture.run("SELECT count(*) n, sum(key) s FROM t WHERE price < 1000").await;
    let matching: Vec<i64> = (0..4000).filter(|key| key % 7 != 0).collect();
    assert!(
        answer.contains(&format!("| {} | {} ", matching.len(), matching.iter().sum::<i64>())),
        "{answer}"
    );
    // 2 MiB / 64 is below a page.
    assert_eq!(metric(&plan, "window_bytes"), 64 << 10);
    assert_eq!(fixture.pool.reserved(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_run_again() {
    let fixture = fixture(1 << 30);
    let plan = fixture.context.sql("SELECT key FROM t WHERE key < 100000").await.unwrap();
    let plan = plan.create_physical_plan().await.unwrap();
    for _ in 0..3 {
        let batches = collect(Arc::clone(&plan), fixture.context.task_ctx()).await.unwrap();
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 100_000);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_scan_of_a_self_join_sees_what_the_other_sees() {
    let fixture = fixture(1 << 30);
    let sql = "SELECT count(*) n FROM t a JOIN t b ON a.key = b.key + 1 WHERE a.key < 5000";
    assert!(fixture.answer(sql).await.contains("| 4999 |"));
}

#[tokio::test(flavor = "multi_thread")]
async fn inserting_and_overwriting() {
    let fixture = fixture(1 << 30);
    let answer =
        fixture.answer("INSERT INTO t SELECT key + 10000000, price, name FROM t WHERE key < 10000").await;
    assert!(answer.contains("| 10000 |"), "{answer}");
    // The provider still sees its snapshot.
    assert!(fixture.answer("SELECT count(*) n FROM t").await.contains("| 4000000 |"));
    fixture.refresh();
    assert!(fixture.answer("SELECT count(*) n, max(key) m FROM t").await.contains("| 4010000 | 10009999 |"));
    // Text of another type is cast.
    fixture.answer("INSERT INTO t VALUES (-1, 2.5, 'typed')").await;
    fixture.refresh();
    let answer = fixture.answer("SELECT * FROM t WHERE key < 0").await;
    assert!(answer.contains("| -1  | 2.5   | typed |"), "{answer}");
    fixture.answer("INSERT OVERWRITE t SELECT * FROM t WHERE key < 10 AND key >= 0").await;
    fixture.refresh();
    let answer = fixture.answer("SELECT count(*) n, sum(key) s, count(name) c FROM t WHERE key < 1000").await;
    assert!(answer.contains("| 10 | 45 | 6 |"), "{answer}");
    let query = fixture.context.sql("INSERT INTO t VALUES (NULL, 1, 'x')").await.unwrap();
    let error = query.collect().await.unwrap_err();
    assert!(error.to_string().contains("non-nullable but contains null values"), "{error}");
    fixture.refresh();
    assert!(fixture.answer("SELECT count(*) n FROM t").await.contains("| 10 |"));
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_is_an_error_of_the_query() {
    let (device, handle) = nandina_simulation::in_memory(FaultPlan::none());
    let store = Store::open(device, Mode::Write).unwrap();
    let definition = TableDefinition::new("t", schema());
    let writer = store.create_table_with_rows(definition, IfExists::Fail, WriteOptions::default()).unwrap();
    let mut lane = writer.lane();
    lane.append_blocking(&rows(0..100_000)).unwrap();
    lane.finish_blocking().unwrap();
    writer.commit_blocking().unwrap();
    let context = SessionContext::new();
    context.register_table("t", Arc::new(NativeTableProvider::new(store.table("t").unwrap()))).unwrap();
    let query = context.sql("SELECT sum(price) FROM t").await.unwrap();
    let plan = query.create_physical_plan().await.unwrap();
    handle.set_plan(FaultPlan::none().fail_request(handle.requests() + 3));
    let error = collect(plan, context.task_ctx()).await.unwrap_err().to_string();
    assert!(error.contains("segment-1.pax") && error.contains("page"), "{error}");
}
