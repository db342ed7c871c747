//! Tables hold what was written: through lanes, statements, reopening, overwriting and dropping.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use crate::setup;

use std::sync::Barrier;

use arrow_array::RecordBatch;
use nandina_device::DeviceOptions;
use nandina_storage::*;
use setup::*;

#[test]
fn rows_come_back_in_order() {
    let store = Store::open(simulated().0, Mode::Write).unwrap();
    let table = create(&store, "t", 0..60_000);
    assert_eq!(table.rows(), 60_000);
    assert!(table.pages() > 20);
    assert_batches_equal(&read(&table), &rows(0..60_000));
}

#[test]
fn on_a_real_file_system() {
    let directory = tempfile::tempdir().unwrap();
    let device = nandina_device::Device::open(directory.path(), DeviceOptions::default()).unwrap();
    {
        let store = Store::open(device.clone(), Mode::Write).unwrap();
        create(&store, "t", 0..200_000);
    }
    let store = Store::open_path(directory.path(), Mode::Write).unwrap();
    let table = store.table("t").unwrap();
    assert_batches_equal(&read(&table), &rows(0..200_000));
    let options =
        ScanOptions { projection: Some(vec![3]), window_bytes: Some(64 << 10), ..Default::default() };
    assert_eq!(scan(&table, options).unwrap(), rows(0..200_000).project(&[3]).unwrap());
    store.drop_table("t").unwrap();
    assert_eq!(segment_files(&device).len(), 1, "a reader still has it");
    drop(table);
    assert_eq!(segment_files(&device), Vec::<String>::new());
}

#[test]
fn an_empty_table() {
    let (device, _) = simulated();
    let store = Store::open(device.clone(), Mode::Write).unwrap();
    let table = store.create_table(definition("t"), IfExists::Fail).unwrap();
    assert_eq!((table.rows(), table.pages()), (0, 0));
    assert_eq!(read(&table).num_rows(), 0);
    // A statement without rows changes nothing and leaves no file.
    let writer = table.writer(WriteMode::Append, WriteOptions::default()).unwrap();
    writer.lane().finish_blocking().unwrap();
    assert_eq!(writer.commit_blocking().unwrap(), CommitSummary::default());
    assert_eq!(segment_files(&device), Vec::<String>::new());
}

#[test]
fn statements_append_and_survive_reopening() {
    let (device, _) = simulated();
    let store = Store::open(device.clone(), Mode::Write).unwrap();
    let mut table = create(&store, "t", 0..5000);
    for statement in 0..10 {
        table = append(&table, 5000 + statement..5001 + statement);
    }
    assert_eq!(table.pages(), create(&store, "same", 0..5000).pages() + 10);
    drop((store, table));
    let store = Store::open(device, Mode::Write).unwrap();
    assert_eq!(store.table_names(), ["same", "t"]);
    assert_batches_equal(&read(&store.table("t").unwrap()), &rows(0..5010));
}

#[test]
fn a_small_statement_makes_a_small_file() {
    let (device, _) = simulated();
    let store = Store::open(device, Mode::Write).unwrap();
    let table = store.create_table(definition("t").with_page_bytes(4 << 20), IfExists::Fail).unwrap();
    let table = append(&table, 0..1);
    assert!(table.file_bytes() <= 24 << 10, "{} bytes", table.file_bytes());
    assert_batches_equal(&read(&table), &rows(0..1));
}

#[test]
fn lanes_write_side_by_side() {
    let store = Store::open(simulated().0, Mode::Write).unwrap();
    let writer =
        store.create_table_with_rows(definition("t"), IfExists::Fail, WriteOptions::default()).unwrap();
    std::thread::scope(|scope| {
        for lane in 0..4 {
            let writer = &writer;
            scope.spawn(move || write(writer, lane * 50_000..(lane + 1) * 50_000));
        }
    });
    assert_eq!(writer.rows(), 200_000);
    let summary = writer.commit_blocking().unwrap();
    assert_eq!(summary.rows, 200_000);
    let table = store.table("t").unwrap();
    assert_eq!(table.rows(), 200_000);
    let mut found = keys(&read(&table));
    found.sort_unstable();
    assert_eq!(found, (0..200_000).collect::<Vec<_>>());
}

#[test]
fn lanes_that_end_at_once_become_one_page() {
    let store = Store::open(simulated().0, Mode::Write).unwrap();
    for statement in 0..50 {
        let name = format!("t{statement}");
        let writer =
            store.create_table_with_rows(definition(&name), IfExists::Fail, WriteOptions::default()).unwrap();
        let all_have_written = Barrier::new(8);
        std::thread::scope(|scope| {
            for number in 0..8 {
                let (mut lane, all_have_written) = (writer.lane(), &all_have_written);
                scope.spawn(move || {
                    lane.append_blocking(&rows(number * 5..number * 5 + 5)).unwrap();
                    all_have_written.wait();
                    lane.finish_blocking().unwrap();
                });
            }
        });
        assert_eq!(writer.rows(), 40);
        let summary = writer.commit_blocking().unwrap();
        assert_eq!((summary.rows, summary.pages), (40, 1));
        let mut found = keys(&read(&store.table(&name).unwrap()));
        found.sort_unstable();
        assert_eq!(found, (0..40).collect::<Vec<_>>());
    }
}

#[test]
fn readers_share_the_work() {
    let store = Store::open(simulated().0, Mode::Write).unwrap();
    let mut table = create(&store, "t", 0..100_000);
    for statement in 1..20 {
        table = append(&table, statement * 100_000..statement * 100_000 + 1000);
    }
    let scan = table.scan(ScanOptions { projection: Some(vec![0]), ..Default::default() }).unwrap();
    let batches: Vec<Vec<RecordBatch>> = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let mut reader = scan.reader();
                scope.spawn(move || {
                    std::iter::from_fn(|| reader.next_blocking()).map(Result::unwrap).collect()
                })
            })
            .collect();
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    let mut found: Vec<i64> = batches.iter().flatten().flat_map(keys).collect();
    found.sort_unstable();
    assert_eq!(found, keys(&read(&table)));
    assert_eq!(found.len(), 119_000);
    assert_eq!(scan.figures().rows, 119_000);
}

#[test]
fn an_abandoned_lane_spoils_the_commit() {
    let (device, _) = simulated();
    let store = Store::open(device.clone(), Mode::Write).unwrap();
    let table = create(&store, "t", 0..10);
    let writer = table.writer(WriteMode::Append, WriteOptions::default()).unwrap();
    let mut lane = writer.lane();
    lane.append_blocking(&rows(10..20)).unwrap();
    drop(lane);
    let message = writer.commit_blocking().unwrap_err().to_string();
    assert!(message.starts_with("a lane of the writer of table \"t\" was given up"), "{message}");
    assert_eq!(segment_files(&device).len(), 1);
}

#[test]
fn an_aborted_writer_leaves_nothing() {
    let (device, _) = simulated();
    let store = Store::open(device.clone(), Mode::Write).unwrap();
    let writer =
        store.create_table_with_rows(definition("t"), IfExists::Fail, WriteOptions::default()).unwrap();
    write(&writer, 0..50_000);
    assert_eq!(segment_files(&device).len(), 1);
    writer.abort();
    assert_eq!(segment_files(&device), Vec::<String>::new());
    assert!(!store.has_table("t"));
}

#[test]
fn snapshots_keep_what_they_saw() {
    let (device, _) = simulated();
    let store = Store::open(device.clone(), Mode::Write).unwrap();
    let before = create(&store, "t", 0..1000);
    let writer = before.writer(WriteMode::Overwrite, WriteOptions::default()).unwrap();
    write(&writer, 7000..7010);
    writer.commit_blocking().unwrap();
    assert_eq!(read(&before).num_rows(), 1000);
    let after = before.store().table(before.name()).unwrap();
    assert_batches_equal(&read(&after), &rows(7000..7010));
    assert_eq!(segment_files(&device).len(), 2);
    drop(before);
    assert_eq!(segment_files(&device).len(), 1);
}

#[test]
fn a_snapshot_sees_all_tables_at_one_time() {
    let (device, _) = simulated();
    let store = Store::open(device, Mode::Write).unwrap();
    let tables = [create(&store, "a", 0..10), create(&store, "b", 0..10)];
    let snapshot = store.snapshot();
    for table in &tables {
        append(table, 10..20);
    }
    store.drop_table("a").unwrap();
    for table in ["a", "b"] {
        assert_eq!(read(&snapshot.table(table).unwrap()).num_rows(), 10);
    }
    assert!(store.snapshot().table("a").is_err());
    assert_eq!(read(&store.snapshot().table("b").unwrap()).num_rows(), 20);
}

#[test]
fn overwriting_with_nothing_empties_the_table() {
    let (device, _) = simulated();
    let store = Store::open(device.clone(), Mode::Write).unwrap();
    let writer = create(&store, "t", 0..10).writer(WriteMode::Overwrite, WriteOptions::default()).unwrap();
    writer.commit_blocking().unwrap();
    assert_eq!(store.table("t").unwrap().rows(), 0);
    assert_eq!(segment_files(&device), Vec::<String>::new());
}

#[test]
fn replacing_a_table() {
    let (device, _) = simulated();
    let store = Store::open(device.clone(), Mode::Write).unwrap();
    let old = create(&store, "t", 0..1000);
    let replacing =
        store.create_table_with_rows(definition("t"), IfExists::Replace, WriteOptions::default()).unwrap();
    // A statement that started on the old table finds it gone.
    let late = old.writer(WriteMode::Append, WriteOptions::default()).unwrap();
    write(&late, 0..5);
    write(&replacing, 5..10);
    replacing.commit_blocking().unwrap();
    let message = late.commit_blocking().unwrap_err().to_string();
    assert!(
        message.starts_with("table \"t\" was dropped or replaced while rows were being written"),
        "{message}"
    );
    assert_batches_equal(&read(&store.table("t").unwrap()), &rows(5..10));
    drop(old);
    assert_eq!(segment_files(&device).len(), 1);
}

#[test]
fn names_and_values_are_checked() {
    let store = Store::open(simulated().0, Mode::Write).unwrap();
    create(&store, "Orders", 0..10);
    let message = store.table("orders").unwrap_err().to_string();
    assert_eq!(
        message,
        "there is no table \"orders\", but there is \"Orders\": names are told apart by case"
    );
    let message = store.create_table(definition("Orders"), IfExists::Fail).unwrap_err().to_string();
    assert!(message.starts_with("table \"Orders\" exists already"), "{message}");
    let odd = definition("odd").with_page_bytes(100_000);
    let message = store.create_table(odd, IfExists::Fail).unwrap_err().to_string();
    assert!(message.starts_with("page size 100000 cannot be used"), "{message}");
    let writer = store.table("Orders").unwrap().writer(WriteMode::Append, WriteOptions::default()).unwrap();
    let mut lane = writer.lane();
    let message = lane.append_blocking(&rows(0..1).project(&[0]).unwrap()).unwrap_err().to_string();
    assert!(message.ends_with("1 columns given, 5 expected"), "{message}");
    let columns = rows(0..3).columns().to_vec();
    let nullable: Vec<_> =
        schema().fields().iter().map(|field| field.as_ref().clone().with_nullable(true)).collect();
    let nulls = std::sync::Arc::new(arrow_array::Int64Array::from(vec![Some(1), None, Some(3)]));
    let columns = [vec![nulls as arrow_array::ArrayRef], columns[1..].to_vec()].concat();
    let batch =
        RecordBatch::try_new(std::sync::Arc::new(arrow_schema::Schema::new(nullable)), columns).unwrap();
    let message = lane.append_blocking(&batch).unwrap_err().to_string();
    assert!(message.contains("column \"key\" is NOT NULL"), "{message}");
}

#[test]
fn values_longer_than_pages() {
    let store = Store::open(simulated().0, Mode::Write).unwrap();
    let writer =
        store.create_table_with_rows(definition("t"), IfExists::Fail, WriteOptions::default()).unwrap();
    let mut lane = writer.lane();
    // Values that no encoding makes shorter than pages.
    let long = |row: i64| {
        let words = if row % 10 == 3 { 400_000 } else { row as u64 };
        (0..=words)
            .map(|word| format!("{:016x}", word.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
            .collect::<String>()
    };
    let batch = |row: i64| {
        let columns = rows(row..row + 1).columns().to_vec();
        let text = std::sync::Arc::new(arrow_array::StringArray::from(vec![long(row)]));
        let columns = [columns[..3].to_vec(), vec![text], columns[4..].to_vec()].concat();
        RecordBatch::try_new(schema(), columns).unwrap()
    };
    (0..40).for_each(|row| lane.append_blocking(&batch(row)).unwrap());
    lane.finish_blocking().unwrap();
    writer.commit_blocking().unwrap();
    let table = store.table("t").unwrap();
    let expected =
        arrow_select::concat::concat_batches(&schema(), &(0..40).map(batch).collect::<Vec<_>>()).unwrap();
    assert_batches_equal(&read(&table), &expected);
    let with_ids =
        scan(&table, ScanOptions { row_ids: Some("row_id".into()), ..Default::default() }).unwrap();
    let ids: Vec<RowId> =
        arrow_array::cast::AsArray::as_primitive::<arrow_array::types::UInt64Type>(with_ids.column(5))
            .values()
            .iter()
            .map(|&bits| RowId::from_bits(bits))
            .collect();
    // Page numbers go on by the slots that an oversized page takes up.
    assert!(ids[39].page().0 > 4 * 100);
    let fetched = table.fetch_blocking(&[ids[33], ids[2]], &[0, 3], &FetchOptions::default()).unwrap();
    let expected = arrow_select::concat::concat_batches(&schema(), &[batch(33), batch(2)]).unwrap();
    assert_eq!(fetched, expected.project(&[0, 3]).unwrap());
}

/// Rows whose comment is as given.
fn with_comments(keys: std::ops::Range<i64>, comment: impl Fn(i64) -> String) -> RecordBatch {
    let columns = rows(keys.clone()).columns().to_vec();
    let comments = arrow_array::StringArray::from_iter_values(keys.map(comment));
    let columns =
        [columns[..3].to_vec(), vec![std::sync::Arc::new(comments)], columns[4..].to_vec()].concat();
    RecordBatch::try_new(schema(), columns).unwrap()
}

#[test]
fn rows_that_suddenly_take_more_or_less_room() {
    let noise = |key: i64, words: u64| -> String {
        let word = |word: u64| (key as u64 * 1000 + word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (0..words).map(|number| format!("{:016x}", word(number))).collect()
    };
    let same = |_: i64| "the same for all".to_owned();
    let batches = [
        with_comments(0..20_000, same),
        with_comments(20_000..22_000, |key| noise(key, 40)),
        with_comments(22_000..22_003, |key| noise(key, 50_000)),
        with_comments(22_003..60_000, same),
        with_comments(60_000..60_010, |key| noise(key, if key % 5 == 0 { 100_000 } else { 0 })),
        with_comments(60_010..61_000, |key| noise(key, 3)),
    ];
    let expected = arrow_select::concat::concat_batches(&schema(), &batches).unwrap();
    let store = Store::open(simulated().0, Mode::Write).unwrap();
    // All in one batch, and each by itself: what is staged again comes from one or from several.
    for (name, batches) in [("one", vec![expected.clone()]), ("many", batches.to_vec())] {
        let definition = definition(name);
        let writer =
            store.create_table_with_rows(definition, IfExists::Fail, WriteOptions::default()).unwrap();
        let mut lane = writer.lane();
        batches.iter().for_each(|batch| lane.append_blocking(batch).unwrap());
        lane.finish_blocking().unwrap();
        writer.commit_blocking().unwrap();
        let table = store.table(name).unwrap();
        assert_batches_equal(&read(&table), &expected);
        // Bounds are those of the rows that a page got in the end.
        for least in [0, 19_999, 20_500, 22_001, 22_002, 40_000, 60_005, 60_999] {
            let pruner = std::sync::Arc::new(KeyAtLeast(least));
            let found = scan(&table, ScanOptions { pruner: Some(pruner), ..Default::default() }).unwrap();
            let found: Vec<i64> = keys(&found).into_iter().filter(|&key| key >= least).collect();
            assert_eq!(found, (least..61_000).collect::<Vec<_>>(), "{name}, from {least} on");
        }
    }
}

#[derive(Debug)]
struct KeyAtLeast(i64);

impl PagePruner for KeyAtLeast {
    fn columns(&self) -> Vec<usize> {
        vec![0]
    }

    fn keep(&self, ranges: &PageRanges) -> Option<Vec<bool>> {
        use arrow_array::cast::AsArray;
        let max = ranges.column(0)?.max.as_primitive::<arrow_array::types::Int64Type>();
        Some(max.values().iter().map(|&max| max >= self.0).collect())
    }
}

#[test]
#[ignore = "takes 4 GiB of memory"]
fn a_value_of_one_gigabyte() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open_path(directory.path(), Mode::Write).unwrap();
    let writer =
        store.create_table_with_rows(definition("t"), IfExists::Fail, WriteOptions::default()).unwrap();
    let columns = rows(0..1).columns().to_vec();
    let text = std::sync::Arc::new(arrow_array::StringArray::from(vec!["x".repeat(1 << 30)]));
    let columns = [columns[..3].to_vec(), vec![text], columns[4..].to_vec()].concat();
    let batch = RecordBatch::try_new(schema(), columns).unwrap();
    let mut lane = writer.lane();
    lane.append_blocking(&rows(0..10)).unwrap();
    lane.append_blocking(&batch).unwrap();
    lane.append_blocking(&rows(10..20)).unwrap();
    lane.finish_blocking().unwrap();
    writer.commit_blocking().unwrap();
    let table = store.table("t").unwrap();
    let scan = table.scan(ScanOptions::default()).unwrap();
    let mut reader = scan.reader();
    let mut batches: Vec<RecordBatch> =
        std::iter::from_fn(|| reader.next_blocking()).map(Result::unwrap).collect();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [10, 1, 10]);
    assert!(batches.remove(1) == batch);
}
