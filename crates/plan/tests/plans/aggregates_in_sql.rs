//! Aggregations as SQL plans them run through our operator at any limit, and give DataFusion's rows.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::take;

use crate::harness::rows::assert_same_rows;
use crate::harness::tables::{KEY_TYPES, KeyType, Skew, Table, TableShape};
use crate::harness::{Engine, KIB, MIB, count_nodes, metric, plain, planned, register, run};

const LIMITS: [Option<usize>; 4] = [None, Some(32 * MIB), Some(4 * MIB), Some(256 * KIB)];

/// Runs `sql` at every limit and compares with plain DataFusion; `nodes` is how many of our operators it is planned
/// with. Returns the spilled partitions at the smallest limit.
fn same_everywhere(tables: &[(&str, &Table)], sql: &str, nodes: usize, limits: &[Option<usize>]) -> usize {
    run(async {
        let right = plain();
        for (name, table) in tables {
            register(&right, name, table, 2);
        }
        let right = right.sql(sql).await.expect(sql).collect().await.expect(sql);
        let mut spilled = 0;
        for &limit in limits {
            for partitions in [2, 1] {
                let what = format!("{sql} at {limit:?} in {partitions}");
                let engine = Engine::new(limit, partitions);
                for (name, table) in tables {
                    engine.register(name, table, partitions);
                }
                let plan = planned(&engine.context, sql).await.expect(&what);
                assert_eq!(count_nodes(&plan, "HashAggregateExec"), nodes, "{what}");
                let ours = engine.collect(&plan).await.unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_same_rows(&ours, &right, &what);
                // Window functions give larger batches than they are given.
                let small = ours.iter().all(|batch| batch.num_rows() <= crate::harness::BATCH_ROWS);
                assert!(small || sql.contains("OVER"), "{what}");
                spilled = metric(&plan, "spilled_partitions");
                drop(ours);
                drop(plan);
                engine.assert_clean(&what).await;
            }
        }
        spilled
    })
}

fn table() -> Table {
    table_of(12_000)
}

/// Batches that share no buffers: DataFusion's sort counts all of a buffer for every slice of it.
fn apart(table: &Table) -> Table {
    let copy = |column: &ArrayRef| match column.as_string_view_opt() {
        Some(views) => Arc::new(views.gc()) as ArrayRef,
        None => take(column, &UInt32Array::from_iter_values(0..column.len() as u32), None).unwrap(),
    };
    let copy = |batch: &RecordBatch| {
        RecordBatch::try_new(batch.schema(), batch.columns().iter().map(copy).collect()).unwrap()
    };
    Table { batches: table.batches.iter().map(copy).collect(), ..table.clone() }
}

/// A table of four rows per key.
fn table_of(rows: usize) -> Table {
    let keys = [KeyType::Int64, KeyType::Utf8View];
    let domain = rows as i64 / 4;
    let shape = TableShape { domain, null_percent: 5, text_bytes: 30, ..TableShape::of_rows(rows) };
    Table::draw("", &keys, &shape)
}

/// Functions whose results do not depend on the order of rows, over the columns of [`table`].
const FUNCTIONS: &[&str] = &[
    "count(*)",
    "count(number), count(text)",
    "sum(number), sum(id), sum(id * 1.5), sum(CAST(number AS DECIMAL(10,3)) / 7)",
    "min(number), max(number), min(text), max(text), min(k1), max(upper(text))",
    "min(arrow_cast(text, 'Utf8')), max(arrow_cast(text, 'LargeUtf8')), max(concat(text, '…', text))",
    "min(arrow_cast(arrow_cast(text, 'Utf8'), 'Binary')), max(arrow_cast(arrow_cast(text, 'Utf8'), 'BinaryView'))",
    "min(concat(text, id)) FILTER (WHERE number > 50), max(DISTINCT text) FILTER (WHERE id % 3 > 0 OR NULL)",
    "min(id > 5), max(CAST(id AS DATE)), min(CAST(number AS DECIMAL(10,2)))",
    "avg(number), avg(number * 1.5)",
    "round(stddev(number), 6), round(var_pop(number), 6), round(corr(number, number * 2 + 1), 6) + 0.0",
    "round(covar_samp(number, id % 7), 6) + 0.0, round(regr_slope(number, id % 5), 6) + 0.0",
    "bit_and(number), bit_or(number), bit_xor(number)",
    "bool_and(number > 3), bool_or(number > 95)",
    "median(number), approx_distinct(number)",
    "array_sort(array_agg(number)), array_sort(array_agg(DISTINCT number))",
    "array_agg(id ORDER BY id DESC), array_agg(id ORDER BY number NULLS FIRST, id)",
    "first_value(number ORDER BY id), last_value(number ORDER BY id), nth_value(id, 2 ORDER BY id DESC)",
    "string_agg(CAST(id AS VARCHAR), ',' ORDER BY id)",
    "sum(number) FILTER (WHERE id % 3 = 0), count(*) FILTER (WHERE text IS NULL), min(text) FILTER (WHERE false)",
    "percentile_cont(0.5) WITHIN GROUP (ORDER BY number), sum(number + id) * 2",
];

#[test]
fn every_function_gives_the_same_rows_at_every_limit() {
    let (table, large) = (table(), apart(&table_of(50_000)));
    let mut ordered_spilled = 0;
    for functions in FUNCTIONS {
        let sql = format!("SELECT k0, {functions} FROM t GROUP BY k0");
        if sql.contains("ORDER BY") {
            // DataFusion's sorts, which are below these, hold on to a megabyte and more.
            ordered_spilled += same_everywhere(&[("t", &large)], &sql, 1, &[None, Some(4 * MIB)]);
            continue;
        }
        let spilled = same_everywhere(&[("t", &table)], &sql, 1, &LIMITS);
        assert!(spilled > 0, "{sql}: nothing was spilled");
    }
    assert!(ordered_spilled > 0, "ordered functions: nothing was spilled");
}

#[test]
fn every_type_of_key_groups_as_in_datafusion() {
    for key_type in KEY_TYPES {
        let shape = TableShape { domain: 2_000, null_percent: 3, ..TableShape::of_rows(6_000) };
        let table = Table::draw("", &[key_type, KeyType::Int32], &shape);
        for keys in ["k0", "k0, k1"] {
            let sql = format!("SELECT {keys}, count(*), sum(number), min(text) FROM t GROUP BY {keys}");
            same_everywhere(&[("t", &table)], &sql, 1, &[None, Some(256 * KIB)]);
        }
    }
}

#[test]
fn nested_and_dictionary_keys_group_as_in_datafusion() {
    let table = table();
    let keys = [
        "make_array(k0, number)",
        "named_struct('a', k0, 'b', k1)",
        "named_struct('a', make_array(k1), 'b', named_struct('c', CAST(k0 AS DOUBLE)))",
        "arrow_cast(k1, 'Dictionary(Int32, Utf8)')",
        "arrow_cast(k0, 'Dictionary(UInt16, Int64)')",
        "make_array(arrow_cast(k1, 'Dictionary(Int32, Utf8)'))",
        "arrow_cast(make_array(k0, 1), 'FixedSizeList(2, Int64)')",
        "map([k0], [k1])",
        "CAST(k0 AS FLOAT) * -0.0",
        "arrow_cast(k0, 'Float16')",
        "CAST(concat(k0, ' days') AS INTERVAL)",
    ];
    for key in keys {
        let sql = format!(
            "SELECT key, count(*), sum(id) FROM (SELECT {key} AS key, id FROM t WHERE k0 IS NOT NULL) GROUP BY key"
        );
        same_everywhere(&[("t", &table)], &sql, 1, &[None, Some(512 * KIB)]);
    }
}

#[test]
fn groupings_of_all_kinds_give_the_same_rows() {
    let table = table();
    let empty = Table::draw("", &[KeyType::Int64, KeyType::Utf8View], &TableShape::of_rows(0));
    let queries: &[(&str, usize)] = &[
        ("SELECT DISTINCT k0, number FROM t", 1),
        ("SELECT DISTINCT text FROM t", 1),
        ("SELECT k0, k1, number, count(*) FROM t GROUP BY k0, k1, number", 1),
        ("SELECT k0 % 7, sum(id) FROM t GROUP BY k0 % 7", 1),
        ("SELECT k0, k1, grouping(k0), grouping(k1), count(*) FROM t GROUP BY ROLLUP (k0, k1)", 1),
        ("SELECT k0, number, sum(id), min(text) FROM t GROUP BY CUBE (k0, number)", 1),
        ("SELECT k0, k1, count(*) FROM t GROUP BY GROUPING SETS ((k0), (k1), (k0), ())", 1),
        ("SELECT count(*), sum(id) FROM t GROUP BY GROUPING SETS (())", 1),
        ("SELECT k0, count(*) AS n FROM t GROUP BY k0 HAVING count(*) > 4 AND k0 > 10", 1),
        ("SELECT n, count(*) FROM (SELECT k0, count(*) AS n FROM t GROUP BY k0) GROUP BY n", 2),
        ("SELECT k0, count(DISTINCT number) FROM t GROUP BY k0", 2),
        ("SELECT count(DISTINCT k1) FROM t", 1),
        ("SELECT k0, sum(id) FROM t GROUP BY k0 UNION ALL SELECT number, sum(id) FROM t GROUP BY number", 2),
        ("SELECT k0, s, sum(s) OVER (PARTITION BY k0) FROM (SELECT k0, sum(id) AS s FROM t GROUP BY k0)", 1),
        ("SELECT k0, s, sum(s) OVER (ORDER BY k0) FROM (SELECT k0, sum(id) AS s FROM t GROUP BY k0)", 1),
        ("SELECT k0, k1, sum(id) FROM t GROUP BY k0, k1 ORDER BY k0, k1 LIMIT 50", 1),
        ("SELECT a.k0, a.n FROM (SELECT k0, count(*) n FROM t GROUP BY k0) a JOIN t b ON a.k0 = b.k0", 1),
    ];
    for (sql, nodes) in queries {
        // DataFusion's own window functions and sorts need more than the smallest limit.
        let limits =
            if sql.contains("OVER") || sql.contains("ORDER BY k0, k1") { &LIMITS[..3] } else { &LIMITS[..] };
        same_everywhere(&[("t", &table)], sql, *nodes, limits);
        same_everywhere(&[("t", &empty)], sql, *nodes, &[None]);
    }
}

#[test]
fn keys_of_different_grouping_sets_give_the_same_rows() {
    let table = table();
    for sets in [
        "(k0, number), (k0, id), (number), (k0, number)",
        "(text), (k1), (), (k1), (k1, text)",
        "(k0, text), (k0, k1), (number, id), (id, k1), (number, text)",
    ] {
        let sql = format!(
            "SELECT k0, k1, text, number, id, grouping(k1), count(*), sum(id), min(text) FROM t
             GROUP BY GROUPING SETS ((k0, k1, text, number, id), {sets})"
        );
        same_everywhere(&[("t", &table)], &sql, 1, &[None, Some(512 * KIB)]);
        let sql = format!("SELECT count(*), sum(id) FROM t GROUP BY GROUPING SETS ({sets})");
        same_everywhere(&[("t", &table)], &sql, 1, &[None, Some(512 * KIB)]);
    }
    for (a, b, c) in [
        ("make_array(k0, number)", "make_array(id % 100)", "make_array(k1)"),
        ("arrow_cast(k1, 'Dictionary(Int32, Utf8)')", "arrow_cast(text, 'Dictionary(Int32, Utf8)')", "text"),
        ("named_struct('a', k0)", "named_struct('a', id)", "k0"),
        ("k0 > 5", "id > 100", "NULL"),
        ("CAST(k0 AS DOUBLE)", "CAST(id AS DOUBLE)", "CAST(number AS FLOAT)"),
        ("CAST(k0 % 50 AS TINYINT UNSIGNED)", "CAST(id % 50 AS TINYINT UNSIGNED)", "k0"),
    ] {
        let sql = format!(
            "SELECT a, b, c, count(*), sum(id) FROM (SELECT {a} AS a, {b} AS b, {c} AS c, id FROM t WHERE k0 >= 0)
             GROUP BY GROUPING SETS ((a), (b), (c), (a, c))"
        );
        same_everywhere(&[("t", &table)], &sql, 1, &[None, Some(512 * KIB)]);
    }
}

#[test]
fn one_key_two_keys_and_all_keys_give_the_same_rows() {
    for (skew, domain) in [(Skew::One, 10), (Skew::Even, 2), (Skew::Half, 100_000), (Skew::Even, 1 << 40)] {
        let shape = TableShape { domain, skew, text_bytes: 60, ..TableShape::of_rows(8_000) };
        let table = Table::draw("", &[KeyType::Int64], &shape);
        for functions in [
            "count(*), sum(id), max(text)",
            "array_sort(array_agg(id)), count(DISTINCT text), sum(DISTINCT id)",
        ] {
            let sql = format!("SELECT k0, {functions} FROM t GROUP BY k0");
            same_everywhere(&[("t", &table)], &sql, 1, &LIMITS);
        }
    }
}

#[test]
fn limits_of_rows_are_kept() {
    run(async {
        let table = table();
        let engine = Engine::new(None, 2);
        engine.register("t", &table, 2);
        let plan = planned(&engine.context, "SELECT DISTINCT k0 FROM t LIMIT 10").await.unwrap();
        assert_eq!(count_nodes(&plan, "HashAggregateExec"), 1);
        let rows = engine.collect(&plan).await.unwrap();
        assert_eq!(crate::harness::rows::row_count(&rows), 10);
        assert!(metric(&plan, "input_rows") < table.rows() / 2);
        let sql = "SELECT k0, min(id) FROM t GROUP BY k0 ORDER BY min(id) LIMIT 5";
        let plan = planned(&engine.context, sql).await.unwrap();
        assert_eq!(
            count_nodes(&plan, "HashAggregateExec"),
            0,
            "the first few groups in order stay DataFusion's"
        );
        let right = plain();
        register(&right, "t", &table, 2);
        let right = right.sql(sql).await.unwrap().collect().await.unwrap();
        assert_same_rows(&engine.collect(&plan).await.unwrap(), &right, sql);
    });
}
