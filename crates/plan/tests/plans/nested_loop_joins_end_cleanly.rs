//! However a nested loop join ends, it leaves nothing behind; whatever is asked of it meanwhile, its rows are right.

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::limit::GlobalLimitExec;
use futures::StreamExt;
use nandina_device::FileClass;
use nandina_simulation::FaultPlan;
use nandina_spill::Compression;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::harness::input::{Ending, Tap, scripted};
use crate::harness::joins::JOIN_TYPES;
use crate::harness::loops::{Condition, LoopJoin};
use crate::harness::rows::{assert_same_rows, row_count};
use crate::harness::streams::{cancel_when, errors, read_all, streams};
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

#[derive(Clone, Copy, Debug)]
enum Phase {
    Build,
    Probe,
    Spilled,
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
            let mut second = streams.pop().expect("two streams");
            let mut first = streams.pop().expect("two streams");
            let second = tokio::spawn(async move { while second.next().await.is_some() {} });
            first.next().await.expect("a row").expect("a batch");
            assert!(engine.space.device().counters().of(FileClass::Temp).bytes_read > 0);
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

#[test]
fn cancelling_leaves_nothing() {
    for phase in [Phase::Build, Phase::Probe, Phase::Spilled] {
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
                let outcomes = read_all(streams(&engine, &plan)).await;
                let errors = errors(&outcomes);
                assert_eq!(errors.len(), partitions, "{errors:?}");
                assert!(errors.iter().all(|error| error.contains(message)), "{errors:?}");
                drop((outcomes, plan));
                engine.assert_clean(message).await;
            });
        }
    }
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
    let (right, requests) = run(async {
        let (engine, faults) = Engine::simulated(Some(LIMIT), 1);
        let before = faults.requests();
        let right = engine.collect(&join.plan(1)).await.expect("rows");
        (right, faults.requests() - before)
    });
    assert!(requests > 50, "{requests} requests");
    let mut failed = 0;
    for nth in (0..requests).step_by(requests as usize / 16) {
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
                let mut rows = Vec::new();
                let mut all = if execute_late { Vec::new() } else { streams(&engine, &plan) };
                all.reverse();
                for partition in 0..3 {
                    let stream = match all.pop() {
                        Some(stream) => stream,
                        None => plan.execute(partition, engine.task()).expect("a stream"),
                    };
                    for outcome in read_all(vec![stream]).await {
                        rows.extend(outcome.expect("rows"));
                    }
                }
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
    let (running, task) = (Arc::clone(&plan), engine.task());
    let reader = tokio::spawn(async move { datafusion::physical_plan::collect(running, task).await });
    tap.runs_dry().await;
    let wanted = 7 * MIB;
    assert!(engine.governor.used_bytes() > MIB, "{what}: the join holds too little");
    let other = MemoryConsumer::new("another operator").register(&engine.pool());
    // The governor spills on the thread that asks: not one that runs the join's tasks.
    let other = tokio::task::spawn_blocking(move || other.try_grow(wanted).map(|()| other));
    let other = other.await.expect("an asker").unwrap_or_else(|error| panic!("{what}: {error}"));
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
            let (plan, task) = (join.plan_of(build, probe), engine.task());
            let mut reader =
                tokio::spawn(async move { datafusion::physical_plan::collect(plan, task).await });
            let other = MemoryConsumer::new("another operator").register(&engine.pool());
            let mut random = StdRng::seed_from_u64(seed as u64);
            let rows = loop {
                tokio::select! {
                    rows = &mut reader => break rows.expect("a reader").expect("rows"),
                    () = tokio::time::sleep(std::time::Duration::from_millis(2)) => {}
                }
                let bytes = random.random_range(0..5 * MIB + 512 * KIB);
                if bytes < other.size() {
                    other.resize(bytes);
                } else {
                    // May be refused: then the join goes on as it is.
                    let _refused = tokio::task::block_in_place(|| other.try_resize(bytes));
                }
            };
            other.free();
            assert_same_rows(&rows, &join.right_rows().await, &format!("{join_type} join, seed {seed}"));
            engine.assert_clean("a join beside a restless consumer").await;
        });
    }
}
