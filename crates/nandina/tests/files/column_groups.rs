//! Parquet files of so many columns that they are decoded in groups of columns: the same answers.

use std::fs;
use std::path::Path;

use arrow::array::AsArray as _;
use arrow::datatypes::Int64Type;
use arrow::util::pretty::pretty_format_batches;
use nandina::{Database, Options, Session};

/// With zstd, readers of so many columns take more than the program has beside its limit.
const COLUMNS: usize = 420;
const ROWS: usize = 3_000;

const SMALL: u64 = 24 << 20;
const LARGE: u64 = 2 << 30;

async fn session(limit: u64, threads: usize) -> Session {
    let options = Options { memory_limit: Some(limit), threads: Some(threads), ..Options::default() };
    let session = Database::in_memory(options).unwrap().session().unwrap();
    session.run("SET datafusion.optimizer.repartition_file_min_size = 0").await.unwrap();
    session
}

/// `k` from `from` on, and columns of all kinds with nulls.
fn rows(from: usize, columns: impl Iterator<Item = usize>) -> String {
    let column = |number: usize| {
        let value = match number % 6 {
            0 => format!("value * {number}"),
            1 => format!("value / {number}.5"),
            2 => format!("'text ' || (value * {number} % 50)"),
            3 => format!("[value + {number}, NULL, value]"),
            4 => format!("named_struct('a', value % {number}, 'b', 'x' || (value % 9))"),
            _ => format!("CAST(value AS DECIMAL(20, 3)) / {number}"),
        };
        format!(", CASE WHEN (value + {number}) % 13 > 0 THEN {value} END AS c{number}")
    };
    let to = from + ROWS - 1;
    format!(
        "SELECT value AS k{} FROM generate_series({from}, {to}) AS series(value)",
        columns.map(column).collect::<String>()
    )
}

/// Two files of three row groups each in folders, of which the second one has its columns in another order, lacks some
/// and has one of its own.
async fn write(folder: &Path) {
    let session = session(LARGE, 2).await;
    let write = |query: String, file: &str| {
        let path = folder.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let options = "OPTIONS ('format.max_row_group_size' '1100')";
        format!("COPY ({query}) TO '{}' {options}", path.display())
    };
    session.run(&write(rows(1, 1..COLUMNS), "part=one/a.parquet")).await.unwrap();
    let others = rows(ROWS + 1, (5..COLUMNS).rev())
        .replace("SELECT value AS k", "SELECT nullif(value, 4000) AS own, value AS k");
    session.run(&write(others, "part=two/b.parquet")).await.unwrap();
}

const QUERIES: &[&str] = &[
    "SELECT * FROM t WHERE k IN (1, 1100, 1101, 2200, 3000, 3001, 4100, 6000) ORDER BY k",
    "SELECT * FROM t ORDER BY c6 DESC, k LIMIT 7 OFFSET 2900",
    "SELECT part, k, c419, c2, c3 FROM (SELECT *, c1 + c7 AS computed FROM t) WHERE computed > 3000 ORDER BY k LIMIT 40",
    "SELECT a.*, b.c4 FROM t a JOIN (SELECT * FROM t WHERE k % 700 = 5) b ON a.k = b.k ORDER BY a.k",
    "SELECT count(*), max(k) FROM (SELECT * FROM t WHERE part = 'two' AND c8 > 'text 3')",
    "SELECT * FROM t WHERE k > 5990 AND c4['b'] = 'x3' ORDER BY k",
    "SELECT k, part FROM t WHERE k > 2995 AND k < 3005 ORDER BY k",
    "SELECT * FROM t WHERE k < 0",
    "SELECT *, c1 IS NULL AS computed FROM t WHERE k % 500 = 1 ORDER BY k",
    "SELECT *, input_file_name() AS file FROM t WHERE k IN (3000, 3001) ORDER BY k",
    "SELECT *, c4['a'] AS part_of_c4 FROM t WHERE k IN (3000, 3001) ORDER BY k",
];

async fn answer(session: &Session, sql: &str) -> String {
    let batches = session.sql(sql).await.unwrap().collect().await.unwrap();
    pretty_format_batches(&batches).unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_of_columns_give_the_same_answers() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path()).await;
    let large = session(LARGE, 2).await;
    let table = |options: &str| {
        format!(
            "CREATE EXTERNAL TABLE t STORED AS PARQUET PARTITIONED BY (part) LOCATION '{}'{options}",
            folder.path().display()
        )
    };
    large.run(&table("")).await.unwrap();
    for threads in [1, 4] {
        let small = session(SMALL, threads).await;
        small.run(&table("")).await.unwrap();
        let plan = answer(&small, "EXPLAIN SELECT * FROM t").await;
        assert!(plan.contains("ColumnGroupsExec"), "no groups of columns in {threads} threads");
        for sql in QUERIES {
            assert_eq!(answer(&small, sql).await, answer(&large, sql).await, "{threads} threads: {sql}");
        }
        // Some rows, whichever they are.
        let some = small.sql("SELECT * FROM t LIMIT 1234").await.unwrap().collect().await.unwrap();
        assert_eq!(some.iter().map(|batch| batch.num_rows()).sum::<usize>(), 1234);
        for batch in &some {
            let k = batch.column_by_name("k").unwrap().as_primitive::<Int64Type>();
            let six = batch.column_by_name("c6").unwrap().as_primitive::<Int64Type>();
            assert!(k.iter().zip(six).all(|(k, six)| six.is_none_or(|six| Some(six) == k.map(|k| k * 6))));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_columns_of_a_wide_file_are_decoded_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path()).await;
    let small = session(SMALL, 2).await;
    let file = folder.path().join("part=one/a.parquet");
    let plan = answer(&small, &format!("EXPLAIN SELECT k, c1, c2, c9 FROM '{}'", file.display())).await;
    assert!(!plan.contains("ColumnGroupsExec"), "{plan}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_structs_are_read_without_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let large = session(LARGE, 2).await;
    let structs = (0..COLUMNS).map(|number| format!("named_struct('a', value, 'b', value) AS s{number}"));
    let query = format!(
        "SELECT {} FROM generate_series(1, 1000) AS series(value)",
        structs.collect::<Vec<String>>().join(", ")
    );
    let file = folder.path().join("s.parquet");
    large.run(&format!("COPY ({query}) TO '{}'", file.display())).await.unwrap();
    let parts = (0..COLUMNS).map(|number| format!("s{number}['a']")).collect::<Vec<String>>().join(" + ");
    let small = session(SMALL, 2).await;
    let sql = format!("SELECT sum({parts}) AS total FROM '{}'", file.display());
    let plan = answer(&small, &format!("EXPLAIN {sql}")).await;
    assert!(!plan.contains("ColumnGroupsExec"), "{plan}");
    assert_eq!(answer(&small, &sql).await, answer(&large, &sql).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_and_bytes_count_once_though_they_are_read_in_groups() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path()).await;
    let file = folder.path().join("part=one/a.parquet");
    for limit in [SMALL, LARGE] {
        let session = session(limit, 2).await;
        let query = format!("EXPLAIN ANALYZE SELECT * FROM '{}'", file.display());
        let plan = answer(&session, &query).await;
        assert_eq!(plan.contains("ColumnGroupsExec"), limit == SMALL);
        // The scan is the last line of the plan, what it counted the one below.
        let counted =
            plan.lines().skip_while(|line| !line.contains("DataSourceExec")).nth(1).unwrap_or_default();
        let words: Vec<&str> = counted.split_whitespace().collect();
        let before =
            |unit: &str| words.iter().position(|word| *word == unit).and_then(|at| words.get(at - 1));
        assert_eq!(before("rows").copied(), Some("3,000"), "{counted}");
        let mib: f64 = words.iter().rev().find_map(|word| word.parse().ok()).expect("MiB scanned");
        let whole = fs::metadata(&file).unwrap().len() as f64 / f64::from(1 << 20);
        assert!((whole / 2.0..whole * 1.05).contains(&mib), "{whole} MiB, {counted}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_in_one_of_the_columns_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path()).await;
    let file = folder.path().join("part=one/a.parquet");
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes.iter_mut().skip(middle - 60_000).take(60_000).for_each(|byte| *byte ^= 0x5a);
    fs::write(&file, bytes).unwrap();
    let small = session(SMALL, 2).await;
    let read = small.sql(&format!("SELECT * FROM '{}'", file.display())).await.unwrap().collect().await;
    let error = read.unwrap_err().to_string();
    assert!(error.contains("a.parquet"), "{error}");
}
