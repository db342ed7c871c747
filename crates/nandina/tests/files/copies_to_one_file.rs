//! `COPY … TO 'one.file'` in every format: the rows, their order and types come back, at any limit.

use std::fs::File;
use std::path::Path;

use arrow::util::pretty::pretty_format_batches;
use nandina::{Database, Options, Session};
use parquet::file::reader::{FileReader as _, SerializedFileReader};

fn session(memory_limit: u64) -> Session {
    let options = Options { memory_limit: Some(memory_limit), threads: Some(2), ..Options::default() };
    Database::in_memory(options).unwrap().session().unwrap()
}

async fn table(session: &Session, sql: &str) -> String {
    let rows = session.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")).collect().await;
    pretty_format_batches(&rows.unwrap_or_else(|error| panic!("{sql}: {error}"))).unwrap().to_string()
}

async fn copy(session: &Session, query: &str, path: &Path, options: &str) {
    session.run(&format!("COPY ({query}) TO '{}' {options}", path.display())).await.unwrap();
}

const ROWS: &str = "SELECT value AS i, nullif(md5(value::TEXT), md5('7')) AS s, value * 1.5 AS f, value % 3 = 0 AS b, \
                    DATE '2020-01-01' + value::INTEGER AS d, (value / 7)::DECIMAL(20, 3) AS n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_come_back_in_order_from_every_format() {
    let folder = tempfile::tempdir().unwrap();
    for limit in [16 << 20, 1 << 30] {
        let session = session(limit);
        let query = format!("{ROWS} FROM generate_series(1, 30000) AS series(value)");
        let sums = "count(*) AS c, count(s) AS s, sum(i) AS i, min(s) AS l, max(s) AS m, sum(f)::BIGINT AS f, \
                    count(*) FILTER (WHERE b) AS b, max(d) AS d, sum(n)::BIGINT AS n";
        let expected = table(&session, &format!("SELECT {sums} FROM ({query})")).await;
        for name in ["a.parquet", "a.csv", "a.json", "b.csv.gz", "b.json.zst", "c.csv.bz2", "c.csv.xz"] {
            let path = folder.path().join(name);
            let compression = ["gz", "bz2", "xz", "zst"].iter().find(|end| name.ends_with(*end));
            let options = compression.map_or(String::new(), |end| {
                let kind = match *end {
                    "gz" => "gzip",
                    "zst" => "zstd",
                    "bz2" => "bzip2",
                    other => other,
                };
                let format = if name.contains("csv") { "CSV" } else { "JSON" };
                format!("STORED AS {format} OPTIONS (format.compression {kind})")
            });
            copy(&session, &format!("{query} ORDER BY s DESC, i"), &path, &options).await;
            let file = path.display();
            let types = if name.contains("json") { "sum(i) AS i, min(s) AS l, max(s) AS m" } else { sums };
            let read = table(&session, &format!("SELECT {types} FROM '{file}'")).await;
            let expected = match name.contains("json") {
                true => table(&session, &format!("SELECT {types} FROM ({query})")).await,
                false => expected.clone(),
            };
            assert_eq!(read, expected, "{name} at {limit}");
            let places = "WHERE at IN (1, 2, 5000, 29999, 30000) ORDER BY at";
            let in_file = format!("SELECT i, row_number() OVER () AS at FROM '{file}'");
            let sorted = format!("SELECT i, row_number() OVER (ORDER BY s DESC, i) AS at FROM ({query})");
            // Several threads read several parts of a file at a time.
            session.run("SET threads = 1").await.unwrap();
            let found = table(&session, &format!("SELECT i FROM ({in_file}) {places}")).await;
            session.run("SET threads = 2").await.unwrap();
            let wanted = table(&session, &format!("SELECT i FROM ({sorted}) {places}")).await;
            assert_eq!(found, wanted, "the order of {name} at {limit}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nested_values_come_back_from_parquet_and_are_texts_in_csv() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(64 << 20);
    let query = "SELECT value AS i, CASE WHEN value % 5 > 0 THEN [value, NULL] END AS l, {'a': value, 'b': ['x', NULL]} AS o
                 FROM generate_series(1, 20000) AS series(value)";
    let parquet = folder.path().join("nested.parquet");
    copy(&session, query, &parquet, "OPTIONS (format.max_row_group_size 3000)").await;
    let all = |from: &str| format!("SELECT * FROM {from} ORDER BY i LIMIT 20 OFFSET 2990");
    let read = table(&session, &all(&format!("'{}'", parquet.display()))).await;
    assert_eq!(read, table(&session, &all(&format!("({query})"))).await);

    let csv = folder.path().join("nested.csv");
    copy(&session, &format!("{query} ORDER BY i"), &csv, "").await;
    let text = std::fs::read_to_string(&csv).unwrap();
    let lines: Vec<&str> = text.lines().take(6).collect();
    assert_eq!(lines[..2], ["i,l,o", "1,\"[1, NULL]\",\"{'a': 1, 'b': [x, NULL]}\""], "{lines:?}");
    assert_eq!(lines[5], "5,,\"{'a': 5, 'b': [x, NULL]}\"");
    assert_eq!(text.lines().count(), 20_001);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_groups_have_as_many_rows_as_they_may() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("groups.parquet");
    let session = session(1 << 30);
    let query = "SELECT value AS i FROM generate_series(1, 100000) AS series(value) ORDER BY i DESC";
    copy(&session, query, &path, "OPTIONS (format.max_row_group_size 30000)").await;
    let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
    let groups = reader.metadata().row_groups();
    let rows: Vec<i64> = groups.iter().map(|group| group.num_rows()).collect();
    assert_eq!(rows, [30_000, 30_000, 30_000, 10_000]);
    let order = groups[0].sorting_columns().expect("the footer says how rows are sorted");
    assert!(order[0].column_idx == 0 && order[0].descending);
}

/// Wide texts that cannot be compressed, of which all together are larger than the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_groups_end_where_memory_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bytes.parquet");
    let session = session(16 << 20);
    let texts: Vec<String> = (0..40).map(|n| format!("md5((value + {n})::TEXT) AS c{n}")).collect();
    let query = format!("SELECT {} FROM generate_series(1, 30000) AS series(value)", texts.join(", "));
    copy(&session, &query, &path, "").await;
    let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
    let groups = reader.metadata().row_groups();
    assert!(groups.len() > 10, "{} row groups", groups.len());
    assert_eq!(groups.iter().map(|group| group.num_rows()).sum::<i64>(), 30_000);
    let count =
        format!("SELECT count(*) AS a, count(DISTINCT c7) AS b, max(c39) AS c FROM '{}'", path.display());
    let made = format!("SELECT count(*) AS a, count(DISTINCT c7) AS b, max(c39) AS c FROM ({query})");
    assert_eq!(table(&session, &count).await, table(&session, &made).await);
}

/// Compressors of all columns together would be larger than the limit, and stay from a column's first page on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_groups_of_wide_files_end_before_pages_are_compressed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wide.parquet");
    let session = session(192 << 20);
    let numbers: Vec<String> = (0..600).map(|n| format!("value * {} AS c{n}", 1_000_003 + n)).collect();
    let query = format!("SELECT {} FROM generate_series(1, 9000) AS series(value)", numbers.join(", "));
    for batch_rows in [256, 8192] {
        session.run(&format!("SET batch_size = {batch_rows}")).await.unwrap();
        copy(&session, &query, &path, "").await;
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let groups = reader.metadata().row_groups();
        assert_eq!(groups.iter().map(|group| group.num_rows()).sum::<i64>(), 9000);
        let chunks = groups.iter().flat_map(|group| group.columns());
        let widest = chunks.map(|chunk| chunk.uncompressed_size()).max();
        assert!(
            widest.is_some_and(|bytes| bytes < 32 << 10),
            "{widest:?} bytes in batches of {batch_rows} rows"
        );
        // Nor much earlier: many small row groups are read slowly.
        assert!(groups.len() < 10, "{} row groups in batches of {batch_rows} rows", groups.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_rows_make_a_file_with_columns() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(64 << 20);
    let query = format!("{ROWS} FROM generate_series(1, 10) AS series(value) WHERE value < 0");
    for name in ["none.parquet", "none.csv", "none.json"] {
        copy(&session, &query, &folder.path().join(name), "").await;
    }
    assert_eq!(std::fs::read_to_string(folder.path().join("none.csv")).unwrap(), "i,s,f,b,d,n\n");
    assert_eq!(std::fs::read(folder.path().join("none.json")).unwrap(), b"");
    let file = folder.path().join("none.parquet");
    let read =
        table(&session, &format!("SELECT count(*) AS a, max(s) AS b, max(n) AS c FROM '{}'", file.display()))
            .await;
    assert_eq!(
        read,
        table(&session, &format!("SELECT count(*) AS a, max(s) AS b, max(n) AS c FROM ({query})")).await
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_leave_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(64 << 20);
    for name in ["old.parquet", "old.csv", "old.json"] {
        let path = folder.path().join(name);
        copy(&session, "SELECT 1 AS x", &path, "").await;
        let before = std::fs::read(&path).unwrap();
        let late = "SELECT 1 / (value - 90000) AS x FROM generate_series(1, 100000) AS series(value)";
        let failed = session.run(&format!("COPY ({late}) TO '{}'", path.display())).await.unwrap_err();
        assert!(failed.to_string().to_lowercase().contains("zero"), "{failed}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3, "nothing unfinished is left");
}

/// Names that are no paths, and plans that are explained, are not written under a provisional name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_are_read_are_not_emptied_before() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(64 << 20);
    for name in ["a.csv", "a.json", "a.parquet"] {
        let path = folder.path().join(name);
        copy(&session, "SELECT value AS x FROM generate_series(1, 5000) AS series(value)", &path, "").await;
        let file = path.display();
        for statement in [
            format!("EXPLAIN ANALYZE COPY (SELECT x FROM '{file}' WHERE x > 10) TO '{file}'"),
            format!("COPY (SELECT x FROM '{file}' WHERE x > 20) TO 'file://{file}'"),
            format!("COPY (SELECT x FROM '{file}' WHERE x > 30) TO '{file}'"),
        ] {
            session.run(&statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
        let left = table(&session, &format!("SELECT count(*) AS n, min(x) AS x FROM '{file}'")).await;
        assert_eq!(left, table(&session, "SELECT 4970 AS n, 31 AS x").await, "{name}");
    }
}

#[tokio::test]
async fn a_copy_that_does_not_say_its_format_is_told_how() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(64 << 20);
    for (end, problem) in [
        ("x'", "the name does not tell the format"),
        ("x.dat'", "'.dat' is the ending of no format"),
        ("x.csv' STORED AS xyz", "there is no format 'XYZ'"),
    ] {
        let sql = format!("COPY (SELECT 1 AS a) TO '{}/{end}", folder.path().display());
        let refused = session.run(&sql).await.unwrap_err().to_string();
        assert!(refused.contains(problem) && refused.contains("STORED AS CSV"), "{refused}");
        assert!(session.sql(&format!("EXPLAIN {sql}")).await.is_err());
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
