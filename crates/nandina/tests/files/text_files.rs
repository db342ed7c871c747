//! Text files are read record by record, whatever is inside them, at any number of threads and under any limit.

use std::fmt::Write as _;
use std::path::Path;

use arrow::util::pretty::pretty_format_batches;
use nandina::{Database, Options, Session};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// A session under a limit, with so many threads, in which large files begin at a kilobyte.
async fn session(threads: usize, memory_limit: u64) -> Session {
    let options = Options { memory_limit: Some(memory_limit), ..Options::default() };
    let session = Database::in_memory(options).unwrap().session().unwrap();
    let settings =
        format!("SET threads = {threads}; SET datafusion.optimizer.repartition_file_min_size = 1024");
    session.run(&settings).await.unwrap();
    session
}

async fn table(session: &Session, sql: &str) -> String {
    let rows = session.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")).collect().await;
    pretty_format_batches(&rows.unwrap_or_else(|error| panic!("{sql}: {error}"))).unwrap().to_string()
}

async fn failure(session: &Session, sql: &str) -> String {
    match session.sql(sql).await {
        Err(error) => error.to_string(),
        Ok(query) => query.collect().await.unwrap_err().to_string(),
    }
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn line_breaks_inside_quotes_are_part_of_the_value() {
    let folder = tempfile::tempdir().unwrap();
    let rows = 20_000;
    let mut text = String::from("i,t\n");
    for row in 0..rows {
        writeln!(text, "{row},\"first{row}\nsecond, third\"").unwrap();
    }
    let path = write(folder.path(), "broken_lines.csv", &text);
    let sql = format!(
        "SELECT count(*) AS n, sum(i) AS s, count(DISTINCT t) AS d, min(length(t)) AS l,
         count(*) FILTER (WHERE t = concat('first', i, chr(10), 'second, third')) AS m FROM '{path}'"
    );
    let sum = rows * (rows - 1) / 2;
    for (threads, limit) in [(1, 64 << 20), (2, 64 << 20), (4, 16 << 20), (8, 256 << 20)] {
        let answer = table(&session(threads, limit).await, &sql).await;
        let expected = format!("| {rows} | {sum} | {rows} | 20 | {rows} |");
        assert!(answer.contains(&expected), "{threads} threads, {limit} bytes:\n{answer}");
    }
}

/// Fields as people have them, and as nobody should.
fn field() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[a-z]{1,6}",
        2 => "[a-z\",\n\r ]{1,8}x",
        1 => Just("\u{feff}x".to_owned()),
        1 => "[äß漢]{1,3}",
    ]
}

/// A field as text, quoted where it has to be, and sometimes where it has not.
fn quoted(field: &str, always: bool) -> String {
    if always || field.contains(['"', ',', '\n', '\r', ' ']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[test]
fn what_is_written_is_read() {
    let rows = prop::collection::vec((field(), field(), any::<bool>()), 1..300);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut runner = TestRunner::new(Config { cases: 40, ..Config::default() });
    let folder = tempfile::tempdir().unwrap();
    let test = |(rows, has_cr, threads): (Vec<(String, String, bool)>, bool, usize)| {
        let line_end = if has_cr { "\r\n" } else { "\n" };
        let mut text = format!("i,a,b{line_end}");
        // Repeated, so that there are many chunks.
        for round in 0..20 {
            for (row, (a, b, always)) in rows.iter().enumerate() {
                let (a, b) = (quoted(a, *always), quoted(b, false));
                write!(text, "{},{a},{b}{line_end}", round * rows.len() + row).unwrap();
            }
        }
        let path = write(folder.path(), "generated.csv", &text);
        let sql = format!("SELECT a, b FROM '{path}' ORDER BY i");
        let batches = runtime.block_on(async {
            session(threads, 16 << 20).await.sql(&sql).await.unwrap().collect().await.unwrap()
        });
        let mut found = Vec::new();
        for batch in &batches {
            let texts = |column: usize| {
                let column = arrow::compute::cast(batch.column(column), &arrow::datatypes::DataType::Utf8);
                let column = column.unwrap();
                let column = column.as_any().downcast_ref::<arrow::array::StringArray>().unwrap();
                column.iter().map(|text| text.unwrap().to_owned()).collect::<Vec<_>>()
            };
            found.extend(texts(0).into_iter().zip(texts(1)));
        }
        let once: Vec<_> = rows.iter().map(|(a, b, _)| (a.clone(), b.clone())).collect();
        prop_assert_eq!(found.len(), 20 * once.len());
        for (found, expected) in found.iter().zip(once.iter().cycle()) {
            prop_assert_eq!(found, expected);
        }
        Ok(())
    };
    runner.run(&(rows, any::<bool>(), 1..5_usize), test).unwrap();
}

#[tokio::test]
async fn columns_are_found_by_their_names_in_every_file() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "1.csv", "a,b\n1,x\n");
    write(folder.path(), "2.csv", "b,a\ny,2\n");
    write(folder.path(), "3.csv", "B,A\nz,2.5\n");
    let session = session(2, 64 << 20).await;
    let sql = format!("SELECT a, b FROM '{}' ORDER BY a", folder.path().display());
    let answer = table(&session, &sql).await;
    for row in ["| 1.0 | x |", "| 2.0 | y |", "| 2.5 | z |"] {
        assert!(answer.contains(row), "{answer}");
    }
    session.run("CREATE TABLE t (a DOUBLE, b TEXT)").await.unwrap();
    session.run(&format!("COPY t FROM '{}'", folder.path().join("2.csv").display())).await.unwrap();
    assert!(table(&session, "SELECT a, b FROM t").await.contains("| 2.0 | y |"));
    // With a list, by position.
    let listed = write(folder.path(), "3.csv", "a,b\nu,7\n");
    session.run(&format!("COPY t (b, a) FROM '{listed}'")).await.unwrap();
    assert!(table(&session, "SELECT a, b FROM t WHERE a = 7").await.contains("| 7.0 | u |"));
    let elsewhere = write(folder.path(), "3.csv", "b,x\n1,2\n");
    let message = failure(&session, &format!("COPY t FROM '{elsewhere}'")).await;
    assert!(message.contains("its columns are (b, x), not (a, b)"), "{message}");
    write(folder.path(), "3.csv", "B,A\nz,2.5\n");
    let external = format!(
        "CREATE EXTERNAL TABLE e (a DOUBLE, b TEXT) STORED AS CSV LOCATION '{}' OPTIONS ('format.has_header' 'true')",
        folder.path().display()
    );
    session.run(&external).await.unwrap();
    assert!(table(&session, "SELECT a, b FROM e ORDER BY a").await.contains("| 2.5 | z |"));

    let other = write(folder.path(), "4.csv", "a,c\n1,x\n");
    let message = failure(&session, &sql).await;
    assert!(message.contains("4.csv': its columns are (a, c), not (a, b)"), "{message}");
    std::fs::remove_file(&other).unwrap();
    write(folder.path(), "5.csv", "9,nothing\n");
    let message = failure(&session, &sql).await;
    assert!(message.contains("5.csv': its columns are (9, nothing), not (a, b)"), "{message}");
}

#[tokio::test]
async fn errors_in_csv_name_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = String::from("i,t\n");
    for row in 0..30_000 {
        writeln!(text, "{row},\"a\nb\"").unwrap();
    }
    let session = session(2, 16 << 20).await;
    for (ending, expected) in [
        ("x,y\n", "line 60002: column 'i': 'x' is not a BIGINT"),
        ("1,2,3\n", "line 60002: incorrect number of fields"),
        ("1\n", "line 60002: incorrect number of fields"),
        ("1,\"open\n2,x\n", "the record that begins in line 60002 ends inside quotes"),
    ] {
        let path = write(folder.path(), "bad.csv", &format!("{text}{ending}"));
        let message = failure(&session, &format!("SELECT sum(i), min(t) FROM '{path}'")).await;
        assert!(message.starts_with(&format!("file '{path}': {expected}")), "{message}");
    }
    // Among the records that types are inferred from, too.
    let path = write(folder.path(), "ragged.csv", &format!("i,t\n{}1,2,3\n", "1,2\n".repeat(15_000)));
    let message = failure(&session, &format!("SELECT * FROM '{path}'")).await;
    assert!(message.contains("ragged.csv") && message.contains("line 15002: "), "{message}");
    let path = folder.path().join("latin.csv");
    std::fs::write(&path, b"i,t\n1,a\n2,\xe4\n").unwrap();
    let message = failure(&session, &format!("SELECT * FROM '{}'", path.display())).await;
    assert!(message.contains("latin.csv") && message.contains("UTF-8"), "{message}");
}

#[tokio::test]
async fn what_is_empty_at_first_is_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("i,t,i\n{}7,end,8\n", "1,,2\n".repeat(30_000));
    let path = write(folder.path(), "late.csv", &text);
    let sql = format!("SELECT max(t) AS t, count(t) AS n, max(i_1) AS i FROM '{path}'");
    let answer = table(&session(2, 64 << 20).await, &sql).await;
    assert!(answer.contains("| end | 1 | 8 |"), "{answer}");
}

#[tokio::test]
async fn options_hold_in_every_chunk() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(2, 16 << 20).await;
    let mut text = String::from("# about \"a\ni;t\n");
    for row in 0..20_000 {
        writeln!(text, "{row};'a;''b\n{row}'\n# no \"record\"\n{row};none").unwrap();
    }
    let path = write(folder.path(), "options.csv", &text);
    let external = format!(
        "CREATE EXTERNAL TABLE e (i BIGINT, t TEXT) STORED AS CSV LOCATION '{path}' OPTIONS (
         'format.has_header' 'true', 'format.delimiter' ';', 'format.quote' '''', 'format.comment' '#',
         'format.null_regex' '^none$')"
    );
    session.run(&external).await.unwrap();
    let sql = "SELECT count(*) AS n, count(t) AS t, sum(i) AS s,
               count(*) FILTER (WHERE t = concat('a;''b', chr(10), i)) AS m FROM e";
    assert!(table(&session, sql).await.contains("| 40000 | 20000 | 399980000 | 20000 |"));
    assert!(table(&session, "SELECT i FROM e LIMIT 3").await.contains("| 0 |"));
    let both =
        external.replace("TABLE e", "TABLE f").replace("'format.c", "'format.terminator' '|', 'format.c");
    session.run(&both).await.unwrap();
    let message = failure(&session, "SELECT * FROM f").await;
    assert!(message.contains("comments or a terminator of their own, not both"), "{message}");
    let packed = folder.path().join("packed.csv.gz").display().to_string();
    let copy =
        format!("COPY (SELECT * FROM e) TO '{packed}' STORED AS CSV OPTIONS ('format.compression' 'gzip')");
    session.run(&copy).await.unwrap();
    let answer = table(&session, &format!("SELECT count(*) AS n, sum(i) AS s FROM '{packed}'")).await;
    assert!(answer.contains("| 40000 | 399980000 |"), "{answer}");
}

#[tokio::test]
async fn arrays_of_json_are_whole() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(2, 64 << 20).await;
    let whole = write(folder.path(), "whole.json", " [{\"a\": 1, \"b\": [1]},\n {\"a\": 2}] \n");
    assert!(
        table(&session, &format!("SELECT sum(a) AS s, count(b) AS n FROM '{whole}'"))
            .await
            .contains("| 3 | 1 |")
    );
    for text in [
        "[{\"a\": 1}, {\"a\": 2}",
        "[{\"a\": 1}, {\"a\": 2},",
        "[{\"a\": 1}, {\"a\": 2",
        "[{\"a\": 1}, {\"a\": [2]",
        "[{\"a\": 1}] [{\"a\": 2}]",
        "[{\"a\": 1}]\n{\"a\": 2}",
    ] {
        let path = write(folder.path(), "part.json", text);
        let message = failure(&session, &format!("SELECT sum(a) FROM '{path}'")).await;
        assert!(message.contains("part.json'"), "{text}: {message}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_folder_that_links_to_itself_is_read_once() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "1.csv", "a\n1\n");
    std::os::unix::fs::symlink(folder.path(), folder.path().join("again")).unwrap();
    let sql = format!("SELECT count(*) AS n FROM '{}'", folder.path().display());
    assert!(table(&session(2, 64 << 20).await, &sql).await.contains("| 1 |"));
}
