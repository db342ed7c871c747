//! Window functions run through our operator at any limit, give DataFusion's rows, and leave nothing behind.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use datafusion::datasource::MemTable;
use datafusion::logical_expr::SortExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{SessionContext, ident};
use futures::StreamExt;
use nandina_simulation::FaultPlan;

use crate::harness::rows::{assert_same_rows, integers, row_count};
use crate::harness::streams::{cancel_when, errors, read_all, streams};
use crate::harness::tables::{KeyType, Skew, Table, TableShape};
use crate::harness::{Engine, KIB, MIB, count_nodes, metric, plain, planned, register, run};

const LIMITS: [Option<usize>; 4] = [None, Some(32 * MIB), Some(4 * MIB), Some(256 * KIB)];

/// Functions that follow the rows; `{w}` is how their window begins.
const RUNNING: &[&str] = &[
    "row_number() OVER ({w}), rank() OVER ({w}), dense_rank() OVER ({w})",
    "lag(number, 3, -1) OVER ({w}), lead(text) OVER ({w}), lead(id, 700) OVER ({w})",
    "sum(number) OVER ({w}), count(text) OVER ({w} ROWS UNBOUNDED PRECEDING), avg(id) OVER ({w})",
    "sum(id) OVER ({w} ROWS BETWEEN 3 PRECEDING AND 2 FOLLOWING), max(text) OVER ({w} ROWS 5 PRECEDING)",
    "min(number) OVER ({w} ROWS BETWEEN 2 FOLLOWING AND 900 FOLLOWING), count(*) OVER ({w} ROWS 1000 PRECEDING)",
    "sum(id) OVER ({w} RANGE BETWEEN 10 PRECEDING AND 10 FOLLOWING), sum(id) OVER ({w} GROUPS 1 PRECEDING)",
    "first_value(text) OVER ({w}), nth_value(id, 2) OVER ({w}), last_value(number) OVER ({w} ROWS 1 PRECEDING)",
    "last_value(number) IGNORE NULLS OVER ({w}), first_value(number) IGNORE NULLS OVER ({w} ROWS UNBOUNDED PRECEDING)",
    "lag(number, 2) IGNORE NULLS OVER ({w}), last_value(text) OVER ({w}), count(DISTINCT number) OVER ({w})",
    "sum(id) FILTER (WHERE number > 50) OVER ({w}), count(*) FILTER (WHERE text LIKE '%7%') OVER ({w} ROWS 9 PRECEDING)",
];

/// Functions whose results are known when a partition has ended, and mixtures.
const AT_END: &[&str] = &[
    "ntile(7) OVER ({w}), percent_rank() OVER ({w}), cume_dist() OVER ({w})",
    "sum(number) OVER ({w} ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING), row_number() OVER ({w})",
    "last_value(text) OVER ({w} ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING), rank() OVER ({w})",
    "sum(id) OVER ({w} ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING), lag(id) OVER ({w}), ntile(3) OVER ({w})",
    "first_value(text) OVER ({w} RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING), ntile(1) OVER ({w})",
    "last_value(number) IGNORE NULLS OVER ({w} ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
    "first_value(number) IGNORE NULLS OVER ({w} ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING), \
     last_value(text) OVER ({w} ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING), lead(id) OVER ({w})",
    "nth_value(text, 3) OVER ({w} ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
    "max(text) FILTER (WHERE id % 3 = 1) OVER ({w} RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
    "round(avg(number) OVER ({w} ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING), 9), cume_dist() OVER ({w})",
];

/// Functions that are the same for all rows that are equal in the order.
const AMONG_PEERS: &[&str] = &[
    "rank() OVER ({w}), dense_rank() OVER ({w}), sum(number) OVER ({w}), min(text) OVER ({w})",
    "sum(id) OVER ({w} GROUPS 1 PRECEDING), count(*) OVER ({w} RANGE BETWEEN 2 PRECEDING AND 5 FOLLOWING)",
    "percent_rank() OVER ({w}), cume_dist() OVER ({w}), count(*) OVER ({w})",
    "sum(number) OVER ({w} RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING), rank() OVER ({w})",
    "last_value(number) IGNORE NULLS OVER ({w}), first_value(text) OVER ({w}), last_value(id) OVER ({w})",
    "last_value(number) IGNORE NULLS OVER ({w} GROUPS UNBOUNDED PRECEDING), row_number() OVER ({w}), cume_dist() OVER ({w})",
    "max(id) OVER ({w} GROUPS BETWEEN 3 PRECEDING AND 1 PRECEDING), min(id) OVER ({w} GROUPS 1 PRECEDING)",
    "last_value(number) IGNORE NULLS OVER ({w} ROWS UNBOUNDED PRECEDING), count(*) OVER ({w} GROUPS CURRENT ROW)",
];

/// Functions of windows without an order.
const WHOLE: &[&str] = &[
    "sum(number) OVER ({w}), min(text) OVER ({w}), count(*) OVER ({w})",
    "count(*) FILTER (WHERE number > 30) OVER ({w}), max(id) OVER ({w})",
];

/// A table sorted by the columns `k0, id`.
fn table(rows: usize, domain: i64, skew: Skew) -> Table {
    let shape = TableShape { domain, null_percent: 5, text_bytes: 60, skew, ..TableShape::of_rows(rows) };
    let table = Table::draw("", &[KeyType::Int64], &shape);
    let batches = run(async {
        let context = plain();
        register(&context, "t", &table, 1);
        context.sql("SELECT * FROM t ORDER BY k0, id").await.unwrap().collect().await.unwrap()
    });
    Table { batches, ..table }
}

/// Makes the table known as one that is sorted by `k0, id`, so that no sort stands below its windows.
fn register_sorted(context: &SessionContext, table: &Table) {
    let order = ["k0", "id"].map(|name| SortExpr::new(ident(name), true, false)).to_vec();
    let source = MemTable::try_new(Arc::clone(&table.schema), table.deal(1)).unwrap();
    context.register_table("t", Arc::new(source.with_sort_order(vec![order]))).unwrap();
}

async fn window_plan(engine: &Engine, table: &Table, sql: &str) -> Arc<dyn ExecutionPlan> {
    register_sorted(&engine.context, table);
    let plan = planned(&engine.context, sql).await.expect(sql);
    assert_eq!(count_nodes(&plan, "SpillingWindowExec"), 1, "{sql}");
    for sort in ["SortExec", "ExternalSortExec"] {
        assert_eq!(count_nodes(&plan, sort), 0, "{sql}");
    }
    plan
}

/// Runs `sql` at every limit and compares with plain DataFusion. Returns the rows spilled at the smallest.
fn same_everywhere(table: &Table, sql: &str) -> usize {
    run(async {
        let right = plain();
        // In one partition: rows that are equal in the order would come as they please.
        right.sql("SET datafusion.execution.target_partitions = 1").await.unwrap();
        register_sorted(&right, table);
        let right = right.sql(sql).await.expect(sql).collect().await.expect(sql);
        let mut spilled = 0;
        for limit in LIMITS {
            let what = format!("{sql} at {limit:?}");
            let engine = Engine::new(limit, 1);
            let plan = window_plan(&engine, table, sql).await;
            let ours = engine.collect(&plan).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_same_rows(&ours, &right, &what);
            assert_order(&ours, &what);
            spilled = metric(&plan, "spilled_rows");
            drop((ours, plan));
            engine.assert_clean(&what).await;
        }
        spilled
    })
}

/// Rows come in the order of `k0, id`, nulls last.
fn assert_order(batches: &[RecordBatch], what: &str) {
    let mut before = (i64::MIN, i64::MIN);
    for batch in batches {
        let column = |name: &str| batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().clone();
        let (keys, ids) = (column("k0"), column("id"));
        for row in 0..batch.num_rows() {
            let key = if keys.is_null(row) { i64::MAX } else { keys.value(row) };
            let place = (key, ids.value(row));
            assert!(before < place, "{what}: {before:?} before {place:?}");
            before = place;
        }
    }
}

fn selects(functions: &[&str], window: &str) -> Vec<String> {
    functions
        .iter()
        .map(|functions| format!("SELECT *, {} FROM t", functions.replace("{w}", window)))
        .collect()
}

#[test]
fn small_partitions_give_the_same_rows_at_every_limit() {
    let small = table(9_000, 3_000, Skew::Even);
    for sql in selects(&[RUNNING, AT_END].concat(), "PARTITION BY k0 ORDER BY id") {
        same_everywhere(&small, &sql);
    }
    for sql in selects(WHOLE, "PARTITION BY k0") {
        same_everywhere(&small, &sql);
    }
}

#[test]
fn large_partitions_wait_in_temporary_space() {
    let skewed = table(12_000, 40, Skew::Half);
    for sql in selects(RUNNING, "PARTITION BY k0 ORDER BY id") {
        same_everywhere(&skewed, &sql);
    }
    for sql in selects(AT_END, "PARTITION BY k0 ORDER BY id") {
        assert!(same_everywhere(&skewed, &sql) > 0, "{sql}: nothing was spilled");
    }
    for sql in selects(WHOLE, "PARTITION BY k0") {
        assert!(same_everywhere(&skewed, &sql) > 0, "{sql}: nothing was spilled");
    }
}

#[test]
fn all_rows_may_be_one_partition() {
    let all = table(8_000, 500, Skew::Even);
    for sql in selects(&[RUNNING, AT_END].concat(), "ORDER BY k0, id") {
        // Ranges at a distance are of one column.
        if !sql.contains("RANGE BETWEEN 10") {
            same_everywhere(&all, &sql);
        }
    }
    for sql in selects(AMONG_PEERS, "ORDER BY k0") {
        same_everywhere(&all, &sql);
    }
    for sql in selects(WHOLE, "") {
        assert!(same_everywhere(&all, &sql) > 0, "{sql}: nothing was spilled");
    }
}

#[test]
fn peers_may_span_many_batches() {
    for few in [table(8_000, 4, Skew::Even), table(6_000, 1, Skew::One)] {
        for sql in selects(AMONG_PEERS, "ORDER BY k0") {
            same_everywhere(&few, &sql);
        }
    }
}

/// Rows of unsorted tables in several partitions, through whatever plan they get.
fn same_from_anywhere(table: &Table, sql: &str) {
    run(async {
        let right = plain();
        register(&right, "t", table, 1);
        let right = right.sql(sql).await.expect(sql).collect().await.expect(sql);
        for limit in [None, Some(4 * MIB), Some(MIB)] {
            let what = format!("{sql} at {limit:?}");
            let engine = Engine::new(limit, 3);
            engine.register("t", table, 3);
            let plan = planned(&engine.context, sql).await.expect(sql);
            assert_eq!(count_nodes(&plan, "SpillingWindowExec"), 1, "{sql}");
            let ours = engine.collect(&plan).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_same_rows(&ours, &right, &what);
            drop((ours, plan));
            engine.assert_clean(&what).await;
        }
    });
}

#[test]
fn any_order_and_several_partitions_give_the_same_rows() {
    let shape = TableShape { domain: 400, null_percent: 20, text_bytes: 40, ..TableShape::of_rows(9_000) };
    let table = Table::draw("", &[KeyType::Int64, KeyType::Int64], &shape);
    let windows = [
        "PARTITION BY k1 ORDER BY k0 DESC NULLS FIRST, id",
        "PARTITION BY k1, number ORDER BY id DESC",
        "ORDER BY k0 NULLS FIRST, id DESC",
        "ORDER BY number DESC NULLS LAST, id",
    ];
    for window in windows {
        for sql in selects(&[RUNNING, AT_END].concat(), window) {
            // Ranges at a distance are of one column.
            if !sql.contains("RANGE BETWEEN 10") || window.ends_with("ORDER BY id DESC") {
                same_from_anywhere(&table, &sql);
            }
        }
    }
    // Which of its peers a value is of is anybody's guess here.
    let unambiguous = AMONG_PEERS.iter().copied().filter(|functions| !functions.contains("_value"));
    let unambiguous: Vec<_> = unambiguous.filter(|functions| !functions.contains("row_number")).collect();
    for window in ["ORDER BY k0 DESC NULLS FIRST", "PARTITION BY number ORDER BY k1 DESC NULLS LAST"] {
        for sql in selects(&unambiguous, window) {
            same_from_anywhere(&table, &sql);
        }
    }
}

/// The columns of an integer and of what a function made of it, over one partition in the order of `k0, id`.
fn computed(table: &Table, limit: Option<usize>, function: &str) -> (Vec<Option<i64>>, Vec<Option<i64>>) {
    run(async {
        let engine = Engine::new(limit, 1);
        let sql = format!("SELECT CAST(number AS BIGINT), CAST({function} AS BIGINT) FROM t");
        let plan = window_plan(&engine, table, &sql).await;
        let rows = engine.collect(&plan).await.expect(&sql);
        (integers(&rows, 0), integers(&rows, 1))
    })
}

#[test]
fn lead_passes_over_nulls() {
    let table = table(6_000, 500, Skew::Even);
    for limit in LIMITS {
        for distance in [1, 2, 5, 600] {
            let function = format!("lead(number, {distance}) IGNORE NULLS OVER (ORDER BY k0, id)");
            let (numbers, leads) = computed(&table, limit, &function);
            assert_eq!(numbers.len(), 6_000);
            for (row, lead) in leads.iter().enumerate() {
                let right = numbers[row + 1..].iter().flatten().nth(distance - 1);
                assert_eq!(lead.as_ref(), right, "row {row}, {function} at {limit:?}");
            }
        }
    }
}

/// Written down, since DataFusion takes those of the peers that it has seen.
#[test]
fn frames_before_a_row_are_its_peers_where_there_is_no_distance() {
    let (least, most, none) = (f64::NEG_INFINITY, f64::INFINITY, f64::NAN);
    let finite = |number: i64| (Some(number as f64), (number - 2).clamp(0, 4));
    let mut right: Vec<(Option<f64>, i64)> = vec![(Some(least), 600); 600];
    right.extend((1..=2000).map(finite));
    right.extend([(Some(most), 700), (Some(none), 1300)].iter().flat_map(|row| vec![*row; row.1 as usize]));
    right.extend(vec![(None, 1500); 1500]);
    let keys: ArrayRef = Arc::new(Float64Array::from_iter(right.iter().map(|(key, _)| *key)));
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..right.len() as i64));
    let table = Table::of_columns(&["k0", "id"], vec![keys, ids]);
    let sql = "SELECT k0, id, count(*) OVER (ORDER BY k0 RANGE BETWEEN 5 PRECEDING AND 2 PRECEDING) FROM t";
    for limit in LIMITS {
        run(async {
            let engine = Engine::new(limit, 1);
            let plan = window_plan(&engine, &table, sql).await;
            let rows = engine.collect(&plan).await.unwrap();
            let counts: Vec<_> = integers(&rows, 2).into_iter().flatten().collect();
            assert_eq!(counts.len(), right.len());
            for (row, (found, (key, right))) in counts.iter().zip(&right).enumerate() {
                assert_eq!(found, right, "row {row} of key {key:?} at {limit:?}");
            }
        });
    }
}

#[test]
fn what_running_aggregates_keep_is_reserved() {
    let shape = TableShape { text_bytes: 300, ..TableShape::of_rows(10_000) };
    let texts = Table::draw("", &[KeyType::Int64], &shape);
    run(async {
        let engine = Engine::new(None, 1);
        engine.register("t", &texts, 1);
        let sql =
            "SELECT sum(n) FROM (SELECT count(DISTINCT text) OVER (ROWS UNBOUNDED PRECEDING) AS n FROM t)";
        let plan = planned(&engine.context, sql).await.unwrap();
        engine.collect(&plan).await.unwrap();
        // Nearly all of the texts, of 300 bytes on average, are distinct.
        let peak = engine.governor.peak_bytes();
        assert!(peak > 2 * MIB, "{peak}");
    });
}

#[test]
fn no_rows_give_none() {
    let none = table(0, 1, Skew::Even);
    for sql in selects(&[RUNNING, AT_END].concat(), "PARTITION BY k0 ORDER BY id") {
        same_everywhere(&none, &sql);
    }
    same_everywhere(&none, "SELECT *, count(*) OVER () FROM t");
}

#[test]
fn running_functions_keep_frames_and_not_partitions() {
    let table = table(40_000, 1, Skew::One);
    run(async {
        let engine = Engine::new(Some(MIB), 1);
        let sql = "SELECT *, sum(number) OVER w, lag(text) OVER w, last_value(text) IGNORE NULLS OVER w, \
                   first_value(text) OVER w FROM t WINDOW w AS (ORDER BY k0, id)";
        let plan = window_plan(&engine, &table, sql).await;
        let mut rows = 0;
        for mut stream in streams(&engine, &plan) {
            while let Some(batch) = stream.next().await {
                rows += batch.unwrap().num_rows();
            }
        }
        assert_eq!(rows, 40_000);
        assert_eq!(metric(&plan, "spilled_rows"), 0);
        assert!(engine.governor.peak_bytes() < 512 * KIB, "{}", engine.governor.peak_bytes());
    });
}

/// What makes rows wait until the end of the only partition.
const LONG_WAIT: &str = "SELECT *, count(*) OVER (), row_number() OVER () FROM t";

/// 3 MB in one partition, for a limit of 1 MB.
fn one_partition() -> Table {
    let shape = TableShape { text_bytes: 300, ..TableShape::of_rows(10_000) };
    Table::draw("", &[KeyType::Int64], &shape)
}

async fn long_wait(engine: &Engine, table: &Table) -> Arc<dyn ExecutionPlan> {
    engine.register("t", table, 1);
    planned(&engine.context, LONG_WAIT).await.unwrap()
}

#[test]
fn cancelling_leaves_nothing() {
    let table = one_partition();
    for delay in [0, 1, 3, 10] {
        run(async {
            let engine = Engine::new(Some(MIB), 1);
            let plan = long_wait(&engine, &table).await;
            let moment = async {
                while engine.space.used_bytes() == 0 {
                    tokio::time::sleep(Duration::from_micros(100)).await;
                }
                tokio::time::sleep(Duration::from_millis(delay)).await;
            };
            cancel_when(streams(&engine, &plan), moment).await;
            engine.assert_clean(&format!("a window cancelled after {delay} ms")).await;
        });
    }
}

#[test]
fn a_full_device_is_named() {
    let table = one_partition();
    run(async {
        let (engine, faults) = Engine::simulated(Some(MIB), 1);
        faults.set_plan(FaultPlan::none().capacity(MIB as u64));
        let plan = long_wait(&engine, &table).await;
        let outcomes = read_all(streams(&engine, &plan)).await;
        let errors = errors(&outcomes);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains("no space left") && errors[0].contains("window needs"), "{errors:?}");
        drop((outcomes, plan));
        engine.assert_clean("a window on a full device").await;
    });
}

#[test]
fn any_request_may_fail() {
    let table = one_partition();
    let requests = run(async {
        let (engine, faults) = Engine::simulated(Some(MIB), 1);
        let before = faults.requests();
        let plan = long_wait(&engine, &table).await;
        assert_eq!(row_count(&engine.collect(&plan).await.unwrap()), 10_000);
        faults.requests() - before
    });
    let mut failed = 0;
    for nth in (0..requests).step_by((requests as usize / 12).max(1)) {
        run(async {
            let (engine, faults) = Engine::simulated(Some(MIB), 1);
            let plan = long_wait(&engine, &table).await;
            faults.set_plan(FaultPlan::none().fail_request(faults.requests() + nth));
            let outcomes = read_all(streams(&engine, &plan)).await;
            match &outcomes[0] {
                Ok(rows) => assert_eq!(row_count(rows), 10_000, "request {nth}"),
                Err(_) => failed += 1,
            }
            drop((outcomes, plan));
            engine.assert_clean(&format!("a window whose request {nth} failed")).await;
        });
    }
    assert!(failed > 6, "{failed} faults were noticed");
}

#[test]
fn others_may_ask_for_the_memory_of_rows_that_wait() {
    run(async {
        let table = one_partition();
        let engine = Engine::new(Some(8 * MIB), 1);
        let plan = long_wait(&engine, &table).await;
        let mut stream = streams(&engine, &plan).pop().unwrap();
        let first = stream.next().await.unwrap().unwrap();
        assert_eq!(metric(&plan, "spilled_rows"), 0, "all rows fit at first");
        let other = datafusion::execution::memory_pool::MemoryConsumer::new("other").register(&engine.pool());
        other.try_grow(6 * MIB).expect("memory that rows waited in");
        assert!(metric(&plan, "spilled_rows") > 0);
        let mut rows = first.num_rows();
        while let Some(batch) = stream.next().await {
            rows += batch.unwrap().num_rows();
        }
        assert_eq!(rows, 10_000);
        drop((other, stream, plan));
        engine.assert_clean("a window that gave memory back").await;
    });
}
