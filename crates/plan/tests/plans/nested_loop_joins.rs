//! Joins without equality keys give the rows that two loops give, whatever the condition, the data and the memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use datafusion::common::JoinType;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::collect;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};

use crate::harness::input::{Ending, Tap, scripted};
use crate::harness::joins::JOIN_TYPES;
use crate::harness::loops::{CONDITIONS, CheckedLoop, Condition, LoopJoin};
use crate::harness::rows::{row_count, same_rows};
use crate::harness::tables::{KeyType, Skew, Table, TableShape};
use crate::harness::{BATCH_ROWS, Engine, KIB, MIB, metric, run};

/// The same cases in every run, unless PROPTEST_RNG_SEED and PROPTEST_CASES ask for others.
const SEED: u64 = 20_261_121;
const CASES: u32 = 150;

fn checked(join: &LoopJoin, limit: Option<usize>, partitions: usize) -> CheckedLoop {
    run(async { join.check(limit, partitions).await }).unwrap_or_else(|difference| panic!("{difference}"))
}

/// Two tables with nulls and duplicates whose rows take about so many bytes.
fn tables(build_rows: usize, probe_rows: usize, row_bytes: usize) -> (Table, Table) {
    let shape = TableShape { text_bytes: row_bytes, null_percent: 5, ..TableShape::of_rows(build_rows) };
    let build = Table::draw("b_", &[KeyType::Int64], &shape);
    let probe = Table::draw("p_", &[KeyType::Utf8], &TableShape { rows: probe_rows, seed: 2, ..shape });
    (build, probe)
}

#[test]
fn every_join_type_gives_the_rows_of_two_loops() {
    // More build rows than in a batch and fewer; the model says which numbers meet, DataFusion has the other columns.
    for (build_rows, probe_rows) in [(540, 60), (40, 600)] {
        let (build, probe) = tables(build_rows, probe_rows, 120);
        for join_type in JOIN_TYPES {
            for condition in CONDITIONS {
                let join = LoopJoin::new(join_type, condition, &build, &probe);
                let model = join.model();
                for (limit, partitions) in [(None, 1), (None, 3), (Some(24 * KIB), 2)] {
                    run(async {
                        let engine = Engine::new(limit, partitions);
                        let plan = join.plan(partitions);
                        let rows = engine.collect(&plan).await.expect("rows");
                        let what = format!("{join_type} join, {condition:?}, {limit:?}");
                        assert_eq!(join.numbers_of(&rows), model, "{what}");
                        same_rows(&rows, &join.right_rows().await).expect(&what);
                        assert!(rows.iter().all(|batch| batch.num_rows() <= BATCH_ROWS), "{what}");
                        engine.assert_clean(&what).await;
                    });
                }
            }
        }
    }
}

fn shapes() -> impl Strategy<Value = TableShape> {
    let rows = prop_oneof![1 => Just(0_usize), 1 => Just(1), 4 => 2..150_usize, 3 => 150..900_usize];
    let skew = prop_oneof![3 => Just(Skew::Even), 1 => Just(Skew::One)];
    let text_bytes = prop_oneof![2 => Just(10_usize), 2 => Just(400), 1 => Just(3_000)];
    let null_percent = prop_oneof![3 => Just(0_u32), 2 => Just(30), 1 => Just(100)];
    (rows, null_percent, skew, text_bytes, any::<u64>()).prop_map(|(rows, null_percent, skew, text, seed)| {
        let shape = TableShape { null_percent, skew, text_bytes: text, seed, ..TableShape::of_rows(rows) };
        TableShape { domain: 40, ..shape }
    })
}

fn joins() -> impl Strategy<Value = LoopJoin> {
    let join_types = proptest::sample::select(&JOIN_TYPES[..]);
    let conditions = proptest::sample::select(&CONDITIONS[..]);
    let key_types = proptest::sample::select(
        &[KeyType::Int64, KeyType::Utf8, KeyType::Binary, KeyType::Boolean, KeyType::Decimal128][..],
    );
    (shapes(), shapes(), join_types, conditions, key_types, any::<bool>()).prop_map(
        |(build, probe, join_type, condition, key_type, project)| {
            let build = Table::draw("b_", &[key_type], &build);
            let probe = Table::draw("p_", &[KeyType::Int32], &probe);
            let mut join = LoopJoin::new(join_type, condition, &build, &probe);
            // Half a million wide rows of text would only test the comparison.
            let selective = matches!(condition, Condition::OneIn(_) | Condition::WideOneIn(_));
            if build.rows() * probe.rows() > 20_000 && !selective {
                join.projection = Some(vec![0]);
            } else if project {
                join.projection = Some((0..join.width()).rev().step_by(2).collect());
            }
            join
        },
    )
}

#[test]
fn random_joins_under_random_limits() {
    let asked = ProptestConfig::default();
    let rng_seed = if asked.rng_seed == RngSeed::Random { RngSeed::Fixed(SEED) } else { asked.rng_seed };
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { asked.cases } else { CASES };
    let config =
        ProptestConfig { cases, rng_seed, failure_persistence: None, max_shrink_iters: 200, ..asked };
    let limits = [None, Some(32 * MIB), Some(4 * MIB), Some(MIB), Some(128 * KIB)];
    let cases =
        (joins(), proptest::sample::select(limits.to_vec()), proptest::sample::select(vec![1_usize, 2, 4]));
    let outcome = TestRunner::new(config).run(&cases, |(join, limit, partitions)| {
        let outcome = run(async { join.check(limit, partitions).await });
        outcome.map(drop).map_err(TestCaseError::fail)
    });
    if let Err(error) = outcome {
        panic!("with {rng_seed:?}: {}", error.to_string().chars().take(4_000).collect::<String>());
    }
}

/// A join really goes block by block under this limit, and is right.
fn spills_and_is_right(join: &LoopJoin, limit: usize, partitions: usize) {
    let CheckedLoop { plan, peak_bytes } = checked(join, Some(limit), partitions);
    // Beyond the limit: a batch at hand, pages on their way, the smallest blocks.
    let most = limit + limit / 8 + 256 * KIB;
    assert!(peak_bytes <= most, "{}: {peak_bytes} bytes under {limit}", join.join_type);
    let blocks = metric(&plan, "build_blocks");
    assert!(blocks > 1, "{}: {blocks} blocks", join.join_type);
    assert!(metric(&plan, "spilled_rows") >= join.build.rows());
    assert!(metric(&plan, "spilled_bytes") > 0 && metric(&plan, "spill_read_bytes") > 0);
}

#[test]
fn every_join_type_spills_under_1_mb() {
    let (build, probe) = tables(4_000, 3_000, 1_000);
    for join_type in JOIN_TYPES {
        for partitions in [1, 4] {
            let join = LoopJoin::new(join_type, Condition::WideOneIn(3_001), &build, &probe);
            spills_and_is_right(&join, MIB, partitions);
        }
    }
}

#[test]
fn every_join_type_spills_under_4_mb() {
    let (build, probe) = tables(8_000, 1_000, 1_500);
    for join_type in JOIN_TYPES {
        let join = LoopJoin::new(join_type, Condition::WideOneIn(5_003), &build, &probe);
        spills_and_is_right(&join, 4 * MIB, 2);
    }
}

#[test]
fn outer_joins_spill_under_32_mb() {
    let (build, probe) = tables(10_000, 300, 5_000);
    for join_type in [JoinType::Inner, JoinType::Full, JoinType::LeftAnti, JoinType::RightMark] {
        let join = LoopJoin::new(join_type, Condition::WideOneIn(9_001), &build, &probe);
        spills_and_is_right(&join, 32 * MIB, 2);
    }
}

#[test]
fn a_product_spills_and_never_makes_a_large_batch() {
    let (build, probe) = tables(900, 700, 3_000);
    let mut join = LoopJoin::new(JoinType::Inner, Condition::None, &build, &probe);
    // All columns are kept, so that they spill; comparing as text would take long, so the sums are compared.
    run(async {
        let engine = Engine::new(Some(MIB), 2);
        let plan = join.plan(2);
        let mut sums = (0_i64, 0_i64, 0_usize);
        for partition in 0..2 {
            let mut stream = plan.execute(partition, engine.task()).expect("a stream");
            while let Some(batch) = stream.next().await {
                let batch = batch.expect("a batch");
                assert!(batch.num_rows() <= BATCH_ROWS, "a batch of {} rows", batch.num_rows());
                for (build, probe, _) in join.numbers_of(&[batch]) {
                    sums = (sums.0 + build.unwrap(), sums.1 + probe.unwrap(), sums.2 + 1);
                }
            }
        }
        assert_eq!(sums, (899 * 450 * 700, 699 * 350 * 900, 630_000));
        assert!(metric(&plan, "build_blocks") > 1);
        drop(plan);
        engine.assert_clean("a product").await;
    });
    join.projection = Some(Vec::new());
    let CheckedLoop { plan, .. } = checked(&join, None, 2);
    assert_eq!(metric(&plan, "spilled_rows"), 0);
}

#[test]
fn rows_without_columns_are_counted_beyond_memory() {
    // Nothing of either side is kept but that it is there.
    let (build, probe) = tables(40_000, 30, 10);
    let build = build.in_batches_of(100);
    for join_type in [JoinType::Inner, JoinType::RightSemi, JoinType::RightAnti, JoinType::Full] {
        let mut join = LoopJoin::new(join_type, Condition::None, &build, &probe);
        join.projection = Some(Vec::new());
        checked(&join, None, 2);
        checked(&join, Some(16 * KIB), 2);
    }
}

#[test]
fn nothing_spills_without_a_limit_or_with_enough() {
    let (build, probe) = tables(2_000, 1_500, 500);
    for limit in [None, Some(64 * MIB)] {
        for join_type in JOIN_TYPES {
            let join = LoopJoin::new(join_type, Condition::WideOneIn(2_003), &build, &probe);
            let CheckedLoop { plan, .. } = checked(&join, limit, 2);
            assert_eq!(metric(&plan, "spilled_rows"), 0, "{join_type} spilled under {limit:?}");
        }
    }
}

#[test]
fn inputs_are_read_once() {
    for join_type in [JoinType::Inner, JoinType::Left, JoinType::RightAnti, JoinType::Full] {
        run(async {
            let (build, probe) = tables(4_000, 3_000, 1_000);
            let join = LoopJoin::new(join_type, Condition::WideOneIn(3_001), &build, &probe);
            let engine = Engine::new(Some(MIB), 2);
            let (build_tap, probe_tap) = (Tap::open(), Tap::open());
            let plan = join.plan_of(
                scripted(&build, 2, Ending::Complete, &build_tap),
                scripted(&probe, 2, Ending::Complete, &probe_tap),
            );
            let rows = engine.collect(&plan).await.expect("rows");
            same_rows(&rows, &join.right_rows().await).expect("the same rows");
            assert!(metric(&plan, "build_blocks") > 2, "{join_type}");
            assert_eq!(build_tap.asked.load(Ordering::SeqCst), build.batches.len(), "{join_type}");
            assert_eq!(probe_tap.asked.load(Ordering::SeqCst), probe.batches.len(), "{join_type}");
        });
    }
}

#[test]
fn probe_rows_stay_in_their_partition() {
    // What is above may count on it: these joins claim the partitioning of their probe side.
    let (build, probe) = tables(4_000, 2_000, 1_000);
    for join_type in
        [JoinType::Inner, JoinType::Right, JoinType::RightSemi, JoinType::RightAnti, JoinType::RightMark]
    {
        run(async {
            let join = LoopJoin::new(join_type, Condition::WideOneIn(1_001), &build, &probe);
            let engine = Engine::new(Some(MIB), 2);
            let plan = join.plan(2);
            let mut streams = crate::harness::streams::streams(&engine, &plan);
            streams.reverse();
            for batches in probe.deal(2) {
                let own: Vec<Option<i64>> = crate::harness::rows::integers(&batches, probe.id_column());
                let own: std::collections::HashSet<Option<i64>> = own.into_iter().collect();
                let rows = crate::harness::streams::read_all(vec![streams.pop().expect("a stream")]).await;
                let rows = rows.into_iter().next().expect("one stream").expect("rows");
                assert!(row_count(&rows) > 0, "{join_type}");
                assert!(join.numbers_of(&rows).iter().all(|row| own.contains(&row.1)), "{join_type}");
            }
            assert!(metric(&plan, "build_blocks") > 1, "{join_type}");
        });
    }
}

#[test]
fn outer_joins_are_right_where_the_planned_join_is_wrong() {
    // DataFusion's own join in a pool that is too small for the build side: its output partitions decide alone which
    // build rows have no match, so those come once per partition that does not match them.
    let (build, probe) = tables(2_000, 1_200, 1_000);
    let wrong = [JoinType::Left, JoinType::LeftSemi, JoinType::LeftAnti, JoinType::LeftMark];
    for join_type in wrong {
        run(async {
            let join = LoopJoin::new(join_type, Condition::Less, &build, &probe);
            let join = LoopJoin { projection: Some(vec![join.build.id_column()]), ..join };
            let right = join.right_rows().await;
            let environment = RuntimeEnvBuilder::new().with_memory_limit(MIB / 2, 1.0).build_arc().unwrap();
            let config = SessionConfig::new().with_batch_size(BATCH_ROWS);
            let context = SessionContext::new_with_config_rt(config, environment);
            let theirs: Arc<dyn ExecutionPlan> = Arc::new(join.planned_over(build.scan(1), probe.scan(3)));
            let theirs = collect(theirs, context.task_ctx()).await.expect("their rows");
            assert!(same_rows(&theirs, &right).is_err(), "{join_type}: DataFusion's join is right by now");
            // What it keeps is a number per row, and the text that decides nothing is not kept.
            join.check_against(&right, Some(16 * KIB), 3).await.unwrap_or_else(|error| panic!("{error}"));
        });
    }
}
