//! Columns of stored tables that are fetched by row id above joins: the rows are those of plain DataFusion.
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::row::{RowConverter, SortField};
use datafusion::datasource::MemTable;
use datafusion::physical_plan::displayable;
use nandina_exec::scan::NativeTableProvider;
use nandina_plan::JoinAlgorithm;
use nandina_simulation::FaultPlan;
use nandina_storage::{IfExists, Mode, Store, TableDefinition, WriteOptions};

use super::late_columns::{FEW_ROWS, ROWS, check_faults, rows, schema, stored, tables_fetched};
use crate::harness::{Engine, KIB, count_nodes, metric, plain, planned, run};

fn engine(
    limit: Option<usize>,
    tables: &[(&str, Arc<NativeTableProvider>)],
    algorithm: JoinAlgorithm,
) -> Engine {
    let engine = Engine::new(limit, 2);
    algorithm.set_in(engine.context.state_ref().write().config_mut());
    for (name, provider) in tables {
        engine.context.register_table(*name, Arc::clone(provider) as _).unwrap();
    }
    engine
}

/// Queries over joins, and how many tables' columns are fetched.
const JOINED: &[(&str, usize)] = &[
    ("SELECT t.*, u.* FROM t JOIN u ON t.id = u.id", 2),
    ("SELECT t.comment, u.words FROM t JOIN u ON t.k = u.k", 2),
    ("SELECT t.comment, u.words FROM t LEFT JOIN u ON t.id = u.id", 2),
    (
        "SELECT t.comment, u.words FROM t LEFT JOIN u ON t.k = u.k AND t.id > u.id AND u.comment LIKE 'long%'",
        2,
    ),
    ("SELECT t.comment, u.words FROM t RIGHT JOIN u ON t.id = u.id + 5000", 2),
    ("SELECT t.comment, u.words FROM t FULL JOIN u ON t.k = u.id", 2),
    ("SELECT t.comment, t.words FROM t WHERE t.id IN (SELECT id FROM u)", 1),
    ("SELECT t.comment FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k)", 1),
    ("SELECT u.words FROM u WHERE u.k NOT IN (SELECT k FROM t WHERE k IS NOT NULL AND k > 900)", 1),
    ("SELECT t.comment FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.id = t.id) OR t.k > 5000", 1),
    (
        "SELECT t.comment, u.comment FROM t JOIN u ON t.id = u.id AND t.same = u.same WHERE t.k + u.k < 4000",
        2,
    ),
    ("SELECT a.comment, b.words FROM t a JOIN t b ON a.k = b.k WHERE a.id < b.id", 2),
    ("SELECT t.comment, u.comment FROM u JOIN t ON t.same = u.same AND t.id < 3", 2),
    ("SELECT a.words, b.comment, u.words FROM t a JOIN t b ON a.id = b.id + 1 JOIN u ON u.id = b.id", 3),
    ("SELECT a.comment, n FROM t a JOIN (SELECT k, count(*) AS n FROM u GROUP BY k) c ON a.k = c.k", 1),
    (
        "SELECT a.comment, x.words FROM u a JOIN (SELECT t.k, u.words FROM t JOIN u ON t.id = u.id) x ON a.k = x.k",
        2,
    ),
    ("SELECT u.same, count(t.comment), min(u.comment) FROM t JOIN u ON t.id = u.id GROUP BY u.same", 2),
    (
        "SELECT t.comment || u.comment FROM t JOIN u ON t.id = u.id WHERE length(t.comment) > length(u.comment)",
        0,
    ),
    ("SELECT upper(t.comment), u.words FROM t, u WHERE t.id = u.id AND u.comment IS NULL", 2),
    ("SELECT t.comment FROM t JOIN u ON t.id = u.id WHERE t.id < 0", 1),
    ("SELECT t.id, u.k FROM t JOIN u ON t.id = u.id WHERE u.k > 3", 0),
    ("SELECT t.comment FROM t CROSS JOIN (SELECT max(id) AS m FROM u) WHERE t.id = m", 1),
    ("SELECT t.comment FROM t JOIN u ON t.id < u.id AND t.id > 19000 AND u.id > 19900", 1),
    (
        "SELECT comment FROM t WHERE id = (SELECT min(u.id) FROM u JOIN t ON u.id = t.id WHERE t.comment LIKE '%99')",
        0,
    ),
    (
        "WITH c AS (SELECT t.k, count(u.comment) AS n, min(t.comment) AS m FROM t JOIN u ON t.id = u.id GROUP BY t.k) \
         SELECT a.k, a.n, a.m, b.n, b.m FROM c a JOIN c b ON a.k = b.k + 1",
        2,
    ),
    (
        "WITH RECURSIVE r AS (SELECT id, 1 AS n FROM t WHERE id = 1 UNION ALL \
         SELECT t.id, n + 1 FROM r JOIN t ON t.id = r.id + 1 WHERE n < 4) \
         SELECT r.n, t.comment FROM r JOIN t ON t.id = r.id",
        1,
    ),
    ("SELECT t.comment, u.words FROM t JOIN u ON t.id = u.id LIMIT 100000", 2),
    ("SELECT t.id, u.comment, u.words, u.same FROM t LEFT JOIN u ON t.id = u.id - 1000000", 1),
    ("SELECT t.comment, t.words FROM t LEFT JOIN u ON t.id = u.id WHERE u.id IS NULL AND t.k > 4000", 1),
    ("SELECT t.comment, u.comment FROM t LEFT JOIN u ON t.id = u.id WHERE coalesce(u.k, t.k) % 100 = 7", 2),
    (
        "SELECT t.comment, u.words FROM t LEFT JOIN u ON t.id = u.id WHERE coalesce(u.comment, 'x') < 'long'",
        2,
    ),
];

/// Rows as bytes that tell them apart, in their order. Texts of them would take longer to make than the joins.
fn sorted(batches: &[RecordBatch]) -> Vec<Box<[u8]>> {
    let Some(first) = batches.first() else { return Vec::new() };
    let types =
        first.schema().fields().iter().map(|field| SortField::new(field.data_type().clone())).collect();
    let converter = RowConverter::new(types).unwrap();
    let mut rows: Vec<Box<[u8]>> = Vec::new();
    for batch in batches {
        rows.extend(converter.convert_columns(batch.columns()).unwrap().iter().map(|row| row.data().into()));
    }
    rows.sort_unstable();
    rows
}

#[test]
fn every_algorithm_finds_the_rows_of_a_join() {
    const MOST: Option<usize> = Some(4096 * KIB);
    const LITTLE: Option<usize> = Some(1024 * KIB);
    let runs = [
        (JoinAlgorithm::Rare, vec![None, MOST, LITTLE]),
        (JoinAlgorithm::Digest, vec![LITTLE]),
        (JoinAlgorithm::GracePax, vec![LITTLE]),
        (JoinAlgorithm::GraceRows, vec![MOST]),
    ];
    run(async {
        let plain = plain();
        for (name, rows) in [("t", rows(ROWS, 1)), ("u", rows(FEW_ROWS, 10))] {
            plain
                .register_table(name, Arc::new(MemTable::try_new(schema(), vec![vec![rows]]).unwrap()))
                .unwrap();
        }
        let (tables, _) = stored();
        for (sql, fetched) in JOINED {
            let right = plain.sql(sql).await.expect(sql).collect().await.expect(sql);
            let right = sorted(&right);
            for (algorithm, limits) in &runs {
                let is_late = matches!(algorithm, JoinAlgorithm::Rare | JoinAlgorithm::Digest);
                for limit in limits {
                    let engine = engine(*limit, &tables, *algorithm);
                    let plan = planned(&engine.context, sql).await.expect(sql);
                    assert_eq!(tables_fetched(&plan), if is_late { *fetched } else { 0 }, "{sql}");
                    let ours = engine.collect(&plan).await;
                    let ours = ours.unwrap_or_else(|error| panic!("{sql}, {algorithm}, {limit:?}: {error}"));
                    assert!(sorted(&ours) == right, "{sql} by {algorithm} under {limit:?}");
                    drop(plan);
                    engine.assert_clean(sql).await;
                }
            }
        }
    });
}

#[test]
fn columns_are_fetched_for_what_a_filter_leaves() {
    run(async {
        let (tables, _) = stored();
        for (condition, passes) in [("u.id IS NULL", true), ("coalesce(u.comment, '') = ''", false)] {
            let sql = format!("SELECT t.words FROM t LEFT JOIN u ON t.id = u.id WHERE {condition}");
            let engine = engine(None, &tables, JoinAlgorithm::Rare);
            let plan = planned(&engine.context, &sql).await.unwrap();
            let shown = displayable(plan.as_ref()).indent(false).to_string();
            let (fetch, filter) = (shown.find("FetchExec"), shown.find("FilterExec"));
            assert_eq!(fetch < filter, passes, "{shown}");
        }
    });
}

#[test]
fn algorithms_of_rows_read_whole_pages_and_grace_spills_everything() {
    run(async {
        let (tables, _) = stored();
        let sql = "SELECT a.comment, b.comment FROM t a JOIN t b ON a.id = b.id";
        let mut figures = std::collections::BTreeMap::new();
        for algorithm in [
            JoinAlgorithm::Hybrid,
            JoinAlgorithm::Rare,
            JoinAlgorithm::GracePax,
            JoinAlgorithm::GraceRows,
            JoinAlgorithm::Digest,
        ] {
            let engine = engine(Some(1024 * KIB), &tables, algorithm);
            let plan = planned(&engine.context, sql).await.unwrap();
            engine.collect(&plan).await.unwrap();
            let measured = (metric(&plan, "bytes_read"), metric(&plan, "spilled_partitions"));
            figures.insert(algorithm.to_string(), measured);
        }
        let [hybrid, rare, grace_pax, grace_rows, digest] =
            ["hybrid", "rare", "grace_pax", "grace_rows", "digest"].map(|name| figures[name]);
        assert!(grace_rows.0 > 2 * grace_pax.0, "{figures:?}");
        assert!(digest.0 > 2 * rare.0, "{figures:?}");
        assert_eq!(grace_pax.0, hybrid.0, "{figures:?}");
        assert!(grace_pax.1 >= hybrid.1 && hybrid.1 > 0, "{figures:?}");

        // Where about half of it fits, hybrid keeps partitions that Grace spills.
        let mut spilled = Vec::new();
        for algorithm in [JoinAlgorithm::Hybrid, JoinAlgorithm::GracePax, JoinAlgorithm::GraceRows] {
            let engine = engine(Some(2048 * KIB), &tables, algorithm);
            let plan = planned(&engine.context, sql).await.unwrap();
            engine.collect(&plan).await.unwrap();
            spilled.push(metric(&plan, "spilled_partitions"));
        }
        assert!(spilled[0] > 0 && spilled[0] < grace_pax.1, "{spilled:?}, {figures:?}");
        assert_eq!(spilled[1..], [grace_pax.1, grace_rows.1], "{figures:?}");
    });
}

#[test]
fn ids_all_over_a_table_are_sorted() {
    run(async {
        let (tables, _) = stored();
        let scattered = "SELECT a.comment, b.words FROM t a JOIN t b ON a.k = b.k";
        let in_order = "SELECT a.comment, b.id FROM t a JOIN u b ON a.id = b.id";
        for (sql, is_sorted) in [(scattered, true), (in_order, false)] {
            let engine = engine(Some(1024 * KIB), &tables, JoinAlgorithm::Rare);
            let plan = planned(&engine.context, sql).await.unwrap();
            engine.collect(&plan).await.unwrap();
            assert_eq!(metric(&plan, "sorts_by_row_id") > 0, is_sorted, "{sql}");
            drop(plan);
            engine.assert_clean(sql).await;
        }
    });
}

#[test]
fn what_a_query_has_twice_is_computed_once_with_fetches_too() {
    run(async {
        let (mut tables, _) = stored();
        tables.push(("large", large_table()));
        let sql = "WITH c AS (SELECT u.k, count(*) AS n, min(large.comment) AS m, \
                   max(large.k) AS x, count(large.words) AS w FROM u LEFT JOIN large \
                   ON u.id = large.id WHERE u.k = 77 GROUP BY u.k) \
                   SELECT a.k, a.m, a.x, a.w, b.n, b.m, b.x, b.w FROM c a JOIN c b ON a.n = b.n AND a.k = b.k";
        for algorithm in [JoinAlgorithm::Auto, JoinAlgorithm::Rare] {
            let engine = engine(None, &tables, algorithm);
            let plan = planned(&engine.context, sql).await.unwrap();
            let text = displayable(plan.as_ref()).indent(false).to_string();
            assert_eq!(count_nodes(&plan, "FetchExec"), 1, "{algorithm}: {text}");
            assert_eq!(count_nodes(&plan, "SpoolExec"), 1, "{algorithm}: {text}");
            engine.collect(&plan).await.unwrap();
        }
    });
}

/// Rows of the large table anywhere, each several times, some missing; and whether so many that they are sorted.
const ANYWHERE: &[(&str, bool)] = &[
    (
        "SELECT count(*), sum(length(a.comment) * b.id), min(b.comment), max(b.comment) \
         FROM large a JOIN large b ON a.k = b.id WHERE a.id < 4000",
        false,
    ),
    (
        "SELECT count(*), sum(length(a.comment) * b.k), count(b.words), max(b.comment) \
         FROM large a LEFT JOIN large b ON a.k = b.id + 1000 WHERE a.id % 5 = 0",
        true,
    ),
    (
        "SELECT count(*), sum(length(a.comment) * b.k), count(a.words), count(b.words) \
         FROM (SELECT * FROM large WHERE id < 6000) a FULL JOIN (SELECT * FROM large WHERE id > 3000) b ON a.k = b.id",
        true,
    ),
];

/// Every query by one algorithm, under each of these limits.
fn rows_anywhere_are_sorted_for_a_fetch(algorithm: JoinAlgorithm, limits: &[Option<usize>]) {
    run(async {
        let tables = [("large", large_table())];
        let large = MemTable::try_new(schema(), vec![vec![rows(ROWS, 1); 10]]).unwrap();
        let peer = plain();
        peer.register_table("large", Arc::new(large)).unwrap();
        for (sql, is_sorted) in ANYWHERE {
            let right = sorted(&peer.sql(sql).await.unwrap().collect().await.unwrap());
            for &limit in limits {
                let engine = engine(limit, &tables, algorithm);
                let plan = planned(&engine.context, sql).await.unwrap();
                let ours = engine.collect(&plan).await;
                let ours = ours.unwrap_or_else(|error| panic!("{sql}, {algorithm}, {limit:?}: {error}"));
                assert!(sorted(&ours) == right, "{sql} by {algorithm} under {limit:?}");
                if limit == Some(1024 * KIB) {
                    let text = displayable(plan.as_ref()).indent(false).to_string();
                    assert_eq!(text.contains("order=table"), *is_sorted, "{sql} by {algorithm}: {text}");
                }
                drop(plan);
                engine.assert_clean(sql).await;
            }
        }
    });
}

#[test]
fn rows_are_sorted_for_a_fetch_that_would_read_pages_again_and_again() {
    rows_anywhere_are_sorted_for_a_fetch(JoinAlgorithm::Rare, &[None, Some(4096 * KIB)]);
}

#[test]
fn so_they_are_with_a_megabyte() {
    rows_anywhere_are_sorted_for_a_fetch(JoinAlgorithm::Rare, &[Some(1024 * KIB)]);
}

#[test]
fn so_they_are_where_whole_pages_are_read() {
    rows_anywhere_are_sorted_for_a_fetch(JoinAlgorithm::Digest, &[Some(1024 * KIB)]);
}

#[test]
fn a_limit_does_not_wait_for_a_sort() {
    run(async {
        let (tables, _) = stored();
        let engine = engine(Some(1024 * KIB), &tables, JoinAlgorithm::Rare);
        let sql = "SELECT a.comment, b.words FROM t a JOIN t b ON a.k = b.k LIMIT 60000";
        let plan = planned(&engine.context, sql).await.unwrap();
        engine.collect(&plan).await.unwrap();
        assert!(count_nodes(&plan, "FetchExec") > 0);
        assert!(!format!("{}", displayable(plan.as_ref()).indent(false)).contains("order="));
    });
}

/// A table of ten times the rows, some megabytes.
fn large_table() -> Arc<NativeTableProvider> {
    let (device, _) = nandina_simulation::in_memory(FaultPlan::none());
    let store = Store::open(device, Mode::Write).unwrap();
    let definition = TableDefinition::new("large", schema()).with_page_bytes(64 << 10);
    let writer = store.create_table_with_rows(definition, IfExists::Fail, WriteOptions::default()).unwrap();
    let mut lane = writer.lane();
    (0..10).for_each(|_| lane.append_blocking(&rows(ROWS, 1)).unwrap());
    lane.finish_blocking().unwrap();
    writer.commit_blocking().unwrap();
    Arc::new(NativeTableProvider::new(store.table("large").unwrap()))
}

#[test]
fn few_rows_of_a_large_table_are_fetched_and_all_are_not() {
    run(async {
        let (mut tables, _) = stored();
        tables.push(("large", large_table()));
        let few = "SELECT u.id, large.* FROM u LEFT JOIN large ON u.id = large.id WHERE u.k = 77";
        let all = "SELECT large.*, t.comment FROM large JOIN t ON large.id = t.id";
        for (sql, algorithm, fetched) in [
            (few, JoinAlgorithm::Auto, true),
            (few, JoinAlgorithm::Hybrid, false),
            (all, JoinAlgorithm::Auto, false),
            (all, JoinAlgorithm::Rare, true),
        ] {
            let engine = engine(None, &tables, algorithm);
            let plan = planned(&engine.context, sql).await.unwrap();
            assert_eq!(count_nodes(&plan, "FetchExec") > 0, fetched, "{sql} by {algorithm}");
            engine.collect(&plan).await.unwrap();
        }
    });
}

#[test]
fn reads_that_fail_or_are_damaged_end_the_query_and_short_ones_do_not() {
    run(async {
        let (tables, simulation) = stored();
        let engine = engine(Some(1024 * KIB), &tables, JoinAlgorithm::Rare);
        let sql = "SELECT a.id, b.id, a.comment, b.words FROM t a JOIN t b ON a.k = b.k WHERE b.id < 5000";
        // Tables and temporary files.
        check_faults(&engine, &simulation, sql, sorted, "").await;
    });
}
