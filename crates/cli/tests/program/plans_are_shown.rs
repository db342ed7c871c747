//! `EXPLAIN` shows the plan, `EXPLAIN ANALYZE` what its operators did.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use crate::program;

use program::{folder_with_files, run};

#[test]
fn explain_shows_both_plans() {
    let folder = folder_with_files();
    let text = run(folder.path(), ["-c", "EXPLAIN SELECT count(*) FROM 'goods.parquet' WHERE id > 1"]).ok();
    assert!(text.starts_with("logical plan:\n") && text.contains("\nphysical plan:\n"), "{text}");
}

#[test]
fn explain_analyze_runs_the_query_and_counts() {
    let folder = folder_with_files();
    let sql = "EXPLAIN ANALYZE SELECT a.name FROM 'goods.parquet' a JOIN 'goods.csv' b ON a.id = b.id";
    let text = run(folder.path(), ["-c", sql]).ok();
    let join = text.lines().position(|line| line.contains("HashJoin")).expect(&text);
    let facts = text.lines().nth(join + 1).unwrap();
    assert!(facts.contains("3 rows · "), "{text}");
    assert!(text.contains(" scanned"), "{text}");
    assert!(text.contains("goods.parquet") && text.contains("├─ ") && text.contains("└─ "), "{text}");
}
