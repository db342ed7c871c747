//! However an aggregation ends, it leaves nothing behind; it gives memory back when another consumer needs it; and
//! however it fails, it says why and does not hang.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::physical_plan::ExecutionPlan;
use futures::StreamExt;
use nandina_simulation::FaultPlan;

use crate::harness::aggregates::{Functions, aggregation, right_rows};
use crate::harness::input::{Ending, Tap, scripted};
use crate::harness::pressure::{
    assert_spilled, begun_and_then_one_after_the_other, fails_cleanly, faults_noticed, one_after_the_other,
    read_until_spilled_pages_come_back, take_what_is_held,
};
use crate::harness::rows::assert_same_rows;
use crate::harness::streams::{cancel_when, read_all, streams};
use crate::harness::tables::{KeyType, Table, TableShape};
use crate::harness::{Engine, KIB, MIB, metric, run};

/// What these aggregations may use; their groups take several times as much.
const LIMIT: usize = MIB;

/// About 4 MB of groups, 32 batches.
fn table() -> Table {
    let shape = TableShape { domain: 12_000, text_bytes: 20, ..TableShape::of_rows(16_000) };
    Table::draw("", &[KeyType::LongText(200)], &shape)
}

/// Another consumer asks for most of the memory while the input is being taken in, or when it has been.
async fn gives_memory_back(table: &Table, functions: Functions, batches_first: usize, keeps: bool) {
    let what = format!("{functions:?} after {batches_first} batches, kept {keeps}");
    let (limit, wanted) = (8 * MIB, 6 * MIB);
    let engine = Engine::new(Some(limit), 2);
    let tap = Tap::after(batches_first);
    let plan = aggregation(table, functions, scripted(table, 2, Ending::Complete, &tap));
    let mut streams = streams(&engine, &plan);
    let (mut first, mut rows) = (streams.remove(0), Vec::new());
    if batches_first >= table.batches.len() {
        // The first results are out; all other partitions wait in memory.
        rows.push(first.next().await.expect("a first batch").expect("rows"));
        streams.insert(0, first);
    } else {
        let reader = tokio::spawn(read_all(vec![first]));
        tap.runs_dry().await;
        streams.clear();
        let other = take_what_is_held(&engine, wanted, limit, &what).await;
        if !keeps {
            drop(other);
            tap.release();
            finish(&engine, table, functions, &plan, reader.await.expect("a reader"), rows, &what).await;
        } else {
            tap.release();
            let outcomes = reader.await.expect("a reader");
            drop(other);
            finish(&engine, table, functions, &plan, outcomes, rows, &what).await;
        }
        return;
    }
    let other = take_what_is_held(&engine, wanted, limit, &what).await;
    let kept = keeps.then_some(other);
    let outcomes = read_all(streams).await;
    drop(kept);
    finish(&engine, table, functions, &plan, outcomes, rows, &what).await;
}

async fn finish(
    engine: &Engine,
    table: &Table,
    functions: Functions,
    plan: &Arc<dyn ExecutionPlan>,
    outcomes: Vec<Result<Vec<RecordBatch>>>,
    mut rows: Vec<RecordBatch>,
    what: &str,
) {
    for outcome in outcomes {
        rows.extend(outcome.unwrap_or_else(|error| panic!("{what}: {error}")));
    }
    assert_same_rows(&rows, &right_rows(table, functions).await, what);
    assert!(metric(plan, "spilled_partitions") > 0, "{what}");
    drop(rows);
    engine.assert_clean(what).await;
}

#[test]
fn memory_is_given_back_at_every_moment() {
    // Different keys, so that lists of their rows have one order.
    let shape = TableShape { text_bytes: 20, ..TableShape::of_rows(16_000) };
    let mut table = Table::draw("", &[KeyType::LongText(200)], &shape);
    table.keys = 1;
    for batches in [24, 1_000] {
        for keeps in [false, true] {
            run(gives_memory_back(&table, Functions::Flat, batches, keeps));
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Input,
    Merging,
}

/// Drops the streams at a moment at which something has been spilled; `keep_plan` as `EXPLAIN ANALYZE` does.
async fn cancel_in(phase: Phase, keep_plan: bool) {
    let table = table();
    let engine = Engine::new(Some(LIMIT), 2);
    let tap = match phase {
        Phase::Input => Tap::after(28),
        Phase::Merging => Tap::open(),
    };
    let plan = aggregation(&table, Functions::Flat, scripted(&table, 2, Ending::Complete, &tap));
    let mut streams = streams(&engine, &plan);
    let plan = keep_plan.then_some(plan);
    match phase {
        Phase::Input => {
            cancel_when(streams, tap.runs_dry()).await;
        }
        Phase::Merging => {
            read_until_spilled_pages_come_back(&engine, &mut streams[0]).await;
            assert!(engine.space.used_bytes() > 0);
            drop(streams);
        }
    }
    assert_spilled(&engine);
    engine.assert_clean(&format!("an aggregation cancelled in {phase:?}, plan kept {keep_plan}")).await;
    drop(plan);
}

#[test]
fn cancelling_leaves_nothing() {
    for phase in [Phase::Input, Phase::Merging] {
        for keep_plan in [false, true] {
            run(cancel_in(phase, keep_plan));
        }
    }
}

#[test]
fn an_input_that_fails_fails_the_aggregation() {
    for partitions in [1, 3] {
        run(async {
            let table = table();
            let engine = Engine::new(Some(LIMIT), partitions);
            let input = scripted(&table, partitions, Ending::Error("the input broke"), &Tap::open());
            let plan = aggregation(&table, Functions::Flat, input);
            let errors = fails_cleanly(&engine, plan, "an aggregation whose input failed").await;
            assert_eq!(errors.len(), partitions, "{errors:?}");
            assert!(errors.iter().all(|error| error.contains("the input broke")), "{errors:?}");
        });
    }
}

#[test]
fn a_quota_that_is_exceeded_is_named() {
    run(async {
        let table = table();
        let engine = Engine::new(Some(LIMIT), 2);
        engine.space.set_quota_bytes(Some(256 * KIB as u64));
        let plan = aggregation(&table, Functions::Flat, table.scan(2));
        let errors = fails_cleanly(&engine, plan, "an aggregation beyond the quota").await;
        assert_eq!(errors.len(), 2, "{errors:?}");
        for error in errors {
            assert!(error.contains("temporary space is used up"), "{error}");
            assert!(error.contains("hash aggregation"), "{error}");
        }
    });
}

#[test]
fn a_full_device_is_named() {
    run(async {
        let table = table();
        let (engine, faults) = Engine::simulated(Some(LIMIT), 2);
        faults.set_plan(FaultPlan::none().capacity(256 * KIB as u64));
        let plan = aggregation(&table, Functions::Flat, table.scan(2));
        let errors = fails_cleanly(&engine, plan, "an aggregation on a full device").await;
        assert!(!errors.is_empty());
        assert!(errors.iter().all(|error| error.contains("no space left")), "{errors:?}");
    });
}

#[test]
fn any_request_may_fail() {
    let table = table();
    let plan = || aggregation(&table, Functions::Flat, table.scan(1));
    // Some of the writes, some of the reads.
    let failed = faults_noticed(24, plan, assert_same_rows, "an aggregation");
    assert!(failed > 20, "{failed} of 24 faults were noticed");
}

#[test]
fn outputs_may_be_read_one_after_the_other() {
    run(async {
        let table = table();
        let right = right_rows(&table, Functions::Flat).await;
        for limit in [LIMIT, 512 * KIB] {
            for execute_late in [false, true] {
                let engine = Engine::new(Some(limit), 4);
                let plan = aggregation(&table, Functions::Flat, table.scan(4));
                let rows = one_after_the_other(&engine, &plan, execute_late).await;
                assert!(metric(&plan, "spilled_partitions") > 0);
                assert_same_rows(&rows, &right, &format!("executed late {execute_late}"));
                engine.assert_clean("outputs read one after the other").await;
            }
        }
    });
}

#[test]
fn outputs_may_be_begun_and_then_read_one_after_the_other() {
    run(async {
        let table = table();
        let engine = Engine::new(Some(LIMIT), 3);
        let plan = aggregation(&table, Functions::Flat, table.scan(3));
        let rows = begun_and_then_one_after_the_other(&engine, &plan).await;
        assert_same_rows(&rows, &right_rows(&table, Functions::Flat).await, "outputs begun at once");
    });
}

#[test]
fn partitions_are_split_until_their_groups_fit() {
    run(async {
        let shape = TableShape { text_bytes: 100, ..TableShape::of_rows(60_000) };
        let table = Table::draw("", &[KeyType::LongText(40)], &shape);
        let engine = Engine::new(Some(512 * KIB), 2);
        let plan = aggregation(&table, Functions::Flat, table.scan(2));
        let rows = engine.collect(&plan).await.expect("rows");
        assert_same_rows(&rows, &right_rows(&table, Functions::Flat).await, "small merges");
        assert!(metric(&plan, "recursive_partitions") > 0);
        assert!(metric(&plan, "passed_rows") > 0, "different keys are not aggregated first");
        drop(rows);
        engine.assert_clean("an aggregation with small merges").await;
    });
}

#[test]
fn one_group_may_be_larger_than_its_share() {
    run(async {
        let shape = TableShape { skew: crate::harness::tables::Skew::One, ..TableShape::of_rows(40_000) };
        let table = Table::draw("", &[KeyType::Int64], &shape);
        let engine = Engine::new(Some(MIB), 1);
        let plan = aggregation(&table, Functions::Growing, table.scan(1));
        let rows = engine.collect(&plan).await.expect("rows");
        assert_eq!(crate::harness::rows::row_count(&rows), 1);
        let mut ids = arrow::array::AsArray::as_list::<i32>(rows[0].column(1)).value(0);
        ids = arrow::compute::sort(&ids, None).expect("sorted");
        let right: arrow::array::Int64Array = (0..40_000).collect();
        assert_eq!(ids.as_ref(), &right as &dyn arrow::array::Array);
    });
}

/// Rows whose keys come round again twelve times, later than a lane's first table remembers. Columns are the row's number
/// and a text besides.
fn rounds(keys: usize) -> Table {
    let shape = TableShape { domain: 1 << 40, text_bytes: 20, ..TableShape::of_rows(keys) };
    let mut table = Table::draw("", &[KeyType::LongText(40)], &shape);
    let round = table.batches.clone();
    table.batches = std::iter::repeat_n(round, 12).flatten().collect();
    table
}

#[test]
fn a_table_of_keys_that_come_round_grows() {
    run(async {
        let table = rounds(64_000);
        let engine = Engine::new(Some(128 * MIB), 1);
        let plan = aggregation(&table, Functions::Flat, table.scan(1));
        let rows = engine.collect(&plan).await.expect("rows");
        assert_same_rows(&rows, &right_rows(&table, Functions::Flat).await, "a table that grows");
        let passed = metric(&plan, "passed_rows");
        assert!(passed > 0 && passed < 12 * 64_000 * 2 / 3, "{passed} rows were passed on");
        drop(rows);
        engine.assert_clean("an aggregation whose table grew").await;
    });
}
