//! Every kind of join gives the rows that DataFusion's own join gives without a limit, whatever the keys, the
//! data and the memory.

use datafusion::common::{JoinType, NullEquality};
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};

use crate::harness::joins::{Checked, JOIN_TYPES, Join, Residual};
use crate::harness::tables::{KEY_TYPES, KeyType, Skew, Table, TableShape};
use crate::harness::{KIB, MIB, metric, run};

/// The same cases in every run, unless PROPTEST_RNG_SEED and PROPTEST_CASES ask for others.
const SEED: u64 = 20_161_121;
const CASES: u32 = 250;

const LIMITS: [Option<usize>; 5] = [None, Some(64 * MIB), Some(8 * MIB), Some(MIB), Some(256 * KIB)];

/// Every join type, and `NOT IN`, which is a left anti join that knows about nulls.
fn all_kinds(build: &Table, probe: &Table) -> Vec<Join> {
    let mut joins: Vec<Join> =
        JOIN_TYPES.iter().map(|&join_type| Join::new(join_type, build.clone(), probe.clone())).collect();
    joins.push(Join { null_aware: true, ..Join::new(JoinType::LeftAnti, build.clone(), probe.clone()) });
    joins
}

fn checked(join: &Join, limit: Option<usize>, partitions: usize) -> Checked {
    run(async { join.check(limit, partitions).await }).unwrap_or_else(|difference| panic!("{difference}"))
}

#[test]
fn every_join_type_with_every_key_type() {
    for (number, key_type) in KEY_TYPES.into_iter().enumerate() {
        let shape = TableShape { domain: 120, null_percent: 10, ..TableShape::of_rows(300) };
        let build = Table::draw("b_", &[key_type], &shape);
        let probe = Table::draw("p_", &[key_type], &TableShape { rows: 420, seed: 2, ..shape });
        for (kind, mut join) in all_kinds(&build, &probe).into_iter().enumerate() {
            if (number + kind) % 2 == 1 && !join.null_aware {
                join.null_equality = NullEquality::NullEqualsNull;
            }
            let limit = if kind % 2 == 0 { None } else { Some(256 * KIB) };
            let outcome = run(async { join.check(limit, 1 + kind % 2).await });
            outcome.unwrap_or_else(|difference| panic!("{key_type:?}: {difference}"));
        }
    }
}

fn table_shapes() -> impl Strategy<Value = TableShape> {
    let rows = prop_oneof![1 => 0..3_usize, 4 => 3..300_usize, 4 => 300..2_000_usize];
    let domain = prop_oneof![1 => 1..5_i64, 3 => 5..200_i64, 3 => 200..3_000_i64];
    let null_percent = prop_oneof![4 => Just(0_u32), 4 => Just(5), 2 => Just(50), 1 => Just(100)];
    let skew = prop_oneof![6 => Just(Skew::Even), 2 => Just(Skew::Half), 1 => Just(Skew::One)];
    let text_bytes = prop_oneof![3 => Just(10_usize), 2 => Just(150), 1 => Just(600)];
    (rows, domain, null_percent, skew, text_bytes, any::<u64>()).prop_map(
        |(rows, domain, null_percent, skew, text_bytes, seed)| {
            // Two tables of one key each would make an output of millions of rows.
            let rows = match skew {
                Skew::Even => rows.min(domain as usize * 40),
                Skew::Half => rows.min(800),
                Skew::One => rows.min(300),
            };
            TableShape { rows, domain, null_percent, skew, text_bytes, seed }
        },
    )
}

fn key_types() -> impl Strategy<Value = Vec<KeyType>> {
    prop_oneof![
        3 => proptest::sample::select(&KEY_TYPES[..]).prop_map(|key_type| vec![key_type]),
        1 => proptest::collection::vec(proptest::sample::select(&KEY_TYPES[..]), 2..4),
    ]
}

fn joins() -> impl Strategy<Value = Join> {
    let residuals = prop_oneof![
        4 => Just(Residual::None),
        3 => Just(Residual::BothSides),
        1 => Just(Residual::ProbeSide),
        1 => Just(Residual::NeverTrue),
    ];
    let join_types = proptest::sample::select(&JOIN_TYPES[..]);
    (key_types(), table_shapes(), table_shapes(), join_types, residuals, any::<[bool; 4]>()).prop_map(
        |(key_types, build, probe, join_type, residual, [nulls_equal, null_aware, computed, project])| {
            let build = Table::draw("b_", &key_types, &build);
            let probe = Table::draw("p_", &key_types, &probe);
            let mut join = Join { residual, ..Join::new(join_type, build, probe) };
            // DataFusion's `NOT IN` has one key, and no residual filter that it plans itself.
            join.null_aware = null_aware
                && join_type == JoinType::LeftAnti
                && residual == Residual::None
                && key_types.len() == 1;
            if nulls_equal && !join.null_aware {
                join.null_equality = NullEquality::NullEqualsNull;
            }
            join.computed_key = computed && key_types[0] == KeyType::Int64;
            if project {
                let width = join.width();
                join.projection = Some((0..width).rev().step_by(2).collect());
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
    let cases =
        (joins(), proptest::sample::select(&LIMITS[..]), proptest::sample::select(&[1_usize, 2, 4][..]));
    let outcome = TestRunner::new(config).run(&cases, |(join, limit, partitions)| {
        let outcome = run(async { join.check(limit, partitions).await });
        outcome.map(drop).map_err(TestCaseError::fail)
    });
    if let Err(error) = outcome {
        panic!("with {rng_seed:?}: {}", error.to_string().chars().take(4_000).collect::<String>());
    }
}

/// A third of the probe keys have a match; both sides have duplicates. The keys are wide: semi joins keep
/// little else of one side.
fn spilling_tables(build_rows: usize, probe_rows: usize) -> (Table, Table) {
    let shape = TableShape { domain: build_rows as i64, null_percent: 3, ..TableShape::of_rows(build_rows) };
    let build = Table::draw("b_", &[KeyType::LongText(200)], &shape);
    let probe_shape = TableShape { rows: probe_rows, domain: 3 * build_rows as i64, seed: 2, ..shape };
    let probe = Table::draw("p_", &[KeyType::LongText(200)], &probe_shape);
    (build, probe)
}

/// Every kind of join, with and without a residual filter, really spills under this limit and is right.
fn spills_and_is_right(build: &Table, probe: &Table, limit: usize, partitions: usize) {
    for mut join in all_kinds(build, probe) {
        for residual in [Residual::None, Residual::BothSides] {
            if join.null_aware && residual != Residual::None {
                continue;
            }
            join.residual = residual;
            let Checked { plan, peak_bytes } = checked(&join, Some(limit), partitions);
            // Beyond the limit: a batch at hand, pages on their way, the smallest block.
            assert!(peak_bytes <= limit + limit / 8 + 256 * KIB, "{}: {peak_bytes} bytes", join.join_type);
            assert!(metric(&plan, "spilled_partitions") > 0, "{} did not spill", join.join_type);
            assert!(metric(&plan, "spilled_bytes") > 0);
            assert!(metric(&plan, "spill_read_bytes") > 0);
        }
    }
}

#[test]
fn every_join_type_spills_under_8_mb() {
    let (build, probe) = spilling_tables(40_000, 30_000);
    spills_and_is_right(&build, &probe, 8 * MIB, 2);
}

#[test]
fn every_join_type_spills_under_1_mb() {
    let (build, probe) = spilling_tables(8_000, 6_000);
    spills_and_is_right(&build, &probe, MIB, 4);
}

#[test]
fn every_join_type_spills_under_256_kb() {
    let (build, probe) = spilling_tables(3_000, 2_000);
    spills_and_is_right(&build, &probe, 256 * KIB, 1);
}

#[test]
fn nothing_spills_without_a_limit_or_with_enough() {
    let (build, probe) = spilling_tables(8_000, 6_000);
    for limit in [None, Some(64 * MIB)] {
        for join in all_kinds(&build, &probe) {
            let Checked { plan, .. } = checked(&join, limit, 2);
            assert_eq!(metric(&plan, "spilled_partitions"), 0, "{} spilled under {limit:?}", join.join_type);
            assert_eq!(metric(&plan, "spilled_bytes"), 0);
        }
    }
}

#[test]
fn partitions_too_large_are_split_again() {
    // Eight partitions of more than the limit each, of both sides: every probe key has a match.
    let shape = TableShape { domain: 60_000, null_percent: 3, ..TableShape::of_rows(60_000) };
    let build = Table::draw("b_", &[KeyType::LongText(200)], &shape);
    let probe = Table::draw("p_", &[KeyType::LongText(200)], &TableShape { rows: 70_000, seed: 2, ..shape });
    for join in all_kinds(&build, &probe) {
        let Checked { plan, .. } = checked(&join, Some(MIB), 2);
        assert!(metric(&plan, "recursive_partitions") > 0, "{} did not recurse", join.join_type);
    }
}

#[test]
fn spilled_partitions_build_on_the_smaller_side() {
    let (build, probe) = spilling_tables(40_000, 5_000);
    for join in all_kinds(&build, &probe) {
        for residual in [Residual::None, Residual::BothSides] {
            if join.null_aware && residual != Residual::None {
                continue;
            }
            let join = Join { residual, ..join.clone() };
            let Checked { plan, .. } = checked(&join, Some(6 * MIB), 2);
            let reversed = metric(&plan, "role_reversals");
            assert_eq!(reversed > 0, !join.null_aware, "{}: {reversed} reversals", join.join_type);
        }
    }
}

#[test]
fn a_hot_key_is_joined_in_blocks() {
    // One key of 10 kB in every row: neither side fits, and neither can be split.
    let key = [KeyType::LongText(10_000)];
    let shape = TableShape { skew: Skew::One, text_bytes: 10, ..TableShape::of_rows(400) };
    let build = Table::draw("b_", &key, &shape);
    let probe = Table::draw("p_", &key, &TableShape { rows: 450, seed: 2, ..shape });
    let (build, probe) = (build.in_batches_of(16), probe.in_batches_of(16));
    for mut join in all_kinds(&build, &probe) {
        if !join.null_aware {
            join.residual = Residual::RowNumbers;
        }
        join.projection = Some(join.narrow_columns());
        let Checked { plan, .. } = checked(&join, Some(2 * MIB), 2);
        let blocks = metric(&plan, "build_blocks");
        assert!(blocks > 1, "{}: {blocks} blocks", join.join_type);
    }
}

#[test]
fn a_hot_key_does_not_stop_the_others() {
    // Half of the build rows have one key, which a few probe rows ask for.
    let key = [KeyType::LongText(200)];
    let shape = TableShape { skew: Skew::Half, domain: 2_000, text_bytes: 10, ..TableShape::of_rows(12_000) };
    let build = Table::draw("b_", &key, &shape);
    let probe_shape = TableShape { rows: 4_000, skew: Skew::Even, domain: 8_000, seed: 2, ..shape };
    let probe = Table::draw("p_", &key, &probe_shape);
    for mut join in all_kinds(&build, &probe) {
        join.projection = Some(join.narrow_columns());
        let Checked { plan, .. } = checked(&join, Some(MIB), 2);
        assert!(metric(&plan, "spilled_partitions") > 0, "{}", join.join_type);
    }
}

#[test]
fn probe_rows_without_a_match_are_not_spilled() {
    // One probe row in ten has a match.
    let shape = TableShape { domain: 40_000, null_percent: 3, ..TableShape::of_rows(40_000) };
    let build = Table::draw("b_", &[KeyType::LongText(200)], &shape);
    let probe_shape = TableShape { rows: 60_000, domain: 400_000, seed: 2, ..shape };
    let probe = Table::draw("p_", &[KeyType::LongText(200)], &probe_shape);
    for join in all_kinds(&build, &probe) {
        let Checked { plan, .. } = checked(&join, Some(2 * MIB), 2);
        let filtered = metric(&plan, "filtered_rows");
        assert!(filtered > 40_000, "{}: only {filtered} of 60000 rows were kept in memory", join.join_type);
    }
}
