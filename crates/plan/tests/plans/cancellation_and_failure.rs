//! However a join ends, it leaves nothing behind; however it fails, it says why and does not hang.

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::limit::GlobalLimitExec;
use futures::StreamExt;
use nandina_device::FileClass;
use nandina_simulation::FaultPlan;
use nandina_spill::Compression;

use crate::harness::input::{Ending, Tap, scripted};
use crate::harness::joins::Join;
use crate::harness::rows::{assert_same_rows, row_count};
use crate::harness::streams::{cancel_when, errors, read_all, streams};
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

/// Drops a join's streams at a moment at which something has been spilled; `keep_plan` as `EXPLAIN ANALYZE` does.
async fn cancel_in(phase: Phase, join_type: JoinType, keep_plan: bool) {
    let join = spilling_join(join_type);
    let engine = Engine::new(Some(LIMIT), 2);
    let (build_tap, probe_tap) = match phase {
        Phase::Build => (Tap::after(20), Tap::open()),
        Phase::Probe => (Tap::open(), Tap::after(12)),
        Phase::Spilled => (Tap::open(), Tap::open()),
    };
    let build = scripted(&join.build, 2, Ending::Complete, &build_tap);
    let probe = scripted(&join.probe, 2, Ending::Complete, &probe_tap);
    let plan = join.plan_of(build, probe);
    let mut streams = streams(&engine, &plan);
    let plan = keep_plan.then_some(plan);
    match phase {
        Phase::Build => cancel_when(streams, build_tap.runs_dry()).await,
        Phase::Probe => cancel_when(streams, probe_tap.runs_dry()).await,
        Phase::Spilled => {
            // One stream is read until the first spilled page has come back; the other waits in the same phase.
            let counters = engine.space.device().counters();
            let mut second = streams.pop().expect("two streams");
            let mut first = streams.pop().expect("two streams");
            let second = tokio::spawn(async move { while second.next().await.is_some() {} });
            while counters.of(FileClass::Temp).bytes_read == 0 {
                first.next().await.expect("more rows").expect("a batch");
            }
            assert!(engine.space.used_bytes() > 0);
            drop(first);
            second.abort();
            let _cancelled = second.await;
        }
    }
    assert!(engine.space.device().counters().of(FileClass::Temp).bytes_written > 0, "nothing was spilled");
    engine.assert_clean(&format!("a {join_type} join cancelled in {phase:?}, plan kept {keep_plan}")).await;
    drop(plan);
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Build,
    Probe,
    Spilled,
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
    for phase in [Phase::Build, Phase::Probe, Phase::Spilled] {
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
                let outcomes = read_all(streams(&engine, &plan)).await;
                let errors = errors(&outcomes);
                assert_eq!(errors.len(), partitions, "{errors:?}");
                assert!(errors.iter().all(|error| error.contains(message)), "{errors:?}");
                drop(plan);
                engine.assert_clean(message).await;
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
        let outcomes = read_all(streams(&engine, &plan)).await;
        let errors = errors(&outcomes);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains("one of two broke"), "{errors:?}");
        drop(plan);
        engine.assert_clean("a join of which one input failed").await;
    });
}

/// Runs a join to its end on an engine that lacks something; the errors, and that nothing is left.
async fn fails_cleanly(engine: &Engine, plan: Arc<dyn ExecutionPlan>, what: &str) -> Vec<String> {
    let outcomes = read_all(streams(engine, &plan)).await;
    let errors = errors(&outcomes);
    drop((outcomes, plan));
    engine.assert_clean(what).await;
    errors
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
    let (right, requests) = run(async {
        let (engine, faults) = Engine::simulated(Some(LIMIT), 1);
        let before = faults.requests();
        let right = engine.collect(&join.plan(1)).await.expect("rows");
        (right, faults.requests() - before)
    });
    assert!(requests > 50, "{requests} requests");
    let mut failed = 0;
    // Some of the writes of either side, some of the reads: the run is the same up to the fault.
    for nth in (0..requests).step_by(requests as usize / 24) {
        run(async {
            let (engine, faults) = Engine::simulated(Some(LIMIT), 1);
            faults.set_plan(FaultPlan::none().fail_request(faults.requests() + nth));
            let plan = join.plan(1);
            let mut outcomes = read_all(streams(&engine, &plan)).await;
            drop(plan);
            match outcomes.pop().expect("one stream") {
                Ok(rows) => assert_same_rows(&rows, &right, &format!("request {nth} failed unnoticed")),
                Err(error) => {
                    failed += 1;
                    let error = error.to_string();
                    assert!(
                        error.contains("extents-0") && error.contains("failed"),
                        "request {nth}: {error}"
                    );
                }
            }
            drop(outcomes);
            engine.assert_clean(&format!("a join whose request {nth} failed")).await;
        });
    }
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
                let mut rows = Vec::new();
                let mut all = if execute_late { Vec::new() } else { streams(&engine, &plan) };
                all.reverse();
                for partition in 0..4 {
                    let stream = match all.pop() {
                        Some(stream) => stream,
                        None => plan.execute(partition, engine.task()).expect("a stream"),
                    };
                    for outcome in read_all(vec![stream]).await {
                        rows.extend(outcome.expect("rows"));
                    }
                }
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
        let mut rows = Vec::new();
        let mut begun = Vec::new();
        for mut stream in streams(&engine, &plan) {
            rows.push(stream.next().await.expect("a first batch").expect("rows"));
            begun.push(stream);
        }
        for stream in begun {
            for outcome in read_all(vec![stream]).await {
                rows.extend(outcome.expect("rows"));
            }
        }
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
