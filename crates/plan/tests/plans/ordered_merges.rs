//! Merges of sorted inputs give all rows in order, also where nobody has memory left for them.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt64Array};
use arrow::compute::take_record_batch;
use datafusion::config::ConfigOptions;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::physical_expr::expressions::col;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, collect};
use nandina_plan::ReplaceOperators;
use tempfile::TempDir;

use crate::harness::files::write_frame;
use crate::harness::input::{Ending, Tap, sorted};
use crate::harness::rows::{integers, row_count};
use crate::harness::streams::{cancel_when, errors, read_all, streams};
use crate::harness::tables::Table;
use crate::harness::{BATCH_ROWS, Engine, MIB, count_nodes, plain, planned, run};

const ROWS: i64 = 30_000;

/// Rows in the order of `k`, of which each value is there seven times, nulls first.
fn table() -> Table {
    let keys = (0..ROWS).map(|row| (row > 20).then_some(row / 7));
    let texts = (0..ROWS).map(|row| format!("{row:0200}"));
    let columns: [ArrayRef; 3] = [
        Arc::new(Int64Array::from_iter(keys)),
        Arc::new(Int64Array::from_iter_values(0..ROWS)),
        Arc::new(StringArray::from_iter_values(texts)),
    ];
    let mut table = Table::of_columns(&["k", "id", "text"], columns.to_vec());
    // Batches of their own: a slice counts as all that it was cut from.
    for batch in &mut table.batches {
        let all = UInt64Array::from_iter_values(0..batch.num_rows() as u64);
        *batch = take_record_batch(batch, &all).unwrap();
    }
    table
}

/// DataFusion's merge of so many sorted inputs, and ours.
fn merges(
    table: &Table,
    partitions: usize,
    fetch: Option<usize>,
    ending: Ending,
    tap: &Arc<Tap>,
) -> (Arc<dyn ExecutionPlan>, Arc<dyn ExecutionPlan>) {
    let key = PhysicalSortExpr::new_default(col("k", &table.schema).unwrap());
    let order = LexOrdering::new([key]).unwrap();
    let input = sorted(table, partitions, order.clone(), ending, tap);
    let planned: Arc<dyn ExecutionPlan> =
        Arc::new(SortPreservingMergeExec::new(order, input).with_fetch(fetch));
    let ours = ReplaceOperators::SORTS.optimize(Arc::clone(&planned), &ConfigOptions::default()).unwrap();
    assert_eq!(count_nodes(&ours, "OrderedMergeExec"), 1);
    assert_eq!((ours.schema(), ours.fetch()), (planned.schema(), fetch));
    assert_eq!(ours.properties().output_ordering(), planned.properties().output_ordering());
    (planned, ours)
}

fn ids(batches: &[RecordBatch]) -> Vec<Option<i64>> {
    integers(batches, 1)
}

/// The rows of our merge and of DataFusion's, where another consumer has all of the memory.
async fn check(limit: Option<usize>, partitions: usize, fetch: Option<usize>) {
    let what = format!("{partitions} inputs at {limit:?}, {fetch:?} rows");
    let table = table();
    let (planned, ours) = merges(&table, partitions, fetch, Ending::Complete, &Tap::open());
    let right = collect(planned, plain().task_ctx()).await.unwrap();
    let engine = Engine::new(limit, partitions);
    let others = MemoryConsumer::new("others").register(&engine.pool());
    others.grow(limit.unwrap_or(0));
    let rows = engine.collect(&ours).await.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(row_count(&rows), fetch.unwrap_or(ROWS as usize), "{what}");
    assert!(rows.iter().all(|batch| batch.num_rows() <= BATCH_ROWS), "{what}");
    assert_eq!(integers(&rows, 0), integers(&right, 0), "{what}: keys");
    let sorted = |mut ids: Vec<Option<i64>>| {
        ids.sort_unstable();
        ids
    };
    if fetch.is_none() {
        assert_eq!(sorted(ids(&rows)), sorted(ids(&right)), "{what}: rows");
    }
    // The merge itself, and a batch of each input that is on its way.
    let most_bytes = limit.unwrap_or(0) + (2 * partitions + 2) * BATCH_ROWS * 500;
    assert!(engine.governor.peak_bytes() <= most_bytes, "{what}: {} bytes", engine.governor.peak_bytes());
    drop((rows, ours, others));
    engine.assert_clean(&what).await;
}

#[test]
fn all_rows_come_in_order_without_any_memory_left() {
    for limit in [None, Some(32 * MIB), Some(MIB)] {
        for partitions in [1, 2, 7] {
            for fetch in [None, Some(0), Some(1), Some(9_000)] {
                run(check(limit, partitions, fetch));
            }
        }
    }
}

#[test]
fn datafusions_merge_fails_there() {
    run(async {
        let (planned, _) = merges(&table(), 2, None, Ending::Complete, &Tap::open());
        let engine = Engine::new(Some(MIB), 2);
        let others = MemoryConsumer::new("others").register(&engine.pool());
        others.grow(MIB);
        let error = engine.collect(&planned).await.unwrap_err().to_string();
        assert!(error.contains("SortPreservingMergeExec[0] needs"), "{error}");
    });
}

#[test]
fn an_input_that_fails_fails_the_merge() {
    run(async {
        let (_, ours) = merges(&table(), 3, None, Ending::Error("the input broke"), &Tap::open());
        let engine = Engine::new(Some(MIB), 3);
        let errors = errors(&read_all(streams(&engine, &ours)).await);
        assert_eq!(errors.len(), 1);
        assert!(errors[0].contains("the input broke"), "{errors:?}");
        drop(ours);
        engine.assert_clean("a merge whose input failed").await;
    });
}

#[test]
fn cancelling_leaves_nothing() {
    for batches in [0, 1, 20] {
        run(async {
            let tap = Tap::after(batches);
            let (_, ours) = merges(&table(), 3, None, Ending::Complete, &tap);
            let engine = Engine::new(Some(MIB), 3);
            cancel_when(streams(&engine, &ours), tap.runs_dry()).await;
            drop(ours);
            engine.assert_clean(&format!("a merge cancelled after {batches} batches")).await;
        });
    }
}

#[test]
fn files_in_order_are_merged() {
    run(async {
        let folder = TempDir::new().unwrap();
        let right = plain();
        crate::harness::register(&right, "t", &table(), 1);
        for (name, condition) in [("a", "id % 3 = 0"), ("b", "id % 3 = 1"), ("c", "id % 3 = 2")] {
            let sql = format!("SELECT * FROM t WHERE {condition} ORDER BY k NULLS FIRST");
            write_frame(&folder.path().join(format!("{name}.parquet")), right.sql(&sql).await.unwrap()).await;
        }
        let create = format!(
            "CREATE EXTERNAL TABLE f (k BIGINT, id BIGINT, text VARCHAR) STORED AS PARQUET \
             WITH ORDER (k ASC NULLS FIRST) LOCATION '{}'",
            folder.path().display()
        );
        for limit in [None, Some(8 * MIB), Some(MIB)] {
            let engine = Engine::new(limit, 3);
            engine.context.sql(&create).await.unwrap().collect().await.unwrap();
            let sql = "SELECT k, id FROM f ORDER BY k NULLS FIRST";
            let plan = planned(&engine.context, sql).await.unwrap();
            assert_eq!(count_nodes(&plan, "OrderedMergeExec"), 1, "{plan:?}");
            assert_eq!(count_nodes(&plan, "ExternalSortExec"), 0, "{plan:?}");
            let others = MemoryConsumer::new("others").register(&engine.pool());
            others.grow(limit.unwrap_or(0));
            let rows = engine.collect(&plan).await.unwrap();
            let keys: Vec<Option<i64>> = (0..ROWS).map(|row| (row > 20).then_some(row / 7)).collect();
            assert_eq!(integers(&rows, 0), keys, "{limit:?}");
        }
    });
}
