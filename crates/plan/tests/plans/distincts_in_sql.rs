//! Aggregates over distinct values of several arguments are planned in two levels, spill, and give DataFusion's rows
//! under DataFusion's names and types.

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;

use crate::harness::rows::assert_same_rows;
use crate::harness::tables::{KEY_TYPES, KeyType, Skew, Table, TableShape};
use crate::harness::{Engine, KIB, MIB, count_nodes, metric, plain, planned, register, run};

const LIMITS: [Option<usize>; 3] = [None, Some(4 * MIB), Some(256 * KIB)];

/// Names and types; whether values may be null is not what SQL answers.
fn columns(schema: &Schema) -> Vec<String> {
    schema.fields().iter().map(|field| format!("{}: {}", field.name(), field.data_type())).collect()
}

/// Runs `sql` at every limit, and compares rows and columns with plain DataFusion, which does not know our rule.
/// `nodes` is how many of our operators it is planned with. Returns the spilled partitions at the smallest limit.
fn same_everywhere(table: &Table, sql: &str, nodes: usize, limits: &[Option<usize>]) -> usize {
    run(async {
        let right = plain();
        register(&right, "t", table, 2);
        let right = right.sql(sql).await.expect(sql);
        let right_columns = columns(right.schema().as_arrow());
        let right: Vec<RecordBatch> = right.collect().await.expect(sql);
        let mut spilled = 0;
        for &limit in limits {
            for partitions in [2, 1] {
                let what = format!("{sql} at {limit:?} in {partitions}");
                let engine = Engine::new(limit, partitions);
                engine.register("t", table, partitions);
                let plan = planned(&engine.context, sql).await.expect(&what);
                assert_eq!(count_nodes(&plan, "HashAggregateExec"), nodes, "{what}");
                assert_eq!(columns(&plan.schema()), right_columns, "{what}");
                let ours = engine.collect(&plan).await.unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_same_rows(&ours, &right, &what);
                spilled = metric(&plan, "spilled_partitions");
                drop(ours);
                drop(plan);
                engine.assert_clean(&what).await;
            }
        }
        spilled
    })
}

/// Texts of 30 bytes, numbers below 100, different ids, four rows per key, and nulls among all but the ids.
fn table_of(rows: usize) -> Table {
    let shape =
        TableShape { domain: rows as i64 / 4, null_percent: 5, text_bytes: 30, ..TableShape::of_rows(rows) };
    Table::draw("", &[KeyType::Int64, KeyType::Utf8View], &shape)
}

/// Functions that are planned in two levels, over the columns of [`table_of`].
const FUNCTIONS: &[&str] = &[
    "count(DISTINCT id), count(DISTINCT text)",
    "count(DISTINCT number), sum(DISTINCT number), count(DISTINCT text), count(DISTINCT id)",
    "count(DISTINCT number % 10), avg(DISTINCT CAST(number AS DOUBLE)), min(id), max(text)",
    "count(DISTINCT id), count(*), count(text), sum(number), min(number), max(id), count(number, text)",
    "count(DISTINCT id), round(avg(number), 6), bit_and(number), bit_or(number), bit_xor(number)",
    "count(DISTINCT id), bool_and(number > 3), bool_or(number > 95), sum(id * 1.5), avg(id % 5)",
    "count(DISTINCT id), sum(CAST(number AS DECIMAL(10,3)) / 7), min(CAST(number AS DECIMAL(10,2)))",
    "sum(DISTINCT CAST(id AS DECIMAL(10,2))), avg(DISTINCT CAST(id AS DECIMAL(10,2))), count(DISTINCT k1)",
    "sum(DISTINCT CAST(number AS INT)), avg(DISTINCT number), sum(arrow_cast(number, 'UInt16')), count(DISTINCT id)",
    "median(DISTINCT id), sum(DISTINCT id), count(DISTINCT text), min(DISTINCT text), max(DISTINCT id)",
    "count(DISTINCT id) FILTER (WHERE id % 2 = 0), count(*) FILTER (WHERE number > 50)",
    "count(DISTINCT id) FILTER (WHERE number > 30), count(DISTINCT id), sum(DISTINCT id) FILTER (WHERE number > 30)",
    "count(DISTINCT id) FILTER (WHERE false), count(DISTINCT text) FILTER (WHERE NULL), count(*)",
    "count(DISTINCT id) + 1, count(DISTINCT text) * 2 AS twice, sum(number) - count(DISTINCT number)",
    "count(DISTINCT id), count(DISTINCT 1), count(DISTINCT NULL)",
    "count(DISTINCT make_array(id, number)), count(DISTINCT named_struct('a', k0, 'b', k1)), sum(id)",
    "count(DISTINCT arrow_cast(text, 'Dictionary(Int32, Utf8)')), count(DISTINCT CAST(id AS DATE)), count(*)",
    "count(DISTINCT id), count(DISTINCT CASE WHEN id % 3 = 0 THEN id END), sum(length(text))",
    "count(DISTINCT k0), count(DISTINCT text), count(DISTINCT k0 % 7)",
];

#[test]
fn every_function_gives_the_same_rows_for_many_groups() {
    let table = table_of(8_000);
    for functions in FUNCTIONS {
        let sql = format!("SELECT k0, {functions} FROM t GROUP BY k0");
        let spilled = same_everywhere(&table, &sql, 2, &LIMITS);
        assert!(spilled > 0, "{sql}: nothing was spilled");
    }
}

#[test]
fn every_function_gives_the_same_rows_for_one_group() {
    let table = table_of(8_000);
    let mut spilling = 0;
    for functions in FUNCTIONS {
        let sql = format!("SELECT {functions} FROM t");
        spilling += usize::from(same_everywhere(&table, &sql, 1, &LIMITS) > 0);
    }
    assert!(spilling > FUNCTIONS.len() / 2, "some have few values; of most there are more than fit");
}

#[test]
fn no_rows_give_one_row_without_keys_and_none_with_them() {
    let (table, empty) = (table_of(1_000), table_of(0));
    for functions in FUNCTIONS {
        for of_some in ["", "id, "] {
            let keys = of_some.trim_end_matches(", ");
            let group_by = if keys.is_empty() { String::new() } else { format!("GROUP BY {keys}") };
            let nodes = 1 + usize::from(!keys.is_empty());
            let sql = format!("SELECT {of_some}{functions} FROM t {group_by}");
            same_everywhere(&empty, &sql, nodes, &[None]);
            // Known only when it runs that nothing is left.
            let sql = format!("SELECT {of_some}{functions} FROM t WHERE id < -number {group_by}");
            same_everywhere(&table, &sql, nodes, &[None]);
        }
        // Known when it is planned.
        let sql = format!("SELECT {functions} FROM t WHERE false");
        same_everywhere(&table, &sql, 0, &[None]);
    }
}

#[test]
fn keys_of_all_kinds_give_the_same_rows() {
    let table = table_of(4_000);
    let queries: &[(&str, usize)] = &[
        ("SELECT k0, k1, count(DISTINCT number), count(DISTINCT text) FROM t GROUP BY k0, k1", 2),
        ("SELECT count(DISTINCT number), k0 + 1, count(*), k1 FROM t GROUP BY k1, k0 + 1", 2),
        ("SELECT k0 % 7 AS seventh, count(DISTINCT id), count(DISTINCT text) FROM t GROUP BY k0 % 7", 2),
        // In the order of its key at all times: the upper aggregation is DataFusion's.
        ("SELECT 'x' AS x, count(DISTINCT id), count(DISTINCT text) FROM t GROUP BY 'x'", 1),
        ("SELECT 1, k0, count(DISTINCT id), count(DISTINCT text) FROM t GROUP BY 1, k0", 2),
        ("SELECT k0, k0 + 1, count(DISTINCT id), count(DISTINCT text) FROM t GROUP BY k0, k0 + 1", 2),
        // An argument that is a key, alone, beside another one, and beside another key.
        ("SELECT k0, count(DISTINCT k0), count(*) FROM t GROUP BY k0", 2),
        ("SELECT k0, count(DISTINCT k0), count(DISTINCT id), sum(number) FROM t GROUP BY k0", 2),
        ("SELECT k0, k1, count(DISTINCT k0), sum(DISTINCT k0), count(DISTINCT k1) FROM t GROUP BY k0, k1", 2),
        // What stands around the aggregation.
        (
            "SELECT k0, count(DISTINCT id) AS n, count(DISTINCT text) FROM t GROUP BY k0 HAVING count(DISTINCT id) > 4",
            2,
        ),
        (
            "SELECT n, m, count(*) FROM (SELECT k0, count(DISTINCT id) AS n, count(DISTINCT text) AS m FROM t GROUP BY k0) GROUP BY n, m",
            3,
        ),
        (
            "SELECT count(DISTINCT n), count(DISTINCT m), sum(n) FROM (SELECT count(DISTINCT id) AS n, count(DISTINCT text) AS m FROM t GROUP BY k0)",
            3,
        ),
        (
            "SELECT k0, count(DISTINCT a), count(DISTINCT b) FROM (SELECT k0, id + 1 AS a, number * 2 AS b FROM t) WHERE k0 > 10 GROUP BY k0",
            2,
        ),
        (
            "SELECT a.k0, count(DISTINCT a.id), count(DISTINCT b.number) FROM t a JOIN t b ON a.k0 = b.k0 GROUP BY a.k0",
            2,
        ),
        (
            "SELECT x.id, y.n, y.m FROM t x JOIN (SELECT k0, count(DISTINCT id) AS n, count(DISTINCT text) AS m FROM t GROUP BY k0) y ON x.k0 = y.k0",
            2,
        ),
        (
            "SELECT k0, count(DISTINCT id), count(DISTINCT text) FROM t GROUP BY k0 UNION ALL SELECT 1, count(DISTINCT id), count(DISTINCT text) FROM t",
            3,
        ),
        (
            "SELECT k0, s, sum(s) OVER (ORDER BY k0) FROM (SELECT k0, count(DISTINCT id) + count(DISTINCT text) AS s FROM t GROUP BY k0)",
            2,
        ),
        (
            "SELECT k0, count(DISTINCT id + (SELECT max(number) FROM t)), count(DISTINCT text) FROM t GROUP BY k0",
            2,
        ),
        // Subqueries that become joins first.
        (
            "SELECT id FROM t WHERE number < (SELECT count(DISTINCT s.id) + count(DISTINCT s.text) FROM t s WHERE s.k0 = t.k0)",
            2,
        ),
        (
            "SELECT id FROM t WHERE number < (SELECT count(DISTINCT id) % 10 + count(DISTINCT text) % 10 FROM t)",
            1,
        ),
        (
            "SELECT id FROM t WHERE id IN (SELECT count(DISTINCT s.id) + count(DISTINCT s.number) FROM t s GROUP BY s.k0)",
            2,
        ),
    ];
    for (sql, nodes) in queries {
        same_everywhere(&table, sql, *nodes, &[None, Some(4 * MIB)]);
    }
}

#[test]
fn every_type_of_argument_gives_the_same_rows() {
    for (first, second) in KEY_TYPES.iter().zip(KEY_TYPES.iter().cycle().skip(1)) {
        let shape = TableShape { domain: 2_000, null_percent: 3, ..TableShape::of_rows(6_000) };
        let table = Table::draw("", &[*first, *second], &shape);
        // Two zeros are one value, as in groups; DataFusion's sets of floating-point numbers keep them apart.
        let value = |column: &str, of: KeyType| match of {
            KeyType::Float64 => format!("abs({column})"),
            _ => column.to_owned(),
        };
        let functions =
            format!("count(DISTINCT {}), count(DISTINCT {})", value("k0", *first), value("k1", *second));
        let sql = format!("SELECT id % 10, {functions}, min(id) FROM t GROUP BY id % 10");
        same_everywhere(&table, &sql, 2, &[None, Some(256 * KIB)]);
        let sql = format!("SELECT {functions} FROM t");
        same_everywhere(&table, &sql, 1, &[None, Some(256 * KIB)]);
    }
}

#[test]
fn groups_of_all_sizes_and_large_values_give_the_same_rows() {
    let functions = "count(DISTINCT id), count(DISTINCT text), sum(number), max(text)";
    for (skew, domain, text_bytes) in
        [(Skew::One, 10, 60), (Skew::Even, 2, 60), (Skew::Half, 100_000, 60), (Skew::Even, 1 << 40, 3_000)]
    {
        let shape = TableShape { domain, skew, text_bytes, ..TableShape::of_rows(3_000) };
        let table = Table::draw("", &[KeyType::Int64], &shape);
        let sql = format!("SELECT k0, {functions} FROM t GROUP BY k0");
        assert!(same_everywhere(&table, &sql, 2, &LIMITS) > 0, "{sql}: nothing was spilled");
    }
}

#[test]
fn more_arguments_than_grouping_ids_have_bits_stay_in_sets() {
    let table = table_of(500);
    for (arguments, nodes) in [(7, 2), (9, 2), (40, 2), (62, 2), (63, 1)] {
        let functions: Vec<String> =
            (0..arguments).map(|number| format!("count(DISTINCT id % {})", number + 2)).collect();
        let sql = format!("SELECT k0, {} FROM t GROUP BY k0", functions.join(", "));
        same_everywhere(&table, &sql, nodes, &[None]);
    }
}

#[test]
fn what_cannot_be_computed_in_two_levels_stays_as_it_is() {
    let table = table_of(2_000);
    for functions in [
        "count(DISTINCT id), count(DISTINCT text), median(number)",
        "count(DISTINCT id), count(DISTINCT text), avg(CAST(number AS DECIMAL(10,2)))",
        "count(DISTINCT id), array_sort(array_agg(DISTINCT number))",
        "count(DISTINCT id), string_agg(DISTINCT text, ',' ORDER BY text)",
        "count(DISTINCT id), count(DISTINCT text), first_value(id ORDER BY id)",
        "min(DISTINCT id), max(DISTINCT text)",
    ] {
        let sql = format!("SELECT k0, {functions} FROM t GROUP BY k0");
        same_everywhere(&table, &sql, 1, &[None]);
    }
    let sql = "SELECT k0, k1, count(DISTINCT id), count(DISTINCT text) FROM t GROUP BY ROLLUP (k0, k1)";
    same_everywhere(&table, sql, 1, &[None]);
    run(async {
        let engine = Engine::new(None, 2);
        engine.register("t", &table, 2);
        let sql = "SELECT k0, count(DISTINCT random()), count(DISTINCT id) FROM t GROUP BY k0";
        let plan = planned(&engine.context, sql).await.unwrap();
        assert_eq!(count_nodes(&plan, "HashAggregateExec"), 1, "random() differs from set to set");
    });
}

#[test]
fn one_distinct_argument_alone_is_left_to_datafusion() {
    run(async {
        let table = table_of(100);
        let engine = Engine::new(None, 2);
        engine.register("t", &table, 2);
        let plan = |functions: &str| {
            let sql = format!("SELECT k0, {functions} FROM t GROUP BY k0");
            let context = engine.context.clone();
            async move {
                context.sql(&sql).await.unwrap().into_optimized_plan().unwrap().display_indent().to_string()
            }
        };
        let alone = plan("count(DISTINCT id), sum(DISTINCT id)").await;
        assert!(!alone.contains("__partial") && !alone.contains("__input"), "{alone}");
        let beside = plan("count(DISTINCT id), count(*)").await;
        assert!(beside.contains("__partial") && !beside.contains("GROUPING SETS"), "{beside}");
        let several = plan("count(DISTINCT id), count(DISTINCT text)").await;
        assert!(several.contains("GROUPING SETS"), "{several}");
        assert_eq!(several.matches("Aggregate").count(), 2, "once is enough: {several}");
    });
}

#[test]
fn an_argument_of_few_values_is_combined_beside_one_of_many() {
    run(async {
        let table = table_of(50_000);
        let engine = Engine::new(Some(4 * MIB), 1);
        engine.register("t", &table, 1);
        let plan = planned(&engine.context, "SELECT count(DISTINCT id), count(DISTINCT number) FROM t").await;
        let plan = plan.unwrap();
        let rows = engine.collect(&plan).await.unwrap();
        assert_eq!(crate::harness::rows::integers(&rows, 0), [Some(50_000)]);
        let passed = metric(&plan, "passed_rows");
        assert!(passed > 0 && passed < table.rows(), "{passed} rows of one of two arguments");
        let groups = metric(&plan, "partitioned_groups");
        assert!(groups < table.rows() * 5 / 4, "{groups} groups instead of little more than there are ids");
    });
}
