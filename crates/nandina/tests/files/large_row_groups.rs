//! Parquet files whose row groups are larger than the memory limit: windows of their rows, the same answers.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray as _, Float64Array, Int32Array, Int64Array, ListArray, RecordBatch, StringArray,
};
use arrow::datatypes::{Int32Type, Int64Type};
use arrow::util::pretty::pretty_format_batches;
use nandina::{Database, Options, Session};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::{
    EnabledStatistics, WriterProperties, WriterPropertiesBuilder, WriterVersion,
};

const ROWS: i64 = 100_000;
/// Of three row groups: two of `ROW_GROUP`, and one that is small enough.
const ROW_GROUP: usize = 49_000;

/// Row groups take 12 MB.
const SMALL: u64 = 8 << 20;
const LARGE: u64 = 2 << 30;

async fn session(limit: u64) -> Session {
    let options = Options { memory_limit: Some(limit), threads: Some(2), ..Options::default() };
    let session = Database::in_memory(options).unwrap().session().unwrap();
    session.run("SET datafusion.optimizer.repartition_file_min_size = 0").await.unwrap();
    session
}

fn hashed(number: i64) -> u64 {
    (number as u64 + 1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(29)
        .wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Rising numbers, few numbers with nulls, doubles of which one is NaN, texts of two hundred bytes and of very
/// different lengths.
fn rows(from: i64, to: i64) -> RecordBatch {
    let numbers = || from..to;
    let id: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers()));
    let few = numbers().map(|i| (!hashed(i).is_multiple_of(11)).then(|| (hashed(i) % 50) as i32));
    let double = numbers().map(|i| if i == 31_000 { f64::NAN } else { (hashed(i) % 1_000) as f64 / 8.0 });
    let wide =
        numbers().map(|i| format!("{:016x}", hashed(i)).repeat(12) + &format!("{:016x}", hashed(i + 7)));
    let odd = numbers().map(|i| match hashed(i) % 1_000 {
        0 => Some(format!("{:x}", hashed(i)).repeat(600)),
        1..500 => Some(format!("{:x}", hashed(i) % 99)),
        _ => None,
    });
    RecordBatch::try_from_iter([
        ("id", id),
        ("few", Arc::new(Int32Array::from_iter(few)) as _),
        ("double", Arc::new(Float64Array::from_iter_values(double)) as _),
        ("wide", Arc::new(StringArray::from_iter_values(wide)) as _),
        ("odd", Arc::new(StringArray::from_iter(odd)) as _),
    ])
    .unwrap()
}

fn write(path: &Path, properties: WriterPropertiesBuilder, change: impl Fn(RecordBatch) -> RecordBatch) {
    let properties = properties.set_max_row_group_row_count(Some(ROW_GROUP)).build();
    let schema = change(rows(0, 1)).schema();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), schema, Some(properties)).unwrap();
    for from in (0..ROWS).step_by(5_000) {
        writer.write(&change(rows(from, from + 5_000))).unwrap();
    }
    let groups = writer.close().unwrap();
    let bytes: Vec<i64> = groups.row_groups().iter().map(|group| group.compressed_size()).collect();
    assert_eq!(bytes.len(), 3);
    assert!(bytes[0] > SMALL as i64 && bytes[2] < SMALL as i64 / 4, "{bytes:?}");
}

fn without_index() -> WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_offset_index_disabled(true)
        .set_statistics_enabled(EnabledStatistics::Chunk)
}

const QUERIES: &[&str] = &[
    "SELECT count(*), sum(id), count(few), count(odd), sum(length(odd)), max(wide), min(odd) FROM t",
    "SELECT count(*), max(double), min(double) FROM t WHERE double > 3",
    "SELECT * FROM t WHERE id IN (0, 1, 24999, 25000, 48999, 49000, 97999, 98000, 99999) ORDER BY id",
    "SELECT id, length(odd), wide FROM t WHERE few = 7 AND id BETWEEN 40000 AND 60000 ORDER BY wide LIMIT 20",
    "SELECT count(*), sum(id), max(wide) FROM t WHERE odd LIKE '%a%' AND few < 9",
    "SELECT few, count(*), sum(id), max(odd) FROM t GROUP BY few ORDER BY few",
    "SELECT count(*), sum(a.id), max(b.wide) FROM t a JOIN t b ON a.id = b.id - 30000 WHERE b.few <> 3",
    "SELECT id, wide FROM t ORDER BY wide DESC, id LIMIT 5 OFFSET 90000",
    "SELECT count(*) FROM t WHERE wide IN (SELECT wide FROM t WHERE few = 1)",
    "SELECT sum(id) FROM (SELECT id, wide, odd FROM t LIMIT 1000000)",
    "SELECT id FROM t WHERE double = 'NaN'",
    "SELECT * FROM t ORDER BY id LIMIT 3 OFFSET 48998",
];

async fn answer(session: &Session, sql: &str) -> String {
    let batches = session.sql(sql).await.unwrap().collect().await.unwrap();
    pretty_format_batches(&batches).unwrap().to_string()
}

/// Whether all answers from `file` are those that they are without a limit.
async fn assert_same_answers(file: &Path, rows: &str) {
    let (small, large) = (session(SMALL).await, session(LARGE).await);
    for session in [&small, &large] {
        session.run(&format!("CREATE VIEW t AS SELECT {rows} FROM '{}'", file.display())).await.unwrap();
    }
    for sql in QUERIES {
        let (ours, expected) = (answer(&small, sql).await, answer(&large, sql).await);
        assert_eq!(ours, expected, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_of_rows_follow_a_page_index() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("indexed.parquet");
    write(&file, WriterProperties::builder(), |rows| rows);
    assert_same_answers(&file, "*").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_of_rows_follow_page_headers() {
    let folder = tempfile::tempdir().unwrap();
    for (name, properties) in [
        ("v1.parquet", without_index()),
        ("v2.parquet", without_index().set_writer_version(WriterVersion::PARQUET_2_0)),
        ("small_pages.parquet", without_index().set_data_page_row_count_limit(700).set_write_batch_size(700)),
    ] {
        let file = folder.path().join(name);
        write(&file, properties, |rows| rows);
        assert_same_answers(&file, "*").await;
    }
}

/// `rows` with a list, which has other numbers of values than rows, in front.
fn with_list(rows: RecordBatch) -> RecordBatch {
    let list = (0..rows.num_rows()).map(|row| match row % 5 {
        0 => None,
        length => Some((0..length as i32 - 1).map(Some).collect::<Vec<_>>()),
    });
    let list: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(list));
    let names = rows.schema();
    let names = names.fields().iter().map(|field| field.name().as_str());
    let columns = [("list", list)].into_iter().chain(names.zip(rows.columns().iter().cloned()));
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_have_windows_unless_nothing_tells_the_rows_of_their_pages() {
    let folder = tempfile::tempdir().unwrap();
    let indexed = folder.path().join("indexed.parquet");
    write(&indexed, WriterProperties::builder(), with_list);
    assert_same_answers(&indexed, "*, array_length(list) AS items").await;

    let second = folder.path().join("second.parquet");
    write(&second, without_index().set_writer_version(WriterVersion::PARQUET_2_0), with_list);
    assert_same_answers(&second, "*, array_length(list) AS items").await;

    let plain = folder.path().join("plain.parquet");
    write(&plain, without_index(), with_list);
    let (small, large) = (session(SMALL).await, session(LARGE).await);
    let flat = format!("SELECT count(*), sum(id), max(wide) FROM '{}'", plain.display());
    assert_eq!(answer(&small, &flat).await, answer(&large, &flat).await, "the list is not read");
    let nested = format!("SELECT max(list), max(wide), max(odd) FROM '{}'", plain.display());
    let refused = small.sql(&nested).await.unwrap().collect().await.unwrap_err().to_string();
    assert!(refused.contains("one row group of") && refused.contains("plain.parquet"), "{refused}");
}

/// `rows` with texts that are long in the first rows of the large row groups alone.
fn with_early_texts(rows: RecordBatch) -> RecordBatch {
    let ids = rows.column(0).as_primitive::<Int64Type>().values().clone();
    let is_early = |id: usize| id < 2 * ROW_GROUP && id % ROW_GROUP < 4_000;
    let early = ids.iter().map(|&id| match is_early(id as usize) {
        true => (0..100).map(|part| format!("{:016x}", hashed(id * 100 + part))).collect(),
        false => "late".to_owned(),
    });
    let early: ArrayRef = Arc::new(StringArray::from_iter_values(early));
    let names = rows.schema();
    let names = names.fields().iter().map(|field| field.name().as_str());
    let columns = names.zip(rows.columns().iter().cloned()).chain([("early", early)]);
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
}

/// Cut by the rows of the largest column alone, one window would exceed the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_are_cut_by_the_pages_of_all_columns() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("early.parquet");
    let properties = WriterProperties::builder().set_dictionary_enabled(false);
    write(&file, properties, with_early_texts);
    assert_same_answers(&file, "*, length(early) AS characters").await;
    let (small, large) = (session(SMALL).await, session(LARGE).await);
    let sql = format!("SELECT count(*), max(wide), max(early), sum(length(odd)) FROM '{}'", file.display());
    assert_eq!(answer(&small, &sql).await, answer(&large, &sql).await);
}

/// What is wrong with a page is said by who reads it, and not by planning.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_page_headers_name_the_file_or_are_not_needed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("damaged.parquet");
    write(&file, without_index(), |rows| rows);
    let whole = std::fs::read(&file).unwrap();
    // The first column begins behind the magic number; its first header is damaged in every way in turn.
    for at in 4..24 {
        for flip in [0x01, 0x04, 0x10, 0x80] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            std::fs::write(&file, bytes).unwrap();
            let small = session(SMALL).await;
            let explained = small.sql(&format!("EXPLAIN SELECT id, wide FROM '{}'", file.display())).await;
            explained.unwrap().collect().await.unwrap();
            let sum = format!("SELECT sum(id), max(wide), max(odd) FROM '{}'", file.display());
            if let Err(error) = small.sql(&sum).await.unwrap().collect().await {
                let error = error.to_string();
                assert!(
                    error.contains("damaged.parquet") && !error.contains("defect"),
                    "{at}, {flip}: {error}"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_may_have_files_of_both_kinds() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.parquet"), WriterProperties::builder(), |rows| rows);
    write(&folder.path().join("b.parquet"), without_index(), |rows| rows);
    assert_same_answers(folder.path(), "*").await;
}
