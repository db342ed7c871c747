//! What happens to an operator while it works: its streams are dropped, its device fails, others want its memory.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, collect};
use futures::StreamExt;
use nandina_device::FileClass;
use nandina_simulation::FaultPlan;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinHandle;

use super::input::{Ending, Tap, scripted};
use super::streams::{cancel_when, errors, read_all, streams};
use super::tables::Table;
use super::{Engine, run};

/// A moment at which a join is cancelled: something has been spilled in each.
#[derive(Clone, Copy, Debug)]
pub enum Phase {
    Build,
    Probe,
    Spilled,
}

pub const PHASES: [Phase; 3] = [Phase::Build, Phase::Probe, Phase::Spilled];

/// Drops the streams of a join at a moment; `keep_plan` as `EXPLAIN ANALYZE` does. `reads_spilled` reads the one stream
/// until spilled pages have come back.
pub async fn cancel_join(
    engine: &Engine,
    phase: Phase,
    (build, probe): (&Table, &Table),
    plan_of: impl Fn(Arc<dyn ExecutionPlan>, Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan>,
    keep_plan: bool,
    reads_spilled: impl AsyncFn(&mut SendableRecordBatchStream),
    what: &str,
) {
    let (build_tap, probe_tap) = match phase {
        Phase::Build => (Tap::after(20), Tap::open()),
        Phase::Probe => (Tap::open(), Tap::after(12)),
        Phase::Spilled => (Tap::open(), Tap::open()),
    };
    let build = scripted(build, 2, Ending::Complete, &build_tap);
    let probe = scripted(probe, 2, Ending::Complete, &probe_tap);
    let plan = plan_of(build, probe);
    let mut streams = streams(engine, &plan);
    let plan = keep_plan.then_some(plan);
    match phase {
        Phase::Build => cancel_when(streams, build_tap.runs_dry()).await,
        Phase::Probe => cancel_when(streams, probe_tap.runs_dry()).await,
        Phase::Spilled => {
            // One stream is read; the other waits in the same phase.
            let mut second = streams.pop().expect("two streams");
            let mut first = streams.pop().expect("two streams");
            let second = tokio::spawn(async move { while second.next().await.is_some() {} });
            reads_spilled(&mut first).await;
            assert!(engine.space.used_bytes() > 0);
            drop(first);
            second.abort();
            let _cancelled = second.await;
        }
    }
    assert_spilled(engine);
    engine.assert_clean(&format!("{what} cancelled in {phase:?}, plan kept {keep_plan}")).await;
    drop(plan);
}

/// Something has been written to the temporary space.
pub fn assert_spilled(engine: &Engine) {
    assert!(engine.space.device().counters().of(FileClass::Temp).bytes_written > 0, "nothing was spilled");
}

/// Reads a stream until spilled pages have come back.
pub async fn read_until_spilled_pages_come_back(engine: &Engine, stream: &mut SendableRecordBatchStream) {
    let counters = engine.space.device().counters();
    while counters.of(FileClass::Temp).bytes_read == 0 {
        stream.next().await.expect("more rows").expect("a batch");
    }
}

/// Runs a plan to its end on an engine that lacks something; the errors, and that nothing is left.
pub async fn fails_cleanly(engine: &Engine, plan: Arc<dyn ExecutionPlan>, what: &str) -> Vec<String> {
    let outcomes = read_all(streams(engine, &plan)).await;
    let errors = errors(&outcomes);
    drop((outcomes, plan));
    engine.assert_clean(what).await;
    errors
}

/// Runs a plan of one output once for each of so many requests, which fails: its rows are right, or the error names the file.
/// Returns how many faults were noticed. The run is the same up to the fault.
pub fn faults_noticed(
    times: usize,
    plan: impl Fn() -> Arc<dyn ExecutionPlan>,
    assert_right: impl Fn(&[RecordBatch], &[RecordBatch], &str),
    of_what: &str,
) -> usize {
    let (right, requests) = run(async {
        let (engine, faults) = Engine::simulated(Some(super::MIB), 1);
        let before = faults.requests();
        let right = engine.collect(&plan()).await.expect("rows");
        (right, faults.requests() - before)
    });
    assert!(requests > 50, "{requests} requests");
    let mut failed = 0;
    for nth in (0..requests).step_by(requests as usize / times) {
        run(async {
            let (engine, faults) = Engine::simulated(Some(super::MIB), 1);
            faults.set_plan(FaultPlan::none().fail_request(faults.requests() + nth));
            let plan = plan();
            let mut outcomes = read_all(streams(&engine, &plan)).await;
            drop(plan);
            match outcomes.pop().expect("one stream") {
                Ok(rows) => assert_right(&rows, &right, &format!("request {nth} failed unnoticed")),
                Err(error) => {
                    failed += 1;
                    let error = error.to_string();
                    let is_named = error.contains("extents-0") && error.contains("failed");
                    assert!(is_named, "request {nth}: {error}");
                }
            }
            drop(outcomes);
            engine.assert_clean(&format!("{of_what} whose request {nth} failed")).await;
        });
    }
    failed
}

/// All rows of a plan, its outputs read one after the other; executed all at first, or each when it is read.
pub async fn one_after_the_other(
    engine: &Engine,
    plan: &Arc<dyn ExecutionPlan>,
    execute_late: bool,
) -> Vec<RecordBatch> {
    let mut rows = Vec::new();
    let mut all = if execute_late { Vec::new() } else { streams(engine, plan) };
    all.reverse();
    for partition in 0..plan.output_partitioning().partition_count() {
        let stream = match all.pop() {
            Some(stream) => stream,
            None => plan.execute(partition, engine.task()).expect("a stream"),
        };
        for outcome in read_all(vec![stream]).await {
            rows.extend(outcome.expect("rows"));
        }
    }
    rows
}

/// All rows of a plan, of whose outputs each gives one batch before they are read one after the other.
pub async fn begun_and_then_one_after_the_other(
    engine: &Engine,
    plan: &Arc<dyn ExecutionPlan>,
) -> Vec<RecordBatch> {
    let (mut rows, mut begun) = (Vec::new(), Vec::new());
    for mut stream in streams(engine, plan) {
        rows.push(stream.next().await.expect("a first batch").expect("rows"));
        begun.push(stream);
    }
    for stream in begun {
        for outcome in read_all(vec![stream]).await {
            rows.extend(outcome.expect("rows"));
        }
    }
    rows
}

/// Collects the rows of a plan in the background.
pub fn collecting(engine: &Engine, plan: &Arc<dyn ExecutionPlan>) -> JoinHandle<Result<Vec<RecordBatch>>> {
    tokio::spawn(collect(Arc::clone(plan), engine.task()))
}

pub fn other_consumer(engine: &Engine) -> MemoryReservation {
    MemoryConsumer::new("another operator").register(&engine.pool())
}

/// Another operator takes so much memory, which those that run have to give.
pub async fn take(engine: &Engine, bytes: usize, what: &str) -> MemoryReservation {
    let other = other_consumer(engine);
    // The governor spills on the thread that asks: not one that runs the operator's tasks.
    let other = tokio::task::spawn_blocking(move || other.try_grow(bytes).map(|()| other));
    other.await.expect("an asker").unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// The same where the operator holds so much of the limit that it has to spill.
pub async fn take_what_is_held(engine: &Engine, bytes: usize, limit: usize, what: &str) -> MemoryReservation {
    let held = engine.governor.used_bytes();
    assert!(held > limit - bytes, "{what}: only {held} bytes are held");
    let other = take(engine, bytes, what).await;
    assert!(engine.governor.used_bytes() <= limit, "{what}");
    assert!(engine.space.used_bytes() > 0, "{what}: nothing was spilled");
    other
}

/// All rows of a plan, beside a consumer that wants more or less memory every two milliseconds.
pub async fn beside_a_restless_consumer(
    engine: &Engine,
    plan: Arc<dyn ExecutionPlan>,
    most_bytes: usize,
    seed: u64,
) -> Vec<RecordBatch> {
    let mut reader = collecting(engine, &plan);
    drop(plan);
    let other = other_consumer(engine);
    let mut random = StdRng::seed_from_u64(seed);
    let rows = loop {
        tokio::select! {
            rows = &mut reader => break rows.expect("a reader").expect("rows"),
            () = tokio::time::sleep(Duration::from_millis(2)) => {}
        }
        let bytes = random.random_range(0..most_bytes);
        if bytes < other.size() {
            other.resize(bytes);
        } else {
            // May be refused: then the operator goes on as it is.
            let _refused = tokio::task::block_in_place(|| other.try_resize(bytes));
        }
    };
    other.free();
    rows
}
