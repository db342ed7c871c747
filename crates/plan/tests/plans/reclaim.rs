//! A join gives memory back when another consumer of the governor needs it, at whatever moment, and its rows
//! stay right.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::{JoinType, Result};
use datafusion::physical_plan::ExecutionPlan;
use tokio::task::JoinHandle;

use crate::harness::input::{Ending, Tap, scripted};
use crate::harness::joins::{JOIN_TYPES, Join};
use crate::harness::pressure::{
    beside_a_restless_consumer, collecting, other_consumer, take, take_what_is_held,
};
use crate::harness::rows::assert_same_rows;
use crate::harness::tables::{KeyType, Table, TableShape};
use crate::harness::{Engine, MIB, metric, run};

/// Enough for the join alone, whose build side takes about 4 MB.
const LIMIT: usize = 8 * MIB;
/// What the other consumer asks for: more than the join leaves.
const WANTED: usize = 6 * MIB;

fn join(join_type: JoinType) -> Join {
    let key = [KeyType::LongText(200)];
    let shape = TableShape { text_bytes: 20, null_percent: 2, ..TableShape::of_rows(14_000) };
    let build = Table::draw("b_", &key, &shape);
    let probe = Table::draw("p_", &key, &TableShape { rows: 12_000, domain: 25_000, seed: 2, ..shape });
    Join::new(join_type, build, probe)
}

/// A join that is stopped in the middle of one input.
struct Stopped {
    engine: Engine,
    plan: Arc<dyn ExecutionPlan>,
    tap: Arc<Tap>,
    reader: JoinHandle<Result<Vec<RecordBatch>>>,
}

/// The moments at which the other consumer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    WhileBuilding,
    BetweenBuildAndProbe,
    WhileProbing,
}

const MOMENTS: [Moment; 3] = [Moment::WhileBuilding, Moment::BetweenBuildAndProbe, Moment::WhileProbing];

impl Stopped {
    async fn at(moment: Moment, join: &Join) -> Self {
        let engine = Engine::new(Some(LIMIT), 2);
        let (allowed, build_stops) = match moment {
            Moment::WhileBuilding => (24, true),
            Moment::BetweenBuildAndProbe => (0, false),
            Moment::WhileProbing => (10, false),
        };
        let (tap, open) = (Tap::after(allowed), Tap::open());
        let (build_tap, probe_tap) = if build_stops { (&tap, &open) } else { (&open, &tap) };
        let build = scripted(&join.build, 2, Ending::Complete, build_tap);
        let probe = scripted(&join.probe, 2, Ending::Complete, probe_tap);
        let plan = join.plan_of(build, probe);
        let reader = collecting(&engine, &plan);
        tap.runs_dry().await;
        Self { engine, plan, tap, reader }
    }

    /// Lets the join go on, and compares its rows.
    async fn finish(self, join: &Join, what: &str) -> Arc<dyn ExecutionPlan> {
        self.tap.release();
        let rows = self.reader.await.expect("a reader").expect("rows");
        assert_same_rows(&rows, &join.right_rows().await, what);
        self.engine.assert_clean(what).await;
        self.plan
    }
}

/// Takes memory from the join at `moment`, gives it back at once or after the join, and checks the rows.
async fn takes_memory(moment: Moment, join: &Join, keeps: bool) {
    let what = format!("{} join, {moment:?}, kept {keeps}", join.join_type);
    let stopped = Stopped::at(moment, join).await;
    let other = take_what_is_held(&stopped.engine, WANTED, LIMIT, &what).await;
    if keeps {
        stopped.tap.release();
        let rows = stopped.reader.await.expect("a reader").unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_same_rows(&rows, &join.right_rows().await, &what);
        assert!(metric(&stopped.plan, "spilled_partitions") > 0, "{what}");
        drop(other);
        stopped.engine.assert_clean(&what).await;
    } else {
        drop(other);
        let plan = stopped.finish(join, &what).await;
        assert!(metric(&plan, "spilled_partitions") > 0, "{what}");
    }
}

#[test]
fn every_join_type_gives_memory_back_at_every_moment() {
    for join_type in JOIN_TYPES {
        let join = join(join_type);
        for moment in MOMENTS {
            for keeps in [false, true] {
                run(takes_memory(moment, &join, keeps));
            }
        }
    }
}

#[test]
fn not_in_gives_memory_back_at_every_moment() {
    let mut join = Join { null_aware: true, ..join(JoinType::LeftAnti) };
    // Without nulls on the inner side, so that rows remain.
    let shape = TableShape { text_bytes: 20, domain: 25_000, seed: 2, ..TableShape::of_rows(12_000) };
    join.probe = Table::draw("p_", &[KeyType::LongText(200)], &shape);
    for moment in MOMENTS {
        for keeps in [false, true] {
            run(takes_memory(moment, &join, keeps));
        }
    }
}

#[test]
fn matches_of_a_partition_spilled_while_probed_survive_joining_it_in_blocks() {
    for join_type in
        [JoinType::Left, JoinType::Full, JoinType::LeftSemi, JoinType::LeftAnti, JoinType::LeftMark]
    {
        // Every key has many build rows: the partitions are few and large.
        let key = [KeyType::Int64];
        let shape = TableShape { text_bytes: 200, domain: 2, null_percent: 2, ..TableShape::of_rows(24_000) };
        let build = Table::draw("b_", &key, &shape);
        let few_match = TableShape { rows: 12_000, domain: 4_000, text_bytes: 20, seed: 2, ..shape };
        let probe = Table::draw("p_", &key, &few_match);
        run(takes_all(&Join::new(join_type, build, probe)));
    }
}

/// Takes what a join can give while it probes, and keeps it.
async fn takes_all(join: &Join) {
    let what = format!("{} join whose memory is taken", join.join_type);
    let stopped = Stopped::at(Moment::WhileProbing, join).await;
    let other = take(&stopped.engine, LIMIT - 3 * MIB, &what).await;
    stopped.tap.release();
    let rows = stopped.reader.await.expect("a reader").unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_same_rows(&rows, &join.right_rows().await, &what);
    assert!(metric(&stopped.plan, "build_blocks") > 1, "{what}: not in blocks");
    drop(other);
    stopped.engine.assert_clean(&what).await;
}

#[test]
fn a_spill_that_fails_leaves_the_join_whole() {
    for moment in MOMENTS {
        run(async {
            let join = join(JoinType::Inner);
            let stopped = Stopped::at(moment, &join).await;
            let other = other_consumer(&stopped.engine);
            stopped.engine.space.set_quota_bytes(Some(0));
            assert!(other.try_grow(WANTED).is_err(), "{moment:?}: nothing can be written");
            stopped.engine.space.set_quota_bytes(None);
            // The second time it works, with all rows still there.
            other.try_grow(WANTED).unwrap_or_else(|error| panic!("{moment:?}: {error}"));
            drop(other);
            let plan = stopped.finish(&join, &format!("{moment:?}: a join whose first spill failed")).await;
            assert!(metric(&plan, "spilled_partitions") > 0);
        });
    }
}

#[test]
fn several_joins_share_a_limit_that_fits_one() {
    run(async {
        let engine = Engine::new(Some(LIMIT), 2);
        let joins: Vec<Join> = [JoinType::Inner, JoinType::Left, JoinType::RightSemi].map(join).into();
        let mut running = Vec::new();
        for join in &joins {
            running.push(collecting(&engine, &join.plan(2)));
        }
        for (join, rows) in joins.iter().zip(running) {
            let rows = rows.await.expect("a reader").expect("rows");
            assert_same_rows(
                &rows,
                &join.right_rows().await,
                &format!("{} join beside others", join.join_type),
            );
        }
        engine.assert_clean("joins beside each other").await;
    });
}

#[test]
fn a_consumer_that_comes_and_goes_changes_no_row() {
    for (seed, join_type) in JOIN_TYPES.into_iter().enumerate() {
        run(async {
            let join = join(join_type);
            let engine = Engine::new(Some(LIMIT), 4);
            let tap = Tap::open();
            let build = scripted(&join.build, 4, Ending::Complete, &tap);
            let probe = scripted(&join.probe, 4, Ending::Complete, &tap);
            let plan = join.plan_of(build, probe);
            let rows = beside_a_restless_consumer(&engine, plan, WANTED, seed as u64).await;
            assert_same_rows(&rows, &join.right_rows().await, &format!("{join_type} join, seed {seed}"));
            engine.assert_clean("a join beside a restless consumer").await;
        });
    }
}
