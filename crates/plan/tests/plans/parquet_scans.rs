//! Parquet scans turn away the rows that filters do not want, and no others.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion::prelude::SessionContext;
use tempfile::TempDir;

use crate::harness::files::write_frame;
use crate::harness::rows::{assert_same_rows, integers, row_count};
use crate::harness::{Engine, KIB, count_nodes, metric, plain, planned, run};

/// Rows of `numbers`: 1 to so many.
const ROWS: usize = 20_000;

/// Of every type that a filter may look at, with nulls, in no order but that of `id`.
const NUMBERS: &str = "SELECT n AS id, n * 7919 % 1000 AS i, CASE WHEN n % 11 > 0 THEN n * 31 % 97 END AS s, \
    CAST(n * 37 % 10000 AS DECIMAL(15, 2)) / 100 AS d, CASE WHEN n % 5 > 0 THEN n * 0.5 END AS f, \
    date '2020-01-01' + CAST(n % 900 AS INT) AS day, n % 3 = 0 AS b, \
    CASE WHEN n % 7 > 0 THEN 'text ' || (n * 13 % 50) END AS t, \
    named_struct('x', n % 10, 'y', 'y' || n) AS st, [n % 4, n % 6] AS l \
    FROM generate_series(1, 20000) AS g(n)";

async fn file(folder: &Path, name: &str, sql: &str) {
    let frame = SessionContext::new().sql(sql).await.expect(sql);
    write_frame(&folder.join(format!("{name}.parquet")), frame).await;
}

async fn external(context: &SessionContext, name: &str, path: &Path, more: &str) {
    let sql = format!("CREATE EXTERNAL TABLE {name} STORED AS PARQUET {more} LOCATION '{}'", path.display());
    context.sql(&sql).await.expect(&sql);
}

/// Our engine beside DataFusion with filters above its scans.
struct Pair {
    ours: Engine,
    plain: SessionContext,
}

impl Pair {
    fn new(limit: Option<usize>) -> Self {
        Self { ours: Engine::new(limit, 2), plain: plain() }
    }

    async fn table(&self, name: &str, path: &Path, more: &str) {
        external(&self.ours.context, name, path, more).await;
        external(&self.plain, name, path, more).await;
    }

    /// The plan that gave the same rows as DataFusion.
    async fn check(&self, sql: &str) -> (Arc<dyn ExecutionPlan>, usize) {
        let right = self.plain.sql(sql).await.expect(sql).collect().await.expect(sql);
        let plan = planned(&self.ours.context, sql).await.expect(sql);
        let ours = self.ours.collect(&plan).await.expect(sql);
        assert_same_rows(&ours, &right, sql);
        (plan, row_count(&right))
    }
}

/// What all scans of a plan handed on.
fn scanned_rows(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let own = (plan.name() == "DataSourceExec").then(|| plan.metrics()?.output_rows()).flatten();
    own.unwrap_or(0) + plan.children().into_iter().map(scanned_rows).sum::<usize>()
}

async fn numbers(limit: Option<usize>) -> (Pair, TempDir) {
    let folder = TempDir::new().expect("a folder");
    file(folder.path(), "numbers", NUMBERS).await;
    let pair = Pair::new(limit);
    pair.table("numbers", &folder.path().join("numbers.parquet"), "").await;
    (pair, folder)
}

#[test]
fn scans_hand_on_what_passes() {
    run(async {
        let (pair, _folder) = numbers(None).await;
        for filter in [
            "i < 100",
            "i < 100 AND i >= 50 AND d > 20",
            "s IS NULL",
            "s IS NOT NULL AND s <> 5",
            "NOT (s > 5)",
            "i = 7",
            "i = 7 AND t = 'text 3'",
            "i + s > 900",
            "t LIKE '%3' OR day < date '2020-02-01'",
            "t IN ('text 1', 'text 2', 'no text') AND b",
            "d BETWEEN 1.5 AND 3.25 AND i < s * 20",
            "f > 9000",
            "CASE WHEN b THEN i > 900 ELSE t IS NULL END",
            "day >= date '2021-01-01' AND day < date '2021-02-01' AND f IS NOT NULL",
            "st['x'] = 3 AND i < 500",
            "id < 0",
            "id > 0",
            "length(t) > 6 AND i % 2 = 0",
        ] {
            for columns in ["*", "t, d", "count(*)", "id"] {
                let sql = format!("SELECT {columns} FROM numbers WHERE {filter}");
                let (plan, rows) = pair.check(&sql).await;
                assert_eq!(count_nodes(&plan, "FilterExec"), 0, "{sql}");
                if columns != "count(*)" {
                    assert_eq!(scanned_rows(&plan), rows, "{sql}");
                }
            }
        }
    });
}

#[test]
fn what_a_scan_cannot_do_stays_above_it() {
    run(async {
        let (pair, _folder) = numbers(None).await;
        for (filter, scanned) in [
            ("random() >= 0", ROWS),
            ("random() >= 0 AND id <= 100", 100),
            ("st IS NOT NULL AND id <= 100", 100),
            ("l[1] = 2 AND id <= 100", 100),
        ] {
            let (plan, _) = pair.check(&format!("SELECT id FROM numbers WHERE {filter}")).await;
            assert_eq!((count_nodes(&plan, "FilterExec"), scanned_rows(&plan)), (1, scanned), "{filter}");
        }
        // A column that the scan computes, and that is another one each time.
        for sql in [
            "SELECT id FROM (SELECT random() AS r, id FROM numbers) WHERE r > 2 ORDER BY id LIMIT 5",
            "SELECT count(*) FROM (SELECT random() AS r, id FROM numbers) a JOIN numbers b ON a.id = b.i WHERE a.r > 2 \
             AND b.s = 3",
        ] {
            pair.check(sql).await;
        }
    });
}

#[test]
fn a_limit_counts_rows_before_the_filters_above_it() {
    run(async {
        let (pair, _folder) = numbers(None).await;
        let sql = "SELECT count(*) FROM (SELECT i FROM numbers LIMIT 1000) WHERE i < 100";
        let plan = planned(&pair.ours.context, sql).await.expect(sql);
        let ours = pair.ours.collect(&plan).await.expect(sql);
        assert!(integers(&ours, 0)[0].expect("a count") <= 1_000);
        for sql in
            ["SELECT id FROM numbers WHERE i < 100 LIMIT 10", "SELECT id FROM numbers WHERE i < 0 LIMIT 10"]
        {
            let plan = planned(&pair.ours.context, sql).await.expect(sql);
            let ours = pair.ours.collect(&plan).await.expect(sql);
            assert_eq!(row_count(&ours), if sql.contains("< 0") { 0 } else { 10 }, "{sql}");
            // Row groups are not gone through for the sake of a few rows.
            let text = displayable(plan.as_ref()).indent(false).to_string();
            assert_eq!(count_nodes(&plan, "FilterExec"), 1, "{text}");
            assert_eq!(
                metric(&plan, "pushdown_rows_matched") + metric(&plan, "pushdown_rows_pruned"),
                0,
                "{text}"
            );
        }
    });
}

#[test]
fn joins_and_first_rows_filter_scans() {
    run(async {
        for limit in [None, Some(512 * KIB)] {
            let (pair, _folder) = numbers(limit).await;
            let joined = "FROM numbers a JOIN numbers b ON a.id = b.i + 1 WHERE a.s = 3";
            let (plan, _) = pair.check(&format!("SELECT a.id, b.t {joined}")).await;
            assert!(scanned_rows(&plan) < ROWS / 2, "{}", displayable(plan.as_ref()).indent(false));
            pair.check(&format!("SELECT count(*), sum(b.d) {joined} AND b.f > 100")).await;
            pair.check("SELECT id, t FROM numbers WHERE b ORDER BY id DESC LIMIT 7").await;
            pair.check("SELECT id FROM numbers WHERE i IN (SELECT s FROM numbers WHERE d < 2)").await;
            pair.check("SELECT id FROM numbers WHERE s NOT IN (SELECT i FROM numbers WHERE i > 50)").await;
            pair.check(
                "SELECT a.id FROM numbers a LEFT JOIN numbers b ON a.id = b.s AND b.b WHERE b.id IS NULL",
            )
            .await;
        }
    });
}

/// The lower join turns away the rows of which the upper join's key cannot be computed.
#[test]
fn a_filter_that_fails_where_nobody_asked_for_it_is_left_out() {
    run(async {
        let folder = TempDir::new().expect("a folder");
        let series = |rows: usize| format!("FROM generate_series(1, {rows}) AS g(n)");
        file(folder.path(), "keys", &format!("SELECT n AS k {}", series(3))).await;
        file(folder.path(), "facts", &format!("SELECT n AS id, n % 4 AS v {}", series(20_000))).await;
        file(folder.path(), "wanted", &format!("SELECT n * 4 + 1 AS id {}", series(4_000))).await;
        let pair = Pair::new(None);
        for name in ["keys", "facts", "wanted"] {
            pair.table(name, &folder.path().join(format!("{name}.parquet")), "").await;
        }
        let sql = "SELECT count(*) FROM keys JOIN (SELECT 2 / v AS half FROM facts JOIN wanted ON facts.id = wanted.id) ON k = half";
        pair.plain
            .sql("SET datafusion.optimizer.enable_dynamic_filter_pushdown = false")
            .await
            .expect("an option");
        let (plan, _) = pair.check(sql).await;
        let text = displayable(plan.as_ref()).indent(false).to_string();
        assert!(
            text.contains("2 / v@") && text.contains("DynamicFilter"),
            "no such filter reaches the scan:\n{text}"
        );
    });
}

#[test]
fn files_of_several_forms_are_filtered_alike() {
    run(async {
        let folder = TempDir::new().expect("a folder");
        let part = |part: &str| folder.path().join(format!("part={part}"));
        fs::create_dir(part("a")).expect("a folder");
        fs::create_dir(part("b")).expect("a folder");
        let series = "FROM generate_series(1, 3000) AS g(n)";
        // The second one lacks a column, and has another in another type.
        file(&part("a"), "one", &format!("SELECT n AS id, n % 10 AS i, 't' || (n % 7) AS t {series}")).await;
        file(&part("b"), "two", &format!("SELECT CAST(n AS INT) AS id, 't' || (n % 5) AS t {series}")).await;
        let pair = Pair::new(None);
        let columns = "(id BIGINT, i BIGINT, t VARCHAR, part VARCHAR)";
        for context in [&pair.ours.context, &pair.plain] {
            let place = folder.path().display();
            let sql = format!(
                "CREATE EXTERNAL TABLE p {columns} STORED AS PARQUET PARTITIONED BY (part) LOCATION '{place}'"
            );
            context.sql(&sql).await.expect(&sql);
        }
        for filter in [
            "i < 5",
            "i IS NULL",
            "id < 100 AND t = 't3'",
            "part = 'a' AND i = 3",
            "part = 'b' AND id > 2990",
            "part || t = 'bt4' AND id < 50",
            "part = 'c'",
            "i IS NULL OR id % 1000 = 0",
        ] {
            let (plan, _) = pair.check(&format!("SELECT * FROM p WHERE {filter}")).await;
            assert_eq!(count_nodes(&plan, "FilterExec"), 0, "{filter}");
            pair.check(&format!("SELECT part, count(*) FROM p WHERE {filter} GROUP BY part")).await;
        }
        pair.check(
            "SELECT x.id, y.part FROM p x JOIN p y ON x.part = y.part AND x.id = y.id WHERE x.id < 20",
        )
        .await;
        pair.check("SELECT x.id FROM p x JOIN p y ON x.i = y.id WHERE y.t = 't1'").await;
    });
}

/// By the table's types the column can be filtered by, by the file's it cannot.
#[test]
fn a_filter_that_a_file_cannot_evaluate_is_refused() {
    run(async {
        let folder = TempDir::new().expect("a folder");
        let series = "FROM generate_series(1, 3000) AS g(n)";
        file(folder.path(), "lists", &format!("SELECT [n] AS c, n AS x {series}")).await;
        let engine = Engine::new(None, 2);
        let place = folder.path().join("lists.parquet");
        let sql = format!(
            "CREATE EXTERNAL TABLE t (c VARCHAR, x BIGINT) STORED AS PARQUET LOCATION '{}'",
            place.display()
        );
        engine.context.sql(&sql).await.expect(&sql);
        let count = async |sql: &str| {
            let plan = planned(&engine.context, sql).await.expect(sql);
            engine.collect(&plan).await.map(|rows| integers(&rows, 0)[0])
        };
        assert_eq!(count("SELECT count(*) FROM t WHERE x <= 10").await.expect("a count"), Some(10));
        let error = count("SELECT count(*) FROM t WHERE c = 'no' AND x % 2 = 0")
            .await
            .expect_err("nothing is left out");
        assert!(error.to_string().contains("cannot be evaluated on one of the files"), "{error}");
    });
}

#[test]
fn orders_that_rest_on_constants_last() {
    run(async {
        let folder = TempDir::new().expect("a folder");
        let sorted = "SELECT n / 100 AS a, n % 100 / 10 AS b, n AS id FROM generate_series(1, 20000) AS g(n) ORDER BY a, b, id";
        file(folder.path(), "sorted", sorted).await;
        let pair = Pair::new(None);
        pair.table("sorted", &folder.path().join("sorted.parquet"), "WITH ORDER (a, b, id)").await;
        for sql in [
            "SELECT b, id FROM sorted WHERE a = 50 ORDER BY b, id",
            "SELECT id FROM sorted WHERE a = 50 AND b = 3 AND id % 2 = 0 ORDER BY id",
            "SELECT id, sum(id) OVER (PARTITION BY a ORDER BY b, id) FROM sorted WHERE a = 7 AND id > 0 ORDER BY b, id",
            "SELECT b, count(*) FROM sorted WHERE a = 50 GROUP BY b ORDER BY b",
            // Only one value is left of a range.
            "SELECT id, sum(id) OVER (ORDER BY b, id) FROM sorted WHERE a >= 50 AND a < 51 ORDER BY b, id",
            "SELECT id FROM sorted WHERE a BETWEEN 50 AND 50 AND id % 3 = 1 ORDER BY b, id",
            "SELECT b, id FROM sorted WHERE a = b AND a = 3 ORDER BY id",
        ] {
            let right = pair.plain.sql(sql).await.expect(sql).collect().await.expect(sql);
            let plan = planned(&pair.ours.context, sql).await.expect(sql);
            let ours = pair.ours.collect(&plan).await.expect(sql);
            assert_eq!(integers(&ours, 0), integers(&right, 0), "{sql}");
            assert!(row_count(&right) > 0, "{sql}");
        }
    });
}
