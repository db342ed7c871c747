//! Scans read the mini-pages they need, skip pages by their bounds, and merge neighbouring reads.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use crate::setup;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use nandina_device::IoAccount;
use nandina_storage::*;
use setup::*;

fn store() -> Store {
    Store::open(simulated().0, Mode::Write).unwrap()
}

fn options(projection: &[usize]) -> ScanOptions {
    ScanOptions { projection: Some(projection.to_vec()), ..Default::default() }
}

fn figures(table: &Table, options: ScanOptions) -> (RecordBatch, ScanFigures) {
    let scan = table.scan(options).unwrap();
    let mut reader = scan.reader();
    let batches: Vec<_> = std::iter::from_fn(|| reader.next_blocking()).map(Result::unwrap).collect();
    (arrow_select::concat::concat_batches(scan.schema(), &batches).unwrap(), scan.figures())
}

/// `key >= bound`, which may rise while the scan runs.
#[derive(Debug)]
struct KeyAtLeast(AtomicI64);

impl PagePruner for KeyAtLeast {
    fn columns(&self) -> Vec<usize> {
        vec![0]
    }

    fn keep(&self, ranges: &PageRanges) -> Option<Vec<bool>> {
        let max = ranges.column(0)?.max.as_primitive::<Int64Type>();
        Some(max.values().iter().map(|&max| max >= self.0.load(Ordering::Relaxed)).collect())
    }
}

#[test]
fn one_column_reads_one_column() {
    let table = create(&store(), "t", 0..100_000);
    let (all, all_figures) = figures(&table, ScanOptions::default());
    let (whole, whole_figures) = figures(&table, ScanOptions { whole_pages: true, ..options(&[3]) });
    assert_batches_equal(&whole, &all.project(&[3]).unwrap());
    assert_eq!(whole_figures.bytes_read, all_figures.bytes_read);
    let (key, key_figures) = figures(&table, ScanOptions { merge_gap_bytes: Some(0), ..options(&[0]) });
    assert_eq!(key, all.project(&[0]).unwrap());
    assert_eq!(all_figures.pages_read, table.pages());
    assert!(all_figures.bytes_read <= table.pages() * (32 << 10));
    // 8 of about 60 bytes per row; a mini-page of 3 KiB touches one or two blocks.
    assert!(key_figures.bytes_read <= table.pages() * 8192, "{key_figures:?}");
    assert_eq!(key_figures.requests, table.pages());
}

#[test]
fn neighbouring_reads_are_merged() {
    let table = create(&store(), "t", 0..100_000);
    let (_, apart) = figures(&table, ScanOptions { merge_gap_bytes: Some(0), ..options(&[0, 4]) });
    let (_, merged) = figures(&table, ScanOptions { merge_gap_bytes: Some(32 << 10), ..options(&[0, 4]) });
    assert!(apart.requests >= table.pages(), "{apart:?}");
    // Requests are not merged beyond eight of these pages; the last one may be shorter.
    assert!(merged.requests <= table.pages().div_ceil(8), "{merged:?} {apart:?}");
    assert!(merged.bytes_read > apart.bytes_read);
}

#[test]
fn any_order_of_columns_and_no_columns() {
    let table = create(&store(), "t", 0..3000);
    let (batch, _) = figures(&table, options(&[4, 0, 2]));
    assert_eq!(batch, rows(0..3000).project(&[4, 0, 2]).unwrap());
    let (batch, counted) = figures(&table, options(&[]));
    assert_eq!(batch.num_rows(), 3000);
    assert_eq!(counted.bytes_read, 0);
    let message = table.scan(options(&[5])).unwrap_err().to_string();
    assert_eq!(message, "table \"t\" has no column number 5");
}

#[test]
fn tiny_windows_make_progress() {
    let table = create(&store(), "t", 0..30_000);
    for window_bytes in [0, 1, 4096, 100_000] {
        let (batch, _) =
            figures(&table, ScanOptions { window_bytes: Some(window_bytes), ..Default::default() });
        assert_batches_equal(&batch, &rows(0..30_000));
    }
}

#[test]
fn pages_outside_the_bounds_are_not_read() {
    let store = store();
    let mut table = create(&store, "t", 0..200_000);
    table = append(&table, 200_000..201_000);
    let pruner = Arc::new(KeyAtLeast(AtomicI64::new(150_000)));
    let (batch, figures) = figures(&table, ScanOptions { pruner: Some(pruner), ..options(&[0, 1]) });
    assert!(batch.num_rows() < 53_000 && batch.num_rows() >= 51_000, "{} rows", batch.num_rows());
    assert!(keys(&batch).contains(&150_000) && keys(&batch).contains(&200_999));
    assert_eq!(figures.pages_read + figures.pages_pruned, table.pages());
    assert!(figures.pages_pruned > table.pages() * 7 / 10);
}

#[test]
fn bounds_that_rise_during_the_scan_count_from_then_on() {
    let store = store();
    let mut table = create(&store, "t", 0..1000);
    for statement in 1..30 {
        table = append(&table, statement * 1000..(statement + 1) * 1000);
    }
    let pruner = Arc::new(KeyAtLeast(AtomicI64::new(0)));
    let scan = table.scan(ScanOptions { pruner: Some(Arc::clone(&pruner) as _), ..options(&[0]) }).unwrap();
    let mut reader = scan.reader();
    reader.next_blocking().unwrap().unwrap();
    pruner.0.store(29_500, Ordering::Relaxed);
    let rest: Vec<i64> =
        std::iter::from_fn(|| reader.next_blocking()).flat_map(|batch| keys(&batch.unwrap())).collect();
    assert!(rest.contains(&29_999));
    assert!(rest.len() < 5000, "{} rows", rest.len());
}

#[test]
fn statistics_of_a_table() {
    let store = store();
    let mut table = create(&store, "t", 10..20_000);
    table = append(&table, 30_000..30_010);
    let statistics = table.statistics().unwrap();
    assert_eq!(statistics.rows, 20_000);
    let key = &statistics.columns[0];
    assert_eq!(key.min.as_primitive::<Int64Type>().value(0), 10);
    assert_eq!(key.max.as_primitive::<Int64Type>().value(0), 30_009);
    assert!(key.bounds_are_exact && key.nulls == 0);
    let expected = read(&table);
    for (column, found) in statistics.columns.iter().enumerate() {
        assert_eq!(found.nulls, expected.column(column).null_count() as u64);
    }
    assert_eq!(statistics.columns[3].min.as_string::<i32>().value(0), "comment 10 xxxxxxxxxx");
    let max = statistics.columns[3].max.as_string::<i32>().value(0).to_owned();
    let greatest = expected.column(3).as_string::<i32>().iter().flatten().max().unwrap().to_owned();
    assert!(max.len() <= 32 && max >= greatest && greatest[..31] == max[..31], "{max} {greatest}");
    assert!(!statistics.columns[4].bounds_are_exact);
}

#[test]
fn row_ids_find_their_rows() {
    let store = store();
    let mut table = create(&store, "t", 0..50_000);
    table = append(&table, 50_000..60_000);
    let (batch, _) = figures(&table, ScanOptions { row_ids: Some("row_id".into()), ..options(&[0]) });
    let ids = batch.column(1).as_primitive::<UInt64Type>().values().to_vec();
    assert!(ids.is_sorted());
    // Every 97th row, backwards, some twice.
    let wanted: Vec<i64> = (0..60_000)
        .rev()
        .step_by(97)
        .flat_map(|key| [key; 2].into_iter().take(1 + key as usize % 2))
        .collect();
    let wanted_ids: Vec<RowId> = wanted.iter().map(|&key| RowId::from_bits(ids[key as usize])).collect();
    let account = IoAccount::new();
    let fetch = FetchOptions {
        window_bytes: Some(64 << 10),
        account: Some(Arc::clone(&account)),
        ..Default::default()
    };
    let fetched = table.fetch_blocking(&wanted_ids, &[4, 3, 2, 1, 0], &fetch).unwrap();
    assert_eq!(keys(&fetched), wanted);
    let names = fetched.column(0).as_string_view();
    assert_eq!(names.value(0), "name of number 59999");
    assert_eq!(fetched.schema(), table.schema().project(&[4, 3, 2, 1, 0]).unwrap().into());
    // Every page once, its neighbouring columns as one request, and the page indexes.
    let (pages, traffic) = (table.pages(), account.statistics());
    assert!(traffic.read_requests <= pages + 6, "{traffic:?}");
    assert!(traffic.bytes_read <= pages * (32 << 10) + (128 << 10), "{traffic:?}");
    let account = IoAccount::new();
    let fetch = FetchOptions { account: Some(Arc::clone(&account)), ..Default::default() };
    table.fetch_blocking(&wanted_ids, &[0], &fetch).unwrap();
    assert!(account.statistics().bytes_read <= pages * 8192 + (128 << 10), "{:?}", account.statistics());
    let account = IoAccount::new();
    let fetch = FetchOptions { whole_pages: true, account: Some(Arc::clone(&account)), ..Default::default() };
    let fetched = table.fetch_blocking(&wanted_ids, &[3, 0], &fetch).unwrap();
    assert_eq!(fetched.column(1).as_primitive::<Int64Type>().values().to_vec(), wanted);
    let (of_all, whole) = (traffic.bytes_read, account.statistics().bytes_read);
    assert!(whole.abs_diff(of_all) < of_all / 20, "{whole} and {of_all}");
    let sorted: Vec<RowId> = ids.iter().step_by(1000).map(|&bits| RowId::from_bits(bits)).collect();
    let fetched = table.fetch_blocking(&sorted, &[0], &FetchOptions::default()).unwrap();
    assert_eq!(keys(&fetched), (0..60_000).step_by(1000).collect::<Vec<_>>());
    assert_eq!(table.fetch_blocking(&[], &[0], &FetchOptions::default()).unwrap().num_rows(), 0);
    let nowhere = RowId::new(PageNumber(1 << 40), 3);
    let message = table.fetch_blocking(&[nowhere], &[0], &FetchOptions::default()).unwrap_err().to_string();
    assert!(message.starts_with("table \"t\" has no row with id 1099511627776:3"), "{message}");
    let beyond = RowId::new(RowId::from_bits(ids[0]).page(), u16::MAX);
    assert!(table.fetch_blocking(&[beyond], &[0], &FetchOptions::default()).is_err());
}

#[test]
fn fetching_most_pages_is_a_scan_of_them() {
    let store = store();
    let mut table = create(&store, "t", 0..120_000);
    table = append(&table, 120_000..150_000);
    let (all, _) = figures(&table, ScanOptions { row_ids: Some("row_id".into()), ..Default::default() });
    let ids = all.column(5).as_primitive::<UInt64Type>().values().to_vec();
    for (step, projection) in [(1, vec![0, 1, 2, 3, 4]), (3, vec![4, 0]), (1, vec![2]), (700, vec![1, 3])] {
        for window_bytes in [None, Some(1), Some(100_000)] {
            let places: Vec<usize> = (0..ids.len()).step_by(step).collect();
            let wanted: Vec<RowId> = places.iter().map(|&place| RowId::from_bits(ids[place])).collect();
            let account = IoAccount::new();
            let options =
                FetchOptions { window_bytes, account: Some(Arc::clone(&account)), ..Default::default() };
            let fetched = table.fetch_blocking(&wanted, &projection, &options).unwrap();
            let places = arrow_array::UInt32Array::from_iter_values(places.iter().map(|&place| place as u32));
            let columns = projection
                .iter()
                .map(|&column| arrow_select::take::take(all.column(column), &places, None).unwrap())
                .collect();
            let schema = Arc::new(table.schema().project(&projection).unwrap());
            assert_batches_equal(&fetched, &RecordBatch::try_new(schema, columns).unwrap());
            let requests = account.statistics().read_requests;
            if step == 1 && projection.len() == 5 {
                assert!(requests < table.pages() / 2, "{requests} requests for {} pages", table.pages());
            }
        }
    }
}
