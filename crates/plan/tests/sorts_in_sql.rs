//! Orders, limits and windows as SQL plans them run through our sort at any limit, and give DataFusion's rows.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

mod harness;

use harness::rows::assert_same_rows;
use harness::tables::{KeyType, Table, TableShape};
use harness::{Engine, MIB, count_nodes, plain, planned, register, run};

/// Runs `sql` at every limit and compares. The keys of the queries decide, so that rows have one order.
fn same_everywhere(sql: &str, sorts: usize, merges: usize) {
    run(async {
        let shape =
            TableShape { domain: 500, null_percent: 10, text_bytes: 150, ..TableShape::of_rows(12_000) };
        let table = Table::draw("", &[KeyType::Int32, KeyType::Utf8View], &shape);
        let right = plain();
        register(&right, "t", &table, 2);
        let right = right.sql(sql).await.expect(sql).collect().await.expect(sql);
        for limit in [None, Some(32 * MIB), Some(4 * MIB), Some(MIB)] {
            let what = format!("{sql} at {limit:?}");
            let engine = Engine::new(limit, 2);
            engine.register("t", &table, 2);
            let plan = planned(&engine.context, sql).await.expect(&what);
            let shown = datafusion::physical_plan::displayable(plan.as_ref()).indent(false).to_string();
            assert_eq!(count_nodes(&plan, "ExternalSortExec"), sorts, "{shown}");
            assert_eq!(count_nodes(&plan, "SortPreservingMergeExec"), merges, "{shown}");
            assert!(!shown.contains(" SortExec"), "{shown}");
            let ours = engine.collect(&plan).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_same_rows(&ours, &right, &what);
            if sql.contains("FROM t ORDER BY id") {
                let column = ours[0].schema().index_of("id").unwrap();
                assert!(harness::rows::integers(&ours, column).is_sorted(), "{what}");
            }
            drop((ours, plan));
            engine.assert_clean(&what).await;
        }
    });
}

#[test]
fn orders_are_sorts_of_all_partitions() {
    same_everywhere("SELECT * FROM t ORDER BY id", 1, 0);
    same_everywhere("SELECT text, id FROM t ORDER BY id", 1, 0);
    same_everywhere("SELECT id, k0 + 1 AS k FROM t WHERE k0 > 3 ORDER BY k DESC NULLS LAST, id", 1, 0);
}

#[test]
fn limits_are_known_to_sorts() {
    same_everywhere("SELECT * FROM t ORDER BY id LIMIT 20", 1, 0);
    same_everywhere("SELECT text, id FROM t ORDER BY id LIMIT 3000 OFFSET 4000", 1, 0);
    same_everywhere("SELECT k0, count(*) FROM t GROUP BY k0 ORDER BY k0 NULLS FIRST LIMIT 7", 1, 0);
}

#[test]
fn windows_stand_on_sorts() {
    same_everywhere("SELECT id, row_number() OVER (ORDER BY id) FROM t", 1, 0);
    same_everywhere("SELECT id, sum(number) OVER (PARTITION BY k0 ORDER BY id) FROM t", 1, 0);
    same_everywhere(
        "SELECT id, lag(text) OVER (PARTITION BY k1 ORDER BY id), count(*) OVER (PARTITION BY k0) FROM t",
        2,
        0,
    );
    same_everywhere("SELECT id, rank() OVER (PARTITION BY k0 ORDER BY text) r FROM t ORDER BY id", 2, 0);
}
