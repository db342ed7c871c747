//! Columns of stored tables that are fetched by row id, in the order of the result: the rows are those of plain DataFusion,
//! and in the same order.
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray as _, Int64Array, ListBuilder, RecordBatch, StringArray, StringBuilder, StringViewArray,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use arrow::util::pretty::pretty_format_batches;
use datafusion::datasource::MemTable;
use datafusion::physical_plan::ExecutionPlan;
use nandina_exec::scan::NativeTableProvider;
use nandina_plan::SortAlgorithm;
use nandina_simulation::{FaultPlan, Simulation};
use nandina_storage::{IfExists, Mode, Store, TableDefinition, WriteOptions};

use crate::harness::{Engine, KIB, count_nodes, metric, plain, planned, run};

pub(crate) const ROWS: i64 = 20_000;
/// Of the table `u`, whose keys are those of every tenth row of `t`.
pub(crate) const FEW_ROWS: i64 = 2_500;

pub(crate) fn schema() -> SchemaRef {
    let item = Arc::new(Field::new("item", DataType::Utf8, true));
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("k", DataType::Int64, true),
        Field::new("same", DataType::Int64, false),
        Field::new("comment", DataType::Utf8View, true),
        Field::new("words", DataType::List(item), true),
    ]))
}

pub(crate) fn rows(count: i64, step: i64) -> RecordBatch {
    let mut words = ListBuilder::new(StringBuilder::new());
    for id in 0..count {
        (0..id % 4).for_each(|word| words.values().append_value(format!("word {word} of {id}")));
        words.append(id % 6 != 5);
    }
    let comment = |id: i64| (id % 7 != 2).then(|| "long ".repeat((id % 40) as usize) + &id.to_string());
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values((0..count).map(|id| id * step))),
        Arc::new((0..count).map(|id| (id % 10 != 3).then_some(id * 7919 % 5003)).collect::<Int64Array>()),
        Arc::new(Int64Array::from_iter_values((0..count).map(|_| 1))),
        Arc::new((0..count).map(comment).collect::<StringViewArray>()),
        Arc::new(words.finish()),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

/// The tables `t` and `u`, stored, and the device that they are on.
pub(crate) fn stored() -> (Vec<(&'static str, Arc<NativeTableProvider>)>, Simulation) {
    let (device, simulation) = nandina_simulation::in_memory(FaultPlan::none());
    let store = Store::open(device, Mode::Write).unwrap();
    let providers = [("t", rows(ROWS, 1)), ("u", rows(FEW_ROWS, 10))].map(|(name, rows)| {
        let definition = TableDefinition::new(name, schema()).with_page_bytes(32 << 10);
        let writer =
            store.create_table_with_rows(definition, IfExists::Fail, WriteOptions::default()).unwrap();
        let mut lane = writer.lane();
        lane.append_blocking(&rows).unwrap();
        lane.finish_blocking().unwrap();
        writer.commit_blocking().unwrap();
        (name, Arc::new(NativeTableProvider::new(store.table(name).unwrap())))
    });
    (providers.into(), simulation)
}

fn engine(
    limit: Option<usize>,
    tables: &[(&str, Arc<NativeTableProvider>)],
    algorithm: SortAlgorithm,
) -> Engine {
    let engine = Engine::new(limit, 2);
    engine.context.state_ref().write().config_mut().set_extension(Arc::new(algorithm));
    for (name, provider) in tables {
        engine.context.register_table(*name, Arc::clone(provider) as _).unwrap();
    }
    engine
}

/// Queries whose order is a total one, and how many tables' columns are fetched.
const ORDERED: &[(&str, usize)] = &[
    ("SELECT * FROM t ORDER BY k DESC NULLS LAST, id", 1),
    ("SELECT * FROM t ORDER BY k, id DESC LIMIT 17", 1),
    ("SELECT * FROM t ORDER BY k, id DESC LIMIT 7 OFFSET 5000", 1),
    ("SELECT comment, words FROM t ORDER BY same, id", 1),
    ("SELECT comment AS c, upper(comment) AS up, words FROM t WHERE k > 100 ORDER BY id DESC LIMIT 9", 1),
    ("SELECT words FROM t WHERE comment LIKE '%9%' ORDER BY k + id, id LIMIT 30", 1),
    ("SELECT t.comment, u.words FROM t JOIN u ON t.id = u.id ORDER BY t.k DESC, t.id", 2),
    ("SELECT t.comment, u.words, u.comment FROM t LEFT JOIN u ON t.id = u.id ORDER BY t.id DESC", 2),
    ("SELECT t.words, u.comment FROM u RIGHT JOIN t ON t.id = u.id AND u.k > 70 ORDER BY t.id LIMIT 999", 2),
    ("SELECT t.comment, u.words FROM t FULL JOIN u ON t.k = u.id + 1 ORDER BY t.id, u.id", 2),
    ("SELECT t.comment FROM t WHERE t.k IN (SELECT k FROM u WHERE comment IS NOT NULL) ORDER BY t.id", 1),
    (
        "SELECT t.words FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k) ORDER BY t.id DESC LIMIT 50",
        1,
    ),
    ("SELECT a.comment, b.comment FROM t a JOIN t b ON a.id = b.id + 1 ORDER BY a.k, a.id LIMIT 100", 2),
    ("SELECT comment, row_number() OVER (ORDER BY id) AS n FROM t ORDER BY n DESC LIMIT 20", 1),
    (
        "SELECT x.words FROM (SELECT * FROM t ORDER BY id DESC LIMIT 70) x JOIN u ON u.id = x.id ORDER BY x.id",
        1,
    ),
    ("SELECT comment, words FROM t WHERE false ORDER BY id", 0),
    ("SELECT comment FROM t WHERE id < 0 ORDER BY k, id", 1),
    ("SELECT id, k FROM t ORDER BY k, id", 0),
    ("SELECT comment, count(*) AS n FROM t GROUP BY comment ORDER BY n, comment NULLS FIRST", 0),
];

#[test]
fn fetched_columns_stand_in_the_order_of_the_result() {
    run(async {
        let plain = plain();
        for (name, rows) in [("t", rows(ROWS, 1)), ("u", rows(FEW_ROWS, 10))] {
            plain
                .register_table(name, Arc::new(MemTable::try_new(schema(), vec![vec![rows]]).unwrap()))
                .unwrap();
        }
        let (tables, _) = stored();
        for (sql, fetched) in ORDERED {
            let right = plain.sql(sql).await.expect(sql).collect().await.expect(sql);
            let right = pretty_format_batches(&right).unwrap().to_string();
            for limit in [None, Some(4096 * KIB), Some(1024 * KIB)] {
                let engine = engine(limit, &tables, SortAlgorithm::Ssd);
                let plan = planned(&engine.context, sql).await.expect(sql);
                assert_eq!(tables_fetched(&plan), *fetched, "{sql}");
                let ours =
                    engine.collect(&plan).await.unwrap_or_else(|error| panic!("{sql}, {limit:?}: {error}"));
                assert_eq!(pretty_format_batches(&ours).unwrap().to_string(), right, "{sql} under {limit:?}");
                drop(plan);
                engine.assert_clean(sql).await;
            }
        }
    });
}

pub(crate) fn tables_fetched(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let own = plan.downcast_ref::<nandina_exec::fetch::FetchExec>().map_or(0, |fetch| fetch.tables().len());
    own + plan.children().iter().map(|child| tables_fetched(child)).sum::<usize>()
}

#[test]
fn small_tables_and_whole_rows_are_not_fetched() {
    run(async {
        let (tables, _) = stored();
        for algorithm in [SortAlgorithm::Auto, SortAlgorithm::Merge] {
            let engine = engine(None, &tables, algorithm);
            let plan = planned(&engine.context, "SELECT * FROM t ORDER BY id LIMIT 3").await.unwrap();
            assert_eq!(count_nodes(&plan, "FetchExec"), 0, "{algorithm}");
        }
    });
}

#[test]
fn the_first_rows_of_a_large_table_are_fetched() {
    run(async {
        let (device, _) = nandina_simulation::in_memory(FaultPlan::none());
        let store = Store::open(device, Mode::Write).unwrap();
        let definition = TableDefinition::new("t", schema()).with_page_bytes(64 << 10);
        let writer =
            store.create_table_with_rows(definition, IfExists::Fail, WriteOptions::default()).unwrap();
        let mut lane = writer.lane();
        (0..10).for_each(|_| lane.append_blocking(&rows(ROWS, 1)).unwrap());
        lane.finish_blocking().unwrap();
        writer.commit_blocking().unwrap();
        let tables = [("t", Arc::new(NativeTableProvider::new(store.table("t").unwrap())))];
        let engine = engine(None, &tables, SortAlgorithm::Auto);
        let plan = planned(&engine.context, "SELECT * FROM t ORDER BY k DESC, id LIMIT 3").await.unwrap();
        assert_eq!(count_nodes(&plan, "FetchExec"), 1);
        engine.collect(&plan).await.unwrap();
        let (fetched, table) = (metric(&plan, "bytes_read"), tables[0].1.table().file_bytes() as usize);
        assert!(fetched < table / 2, "{fetched} of {table} bytes were read");
        let plan = planned(&engine.context, "SELECT * FROM t ORDER BY k DESC, id").await.unwrap();
        assert_eq!(count_nodes(&plan, "FetchExec"), 0, "rows anywhere in a large table");
    });
}

/// Runs a query 25 times while one of its requests fails, then while one of its reads is damaged, and while one of its
/// requests is short, spread over all that it makes: it gives the same rows or an error that names what `error_names`, an
/// error often enough, but none for short requests.
pub(crate) async fn check_faults<R: PartialEq>(
    engine: &Engine,
    simulation: &Simulation,
    sql: &str,
    rows: impl Fn(&[RecordBatch]) -> R,
    error_names: &str,
) {
    const RUNS: u64 = 25;
    let plan = planned(&engine.context, sql).await.unwrap();
    let before = simulation.requests();
    let all = rows(&engine.collect(&plan).await.unwrap());
    let requests = simulation.requests() - before;
    drop(plan);
    assert!(requests >= RUNS, "{sql} makes {requests} requests only");
    type Fault = fn(u64) -> FaultPlan;
    let kinds: [(&str, Fault, bool); 3] = [
        ("failed", |request| FaultPlan::none().fail_request(request), true),
        ("corrupted", |request| FaultPlan::none().corrupt_read(request, request as usize * 7919), true),
        ("short", |request| FaultPlan::none().short_transfer(request, 4096), false),
    ];
    for (name, fault, may_fail) in kinds {
        let mut failures = 0;
        for run in 0..RUNS {
            let nth = run * requests / RUNS;
            let plan = planned(&engine.context, sql).await.unwrap();
            simulation.set_plan(fault(simulation.requests() + nth));
            let outcome = engine.collect(&plan).await;
            simulation.set_plan(FaultPlan::none());
            drop(plan);
            engine.assert_clean(sql).await;
            match outcome {
                Ok(batches) => assert!(rows(&batches) == all, "request {nth} {name}"),
                Err(error) => {
                    assert!(error.to_string().contains(error_names), "request {nth} {name}: {error}");
                    failures += 1;
                }
            }
        }
        let is_right = if may_fail { failures >= RUNS / 2 } else { failures == 0 };
        assert!(is_right, "{failures} of {RUNS} requests that {name} ended the query");
    }
}

#[test]
fn reads_that_fail_or_are_damaged_end_the_query_and_short_ones_do_not() {
    run(async {
        let (tables, simulation) = stored();
        let engine = engine(None, &tables, SortAlgorithm::Ssd);
        let sql = "SELECT * FROM t ORDER BY k, id";
        let in_order = |rows: &[RecordBatch]| concat_batches(&rows[0].schema(), rows).unwrap();
        check_faults(&engine, &simulation, sql, in_order, "segment").await;
    });
}

/// The number, and two kilobytes of letters that no encoding makes smaller.
fn wide_text(number: i64) -> String {
    let mut state = number as u64;
    let letters = (0..2000).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'0' + (state >> 57) as u8 % 75)
    });
    format!("{number} ") + &letters.collect::<String>()
}

/// A table of texts of two kilobytes, of which the keys `sorted` and `mixed` are in the order of the rows and in none.
fn wide_table() -> Arc<NativeTableProvider> {
    let schema: SchemaRef = Arc::new(Schema::new(vec![
        Field::new("sorted", DataType::Int64, false),
        Field::new("mixed", DataType::Int64, false),
        Field::new("text", DataType::Utf8, false),
    ]));
    let (device, _) = nandina_simulation::in_memory(FaultPlan::none());
    let store = Store::open(device, Mode::Write).unwrap();
    let definition = TableDefinition::new("wide", Arc::clone(&schema)).with_page_bytes(64 << 10);
    let writer = store.create_table_with_rows(definition, IfExists::Fail, WriteOptions::default()).unwrap();
    let mut lane = writer.lane();
    for start in (0..16_384).step_by(1024) {
        let numbers = start..start + 1024;
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(numbers.clone())),
            Arc::new(Int64Array::from_iter_values(numbers.clone().map(|number| number * 7919 % 16_384))),
            Arc::new(StringArray::from_iter_values(numbers.map(wide_text))),
        ];
        lane.append_blocking(&RecordBatch::try_new(Arc::clone(&schema), columns).unwrap()).unwrap();
    }
    lane.finish_blocking().unwrap();
    writer.commit_blocking().unwrap();
    Arc::new(NativeTableProvider::new(store.table("wide").unwrap()))
}

#[test]
fn wide_rows_are_fetched_where_they_stand_in_the_order_of_the_key() {
    run(async {
        let tables = [("wide", wide_table())];
        for (key, limit, fetched) in [
            ("sorted", Some(1024 * KIB), true),
            ("sorted", Some(8192 * KIB), true),
            ("sorted", None, false),
            ("mixed", Some(8192 * KIB), false),
            ("mixed", None, false),
        ] {
            let engine = engine(limit, &tables, SortAlgorithm::Auto);
            let sql = format!("SELECT * FROM wide ORDER BY {key} DESC");
            let plan = planned(&engine.context, &sql).await.unwrap();
            assert_eq!(count_nodes(&plan, "FetchExec") > 0, fetched, "{sql} under {limit:?}");
            let rows = engine.collect(&plan).await.unwrap();
            let keys = rows.iter().flat_map(|batch| {
                let keys = batch.column_by_name(key).unwrap().as_primitive::<Int64Type>().clone();
                let texts = batch.column_by_name("text").unwrap().as_string::<i32>().clone();
                let sorted = batch.column_by_name("sorted").unwrap().as_primitive::<Int64Type>().clone();
                for (text, sorted) in texts.iter().zip(sorted.values()) {
                    assert_eq!(text.unwrap(), wide_text(*sorted));
                }
                keys.values().to_vec()
            });
            assert!(keys.eq((0..16_384).rev()), "{sql} under {limit:?}");
            drop(plan);
            engine.assert_clean(&sql).await;
        }
    });
}
