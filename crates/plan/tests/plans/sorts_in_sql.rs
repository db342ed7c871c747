//! Orders, limits and windows as SQL plans them run through our sort at any limit, and give DataFusion's rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::DataType;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::harness::rows::{assert_same_rows, integers};
use crate::harness::tables::{KeyType, Table, TableShape};
use crate::harness::{Engine, MIB, count_nodes, metric, plain, planned, register, run};

/// Runs `sql` at every limit and compares. Its rows come ordered by these columns, which decide: rows have one order.
fn same_everywhere(sql: &str, ordered_by: &[&str], sorts: usize, merges: usize) {
    run(async {
        let shape =
            TableShape { domain: 500, null_percent: 10, text_bytes: 150, ..TableShape::of_rows(12_000) };
        let table = Table::draw("", &[KeyType::Int32, KeyType::Utf8View], &shape);
        let right = plain();
        register(&right, "t", &table, 2);
        let right = right.sql(sql).await.expect(sql).collect().await.expect(sql);
        for limit in [None, Some(32 * MIB), Some(4 * MIB), Some(MIB)] {
            let what = format!("{sql} at {limit:?}");
            let engine = Engine::new(limit, 2);
            engine.register("t", &table, 2);
            let plan = planned(&engine.context, sql).await.expect(&what);
            let shown = datafusion::physical_plan::displayable(plan.as_ref()).indent(false).to_string();
            assert_eq!(count_nodes(&plan, "ExternalSortExec"), sorts, "{shown}");
            assert_eq!(count_nodes(&plan, "SortPreservingMergeExec"), merges, "{shown}");
            assert!(!shown.contains(" SortExec"), "{shown}");
            let ours = engine.collect(&plan).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_same_rows(&ours, &right, &what);
            for column in ordered_by {
                assert_eq!(values(&ours, column), values(&right, column), "{what}: {column}");
            }
            drop((ours, plan));
            engine.assert_clean(&what).await;
        }
    });
}

/// The values of a column as texts, as they come.
fn values(batches: &[RecordBatch], column: &str) -> Vec<String> {
    let options = FormatOptions::default().with_null("∅");
    let values = batches.iter().flat_map(|batch| {
        let column = batch.column_by_name(column).expect("a column");
        let formatter = ArrayFormatter::try_new(column.as_ref(), &options).expect("a formatter");
        (0..batch.num_rows()).map(|row| formatter.value(row).to_string()).collect::<Vec<_>>()
    });
    values.collect()
}

#[test]
fn orders_are_sorts_of_all_partitions() {
    same_everywhere("SELECT * FROM t ORDER BY id", &["id"], 1, 0);
    same_everywhere("SELECT text, id FROM t ORDER BY id", &["id"], 1, 0);
    let computed = "SELECT id, k0 + 1 AS k FROM t WHERE k0 > 3 ORDER BY k DESC NULLS LAST, id";
    same_everywhere(computed, &["k", "id"], 1, 0);
    same_everywhere("SELECT id, k0, k1 FROM t ORDER BY k1, k0 DESC, id DESC", &["k1", "k0", "id"], 1, 0);
}

#[test]
fn limits_are_known_to_sorts() {
    same_everywhere("SELECT * FROM t ORDER BY id LIMIT 20", &["id"], 1, 0);
    same_everywhere("SELECT text, id FROM t ORDER BY id LIMIT 3000 OFFSET 4000", &["id"], 1, 0);
    let groups = "SELECT k0, count(*) FROM t GROUP BY k0 ORDER BY k0 NULLS FIRST LIMIT 7";
    same_everywhere(groups, &["k0"], 1, 0);
}

#[test]
fn windows_stand_on_sorts() {
    same_everywhere("SELECT id, row_number() OVER (ORDER BY id) FROM t", &[], 1, 0);
    same_everywhere("SELECT id, sum(number) OVER (PARTITION BY k0 ORDER BY id) FROM t", &[], 1, 0);
    same_everywhere(
        "SELECT id, lag(text) OVER (PARTITION BY k1 ORDER BY id), count(*) OVER (PARTITION BY k0) FROM t",
        &[],
        2,
        0,
    );
    let ranks = "SELECT id, rank() OVER (PARTITION BY k0 ORDER BY text) r FROM t ORDER BY id";
    same_everywhere(ranks, &["id"], 2, 0);
}

/// `next_number()` counts the rows that it is computed for.
#[derive(Debug)]
struct NextNumber {
    signature: Signature,
    next: AtomicI64,
}

impl NextNumber {
    fn new() -> Self {
        Self { signature: Signature::nullary(Volatility::Volatile), next: AtomicI64::new(0) }
    }
}

impl PartialEq for NextNumber {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for NextNumber {}

impl std::hash::Hash for NextNumber {
    fn hash<H: std::hash::Hasher>(&self, _state: &mut H) {}
}

impl ScalarUDFImpl for NextNumber {
    fn name(&self) -> &str {
        "next_number"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = arguments.number_rows as i64;
        let first = self.next.fetch_add(rows, Ordering::Relaxed);
        Ok(ColumnarValue::Array(Arc::new(Int64Array::from_iter_values(first..first + rows))))
    }
}

/// The row numbers that a query gives, and how many runs it wrote, where `next_number()` is known.
fn numbered(sql: &str, limit: Option<usize>, partitions: usize) -> (Vec<i64>, usize) {
    run(async {
        let shape = TableShape { text_bytes: 150, ..TableShape::of_rows(20_000) };
        let table = Table::draw("", &[KeyType::Int32], &shape);
        let engine = Engine::new(limit, partitions);
        engine.register("t", &table, partitions);
        engine.context.register_udf(ScalarUDF::from(NextNumber::new()));
        let plan = planned(&engine.context, sql).await.expect(sql);
        assert_eq!(count_nodes(&plan, "ExternalSortExec"), 1, "{sql}");
        assert_eq!(count_nodes(&plan, "SortPreservingMergeExec"), 0, "{sql}");
        let ours = engine.collect(&plan).await.unwrap_or_else(|error| panic!("{sql} at {limit:?}: {error}"));
        let ids = integers(&ours, 0).into_iter().flatten().collect();
        let runs = metric(&plan, "spilled_runs");
        drop((ours, plan));
        engine.assert_clean(sql).await;
        (ids, runs)
    })
}

#[test]
fn a_function_that_gives_another_value_each_time_is_computed_once_for_every_row() {
    for limit in [None, Some(MIB)] {
        let (ids, runs) = numbered("SELECT id, text FROM t ORDER BY next_number() DESC", limit, 1);
        assert!(ids.iter().copied().eq((0..20_000).rev()), "{limit:?}: {:?} …", &ids[..10]);
        assert_eq!(runs > 1, limit.is_some());
        for wanted in [10, 12_000] {
            let sql = format!("SELECT id, text FROM t ORDER BY next_number() DESC LIMIT {wanted}");
            let (ids, _) = numbered(&sql, limit, 1);
            assert!(ids.iter().copied().eq((20_000 - wanted..20_000).rev()), "{wanted} at {limit:?}");
            // Functions beside others, and as parts of others.
            let sql =
                format!("SELECT id, text FROM t ORDER BY k0 * 0, 1 - next_number() DESC LIMIT {wanted}");
            let (ids, _) = numbered(&sql, limit, 1);
            assert!(ids.iter().copied().eq(0..wanted), "{wanted} at {limit:?}");
        }
    }
}

#[test]
fn the_first_rows_in_random_order_are_a_fair_sample() {
    for limit in [None, Some(MIB)] {
        for wanted in [1000, 8000] {
            let sql = format!("SELECT id, text FROM t ORDER BY random() LIMIT {wanted}");
            let (mut ids, _) = numbered(&sql, limit, 2);
            let late = ids.iter().filter(|&&id| id >= 10_000).count();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), wanted);
            // Half of them come from the second half of the table, give or take ten standard deviations.
            assert!(late.abs_diff(wanted / 2) < wanted / 6, "{late} of {wanted} rows at {limit:?}");
        }
    }
}
