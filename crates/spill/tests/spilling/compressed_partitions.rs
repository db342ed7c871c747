//! Compressed pages come back as they were, beside others and whatever they hold; what is damaged or does not fit is
//! said.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use std::sync::Arc;

use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Decimal128Array, DictionaryArray, FixedSizeBinaryArray,
    Float64Array, Int8Array, Int64Array, LargeStringArray, ListArray, NullArray, RecordBatch, StringArray,
    StringViewArray, StructArray, TimestampMicrosecondArray, UInt16Array,
};
use nandina_device::{Device, FileClass, OpenMode, Request};
use nandina_pages::PageSchema;
use nandina_simulation::{FaultPlan, Simulation};
use nandina_spill::{
    Compression, Partition, Partitioner, PartitionerOptions, QuerySpace, Scatter, SpillError, TempOptions,
    TempSpace,
};
use proptest::prelude::*;

struct Setting {
    space: Arc<TempSpace>,
    query: Arc<QuerySpace>,
    device: Device,
    faults: Simulation,
}

fn setting(compression: Compression, quota_bytes: Option<u64>) -> Setting {
    let (device, faults) = nandina_simulation::in_memory(FaultPlan::none());
    let options = TempOptions { compression, quota_bytes, ..TempOptions::default() };
    let space = TempSpace::open(device.clone(), options).expect("a temporary space");
    let query = space.query("test");
    Setting { space, query, device, faults }
}

/// One partition, of pages of 16 KiB.
fn partitioner(batch: &RecordBatch, query: &Arc<QuerySpace>) -> Partitioner {
    let options = PartitionerOptions {
        partition_bits: 0,
        page_bytes: 16 << 10,
        max_page_rows: 8192,
        ring_pages: 4,
        extent_bytes: 256 << 10,
    };
    let schema = PageSchema::try_new(batch.schema()).expect("a page schema");
    Partitioner::new(schema, options, Arc::clone(query))
}

fn push(partitioner: &Partitioner, batch: &RecordBatch) -> nandina_spill::Result<()> {
    let mut scatter = Scatter::default();
    scatter.to_partition(0, batch.num_rows(), 0);
    partitioner.push(batch, &scatter)
}

fn finish(partitioner: &Partitioner) -> nandina_spill::Result<Partition> {
    let mut partitions = partitioner.finish()?;
    partitioner.drain_to_blocking(0)?;
    Ok(partitions.pop().expect("one partition"))
}

/// Batches of the partition's pages, read with a window of so many bytes.
fn read(
    partition: &Partition,
    schema: &Arc<PageSchema>,
    window_bytes: usize,
) -> nandina_spill::Result<Vec<RecordBatch>> {
    let mut reader =
        partition.file.as_ref().expect("a spilled partition").read(Arc::clone(schema), window_bytes);
    let mut batches = Vec::new();
    while let Some(page) = reader.next_blocking()? {
        batches.push(page.batch(None)?);
    }
    Ok(batches)
}

fn joined(batches: &[RecordBatch]) -> RecordBatch {
    let columns = (0..batches[0].num_columns()).map(|column| {
        let arrays: Vec<&dyn arrow_array::Array> =
            batches.iter().map(|batch| batch.column(column).as_ref()).collect();
        arrow_select::concat::concat(&arrays).unwrap()
    });
    RecordBatch::try_new(batches[0].schema(), columns.collect()).unwrap()
}

/// Numbers that hardly repeat (`noise` of every hundred rows) among those that do, and a column of every kind.
fn batch(first: i64, rows: i64, noise: i64) -> RecordBatch {
    let numbers = || first..first + rows;
    let mixed = |row: i64| (row.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64)).rotate_left(31) ^ row;
    let noisy = |row: i64| if mixed(row).rem_euclid(100) < noise { mixed(row) } else { row % 16 };
    let words = |row: i64| (row % 11 != 0).then(|| format!("{}-{}", noisy(row), "word ".repeat(3)));
    let longs: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers().map(noisy)));
    let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(
        numbers().map(|row| (row % 5 != 0).then(|| (0..row % 4).map(Some).collect::<Vec<_>>())),
    );
    let dictionary: DictionaryArray<Int32Type> =
        numbers().map(|row| ["red", "green", "blue"][row.rem_euclid(3) as usize]).collect();
    let decimals = Decimal128Array::from_iter_values(numbers().map(|row| i128::from(noisy(row))));
    let times = TimestampMicrosecondArray::from_iter(numbers().map(|row| (row % 2 == 0).then_some(row)));
    let fixed = FixedSizeBinaryArray::try_from_iter(numbers().map(|row| noisy(row).to_be_bytes())).unwrap();
    let structs = StructArray::try_from(vec![("inner", Arc::clone(&longs))]).unwrap();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("longs", longs),
        ("bytes", Arc::new(Int8Array::from_iter(numbers().map(|row| (row % 3 != 0).then_some(row as i8))))),
        ("shorts", Arc::new(UInt16Array::from_iter_values(numbers().map(|row| row as u16)))),
        ("floats", Arc::new(Float64Array::from_iter_values(numbers().map(|row| noisy(row) as f64)))),
        ("booleans", Arc::new(BooleanArray::from_iter(numbers().map(|row| Some(row % 3 == 0))))),
        ("decimals", Arc::new(decimals)),
        ("times", Arc::new(times)),
        ("texts", Arc::new(StringArray::from_iter(numbers().map(words)))),
        ("large_texts", Arc::new(LargeStringArray::from_iter(numbers().map(words)))),
        ("views", Arc::new(StringViewArray::from_iter(numbers().map(words)))),
        ("binary", Arc::new(BinaryArray::from_iter(numbers().map(words)))),
        ("fixed", Arc::new(fixed)),
        ("lists", Arc::new(lists)),
        ("structs", Arc::new(structs)),
        ("dictionary", Arc::new(dictionary)),
        ("nulls", Arc::new(NullArray::new(rows as usize))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)))
        .unwrap()
}

#[test]
fn all_types_come_back_with_every_setting() {
    for compression in Compression::ALL {
        for window_bytes in [64 << 10, 4 << 20] {
            let Setting { query, .. } = setting(compression, None);
            let batches: Vec<RecordBatch> = (0..20).map(|i| batch(i * 400, 400, 5)).collect();
            let partitioner = partitioner(&batches[0], &query);
            for (number, batch) in batches.iter().enumerate() {
                if number == 7 {
                    partitioner.spill(0).unwrap();
                }
                push(&partitioner, batch).unwrap();
            }
            let partition = finish(&partitioner).unwrap();
            let found = read(&partition, partitioner.schema(), window_bytes).unwrap();
            assert_eq!(joined(&found), joined(&batches), "{compression}");
            let (written, pages) = (query.io().statistics().bytes_written, query.spilled_page_bytes());
            assert_eq!(pages, partition.bytes());
            assert_eq!(
                written < pages,
                compression == Compression::On,
                "{compression}: {written} of {pages}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn packed_and_plain_pages_lie_in_one_file(
        turns in prop::collection::vec((1..600i64, prop_oneof![Just(0i64), Just(100)], any::<bool>()), 1..25),
        spilled_at in 0..10usize,
        small_window: bool,
    ) {
        let Setting { space, query, .. } = setting(Compression::On, None);
        let numbers = |noise| batch(0, 1, noise).project(&[0, 3, 7]).unwrap();
        let partitioner = partitioner(&numbers(0), &query);
        let mut batches = Vec::new();
        for (number, (rows, noise, compresses)) in turns.iter().enumerate() {
            if number == spilled_at {
                partitioner.spill(0).unwrap();
            }
            let compression = if *compresses { Compression::On } else { Compression::Off };
            space.set_compression(compression, 2);
            let batch = batch(number as i64 * 1000, *rows, *noise).project(&[0, 3, 7]).unwrap();
            push(&partitioner, &batch).unwrap();
            batches.push(batch);
        }
        partitioner.spill(0).unwrap();
        let partition = finish(&partitioner).unwrap();
        let window_bytes = if small_window { 64 << 10 } else { 1 << 20 };
        let found = read(&partition, partitioner.schema(), window_bytes).unwrap();
        prop_assert_eq!(joined(&found), joined(&batches));
        prop_assert_eq!(found.len(), partition.file.as_ref().unwrap().pages());
    }
}

#[test]
fn pages_that_do_not_shrink_are_written_as_they_are() {
    let Setting { query, .. } = setting(Compression::On, None);
    let noise = batch(0, 8000, 100).project(&[0, 3, 11]).unwrap();
    let partitioner = partitioner(&noise, &query);
    partitioner.spill(0).unwrap();
    push(&partitioner, &noise).unwrap();
    let partition = finish(&partitioner).unwrap();
    assert_eq!(query.io().statistics().bytes_written, partition.bytes());
    assert_eq!(joined(&read(&partition, partitioner.schema(), 1 << 20).unwrap()), noise);
}

#[test]
fn pages_held_by_others_are_packed_when_they_are_written() {
    let Setting { query, .. } = setting(Compression::On, None);
    let rows = batch(0, 6000, 0);
    let partitioner = partitioner(&rows, &query);
    push(&partitioner, &rows).unwrap();
    let pages = finish(&partitioner).unwrap().resident;
    let page_bytes: usize = pages.iter().map(|page| page.len_bytes()).sum();
    let mut file = nandina_spill::PartitionFile::new(Arc::clone(&query), 1 << 20);
    file.write_blocking(pages.clone()).unwrap();
    assert_eq!((file.bytes(), file.pages()), (page_bytes as u64, pages.len()));
    assert!(query.io().statistics().bytes_written < page_bytes as u64 / 2);
    let partition = Partition { resident: Vec::new(), rows: file.rows(), file: Some(Arc::new(file)) };
    assert_eq!(joined(&read(&partition, partitioner.schema(), 1 << 20).unwrap()), rows);
}

/// Overwrites a block of the file that all extents lie in.
fn overwrite(space: &TempSpace, device: &Device, block: u64, change: impl Fn(&mut [u8])) {
    let file = space.device().open_file("extents-0", FileClass::Temp, OpenMode::ReadWrite).unwrap();
    let mut bytes = file.read_blocking(block * 4096, device.buffer(4096)).unwrap();
    change(&mut bytes);
    file.submit(vec![Request::write(block * 4096, bytes)]).wait().unwrap();
}

#[test]
fn damage_on_the_medium_is_an_error() {
    let spilled = || {
        let setting = setting(Compression::On, None);
        let rows = batch(0, 8000, 0);
        let partitioner = partitioner(&rows, &setting.query);
        partitioner.spill(0).unwrap();
        push(&partitioner, &rows).unwrap();
        let partition = finish(&partitioner).unwrap();
        (setting, partitioner, partition)
    };
    let blocks = {
        let (setting, ..) = spilled();
        setting.query.io().statistics().bytes_written / 4096
    };
    assert!(blocks > 8, "{blocks}");
    for block in 0..blocks {
        let (Setting { space, device, .. }, partitioner, partition) = spilled();
        // In the middle of a block: no part of a header, and no padding unless it is the last of a group.
        overwrite(&space, &device, block, |bytes| bytes[100..300].iter_mut().for_each(|byte| *byte ^= 0x55));
        let whole = read(&partition, partitioner.schema(), 1 << 20);
        let message = whole.unwrap_err().to_string();
        assert!(message.contains("damaged") || message.contains("cannot be decoded"), "{message}");
    }
    let (Setting { space, device, .. }, partitioner, partition) = spilled();
    overwrite(&space, &device, 0, |bytes| bytes.fill(0));
    let message = read(&partition, partitioner.schema(), 1 << 20).unwrap_err().to_string();
    assert!(message.starts_with("a group of compressed pages in temporary space is damaged"), "{message}");
}

#[test]
fn a_request_that_fails_is_an_error() {
    let Setting { query, faults, .. } = setting(Compression::On, None);
    let rows = batch(0, 8000, 0);
    let partitioner = partitioner(&rows, &query);
    partitioner.spill(0).unwrap();
    faults.set_plan(FaultPlan::none().fail_from(0));
    let pushed = push(&partitioner, &rows);
    assert!(pushed.and_then(|()| finish(&partitioner).map(drop)).is_err());
}

#[test]
fn a_quota_counts_what_lies_on_the_device() {
    let page_bytes = {
        let Setting { query, .. } = setting(Compression::Off, None);
        let rows = batch(0, 20_000, 0);
        let partitioner = partitioner(&rows, &query);
        partitioner.spill(0).unwrap();
        push(&partitioner, &rows).unwrap();
        finish(&partitioner).unwrap().bytes()
    };
    let spill = |compression, quota_bytes| {
        let Setting { query, space, .. } = setting(compression, Some(quota_bytes));
        let rows = batch(0, 20_000, 0);
        let partitioner = partitioner(&rows, &query);
        push(&partitioner, &rows).unwrap();
        let resident = partitioner.resident_bytes(0);
        let spilled = partitioner.spill(0);
        if spilled.is_err() {
            // Nothing has changed: what was packed in the place of a page is a page again.
            assert_eq!((partitioner.resident_bytes(0), space.used_bytes()), (resident, 0));
            let partition = finish(&partitioner).unwrap();
            let pages = partition.resident.iter().map(|page| page.open(partitioner.schema()).unwrap());
            let found: Vec<RecordBatch> = pages.map(|page| page.batch(None).unwrap()).collect();
            assert_eq!(joined(&found), rows);
        }
        spilled
    };
    let plain = spill(Compression::Off, page_bytes / 2);
    assert!(matches!(plain, Err(SpillError::QuotaExceeded { .. })), "{plain:?}");
    assert!(spill(Compression::On, page_bytes / 2).unwrap() as u64 > page_bytes / 2);
    let packed = spill(Compression::On, 64 << 10);
    assert!(matches!(packed, Err(SpillError::QuotaExceeded { .. })), "{packed:?}");
}
