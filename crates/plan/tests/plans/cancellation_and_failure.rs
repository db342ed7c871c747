//! However a join ends, it leaves nothing behind; however it fails, it says why and does not hang.

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::limit::GlobalLimitExec;
use nandina_simulation::FaultPlan;
use nandina_spill::Compression;

use crate::harness::input::{Ending, Tap, scripted};
use crate::harness::joins::Join;
use crate::harness::pressure::{
    PHASES, Phase, begun_and_then_one_after_the_other, cancel_join, fails_cleanly, faults_noticed,
    one_after_the_other, read_until_spilled_pages_come_back,
};
use crate::harness::rows::{assert_same_rows, row_count};
use crate::harness::streams::{errors, read_all, streams};
use crate::harness::tables::{KeyType, Table, TableShape};
use crate::harness::{Engine, KIB, MIB, metric, run};

/// What these joins may use; their sides take several times as much.
const LIMIT: usize = MIB;

/// A join of two sides of about 3 MB, 24 and 32 batches.
fn spilling_join(join_type: JoinType) -> Join {
    let key = [KeyType::LongText(200)];
    let shape = TableShape { text_bytes: 20, ..TableShape::of_rows(12_000) };
    let build = Table::draw("b_", &key, &shape);
    let probe = Table::draw("p_", &key, &TableShape { rows: 16_000, domain: 20_000, seed: 2, ..shape });
    Join::new(join_type, build, probe)
}

/// Drops a join's streams at a moment at which something has been spilled.
async fn cancel_in(phase: Phase, join_type: JoinType, keep_plan: bool) {
    let join = spilling_join(join_type);
    let engine = Engine::new(Some(LIMIT), 2);
    let sides = (&join.build, &join.probe);
    let plan_of = |build, probe| join.plan_of(build, probe);
    let read = async |stream: &mut _| read_until_spilled_pages_come_back(&engine, stream).await;
    let what = format!("a {join_type} join");
    cancel_join(&engine, phase, sides, plan_of, keep_plan, read, &what).await;
}

#[test]
fn cancelling_while_building_leaves_nothing() {
    run(cancel_in(Phase::Build, JoinType::Inner, false));
    run(cancel_in(Phase::Build, JoinType::Full, false));
}

#[test]
fn cancelling_while_probing_leaves_nothing() {
    run(cancel_in(Phase::Probe, JoinType::Inner, false));
    run(cancel_in(Phase::Probe, JoinType::Full, false));
}

#[test]
fn cancelling_among_spilled_partitions_leaves_nothing() {
    run(cancel_in(Phase::Spilled, JoinType::Inner, false));
    run(cancel_in(Phase::Spilled, JoinType::Full, false));
}

#[test]
fn a_plan_that_outlives_its_streams_holds_nothing() {
    for phase in PHASES {
        run(cancel_in(phase, JoinType::Left, true));
    }
}

#[test]
fn a_finished_join_holds_nothing_while_its_plan_lives() {
    run(async {
        let join = spilling_join(JoinType::Full);
        let engine = Engine::new(Some(LIMIT), 2);
        let plan = join.plan(2);
        let rows = engine.collect(&plan).await.expect("rows");
        assert!(row_count(&rows) > 12_000);
        engine.assert_clean("a finished join").await;
        assert!(metric(&plan, "spilled_partitions") > 0);
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
fn one_probe_input_that_fails_does_not_hang_the_others() {
    run(async {
        let join = spilling_join(JoinType::Left);
        let engine = Engine::new(Some(LIMIT), 2);
        let good = scripted(&join.probe, 1, Ending::Complete, &Tap::open());
        let bad = scripted(&join.probe, 1, Ending::Error("one of two broke"), &Tap::open());
        let probe = datafusion::physical_plan::union::UnionExec::try_new(vec![good, bad]).expect("a union");
        let plan = join.plan_of(join.build.scan(2), probe);
        let errors = fails_cleanly(&engine, plan, "a join of which one input failed").await;
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains("one of two broke"), "{errors:?}");
    });
}

#[test]
fn a_quota_that_the_build_side_exceeds_is_named() {
    run(async {
        let join = spilling_join(JoinType::Inner);
        let engine = Engine::new(Some(LIMIT), 2);
        engine.space.set_quota_bytes(Some(MIB as u64));
        let errors = fails_cleanly(&engine, join.plan(2), "a build side beyond the quota").await;
        assert_eq!(errors.len(), 2, "{errors:?}");
        for error in errors {
            assert!(error.contains("temporary space is used up"), "{error}");
            assert!(error.contains("quota of 1048576"), "{error}");
            assert!(error.contains("SET temp_quota"), "{error}");
        }
    });
}

#[test]
fn a_quota_that_the_probe_side_exceeds_is_named() {
    run(async {
        let join = spilling_join(JoinType::Inner);
        let engine = Engine::new(Some(LIMIT), 2);
        let tap = Tap::after(0);
        let probe = scripted(&join.probe, 2, Ending::Complete, &tap);
        let plan = join.plan_of(join.build.scan(2), probe);
        let streams = streams(&engine, &plan);
        let reader = tokio::spawn(read_all(streams));
        tap.runs_dry().await;
        let used = engine.space.used_bytes();
        assert!(used > 0, "the build side did not spill");
        engine.space.set_quota_bytes(Some(used + 256 * KIB as u64));
        tap.release();
        let errors = errors(&reader.await.expect("a reader"));
        drop(plan);
        assert!(!errors.is_empty());
        assert!(errors.iter().all(|error| error.contains("temporary space is used up")), "{errors:?}");
        engine.assert_clean("a probe side beyond the quota").await;
    });
}

#[test]
fn a_full_device_is_named() {
    // During the build side, during the probe side.
    for (capacity, compression) in
        [(MIB, Compression::Off), (4 * MIB, Compression::Off), (MIB, Compression::On)]
    {
        run(async {
            let join = spilling_join(JoinType::Full);
            let (engine, faults) = Engine::simulated(Some(LIMIT), 2);
            engine.space.set_compression(compression, 2);
            faults.set_plan(FaultPlan::none().capacity(capacity as u64));
            let errors = fails_cleanly(&engine, join.plan(2), "a full device").await;
            assert!(!errors.is_empty(), "{capacity} bytes were enough");
            for error in errors {
                assert!(error.contains("no space left"), "{error}");
                assert!(error.contains("temporary folder"), "{error}");
            }
        });
    }
}

#[test]
fn any_request_may_fail() {
    let join = spilling_join(JoinType::Full);
    // Some of the writes of either side, some of the reads.
    let failed = faults_noticed(24, || join.plan(1), assert_same_rows, "a join");
    assert!(failed > 20, "{failed} of 24 faults were noticed");
}

#[test]
fn a_device_that_dies_fails_the_join() {
    for nth in [0, 7, 60] {
        run(async {
            let join = spilling_join(JoinType::LeftAnti);
            let (engine, faults) = Engine::simulated(Some(LIMIT), 4);
            faults.set_plan(FaultPlan::none().fail_from(faults.requests() + nth));
            let errors = fails_cleanly(&engine, join.plan(4), "a dead device").await;
            assert!(!errors.is_empty(), "request {nth}");
            assert!(errors.iter().all(|error| error.contains("failed")), "{errors:?}");
        });
    }
}

#[test]
fn outputs_may_be_read_one_after_the_other() {
    for join_type in [JoinType::Inner, JoinType::Full, JoinType::LeftSemi] {
        run(async {
            let join = spilling_join(join_type);
            let right = join.right_rows().await;
            for execute_late in [false, true] {
                let engine = Engine::new(Some(LIMIT), 4);
                let plan = join.plan(4);
                let rows = one_after_the_other(&engine, &plan, execute_late).await;
                assert!(metric(&plan, "spilled_partitions") > 0);
                assert_same_rows(&rows, &right, &format!("{join_type}, executed late {execute_late}"));
                engine.assert_clean("outputs read one after the other").await;
            }
        });
    }
}

#[test]
fn outputs_may_be_begun_and_then_read_one_after_the_other() {
    run(async {
        let join = spilling_join(JoinType::Full);
        let right = join.right_rows().await;
        let engine = Engine::new(Some(LIMIT), 3);
        let plan = join.plan(3);
        let rows = begun_and_then_one_after_the_other(&engine, &plan).await;
        assert_same_rows(&rows, &right, "outputs begun at once and read one after the other");
    });
}

#[test]
fn a_limit_above_ends_the_join_early() {
    run(async {
        let join = spilling_join(JoinType::Inner);
        // Part of the build side stays in memory, so that probing gives rows at once.
        let engine = Engine::new(Some(2 * LIMIT), 2);
        let tap = Tap::open();
        let probe = scripted(&join.probe, 2, Ending::Complete, &tap);
        let plan = join.plan_of(join.build.scan(2), probe);
        let all = Arc::new(CoalescePartitionsExec::new(plan));
        let limited: Arc<dyn ExecutionPlan> = Arc::new(GlobalLimitExec::new(all, 0, Some(10)));
        let rows = engine.collect(&limited).await.expect("rows");
        assert_eq!(row_count(&rows), 10);
        let asked = tap.asked.load(std::sync::atomic::Ordering::SeqCst);
        assert!(asked < join.probe.batches.len(), "all of the probe side was read");
        assert!(metric(&limited, "spilled_partitions") > 0);
        drop(limited);
        engine.assert_clean("a join below a limit").await;
    });
}
