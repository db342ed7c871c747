//! Joins as SQL plans them: every query that joins runs through our operator, and its rows are DataFusion's.

use crate::harness::rows::{assert_same_rows, row_count};
use crate::harness::tables::{KeyType, Table, TableShape};
use crate::harness::{Engine, KIB, MIB, count_nodes, metric, plain, planned, register, run};

/// Tables `l` and `r` with keys of two columns, some null; `e` is empty, `n` has no null keys.
fn tables() -> [(&'static str, Table); 4] {
    let keys = [KeyType::Int64, KeyType::Utf8View];
    let shape = TableShape { domain: 900, null_percent: 8, text_bytes: 100, ..TableShape::of_rows(3_000) };
    let other = TableShape { rows: 2_500, seed: 3, ..shape.clone() };
    let no_nulls = TableShape { null_percent: 0, rows: 400, seed: 4, ..shape.clone() };
    let empty = TableShape { rows: 0, ..shape.clone() };
    [
        ("l", Table::draw("l_", &keys, &shape)),
        ("r", Table::draw("r_", &keys, &other)),
        ("e", Table::draw("e_", &keys, &empty)),
        ("n", Table::draw("n_", &keys, &no_nulls)),
    ]
}

/// Queries, and how many of our joins each is planned with.
const QUERIES: &[(&str, usize)] = &[
    ("SELECT * FROM l JOIN r ON l_k0 = r_k0", 1),
    ("SELECT * FROM l JOIN r ON l_k0 = r_k0 AND l_k1 = r_k1", 1),
    ("SELECT * FROM l LEFT JOIN r ON l_k0 = r_k0", 1),
    ("SELECT * FROM l RIGHT JOIN r ON l_k0 = r_k0", 1),
    ("SELECT * FROM l FULL JOIN r ON l_k0 = r_k0", 1),
    ("SELECT * FROM l FULL JOIN r ON l_k0 = r_k0 AND l_number < r_number", 1),
    ("SELECT * FROM l LEFT JOIN r ON l_k0 = r_k0 AND l_number + r_number > 90 AND r_number > 20", 1),
    ("SELECT * FROM l RIGHT JOIN r ON l_k0 = r_k0 AND l_id < r_id AND l_number = 7", 1),
    ("SELECT * FROM l JOIN r ON l_k0 + 1 = r_k0", 1),
    ("SELECT * FROM l JOIN r ON (l_k0 IS NOT DISTINCT FROM r_k0) AND (l_k1 IS NOT DISTINCT FROM r_k1)", 1),
    (
        "SELECT l_id, r_id FROM l FULL JOIN r ON (l_k1 IS NOT DISTINCT FROM r_k1) AND (l_k0 IS NOT DISTINCT FROM r_k0)",
        1,
    ),
    ("SELECT * FROM l WHERE EXISTS (SELECT 1 FROM r WHERE r_k0 = l_k0)", 1),
    ("SELECT * FROM l WHERE EXISTS (SELECT 1 FROM r WHERE r_k0 = l_k0 AND r_number > l_number)", 1),
    ("SELECT * FROM l WHERE l_k0 IN (SELECT r_k0 FROM r)", 1),
    ("SELECT * FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r_k0 = l_k0)", 1),
    ("SELECT * FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r_k0 = l_k0 AND r_number > l_number)", 1),
    ("SELECT * FROM l WHERE l_k0 NOT IN (SELECT r_k0 FROM r)", 1),
    ("SELECT * FROM l WHERE l_k0 NOT IN (SELECT n_k0 FROM n)", 1),
    ("SELECT * FROM l WHERE l_k0 NOT IN (SELECT r_k0 FROM r WHERE r_k0 IS NOT NULL)", 1),
    ("SELECT * FROM l WHERE l_k0 NOT IN (SELECT e_k0 FROM e)", 1),
    ("SELECT * FROM n WHERE n_k0 NOT IN (SELECT l_k0 FROM l)", 1),
    ("SELECT * FROM l WHERE l_number > 80 OR EXISTS (SELECT 1 FROM r WHERE r_k0 = l_k0)", 1),
    ("SELECT * FROM l WHERE l_number > 80 OR l_k0 IN (SELECT n_k0 FROM n)", 1),
    ("SELECT * FROM l WHERE l_number > 80 OR NOT EXISTS (SELECT 1 FROM r WHERE r_k0 = l_k0)", 1),
    ("SELECT l_k0, l_k1 FROM l INTERSECT SELECT r_k0, r_k1 FROM r", 1),
    ("SELECT l_k0, l_k1 FROM l EXCEPT SELECT r_k0, r_k1 FROM r", 1),
    ("SELECT count(*) FROM l JOIN r ON l_k0 = r_k0", 1),
    ("SELECT count(*) FROM l LEFT JOIN r ON l_k0 = r_k0", 1),
    ("SELECT count(*) FROM l FULL JOIN e ON l_k0 = e_k0", 1),
    ("SELECT count(*), sum(r_number) FROM l JOIN r ON l_k0 = r_k0 GROUP BY l_number", 1),
    ("SELECT a.l_id, b.l_id FROM l a JOIN l b ON a.l_k0 = b.l_k0 AND a.l_id < b.l_id", 1),
    ("SELECT l_id, r_id, n_id FROM l JOIN r ON l_k0 = r_k0 JOIN n ON l_k0 = n_k0", 2),
    (
        "SELECT l_id, r_id, n_id FROM l LEFT JOIN r ON l_k0 = r_k0 LEFT JOIN n ON r_number = n_number AND n_id = l_id",
        2,
    ),
    ("SELECT l_id, (SELECT max(r_id) FROM r WHERE r_k0 = l_k0) FROM l", 1),
];

#[test]
fn every_query_that_joins_gives_the_same_rows() {
    let tables = tables();
    for &(sql, joins) in QUERIES {
        let right = run(async {
            let context = plain();
            tables.iter().for_each(|(name, table)| register(&context, name, table, 1));
            context.sql(sql).await.expect(sql).collect().await.expect(sql)
        });
        for (limit, partitions) in [(None, 2), (Some(8 * MIB), 1), (Some(2 * MIB), 4)] {
            run(async {
                let engine = Engine::new(limit, partitions);
                tables.iter().for_each(|(name, table)| engine.register(name, table, partitions));
                let plan = planned(&engine.context, sql).await.expect(sql);
                assert_eq!(count_nodes(&plan, "HybridHashJoinExec"), joins, "{sql}");
                assert_eq!(count_nodes(&plan, "HashJoinExec"), 0, "{sql}");
                let ours = engine.collect(&plan).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
                assert_same_rows(&ours, &right, &format!("{sql} under {limit:?}"));
                engine.assert_clean(sql).await;
            });
        }
    }
}

#[test]
fn joins_in_sql_spill() {
    let tables = tables();
    let sql = "SELECT * FROM l JOIN r ON l_k0 = r_k0 AND l_k1 = r_k1";
    let right = run(async {
        let context = plain();
        tables.iter().for_each(|(name, table)| register(&context, name, table, 1));
        context.sql(sql).await.expect(sql).collect().await.expect(sql)
    });
    assert!(row_count(&right) > 1_000);
    run(async {
        let engine = Engine::new(Some(256 * KIB), 2);
        tables.iter().for_each(|(name, table)| engine.register(name, table, 2));
        let plan = planned(&engine.context, sql).await.expect(sql);
        let ours = engine.collect(&plan).await.expect(sql);
        assert!(metric(&plan, "spilled_partitions") > 0);
        assert_same_rows(&ours, &right, sql);
        engine.assert_clean(sql).await;
    });
}
