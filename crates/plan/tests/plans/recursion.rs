//! Recursive queries run through our operators at any limit, give DataFusion's rows, and leave nothing behind.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::physical_plan::ExecutionPlan;
use futures::StreamExt;
use nandina_simulation::FaultPlan;

use crate::harness::rows::{assert_same_rows, integers, row_count};
use crate::harness::streams::{cancel_when, errors, read_all, streams};
use crate::harness::tables::{KeyType, Table, TableShape};
use crate::harness::{Engine, KIB, MIB, count_nodes, metric, plain, planned, run};

const LIMITS: [Option<usize>; 4] = [None, Some(32 * MIB), Some(4 * MIB), Some(512 * KIB)];

/// Rows with texts, a number of which is another row's: `k0` leads from row to row.
fn table(rows: usize, text_bytes: usize) -> Table {
    let shape = TableShape { null_percent: 5, text_bytes, ..TableShape::of_rows(rows) };
    Table::draw("", &[KeyType::Int64, KeyType::Int64], &shape)
}

async fn recursion_plan(engine: &Engine, table: &Table, sql: &str) -> Arc<dyn ExecutionPlan> {
    engine.register("t", table, 2);
    let plan = planned(&engine.context, sql).await.expect(sql);
    assert!(count_nodes(&plan, "SpillingRecursiveQueryExec") > 0, "{sql}");
    for datafusions in ["RecursiveQueryExec", "WorkTableExec"] {
        assert_eq!(count_nodes(&plan, datafusions), 0, "{sql}");
    }
    plan
}

/// Runs `sql` at every limit and compares with plain DataFusion. Returns the rows spilled at the smallest.
fn same_everywhere(table: &Table, sql: &str) -> usize {
    run(async {
        let right = plain();
        crate::harness::register(&right, "t", table, 2);
        let right = right.sql(sql).await.expect(sql).collect().await.expect(sql);
        let mut spilled = 0;
        for limit in LIMITS {
            for partitions in [1, 2] {
                let what = format!("{sql} at {limit:?} in {partitions}");
                let engine = Engine::new(limit, partitions);
                let plan = recursion_plan(&engine, table, sql).await;
                let ours = engine.collect(&plan).await.unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_same_rows(&ours, &right, &what);
                spilled = metric(&plan, "spilled_rows");
                drop((ours, plan));
                engine.assert_clean(&what).await;
            }
        }
        spilled
    })
}

fn spills_and_is_right(table: &Table, sql: &str) {
    assert!(same_everywhere(table, sql) > 0, "{sql}: nothing was spilled");
}

#[test]
fn large_steps_wait_in_temporary_space() {
    let table = table(6_000, 100);
    spills_and_is_right(
        &table,
        "WITH RECURSIVE r AS (SELECT *, 0 AS depth FROM t UNION ALL
             SELECT k0, k1, id + 1, number, text || 'x', depth + 1 FROM r WHERE depth < 3 AND id % 3 <> 1)
         SELECT * FROM r",
    );
}

#[test]
fn the_recursive_term_may_join() {
    let table = table(8_000, 100);
    for union in ["UNION ALL", "UNION"] {
        spills_and_is_right(
            &table,
            &format!(
                "WITH RECURSIVE r AS (SELECT id, k0, text, 0 AS depth FROM t {union}
                     SELECT t.id, t.k0, t.text, depth + 1 FROM r JOIN t ON r.k0 = t.id WHERE depth < 4)
                 SELECT * FROM r"
            ),
        );
        same_everywhere(
            &table,
            &format!(
                "WITH RECURSIVE r AS (SELECT id, k0 FROM t WHERE id < 2000 {union}
                     SELECT r.id - 700, t.k0 FROM r LEFT JOIN t ON r.id = t.id AND t.number > 50 WHERE r.id > 0)
                 SELECT * FROM r"
            ),
        );
    }
}

#[test]
fn the_recursive_term_may_aggregate_and_sort() {
    let table = table(5_000, 120);
    spills_and_is_right(
        &table,
        "WITH RECURSIVE r AS (SELECT id, text, 0 AS depth FROM t UNION ALL
             SELECT id / 2, max(text), min(depth) + 1 FROM r WHERE depth < 6 GROUP BY id / 2)
         SELECT * FROM r",
    );
    spills_and_is_right(
        &table,
        "WITH RECURSIVE r AS (SELECT id, text FROM t UNION ALL
             SELECT * FROM (SELECT id - 900, text FROM r WHERE id > 900 ORDER BY text, id LIMIT 3000))
         SELECT * FROM r",
    );
    same_everywhere(
        &table,
        "WITH RECURSIVE r AS (SELECT id, 0 AS place FROM t WHERE id < 700 UNION
             SELECT id / 2, row_number() OVER (ORDER BY id, place) FROM r WHERE id > 0 AND place < 100)
         SELECT * FROM r",
    );
}

#[test]
fn rows_are_distinct_beyond_memory() {
    let table = table(8_000, 60);
    // Each step finds many rows of those before, and a few new ones.
    spills_and_is_right(
        &table,
        "WITH RECURSIVE r AS (SELECT text, id % 10 AS n FROM t UNION SELECT text, (n * 7 + 3) % 11 FROM r)
         SELECT * FROM r",
    );
    // Large first, then long chains of small steps.
    spills_and_is_right(
        &table,
        "WITH RECURSIVE r AS (SELECT text, id FROM t UNION SELECT 'chain', id + 1 FROM r WHERE id > 7990 AND id < 8060)
         SELECT * FROM r",
    );
    // Every row many times in one step.
    spills_and_is_right(
        &table,
        "WITH RECURSIVE r AS (SELECT k0 % 100 AS a, 0 AS b, 0 AS c FROM t UNION
             SELECT a, (b + id) % 50, c + 1 FROM r, (SELECT id FROM t WHERE id < 80) AS s WHERE c < 2)
         SELECT * FROM r",
    );
}

#[test]
fn circles_end() {
    let table = table(3_000, 20);
    for limit in ["100", "3000"] {
        same_everywhere(
            &table,
            &format!(
                "WITH RECURSIVE r AS (SELECT id AS x FROM t WHERE id < {limit} UNION
                     SELECT (x * 17 + id) % 3000 FROM r JOIN t ON x % 100 = id)
                 SELECT * FROM r"
            ),
        );
    }
    spills_and_is_right(
        &table,
        "WITH RECURSIVE r AS (SELECT id AS a, id AS b FROM t WHERE id < 30 UNION
             SELECT a, (b + 1) % 1500 FROM r) SELECT * FROM r",
    );
}

/// More rows than the filter of those in temporary space can tell apart.
#[test]
fn many_narrow_rows_are_distinct() {
    spills_and_is_right(
        &table(8_000, 1),
        "WITH RECURSIVE r AS (SELECT id AS a, 0 AS b FROM t UNION SELECT a, (b + 1) % 25 FROM r) SELECT * FROM r",
    );
}

#[test]
fn columns_of_any_type_are_distinct() {
    for key in [KeyType::Float64, KeyType::Decimal128, KeyType::Boolean, KeyType::Binary, KeyType::Timestamp]
    {
        let shape = TableShape { null_percent: 10, domain: 700, ..TableShape::of_rows(3_000) };
        let table = Table::draw("", &[key, key, KeyType::Utf8], &shape);
        // Of zeros the first stands for both, and which that is depends on who was faster.
        let columns = if key == KeyType::Float64 { "abs(k0), abs(k1), k2, l, n" } else { "*" };
        same_everywhere(
            &table,
            &format!(
                "WITH RECURSIVE r AS (SELECT k0, k1, k2, [number] AS l, 0 AS n FROM t UNION
                     SELECT k1, k0, k2, l, (n + 1) % 4 FROM r) SELECT {columns} FROM r"
            ),
        );
    }
}

/// Values that are equal without being the same come out as they were found first, memory or not.
#[test]
fn zeros_keep_their_signs() {
    let floats: ArrayRef = Arc::new(Float64Array::from_iter((0..6_000).map(|row| match row {
        0 => Some(-0.0),
        1 => None,
        2 => Some(f64::NAN),
        row => Some(f64::from(row) * 0.5),
    })));
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..6_000));
    let table = Table::of_columns(&["x", "id"], vec![floats, ids]);
    spills_and_is_right(
        &table,
        "WITH RECURSIVE r AS (SELECT id, x, 0 AS n FROM t UNION
             SELECT id, x, (n + 1) % 5 FROM r) SELECT * FROM r",
    );
}

#[test]
fn recursions_may_be_nested() {
    let table = table(2_000, 60);
    // In the static term, beside, and in the recursive term of another.
    spills_and_is_right(
        &table,
        "WITH RECURSIVE a AS (SELECT id, text FROM t UNION ALL SELECT id - 500, text FROM a WHERE id > 500),
             b AS (SELECT id, text FROM a UNION SELECT id / 2, text FROM b WHERE id > 100)
         SELECT * FROM b",
    );
    spills_and_is_right(
        &table,
        "WITH RECURSIVE a AS (SELECT id, text, 0 AS depth FROM t UNION ALL
             SELECT id, text, depth + 1 FROM (
                 WITH RECURSIVE b AS (SELECT id, text, depth FROM a WHERE depth < 2 UNION
                     SELECT id - 900, text, depth FROM b WHERE id > 900)
                 SELECT * FROM b))
         SELECT * FROM a",
    );
}

/// DataFusion's operator can give the rows of a step only once.
#[test]
fn an_inner_recursion_may_read_the_rows_of_the_outer_in_each_of_its_steps() {
    let table = table(3_000, 100);
    let sql = "WITH RECURSIVE a AS (SELECT id, text, 0 AS depth FROM t UNION ALL
                   SELECT id, text, depth + 1 FROM (
                       WITH RECURSIVE b AS (SELECT 0 AS n, 0 AS id, '' AS text, 0 AS depth UNION ALL
                           SELECT n + 1, a.id, a.text, a.depth FROM (SELECT max(n) AS n FROM b) JOIN a ON a.depth < 2
                           WHERE n < 3)
                       SELECT * FROM b WHERE n > 0))
               SELECT depth, count(*), count(DISTINCT text), min(id), max(id) FROM a GROUP BY depth ORDER BY depth";
    for limit in LIMITS {
        run(async {
            let engine = Engine::new(limit, 2);
            let plan = recursion_plan(&engine, &table, sql).await;
            let rows = engine.collect(&plan).await.unwrap_or_else(|error| panic!("{limit:?}: {error}"));
            let texts = integers(&rows, 2)[0];
            assert_eq!(integers(&rows, 0), [Some(0), Some(1), Some(2)]);
            assert_eq!(integers(&rows, 1), [Some(3_000), Some(9_000), Some(27_000)]);
            assert_eq!(integers(&rows, 2), [texts, texts, texts]);
            assert_eq!((integers(&rows, 3), integers(&rows, 4)), (vec![Some(0); 3], vec![Some(2_999); 3]));
            drop((rows, plan));
            engine.assert_clean(&format!("a recursion in another at {limit:?}")).await;
        });
    }
}

/// Of two recursions, one in the other, either may stay with DataFusion.
#[test]
fn columns_that_cannot_be_spilled_stay_with_datafusion() {
    let table = table(300, 10);
    let view = "arrow_cast([id], 'ListView(Int64)')";
    let outer = format!(
        "WITH RECURSIVE a AS (SELECT id, {view} AS l, 0 AS depth FROM t UNION ALL
             SELECT id, l, depth + 1 FROM (
                 WITH RECURSIVE b AS (SELECT id, depth FROM a WHERE depth < 2 UNION
                     SELECT id / 2, depth FROM b)
                 SELECT id, {view} AS l, depth FROM b))
         SELECT id, depth FROM a"
    );
    let inner = format!(
        "WITH RECURSIVE a AS (SELECT id, 0 AS depth FROM t UNION ALL
             SELECT id, depth + 1 FROM (
                 WITH RECURSIVE b AS (SELECT id, {view} AS l, depth FROM a WHERE depth < 2 UNION ALL
                     SELECT id / 2, l, depth FROM b WHERE id > 200)
                 SELECT id, depth FROM b))
         SELECT id, depth FROM a"
    );
    for sql in [outer, inner] {
        run(async {
            let (right, engine) = (plain(), Engine::new(Some(MIB), 2));
            crate::harness::register(&right, "t", &table, 2);
            let right = right.sql(&sql).await.unwrap().collect().await.unwrap();
            engine.register("t", &table, 2);
            let plan = planned(&engine.context, &sql).await.unwrap();
            for name in
                ["SpillingRecursiveQueryExec", "RecursiveQueryExec", "WorkTableScanExec", "WorkTableExec"]
            {
                assert_eq!(count_nodes(&plan, name), 1, "{name} in {sql}");
            }
            assert_same_rows(&engine.collect(&plan).await.unwrap(), &right, &sql);
        });
    }
}

#[test]
fn no_rows_give_none() {
    let none = table(0, 1);
    for union in ["UNION ALL", "UNION"] {
        same_everywhere(
            &none,
            &format!("WITH RECURSIVE r AS (SELECT id FROM t {union} SELECT id + 1 FROM r) SELECT * FROM r"),
        );
    }
}

#[test]
fn wide_rows_and_few_columns_of_them() {
    let wide = table(400, 4_000).in_batches_of(16);
    for union in ["UNION ALL", "UNION"] {
        spills_and_is_right(
            &wide,
            &format!(
                "WITH RECURSIVE r AS (SELECT id, text, number, 0 AS n FROM t {union}
                     SELECT id + 1, text, number, n + 1 FROM r WHERE n < 4) SELECT * FROM r"
            ),
        );
    }
    same_everywhere(
        &wide,
        "WITH RECURSIVE r AS (SELECT id, text, number, 0 AS n FROM t UNION ALL
             SELECT id + 1, 'short', 7, n + 1 FROM r WHERE n < 4) SELECT * FROM r",
    );
    same_everywhere(
        &wide,
        "WITH RECURSIVE r AS (SELECT id, text FROM t UNION ALL
             SELECT n, 'count' FROM (SELECT count(*) AS n FROM r) WHERE n > 1) SELECT * FROM r",
    );
}

#[test]
fn rows_keep_their_order() {
    let table = table(5_000, 100);
    let sql = "WITH RECURSIVE r AS (SELECT id, text, 0 AS n FROM t UNION ALL
                   SELECT id, text, n + 1 FROM r WHERE n < 3) SELECT id, n FROM r";
    for limit in LIMITS {
        run(async {
            let engine = Engine::new(limit, 1);
            engine.register("t", &table, 1);
            let plan = planned(&engine.context, sql).await.unwrap();
            let rows = engine.collect(&plan).await.unwrap();
            let right: Vec<Option<i64>> = (0..4).flat_map(|_| (0..5_000).map(Some)).collect();
            assert_eq!(integers(&rows, 0), right, "at {limit:?}");
        });
    }
}

#[test]
fn rows_come_as_they_are_found() {
    let table = table(10, 10);
    run(async {
        let engine = Engine::new(Some(MIB), 1);
        let sql = "WITH RECURSIVE r AS (SELECT 1 AS n FROM t UNION ALL SELECT n + 1 FROM r) SELECT n FROM r LIMIT 5000";
        let plan = recursion_plan(&engine, &table, sql).await;
        assert_eq!(row_count(&engine.collect(&plan).await.unwrap()), 5_000);
        drop(plan);
        engine.assert_clean("a recursion without an end").await;
    });
}

#[test]
fn one_plan_may_run_several_times_at_once() {
    let table = table(2_000, 60);
    run(async {
        let engine = Engine::new(Some(2 * MIB), 2);
        let sql =
            "WITH RECURSIVE r AS (SELECT id, text FROM t UNION SELECT id / 2, text FROM r) SELECT * FROM r";
        let plan = recursion_plan(&engine, &table, sql).await;
        let all: Vec<_> = (0..3).flat_map(|_| streams(&engine, &plan)).collect();
        let outcomes = read_all(all).await;
        assert_eq!(errors(&outcomes), [""; 0]);
        let total: usize = outcomes.iter().flatten().map(|rows| row_count(rows)).sum();
        let once = row_count(&engine.collect(&plan).await.unwrap());
        assert_eq!(total, 3 * once);
        drop((outcomes, plan));
        engine.assert_clean("a recursion that ran three times").await;
    });
}

/// What spills at 1 MB: rows of steps, rows that were seen, and rows that have to be compared with them.
const LONG: &str =
    "WITH RECURSIVE r AS (SELECT text, id % 3 AS n FROM t UNION SELECT text, (n + 2) % 7 FROM r)
                    SELECT * FROM r";

fn long_table() -> Table {
    table(6_000, 200)
}

#[test]
fn cancelling_leaves_nothing() {
    let table = long_table();
    for delay in [0, 1, 5, 20, 80] {
        run(async {
            let engine = Engine::new(Some(MIB), 2);
            let plan = recursion_plan(&engine, &table, LONG).await;
            let moment = async {
                while engine.space.used_bytes() == 0 {
                    tokio::time::sleep(Duration::from_micros(100)).await;
                }
                tokio::time::sleep(Duration::from_millis(delay)).await;
            };
            cancel_when(streams(&engine, &plan), moment).await;
            engine.assert_clean(&format!("a recursion cancelled after {delay} ms")).await;
        });
    }
}

#[test]
fn a_full_device_is_named() {
    let table = long_table();
    run(async {
        let (engine, faults) = Engine::simulated(Some(MIB), 1);
        faults.set_plan(FaultPlan::none().capacity(MIB as u64));
        let plan = recursion_plan(&engine, &table, LONG).await;
        let outcomes = read_all(streams(&engine, &plan)).await;
        let errors = errors(&outcomes);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains("no space left"), "{errors:?}");
        assert!(errors[0].contains("recursive query needs"), "{errors:?}");
        drop((outcomes, plan));
        engine.assert_clean("a recursion on a full device").await;
    });
}

#[test]
fn any_request_may_fail() {
    let table = long_table();
    let (requests, rows) = run(async {
        let (engine, faults) = Engine::simulated(Some(MIB), 1);
        let before = faults.requests();
        let plan = recursion_plan(&engine, &table, LONG).await;
        let rows = row_count(&engine.collect(&plan).await.unwrap());
        (faults.requests() - before, rows)
    });
    let mut failed = 0;
    for nth in (0..requests).step_by((requests as usize / 16).max(1)) {
        run(async {
            let (engine, faults) = Engine::simulated(Some(MIB), 1);
            let plan = recursion_plan(&engine, &table, LONG).await;
            faults.set_plan(FaultPlan::none().fail_request(faults.requests() + nth));
            let outcomes = read_all(streams(&engine, &plan)).await;
            match &outcomes[0] {
                Ok(found) => assert_eq!(row_count(found), rows, "request {nth}"),
                Err(_) => failed += 1,
            }
            drop((outcomes, plan));
            engine.assert_clean(&format!("a recursion whose request {nth} failed")).await;
        });
    }
    assert!(failed > 8, "{failed} faults were noticed");
}

#[test]
fn others_may_ask_for_the_memory_of_rows() {
    let table = long_table();
    let right = run(async {
        let right = plain();
        crate::harness::register(&right, "t", &table, 2);
        right.sql(LONG).await.unwrap().collect().await.unwrap()
    });
    // So many batches are read before somebody asks.
    for batches in [1, 10, 14, 30, 60] {
        run(async {
            let engine = Engine::new(Some(64 * MIB), 1);
            let plan = recursion_plan(&engine, &table, LONG).await;
            let mut stream = streams(&engine, &plan).pop().unwrap();
            let mut rows: Vec<RecordBatch> = Vec::new();
            for _ in 0..batches {
                rows.extend(stream.next().await.transpose().unwrap());
            }
            assert_eq!(metric(&plan, "spilled_rows"), 0, "all rows fit at first");
            let other = MemoryConsumer::new("other").register(&engine.pool());
            let granted = (0..60).filter(|_| other.try_grow(MIB).is_ok()).count();
            assert!(granted >= 54, "{granted} MB of 64 after {batches} batches");
            while let Some(batch) = stream.next().await {
                rows.push(batch.unwrap());
            }
            assert!(metric(&plan, "spilled_rows") > 0);
            assert_same_rows(&rows, &right, &format!("asked after {batches} batches"));
            drop((rows, other, stream, plan));
            engine.assert_clean("a recursion that gave memory back").await;
        });
    }
}

/// The reader is dropped in a task of its own, at any time.
#[test]
fn an_inner_recursion_may_stop_reading_the_rows_of_the_outer() {
    let table = table(3_000, 10);
    let sql = "WITH RECURSIVE o AS (SELECT id AS x, 0 AS s FROM t UNION ALL
                   SELECT w.id, q.m FROM (
                       WITH RECURSIVE i AS (SELECT 1 AS n, 0 AS m UNION ALL
                           SELECT i.n + 1, q.s + 1 FROM i, (SELECT s FROM o WHERE x % 2 < 5 LIMIT 1) q WHERE i.n < 4)
                       SELECT max(m) AS m FROM i) q, t w WHERE q.m < 20)
               SELECT count(*), max(s) FROM o";
    for limit in [None, Some(4 * MIB)] {
        for _ in 0..5 {
            run(async {
                let engine = Engine::new(limit, 4);
                let plan = recursion_plan(&engine, &table, sql).await;
                let rows = engine.collect(&plan).await.unwrap_or_else(|error| panic!("{limit:?}: {error}"));
                assert_eq!(integers(&rows, 0), [Some(60_000)]);
                assert_eq!(integers(&rows, 1), [Some(19)]);
                drop((rows, plan));
                engine.assert_clean(&format!("readers that stopped early at {limit:?}")).await;
            });
        }
    }
}
