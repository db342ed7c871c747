//! What a join's build side holds is a filter on the rows of the table that its probe side reads.
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::datasource::MemTable;
use datafusion::physical_plan::ExecutionPlan;
use nandina_exec::scan::{NativeTableProvider, TableScanExec};
use nandina_simulation::FaultPlan;
use nandina_storage::{IfExists, Mode, Store, TableDefinition, WriteOptions};

use crate::harness::rows::{assert_same_rows, row_count};
use crate::harness::{Engine, KIB, count_nodes, metric, plain, planned, run};

const ROWS: i64 = 40_000;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("k", DataType::Int64, true),
        Field::new("mode", DataType::Utf8View, true),
        Field::new("ratio", DataType::Float64, true),
        Field::new("comment", DataType::Utf8View, true),
    ]))
}

fn rows() -> RecordBatch {
    let modes = ["AIR", "MAIL", "SHIP", "a mode too long for a view to hold"];
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(0..ROWS)),
        Arc::new((0..ROWS).map(|id| (id % 10 != 3).then_some(id * 7919 % 5000)).collect::<Int64Array>()),
        Arc::new(
            (0..ROWS).map(|id| (id % 9 != 1).then_some(modes[id as usize % 4])).collect::<StringViewArray>(),
        ),
        Arc::new(
            (0..ROWS)
                .map(|id| match id % 8 {
                    0 => Some(-0.0),
                    1 => Some(f64::NAN),
                    2 => None,
                    _ => Some((id % 50) as f64 / 4.0),
                })
                .collect::<Float64Array>(),
        ),
        Arc::new(StringViewArray::from_iter_values((0..ROWS).map(|id| format!("comment {id:060}")))),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

/// The table `t`, stored.
fn stored() -> NativeTableProvider {
    let (device, _) = nandina_simulation::in_memory(FaultPlan::none());
    let store = Store::open(device, Mode::Write).unwrap();
    let definition = TableDefinition::new("t", schema()).with_page_bytes(32 << 10);
    let writer = store.create_table_with_rows(definition, IfExists::Fail, WriteOptions::default()).unwrap();
    let mut lane = writer.lane();
    lane.append_blocking(&rows()).unwrap();
    lane.finish_blocking().unwrap();
    writer.commit_blocking().unwrap();
    NativeTableProvider::new(store.table("t").unwrap())
}

fn in_memory() -> MemTable {
    MemTable::try_new(schema(), vec![vec![rows()]]).unwrap()
}

fn rows_scanned(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let own = plan.downcast_ref::<TableScanExec>().and_then(|scan| scan.metrics()?.output_rows());
    own.unwrap_or(0) + plan.children().iter().map(|child| rows_scanned(child)).sum::<usize>()
}

/// Queries, and how many rows the scans of stored tables may hand out when nothing is spilled; `m` is the same table in
/// memory.
const JOINS: &[(&str, usize)] = &[
    ("SELECT b.id, t.* FROM (SELECT id, k FROM m WHERE id < 20) b JOIN t ON t.k = b.k", 200),
    ("SELECT b.id, t.id FROM (SELECT id * 3 AS i, id FROM m WHERE id % 500 = 3) b JOIN t ON t.id = b.i", 100),
    ("SELECT t.id FROM (SELECT mode, k FROM m WHERE id < 9) b JOIN t ON t.mode = b.mode AND t.k = b.k", 200),
    ("SELECT t.id FROM (SELECT DISTINCT ratio r FROM m WHERE id < 7) b JOIN t ON t.ratio = b.r", 20_000),
    ("SELECT t.id, t.comment FROM t WHERE t.k IN (SELECT k FROM m WHERE id % 3000 = 1)", 200),
    ("SELECT count(*) FROM t WHERE t.k NOT IN (SELECT k FROM m WHERE id < 100 AND k IS NOT NULL)", 40_000),
    ("SELECT count(*) FROM t WHERE t.k NOT IN (SELECT k FROM m WHERE id < 100)", 40_000),
    (
        "SELECT b.i, t.id FROM (SELECT k i FROM m WHERE id < 40) b JOIN t ON t.k IS NOT DISTINCT FROM b.i",
        40_000,
    ),
    ("SELECT b.id, t.id FROM (SELECT id FROM m WHERE id % 77 = 1) b LEFT JOIN t ON t.id = b.id + 30000", 200),
    ("SELECT b.id, t.id FROM (SELECT id FROM m WHERE id % 77 = 1) b RIGHT JOIN t ON t.id = b.id + 3", 40_000),
    ("SELECT b.id, t.id FROM (SELECT id FROM m WHERE id % 77 = 1) b FULL JOIN t ON t.id = b.id + 3", 40_000),
    // `s` is the same table, stored: the range of its keys is known, and small enough for a bitmap.
    ("SELECT b.id, t.comment FROM (SELECT id FROM s WHERE id % 1000 = 7) b JOIN t ON t.id = b.id", 80),
    ("SELECT b.id, t.id FROM (SELECT id, k FROM s WHERE id < 40) b JOIN t ON t.k = b.k", 400),
    (
        "SELECT b.k, t.id FROM (SELECT id, k FROM s WHERE id < 40) b JOIN t ON t.k IS NOT DISTINCT FROM b.k",
        41_000,
    ),
    ("SELECT b.k, t.id FROM (SELECT k FROM s WHERE id < 3) b JOIN t ON t.k IS NOT DISTINCT FROM b.k", 100),
    ("SELECT count(*) FROM t WHERE t.k NOT IN (SELECT k FROM s WHERE id < 100 AND k IS NOT NULL)", 41_000),
    ("SELECT t.id FROM t WHERE t.k IN (SELECT k FROM s WHERE id % 3000 = 1)", 400),
    ("SELECT b.comment, t.comment FROM (SELECT * FROM s WHERE id % 2 = 0) b JOIN t ON t.id = b.id", 40_000),
    (
        "SELECT b.id, t.id FROM (SELECT id + 30000 i, id FROM s WHERE id % 7 = 3) b LEFT JOIN t ON t.id = b.i",
        80_000,
    ),
    // Of two keys one passes the aggregation below, or the join, and nulls of the other are not asked about.
    (
        "SELECT b.id, x.k FROM (SELECT id, k FROM s WHERE id < 40) b \
         JOIN (SELECT k, min(id) i FROM t GROUP BY k) x ON x.k = b.k AND x.i = b.id",
        400,
    ),
    (
        "SELECT b.id, x.k FROM (SELECT id, k FROM s WHERE id < 40) b JOIN (SELECT k, min(id) i FROM t GROUP BY k) x \
         ON (x.k IS NOT DISTINCT FROM b.k) AND (x.i IS NOT DISTINCT FROM b.id)",
        40_040,
    ),
    (
        "SELECT b.id, x.k FROM (SELECT id, k FROM s WHERE id < 3) b JOIN (SELECT k, min(id) i FROM t GROUP BY k) x \
         ON (x.k IS NOT DISTINCT FROM b.k) AND (x.i IS NOT DISTINCT FROM b.id)",
        100,
    ),
    (
        "SELECT x.k FROM (SELECT id, k FROM s WHERE id < 0) b JOIN (SELECT k, min(id) i FROM t GROUP BY k) x \
         ON x.k = b.k AND x.i = b.id",
        0,
    ),
    (
        "SELECT x.i, x.comment FROM (SELECT id, k FROM s WHERE id % 100 = 5) b JOIN (SELECT t.id i, u.k ku, t.comment \
         FROM t JOIN (SELECT * FROM s WHERE mode = 'AIR') u ON t.id = u.id) x ON x.i = b.id AND x.ku = b.k",
        80_000,
    ),
    (
        "SELECT b.id, x.i FROM (SELECT id, k FROM s WHERE id % 100 = 5) b LEFT JOIN (SELECT t.id i, u.k ku \
         FROM t LEFT JOIN s u ON t.k = u.id) x ON x.i = b.id AND x.ku = b.k",
        80_000,
    ),
    // The inner join keeps the rows away that the outer one's key cannot be computed of.
    (
        "SELECT b.k, x.q FROM (SELECT id k FROM m WHERE id < 5) b JOIN (SELECT 100 / t.id q FROM t \
         JOIN (SELECT id FROM m WHERE id > 0) u ON t.id = u.id) x ON x.q = b.k",
        40_000,
    ),
    // Each step of a recursion runs the join anew.
    (
        "WITH RECURSIVE r(k, n) AS (SELECT CAST(7919 % 5000 AS BIGINT), 0 UNION ALL SELECT CASE WHEN r.n = 0 THEN NULL \
         ELSE CAST(5 AS BIGINT) END, r.n + 1 FROM r JOIN (SELECT * FROM t WHERE id < 40) t \
         ON t.k IS NOT DISTINCT FROM r.k WHERE r.n < 2) SELECT k, n FROM r",
        40_000,
    ),
    ("SELECT t.id FROM (SELECT k FROM m WHERE false) b JOIN t ON t.k = b.k", 0),
    (
        "SELECT b.comment, t.comment FROM (SELECT * FROM m WHERE id % 2 = 0) b JOIN t ON t.id = b.id * 2",
        10_000,
    ),
];

#[test]
fn rows_that_match_nothing_are_left_out_where_they_are_read() {
    run(async {
        let plain = plain();
        plain.register_table("t", Arc::new(in_memory())).unwrap();
        plain.register_table("s", Arc::new(in_memory())).unwrap();
        plain.register_table("m", Arc::new(in_memory())).unwrap();
        let provider = Arc::new(stored());
        let mut spilled = 0;
        for (sql, most_rows) in JOINS {
            let right = plain.sql(sql).await.expect(sql).collect().await.expect(sql);
            for limit in [None, Some(4096 * KIB), Some(512 * KIB)] {
                let engine = Engine::new(limit, 2);
                engine.context.register_table("t", Arc::clone(&provider) as _).unwrap();
                engine.context.register_table("s", Arc::clone(&provider) as _).unwrap();
                engine.context.register_table("m", Arc::new(in_memory())).unwrap();
                let plan = planned(&engine.context, sql).await.expect(sql);
                let ours = engine.collect(&plan).await.expect(sql);
                assert_same_rows(&ours, &right, &format!("{sql} under {limit:?}"));
                // Recursion forgets what its steps counted.
                let is_counted = !sql.starts_with("WITH RECURSIVE");
                if is_counted && limit.is_none() && count_nodes(&plan, "HybridHashJoinExec") == 1 {
                    let scanned = rows_scanned(&plan);
                    assert!(scanned <= *most_rows, "{scanned} rows were scanned by {sql}");
                    assert!(scanned >= row_count(&right).min(1), "{sql}");
                }
                spilled += metric(&plan, "spilled_partitions");
            }
        }
        assert!(spilled > 0, "no join was short of memory");
    });
}
