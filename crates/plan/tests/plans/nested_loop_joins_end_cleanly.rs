//! However a nested loop join ends, it leaves nothing behind; whatever is asked of it meanwhile, its rows are right.

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::limit::GlobalLimitExec;
use futures::StreamExt;
use nandina_device::FileClass;
use nandina_simulation::FaultPlan;
use nandina_spill::Compression;

use crate::harness::input::{Ending, Tap, scripted};
use crate::harness::joins::JOIN_TYPES;
use crate::harness::loops::{Condition, LoopJoin};
use crate::harness::pressure::{
    PHASES, Phase, begun_and_then_one_after_the_other, beside_a_restless_consumer, cancel_join, collecting,
    fails_cleanly, faults_noticed, one_after_the_other, take,
};
use crate::harness::rows::{assert_same_rows, row_count};
use crate::harness::streams::{cancel_when, streams};
use crate::harness::tables::{KeyType, Table, TableShape};
use crate::harness::{Engine, KIB, MIB, metric, run};

/// What these joins may use; their sides take several times as much.
const LIMIT: usize = MIB;

/// A join of two sides of about 3 MB.
fn spilling_join(join_type: JoinType) -> LoopJoin {
    let shape = TableShape { text_bytes: 1_000, null_percent: 5, ..TableShape::of_rows(3_000) };
    let build = Table::draw("b_", &[KeyType::Int64], &shape);
    let probe = Table::draw("p_", &[KeyType::Int64], &TableShape { rows: 2_500, seed: 2, ..shape });
    LoopJoin::new(
        join_type,
        Condition::WideOneIn(2_003),
        &build.in_batches_of(128),
        &probe.in_batches_of(128),
    )
}

/// Drops a join's streams at a moment at which something has been spilled.
async fn cancel_in(phase: Phase, join_type: JoinType, keep_plan: bool) {
    let join = spilling_join(join_type);
    let engine = Engine::new(Some(LIMIT), 2);
    let sides = (&join.build, &join.probe);
    let plan_of = |build, probe| join.plan_of(build, probe);
    let read = async |stream: &mut SendableRecordBatchStream| {
        stream.next().await.expect("a row").expect("a batch");
        assert!(engine.space.device().counters().of(FileClass::Temp).bytes_read > 0);
    };
    let what = format!("a {join_type} join");
    cancel_join(&engine, phase, sides, plan_of, keep_plan, read, &what).await;
}

#[test]
fn cancelling_leaves_nothing() {
    for phase in PHASES {
        for join_type in [JoinType::Inner, JoinType::Left, JoinType::RightAnti, JoinType::Full] {
            run(cancel_in(phase, join_type, join_type == JoinType::Left));
        }
    }
}

#[test]
fn a_long_comparison_can_be_cancelled() {
    run(async {
        // A thousand million pairs in memory, none of which is accepted.
        let shape = TableShape { text_bytes: 1, ..TableShape::of_rows(40_000) };
        let build = Table::draw("b_", &[KeyType::Int64], &shape);
        let probe = Table::draw("p_", &[KeyType::Int64], &TableShape { seed: 2, ..shape });
        let join = LoopJoin::new(JoinType::Inner, Condition::OneIn(i64::MAX), &build, &probe);
        let engine = Engine::new(None, 1);
        let plan = join.plan(1);
        let all = streams(&engine, &plan);
        let moment = tokio::time::sleep(std::time::Duration::from_millis(50));
        cancel_when(all, moment).await;
        assert!(metric(&plan, "probe_input_rows") < probe.rows(), "it was over before it could be cancelled");
        engine.assert_clean("a join cancelled while it compared").await;
    });
}

#[test]
fn an_input_that_fails_fails_the_join() {
    for (build_end, probe_end, message) in [
        (Ending::Error("the build input broke"), Ending::Complete, "the build input broke"),
        (Ending::Complete, Ending::Error("the probe input broke"), "the probe input broke"),
    ] {
        for partitions in [1, 3] {
            run(async {
                let join = spilling_join(JoinType::Full);
                let engine = Engine::new(Some(LIMIT), partitions);
                let build = scripted(&join.build, partitions, build_end, &Tap::open());
                let probe = scripted(&join.probe, partitions, probe_end, &Tap::open());
                let plan = join.plan_of(build, probe);
                let errors = fails_cleanly(&engine, plan, message).await;
                assert_eq!(errors.len(), partitions, "{errors:?}");
                assert!(errors.iter().all(|error| error.contains(message)), "{errors:?}");
            });
        }
    }
}

#[test]
fn a_full_device_is_named() {
    // During the build side, during the probe side.
    for (capacity, compression) in
        [(MIB, Compression::Off), (4 * MIB, Compression::Off), (256 * KIB, Compression::On)]
    {
        for join_type in [JoinType::Full, JoinType::Inner] {
            run(async {
                let join = spilling_join(join_type);
                let (engine, faults) = Engine::simulated(Some(LIMIT), 2);
                engine.space.set_compression(compression, 2);
                faults.set_plan(FaultPlan::none().capacity(capacity as u64));
                let errors = fails_cleanly(&engine, join.plan(2), "a full device").await;
                assert!(!errors.is_empty(), "{capacity} bytes were enough");
                for error in errors {
                    assert!(error.contains("no space left"), "{error}");
                    assert!(error.contains("nested loop join needs"), "{error}");
                }
            });
        }
    }
}

#[test]
fn a_quota_that_is_exceeded_is_named() {
    run(async {
        let join = spilling_join(JoinType::Left);
        let engine = Engine::new(Some(LIMIT), 2);
        engine.space.set_quota_bytes(Some(MIB as u64));
        for error in fails_cleanly(&engine, join.plan(2), "a join beyond the quota").await {
            assert!(error.contains("temporary space is used up"), "{error}");
            assert!(error.contains("SET temp_quota"), "{error}");
        }
    });
}

#[test]
fn any_request_may_fail() {
    let join = spilling_join(JoinType::Full);
    // Some of the writes of either side, some of the reads.
    let failed = faults_noticed(16, || join.plan(1), assert_same_rows, "a join");
    assert!(failed > 12, "{failed} of 16 faults were noticed");
}

#[test]
fn outputs_may_be_read_one_after_the_other() {
    for join_type in [JoinType::Inner, JoinType::Full, JoinType::LeftSemi, JoinType::RightMark] {
        run(async {
            let join = spilling_join(join_type);
            let right = join.right_rows().await;
            for execute_late in [false, true] {
                let engine = Engine::new(Some(LIMIT), 3);
                let plan = join.plan(3);
                let rows = one_after_the_other(&engine, &plan, execute_late).await;
                assert!(metric(&plan, "build_blocks") > 0);
                assert_same_rows(&rows, &right, &format!("{join_type}, executed late {execute_late}"));
                engine.assert_clean("outputs read one after the other").await;
            }
        });
    }
}

#[test]
fn outputs_may_be_begun_and_then_read_one_after_the_other() {
    run(async {
        let join = LoopJoin { condition: Condition::OneIn(11), ..spilling_join(JoinType::Full) };
        let right = join.right_rows().await;
        let engine = Engine::new(None, 3);
        let plan = join.plan(3);
        let rows = begun_and_then_one_after_the_other(&engine, &plan).await;
        assert_same_rows(&rows, &right, "outputs begun at once and read one after the other");
    });
}

#[test]
fn a_limit_above_ends_the_join_early() {
    run(async {
        let join = LoopJoin { condition: Condition::None, ..spilling_join(JoinType::Inner) };
        let engine = Engine::new(Some(16 * MIB), 2);
        let tap = Tap::open();
        let probe = scripted(&join.probe, 2, Ending::Complete, &tap);
        let all = Arc::new(CoalescePartitionsExec::new(join.plan_of(join.build.scan(2), probe)));
        let limited: Arc<dyn ExecutionPlan> = Arc::new(GlobalLimitExec::new(all, 0, Some(10)));
        assert_eq!(row_count(&engine.collect(&limited).await.expect("rows")), 10);
        let asked = tap.asked.load(std::sync::atomic::Ordering::SeqCst);
        assert!(asked < join.probe.batches.len(), "all of the probe side was read");
        drop(limited);
        engine.assert_clean("a join below a limit").await;
    });
}

/// Another consumer takes most of the memory at a moment, and keeps it or not.
async fn gives_memory_back(join: &LoopJoin, while_building: bool, keeps: bool) {
    let what = format!("{} join, while building {while_building}, kept {keeps}", join.join_type);
    let engine = Engine::new(Some(8 * MIB), 2);
    let (tap, open) = (Tap::after(if while_building { 20 } else { 8 }), Tap::open());
    let (build_tap, probe_tap) = if while_building { (&tap, &open) } else { (&open, &tap) };
    let build = scripted(&join.build, 2, Ending::Complete, build_tap);
    let probe = scripted(&join.probe, 2, Ending::Complete, probe_tap);
    let plan = join.plan_of(build, probe);
    let reader = collecting(&engine, &plan);
    tap.runs_dry().await;
    assert!(engine.governor.used_bytes() > MIB, "{what}: the join holds too little");
    let other = take(&engine, 7 * MIB, &what).await;
    assert!(engine.space.used_bytes() > 0, "{what}: nothing was spilled");
    if !keeps {
        other.free();
    }
    tap.release();
    let rows = reader.await.expect("a reader").unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_same_rows(&rows, &join.right_rows().await, &what);
    assert!(metric(&plan, "build_blocks") > 0, "{what}");
    drop(other);
    engine.assert_clean(&what).await;
}

#[test]
fn every_join_type_gives_memory_back() {
    for join_type in JOIN_TYPES {
        let join = spilling_join(join_type);
        for while_building in [false, true] {
            for keeps in [false, true] {
                run(gives_memory_back(&join, while_building, keeps));
            }
        }
        if matches!(join_type, JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark) {
            continue;
        }
        // Without a filter one flag stands for all build rows, also of those that have been spilled.
        let shape = TableShape { text_bytes: 4_000, ..TableShape::of_rows(600) };
        let build = Table::draw("b_", &[KeyType::Int64], &shape).in_batches_of(16);
        let probe = Table::draw("p_", &[KeyType::Int64], &TableShape { rows: 40, seed: 2, ..shape });
        let join = LoopJoin::new(join_type, Condition::None, &build, &probe.in_batches_of(4));
        run(gives_memory_back(&join, false, true));
    }
}

#[test]
fn a_consumer_that_comes_and_goes_changes_no_row() {
    for (seed, join_type) in JOIN_TYPES.into_iter().enumerate() {
        run(async {
            let join = spilling_join(join_type);
            let engine = Engine::new(Some(6 * MIB), 4);
            let tap = Tap::open();
            let build = scripted(&join.build, 4, Ending::Complete, &tap);
            let probe = scripted(&join.probe, 4, Ending::Complete, &tap);
            let plan = join.plan_of(build, probe);
            let rows = beside_a_restless_consumer(&engine, plan, 5 * MIB + 512 * KIB, seed as u64).await;
            assert_same_rows(&rows, &join.right_rows().await, &format!("{join_type} join, seed {seed}"));
            engine.assert_clean("a join beside a restless consumer").await;
        });
    }
}
