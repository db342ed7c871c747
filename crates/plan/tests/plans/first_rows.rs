//! The first rows of partitions, with a filter below the sort that drops most others: DataFusion's rows at any limit.

use crate::harness::rows::assert_same_rows;
use crate::harness::tables::{KEY_TYPES, KeyType, Skew, Table, TableShape};
use crate::harness::{Engine, KIB, MIB, count_nodes, metric, plain, planned, register, run};

const LIMITS: [Option<usize>; 4] = [None, Some(32 * MIB), Some(4 * MIB), Some(512 * KIB)];
const FILTER: &str = "PartitionedTopKFilterExec";

/// A table whose rows are in no order.
fn table(keys: &[KeyType], shape: &TableShape) -> Table {
    let table = Table::draw("", keys, shape);
    let batches = run(async {
        let context = plain();
        register(&context, "t", &table, 1);
        let shuffled = context.sql("SELECT * FROM t ORDER BY md5(CAST(id AS VARCHAR))").await.unwrap();
        shuffled.collect().await.unwrap()
    });
    Table { batches, ..table }.in_batches_of(1000)
}

fn shape(rows: usize, domain: i64) -> TableShape {
    TableShape { domain, null_percent: 10, text_bytes: 60, ..TableShape::of_rows(rows) }
}

/// Runs `sql` at every limit and compares. `filters` stand in its plan. Returns the fewest rows that they dropped at limits of
/// 4 MiB and more.
fn same_everywhere(table: &Table, sql: &str, filters: usize) -> usize {
    run(async {
        let right = plain();
        register(&right, "t", table, 2);
        let right = right.sql(sql).await.expect(sql).collect().await.expect(sql);
        let mut dropped = usize::MAX;
        for limit in LIMITS {
            let what = format!("{sql} at {limit:?}");
            let engine = Engine::new(limit, 2);
            engine.register("t", table, 2);
            let plan = planned(&engine.context, sql).await.expect(&what);
            let shown = datafusion::physical_plan::displayable(plan.as_ref()).indent(false).to_string();
            assert_eq!(count_nodes(&plan, FILTER), filters, "{sql}\n{shown}");
            let ours = engine.collect(&plan).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_same_rows(&ours, &right, &what);
            if limit.is_none_or(|bytes| bytes >= 4 * MIB) {
                dropped = dropped.min(metric(&plan, "dropped_rows"));
            }
            drop((ours, plan));
            engine.assert_clean(&what).await;
        }
        dropped
    })
}

#[test]
fn most_rows_behind_the_first_are_dropped() {
    let table = table(&[KeyType::Int64, KeyType::Utf8View], &shape(20_000, 100));
    let first =
        "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY k0 ORDER BY id DESC) AS n FROM t) WHERE n";
    for (condition, least) in [("<= 2", 17_000), ("= 1", 18_000), ("< 6", 14_000), ("IN (2, 5)", 14_000)] {
        let dropped = same_everywhere(&table, &format!("{first} {condition}"), 1);
        assert!(dropped >= least, "{condition}: {dropped} rows dropped");
    }
    let of_texts =
        "SELECT k1, id FROM t QUALIFY 3 >= row_number() OVER (PARTITION BY k1, k0 ORDER BY text, id)";
    same_everywhere(&table, of_texts, 1);
}

#[test]
fn equal_rows_have_one_rank() {
    for skew in [Skew::Even, Skew::Half] {
        let table = table(&[KeyType::Int32, KeyType::Int8], &TableShape { skew, ..shape(20_000, 60) });
        for order in ["k1", "k1 DESC NULLS LAST", "number DESC, k1", "text", "number / 7.0"] {
            let sql = format!(
                "SELECT * FROM (SELECT *, rank() OVER w AS r, dense_rank() OVER w AS d FROM t \
                 WINDOW w AS (PARTITION BY k0 ORDER BY {order})) WHERE r < 4 OR r = 9"
            );
            same_everywhere(&table, &sql, 1);
        }
    }
}

#[test]
fn all_keys_of_partitions_are_told_apart() {
    for key in KEY_TYPES.into_iter().filter(|&key| key != KeyType::Float64) {
        let table = table(&[key], &shape(6_000, 300));
        let sql = "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY k0 ORDER BY number, id) AS n FROM t) \
                   WHERE n <= 3";
        same_everywhere(&table, sql, 1);
    }
}

#[test]
fn one_partition_has_first_rows_too() {
    let table = table(&[KeyType::Int64], &shape(9_000, 50));
    let sql = "SELECT * FROM (SELECT *, rank() OVER (ORDER BY k0 DESC) AS r FROM t) WHERE r BETWEEN 1 AND 20";
    assert!(same_everywhere(&table, sql, 1) > 5_000);
    let any = "SELECT count(*) FROM (SELECT row_number() OVER (PARTITION BY k0) AS n FROM t) WHERE n <= 4";
    assert!(same_everywhere(&table, any, 1) > 8_000);
}

#[test]
fn partitions_of_one_row_each_pass() {
    let table = table(&[KeyType::Int64], &shape(200_000, 200_000));
    let sql = "SELECT count(*), sum(id) FROM (SELECT id, row_number() OVER (PARTITION BY id ORDER BY number) AS n FROM t) \
               WHERE n = 1";
    assert_eq!(same_everywhere(&table, sql, 1), 0);
}

#[test]
fn other_questions_see_all_rows() {
    let table = table(&[KeyType::Int64, KeyType::Float64], &shape(5_000, 40));
    let ranked = |functions: &str, condition: &str| {
        format!(
            "SELECT * FROM (SELECT *, row_number() OVER w AS n, rank() OVER w AS r, {functions} AS f FROM t \
             WINDOW w AS (PARTITION BY k0 ORDER BY id)) WHERE {condition}"
        )
    };
    for (functions, condition) in [
        ("sum(number) OVER (PARTITION BY k0)", "n <= 2"),
        ("lead(id) OVER w", "n <= 2"),
        ("ntile(3) OVER w", "r <= 2"),
        ("dense_rank() OVER w", "f <= 2"),
        ("dense_rank() OVER w", "n >= 2"),
        ("dense_rank() OVER w", "n <= 2 OR id < 10"),
        ("dense_rank() OVER w", "n <= 300"),
        ("dense_rank() OVER w", "n NOT IN (1, 2)"),
        ("dense_rank() OVER w", "id <= 2"),
    ] {
        same_everywhere(&table, &ranked(functions, condition), 0);
    }
    // Of two zeros.
    let floats =
        "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY k1 ORDER BY id) AS n FROM t) WHERE n <= 2";
    same_everywhere(&table, floats, 0);
    let limited = "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY k0 ORDER BY id) AS n \
                   FROM (SELECT * FROM t ORDER BY k0, id LIMIT 900)) WHERE n <= 2";
    same_everywhere(&table, limited, 0);
}
