//! Workers that mark matches of the same build rows at the same time miss none.
//!
//! A semi join that gives out build rows stops walking a key's duplicates once another probe row has walked
//! them. Whoever walks them must do so to the end, however the walks of several workers overlap.

use datafusion::common::JoinType;

use crate::harness::joins::Join;
use crate::harness::run;
use crate::harness::tables::{KeyType, Skew, Table, TableShape};

#[test]
fn no_match_of_a_hot_key_is_missed() {
    let shape = TableShape { skew: Skew::One, domain: 8, text_bytes: 1, ..TableShape::of_rows(40_000) };
    let build = Table::draw("b_", &[KeyType::Int64], &shape);
    // One batch of a single row per worker: all of them walk the same duplicates, in large steps.
    let probe = Table::draw("p_", &[KeyType::Int64], &TableShape { rows: 4, seed: 2, ..shape });
    let probe = probe.in_batches_of(1);
    for join_type in [JoinType::LeftSemi, JoinType::LeftAnti, JoinType::LeftMark] {
        let join = Join::new(join_type, build.clone(), probe.clone());
        let right = run(join.right_rows());
        for _ in 0..8 {
            let outcome = run(async { join.check_against(&right, None, 4).await });
            outcome.unwrap_or_else(|difference| panic!("{difference}"));
        }
    }
}
