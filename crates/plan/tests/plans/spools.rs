//! Equal parts of a query are computed once, at any limit, with DataFusion's rows, and nothing is left behind.

use std::sync::Arc;
use std::time::Duration;

use datafusion::physical_plan::{ExecutionPlan, displayable};
use futures::StreamExt;
use nandina_simulation::FaultPlan;

use crate::harness::rows::assert_same_rows;
use crate::harness::streams::{cancel_when, errors, read_all, streams};
use crate::harness::tables::{KeyType, Table, TableShape};
use crate::harness::{Engine, KIB, MIB, count_nodes, metric, plain, planned, register, run};

const LIMITS: [Option<usize>; 4] = [None, Some(32 * MIB), Some(4 * MIB), Some(256 * KIB)];

const GROUPS: &str = "g AS (SELECT k0, count(*) AS n, sum(number) AS s, max(text) AS t FROM t GROUP BY k0)";

fn table(rows: usize, domain: i64) -> Table {
    let shape = TableShape { domain, null_percent: 5, text_bytes: 60, ..TableShape::of_rows(rows) };
    Table::draw("", &[KeyType::Int64], &shape)
}

fn text(plan: &Arc<dyn ExecutionPlan>) -> String {
    displayable(plan.as_ref()).indent(true).to_string()
}

/// Runs `sql` at every limit and with several partitions, and compares with plain DataFusion. `spools` and `reads` are the
/// nodes that its plan must have. Returns the bytes spilled at the smallest limit.
fn same_everywhere(table: &Table, sql: &str, spools: usize, reads: usize) -> usize {
    run(async {
        let right = plain();
        register(&right, "t", table, 2);
        let right = right.sql(sql).await.expect(sql).collect().await.expect(sql);
        let mut spilled = 0;
        for partitions in [1, 3] {
            for limit in LIMITS {
                let what = format!("{sql} at {limit:?} in {partitions} partitions");
                let engine = Engine::new(limit, partitions);
                engine.register("t", table, partitions);
                let plan = planned(&engine.context, sql).await.expect(sql);
                assert_eq!(count_nodes(&plan, "SpoolExec"), spools, "{what}\n{}", text(&plan));
                assert_eq!(count_nodes(&plan, "SpoolReadExec"), reads, "{what}\n{}", text(&plan));
                let ours = engine.collect(&plan).await.unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_same_rows(&ours, &right, &what);
                spilled = metric(&plan, "spilled_bytes");
                drop((ours, plan));
                engine.assert_clean(&what).await;
            }
        }
        spilled
    })
}

#[test]
fn an_expression_that_is_used_twice_is_computed_once() {
    let sql = format!("WITH {GROUPS} SELECT a.*, b.s FROM g a JOIN g b ON a.k0 = b.k0 + 1 AND a.n >= b.n");
    assert!(same_everywhere(&table(20_000, 9_000), &sql, 1, 1) > 0);
}

#[test]
fn a_scalar_subquery_reads_what_the_query_around_it_computes() {
    let sql = format!("WITH {GROUPS} SELECT * FROM g WHERE n = (SELECT max(n) FROM g)");
    same_everywhere(&table(20_000, 5_000), &sql, 1, 1);
}

#[test]
fn there_may_be_many_readers() {
    let sql = format!(
        "WITH {GROUPS} SELECT n, count(*) FROM (SELECT n FROM g UNION ALL SELECT s FROM g UNION ALL SELECT k0 FROM g) \
         GROUP BY n"
    );
    same_everywhere(&table(8_000, 3_000), &sql, 1, 2);
}

#[test]
fn distinct_rows_are_spooled_too() {
    let sql = "WITH d AS (SELECT DISTINCT k0, number FROM t) SELECT a.k0, b.number FROM d a JOIN d b USING (k0, number)";
    same_everywhere(&table(5_000, 2_000), sql, 1, 1);
}

#[test]
fn a_part_within_one_that_is_computed_once_is_no_spool() {
    let sql = format!(
        "WITH {GROUPS}, h AS (SELECT n, count(*) AS c, sum(k0) AS s FROM g GROUP BY n) \
         SELECT a.n, b.c FROM h a JOIN h b ON a.n = b.n + 1"
    );
    same_everywhere(&table(8_000, 3_000), &sql, 1, 1);
}

#[test]
fn limits_above_equal_parts_are_not_mixed_up() {
    let distinct = "SELECT * FROM (SELECT DISTINCT k0 FROM t ORDER BY k0 LIMIT 3) \
                    UNION ALL SELECT * FROM (SELECT DISTINCT k0 FROM t ORDER BY k0 DESC NULLS LAST LIMIT 3)";
    same_everywhere(&table(2_000, 700), distinct, 1, 1);
    let groups = "WITH g AS (SELECT k0, max(id) AS m FROM t GROUP BY k0) \
                  SELECT * FROM (SELECT * FROM g ORDER BY m LIMIT 2) UNION ALL SELECT * FROM (SELECT * FROM g ORDER BY m DESC LIMIT 2)";
    same_everywhere(&table(2_000, 700), groups, 1, 1);
}

#[test]
fn a_spool_may_read_another() {
    let sql = format!(
        "WITH {GROUPS}, h AS (SELECT n, count(*) AS c FROM g GROUP BY n) \
         SELECT a.n, b.c, (SELECT count(*) FROM g) FROM h a JOIN h b ON a.n = b.c OR a.n = b.n"
    );
    same_everywhere(&table(8_000, 3_000), &sql, 2, 2);
}

#[test]
fn what_only_looks_alike_is_computed_twice() {
    let pairs = [
        // Not the same rows.
        "SELECT a.n, b.n FROM (SELECT k0, count(*) AS n FROM t WHERE id > 5 GROUP BY k0) a \
         JOIN (SELECT k0, count(*) AS n FROM t WHERE id > 6 GROUP BY k0) b USING (k0)",
        // Not in the same order, and windows give out as many rows as they get.
        "WITH w AS (SELECT id, row_number() OVER (ORDER BY id) AS a, row_number() OVER (ORDER BY id DESC) AS b FROM t) \
         SELECT p.id, p.a, q.b FROM (SELECT id, a FROM w) p JOIN (SELECT id, b FROM w) q USING (id)",
        // Columns of one name, which an alias numbers.
        "SELECT * FROM (SELECT max(t.id) FROM t JOIN t s ON t.id = s.id + 1 GROUP BY t.k0) \
         UNION ALL SELECT * FROM (SELECT max(s.id) FROM t JOIN t s ON t.id = s.id + 2 GROUP BY t.k0)",
        // Nothing is gained.
        "WITH p AS (SELECT k0, id + 1 AS i FROM t) SELECT count(*) FROM p a JOIN p b USING (i)",
        // Another step each time.
        "WITH RECURSIVE r AS (SELECT 1::BIGINT AS n UNION ALL SELECT max(a.n) + 1 FROM r a WHERE a.n < 5 HAVING max(a.n) < 5) \
         SELECT * FROM r",
    ];
    for sql in pairs {
        same_everywhere(&table(2_000, 500), sql, 0, 0);
    }
    // Values of their own.
    run(async {
        let engine = Engine::new(None, 2);
        engine.register("t", &table(1_000, 100), 2);
        let sql = "WITH v AS (SELECT k0, max(random()) AS r FROM t GROUP BY k0) SELECT * FROM v a JOIN v b USING (k0)";
        let plan = planned(&engine.context, sql).await.unwrap();
        assert_eq!(count_nodes(&plan, "SpoolExec") + count_nodes(&plan, "SpoolReadExec"), 0);
    });
}

#[test]
fn parts_with_subqueries_in_expressions_are_right() {
    let sql = "WITH g AS (SELECT k0, count(*) AS n FROM t WHERE id > (SELECT avg(id) FROM t) GROUP BY k0) \
               SELECT a.k0, b.n FROM g a JOIN g b USING (k0)";
    same_everywhere(&table(2_000, 900), sql, 0, 0);
}

#[test]
fn the_same_plan_may_be_executed_again_whoever_read_it_before() {
    run(async {
        let engine = Engine::new(None, 2);
        engine.register("t", &table(5_000, 900), 2);
        let sql = format!("WITH {GROUPS} SELECT a.k0, b.n FROM g a JOIN g b ON a.k0 = b.k0");
        let plan = planned(&engine.context, &sql).await.unwrap();
        let first = engine.collect(&plan).await.unwrap();
        for _ in 0..3 {
            // Only some of the outputs, which are dropped after a batch.
            let mut some = streams(&engine, &plan);
            some.truncate(1);
            drop(some[0].next().await);
            drop(some);
            assert_same_rows(&engine.collect(&plan).await.unwrap(), &first, &sql);
        }
    });
}

#[test]
fn a_reader_that_wants_little_does_not_hold_the_others_up() {
    let sql = format!(
        "WITH {GROUPS} SELECT * FROM (SELECT count(*) FROM (SELECT 1 FROM g LIMIT 3)) JOIN g ON true"
    );
    same_everywhere(&table(20_000, 9_000), &sql, 1, 1);
}

#[test]
fn cancelled_queries_leave_nothing() {
    run(async {
        let sql = format!("WITH {GROUPS} SELECT a.*, b.s FROM g a JOIN g b ON a.k0 = b.k0");
        for millis in [0, 2, 5, 10, 30, 80] {
            let engine = Engine::new(Some(MIB), 2);
            engine.register("t", &table(20_000, 9_000), 2);
            let plan = planned(&engine.context, &sql).await.unwrap();
            cancel_when(streams(&engine, &plan), tokio::time::sleep(Duration::from_millis(millis))).await;
            drop(plan);
            engine.assert_clean("a cancelled query").await;
        }
    });
}

#[test]
fn a_full_device_ends_all_readers_with_an_error() {
    run(async {
        let sql = format!("WITH {GROUPS} SELECT a.*, b.s FROM g a JOIN g b ON a.k0 = b.k0");
        for capacity in [64 << 10, 256 << 10, MIB as u64] {
            let (engine, simulation) = Engine::simulated(Some(256 * KIB), 2);
            engine.register("t", &table(20_000, 9_000), 2);
            let plan = planned(&engine.context, &sql).await.unwrap();
            simulation.set_plan(FaultPlan::none().capacity(capacity));
            let outcomes = read_all(streams(&engine, &plan)).await;
            let errors = errors(&outcomes);
            assert!(!errors.is_empty(), "with {capacity} bytes");
            assert!(errors.iter().all(|error| error.contains("no space left")), "{errors:?}");
            drop((outcomes, plan));
            engine.assert_clean("a query on a full device").await;
        }
    });
}
