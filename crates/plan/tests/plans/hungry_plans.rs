//! Plans of many operators that hold what they have seen share one small limit: none fails, none waits for ever, and
//! the rows are DataFusion's.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;

use crate::harness::rows::assert_same_rows;
use crate::harness::tables::{KeyType, Table, TableShape};
use crate::harness::{Engine, KIB, MIB, plain, planned, register, run};

const LIMITS: [Option<usize>; 4] = [None, Some(4 * MIB), Some(MIB), Some(512 * KIB)];

/// Six joins, two aggregations, a window, a sort.
const PLANS: &[&str] = &[
    "SELECT f.id, a.text AS one, b.text AS other, c.number, d.id AS d, e.k0 AS e, g.id AS g
     FROM fact f JOIN a ON f.k0 = a.k0 JOIN b ON f.k1 = b.k0 LEFT JOIN c ON f.id = c.id JOIN d ON a.id = d.id
     LEFT JOIN e ON b.id = e.id JOIN g ON f.id = g.id
     ORDER BY one, other, f.id, d, g",
    "SELECT k0, n, s, t, u, rank() OVER (ORDER BY s DESC, k0) AS place FROM (
       SELECT f.k0, count(*) AS n, sum(g.id) AS s, max(a.t) AS t, max(b.text) AS u FROM fact f
       JOIN (SELECT id, max(text) AS t FROM a GROUP BY id) AS a ON f.id = a.id
       JOIN (SELECT DISTINCT id, number, text FROM b) AS b ON f.id = b.id JOIN g ON f.id = g.id
       JOIN c ON g.id = c.id JOIN d ON c.id = d.id LEFT JOIN e ON d.id = e.id AND e.number > d.number
       GROUP BY f.k0)
     ORDER BY place",
    "SELECT a.id, count(*) OVER (PARTITION BY a.number) AS n, sum(b.id) OVER (ORDER BY a.id, b.id) AS s
     FROM a JOIN b ON a.k0 = b.k0 WHERE EXISTS (SELECT 1 FROM c WHERE c.id = a.id AND c.number >= a.number)
     UNION ALL SELECT k0, id, number FROM (SELECT k0, id, number FROM d INTERSECT SELECT k0, id, number FROM fact)
     EXCEPT SELECT id, number, k0 FROM e",
];

fn tables() -> Vec<(&'static str, Table)> {
    ["fact", "a", "b", "c", "d", "e", "g"]
        .into_iter()
        .enumerate()
        .map(|(seed, name)| {
            let rows = if name == "fact" { 8_000 } else { 3_000 + 500 * seed };
            let shape = TableShape {
                domain: 4_000,
                null_percent: 3,
                text_bytes: 80,
                seed: seed as u64 + 1,
                ..TableShape::of_rows(rows)
            };
            (name, Table::draw("", &[KeyType::Int64, KeyType::Int64], &shape))
        })
        .collect()
}

fn spilling_operators(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let own = plan.metrics().and_then(|metrics| metrics.sum_by_name("spilled_bytes"));
    usize::from(own.is_some_and(|bytes| bytes.as_usize() > 0))
        + plan.children().into_iter().map(spilling_operators).sum::<usize>()
}

#[test]
fn many_hungry_operators_share_a_small_limit() {
    let tables = tables();
    for sql in PLANS {
        run(async {
            let right = plain();
            for (name, table) in &tables {
                register(&right, name, table, 2);
            }
            let right = right.sql(sql).await.expect(sql).collect().await.expect(sql);
            assert!(right.iter().any(|batch| batch.num_rows() > 0), "{sql}");
            for limit in LIMITS {
                for partitions in [1, 2] {
                    let what = format!("{sql} at {limit:?} in {partitions}");
                    let engine = Engine::new(limit, partitions);
                    for (name, table) in &tables {
                        engine.register(name, table, partitions);
                    }
                    let plan = planned(&engine.context, sql).await.expect(&what);
                    let ours = engine.collect(&plan).await.unwrap_or_else(|error| panic!("{what}: {error}"));
                    assert_same_rows(&ours, &right, &what);
                    if limit == Some(512 * KIB) {
                        let spilling = spilling_operators(&plan);
                        assert!(spilling >= 4, "{what}: {spilling} operators spilled");
                    }
                    drop((ours, plan));
                    engine.assert_clean(&what).await;
                }
            }
        });
    }
}
