//! Joins without equality keys as SQL plans them: all run through our operator, and their rows are DataFusion's.

use crate::harness::rows::assert_same_rows;
use crate::harness::tables::{KeyType, Table, TableShape};
use crate::harness::{Engine, KIB, MIB, count_nodes, metric, plain, planned, register, run};

/// Tables `l` and `r` with nulls; `e` is empty, `s` is small.
fn tables() -> [(&'static str, Table); 4] {
    let keys = [KeyType::Int64];
    let shape = TableShape { domain: 300, null_percent: 8, text_bytes: 300, ..TableShape::of_rows(900) };
    let draw =
        |prefix: &str, rows, seed| Table::draw(prefix, &keys, &TableShape { rows, seed, ..shape.clone() });
    [("l", draw("l_", 900, 1)), ("r", draw("r_", 700, 3)), ("e", draw("e_", 0, 5)), ("s", draw("s_", 40, 7))]
}

/// Queries, and with how many of our nested loop joins each is planned.
const QUERIES: &[(&str, usize)] = &[
    ("SELECT l_id, s_id FROM l CROSS JOIN s", 1),
    ("SELECT l_id, s_id FROM l, s", 1),
    ("SELECT count(*) FROM l, r, s WHERE l_number > 70 AND r_number > 50 AND s_number > 5", 2),
    ("SELECT l_id, e_id FROM l CROSS JOIN e", 1),
    ("SELECT l_id, s_text FROM l, s WHERE l_number + s_number > 180", 1),
    ("SELECT l_id, r_id FROM l JOIN r ON l_id * 31 < r_number", 1),
    ("SELECT * FROM l JOIN r ON l_k0 < r_k0 AND (l_id + r_id) % 700 = 3", 1),
    ("SELECT * FROM l LEFT JOIN r ON l_number < r_number AND (l_id + r_id) % 300 = 3", 1),
    ("SELECT * FROM l RIGHT JOIN r ON l_number < r_number AND (l_id + r_id) % 300 = 3", 1),
    ("SELECT * FROM l FULL JOIN r ON l_number < r_number AND (l_id + r_id) % 300 = 3", 1),
    ("SELECT * FROM l FULL JOIN e ON l_number < e_number", 1),
    ("SELECT s_id, r_id FROM s FULL JOIN r ON s_text < r_text AND r_number > 80", 1),
    ("SELECT * FROM l WHERE EXISTS (SELECT 1 FROM r WHERE r_number > l_number + 97)", 1),
    ("SELECT * FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r_number > l_number + 30)", 1),
    ("SELECT * FROM l WHERE l_number > 80 OR EXISTS (SELECT 1 FROM r WHERE r_number > l_number + 97)", 1),
    ("SELECT l_id, l_number > (SELECT avg(r_number) FROM r) FROM l", 0),
    ("SELECT l_id FROM l, (SELECT avg(r_number) AS a FROM r) WHERE l_number > a", 1),
    ("SELECT s_id, n FROM s, LATERAL (SELECT count(*) AS n FROM r WHERE r_k0 = s_k0)", 0),
    ("SELECT x.s_id, y.s_id FROM s x JOIN s y ON x.s_id BETWEEN y.s_id - 2 AND y.s_id + 2", 1),
    (
        "SELECT x.s_id, y.s_id FROM s x LEFT JOIN s y ON x.s_text LIKE left(y.s_text, 3) || '%' AND x.s_id > y.s_id",
        1,
    ),
    (
        "SELECT l_id, s_id FROM l RIGHT JOIN s ON l_number IN (s_number, 5, s_id) AND l_text NOT LIKE '%xxx'",
        1,
    ),
    ("SELECT l_id, s_id FROM l JOIN s ON coalesce(l_number, s_number) + s_id BETWEEN 20 AND 22", 1),
    ("SELECT l_id FROM l JOIN s ON l_number < s_number GROUP BY l_id ORDER BY l_id LIMIT 10", 1),
];

/// The nodes that ours replace.
const REPLACED: [&str; 4] = ["NestedLoopJoinExec", "CrossJoinExec", "HashJoinExec", "SortMergeJoinExec"];

fn right_rows(tables: &[(&str, Table)], sql: &str) -> Vec<arrow::array::RecordBatch> {
    run(async {
        let context = plain();
        tables.iter().for_each(|(name, table)| register(&context, name, table, 1));
        context.sql(sql).await.expect(sql).collect().await.expect(sql)
    })
}

#[test]
fn every_query_gives_the_same_rows() {
    let tables = tables();
    for &(sql, joins) in QUERIES {
        let right = right_rows(&tables, sql);
        for (limit, partitions) in [(None, 2), (Some(8 * MIB), 1), (Some(MIB), 3)] {
            run(async {
                let engine = Engine::new(limit, partitions);
                tables.iter().for_each(|(name, table)| engine.register(name, table, partitions));
                let plan = planned(&engine.context, sql).await.expect(sql);
                let shown = datafusion::physical_plan::displayable(plan.as_ref()).indent(false).to_string();
                assert_eq!(count_nodes(&plan, "BlockNestedLoopJoinExec"), joins, "{sql}:\n{shown}");
                for name in REPLACED {
                    assert_eq!(count_nodes(&plan, name), 0, "{name}: {sql}");
                }
                let ours = engine.collect(&plan).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
                assert_same_rows(&ours, &right, &format!("{sql} under {limit:?}"));
                engine.assert_clean(sql).await;
            });
        }
    }
}

#[test]
fn inequality_joins_in_sql_spill() {
    let tables = tables();
    let sql = "SELECT * FROM l FULL JOIN r ON l_k0 < r_k0 AND (l_id + r_id) % 700 = 3";
    let right = right_rows(&tables, sql);
    run(async {
        let engine = Engine::new(Some(128 * KIB), 2);
        tables.iter().for_each(|(name, table)| engine.register(name, table, 2));
        let plan = planned(&engine.context, sql).await.expect(sql);
        let ours = engine.collect(&plan).await.expect(sql);
        assert!(metric(&plan, "build_blocks") > 1);
        assert_same_rows(&ours, &right, sql);
        engine.assert_clean(sql).await;
    });
}

#[test]
fn recursive_queries_join_again_and_again() {
    let tables = tables();
    let sql = "WITH RECURSIVE reached(id, step) AS (
                   SELECT s_id, 0 FROM s WHERE s_id < 3
                   UNION ALL
                   SELECT s_id, step + 1 FROM reached JOIN s ON s_id > id * 2 AND s_id < id * 2 + 4 WHERE step < 4)
               SELECT * FROM reached";
    let right = right_rows(&tables, sql);
    assert!(crate::harness::rows::row_count(&right) > 20);
    run(async {
        let engine = Engine::new(Some(8 * MIB), 2);
        tables.iter().for_each(|(name, table)| engine.register(name, table, 2));
        let plan = planned(&engine.context, sql).await.expect(sql);
        assert_eq!(count_nodes(&plan, "BlockNestedLoopJoinExec"), 1);
        assert_same_rows(&engine.collect(&plan).await.expect(sql), &right, sql);
        drop(plan);
        engine.assert_clean(sql).await;
    });
}

#[test]
fn merge_joins_become_hash_joins() {
    let tables = tables();
    for (sql, merges) in [
        ("SELECT * FROM l JOIN r ON l_k0 = r_k0", 1),
        ("SELECT * FROM l FULL JOIN r ON l_k0 = r_k0 AND l_number < r_number ORDER BY l_id, r_id", 1),
        ("SELECT * FROM l WHERE l_k0 NOT IN (SELECT s_k0 FROM s)", 0),
    ] {
        let right = right_rows(&tables, sql);
        run(async {
            let prefer_merges = "SET datafusion.optimizer.prefer_hash_join = false";
            let theirs = plain();
            tables.iter().for_each(|(name, table)| register(&theirs, name, table, 2));
            theirs.sql(prefer_merges).await.expect("a setting");
            let planned_merges = count_nodes(&planned(&theirs, sql).await.expect(sql), "SortMergeJoinExec");
            assert_eq!(planned_merges, merges, "{sql}");
            let engine = Engine::new(Some(8 * MIB), 2);
            tables.iter().for_each(|(name, table)| engine.register(name, table, 2));
            engine.context.sql(prefer_merges).await.expect("a setting");
            let plan = planned(&engine.context, sql).await.expect(sql);
            assert_eq!(count_nodes(&plan, "HybridHashJoinExec"), 1, "{sql}");
            assert_eq!(count_nodes(&plan, "SortMergeJoinExec"), 0, "{sql}");
            assert_same_rows(&engine.collect(&plan).await.expect(sql), &right, sql);
        });
    }
}
