//! Scans and fetches that find what others have read, of any size of cache, have the same rows as ones that read all.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use crate::setup;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{BooleanArray, RecordBatch, UInt32Array};
use arrow_select::concat::concat_batches;
use nandina_device::{FileClass, IoAccount, OpenMode};
use nandina_storage::*;
use setup::*;

#[derive(Debug)]
struct Budget(AtomicUsize);

impl CacheBudget for Budget {
    fn try_take(&self, bytes: usize) -> bool {
        let take = |left: usize| left.checked_sub(bytes);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Rows whose key has a certain remainder.
#[derive(Debug)]
struct Remainder(i64, i64);

impl RowFilter for Remainder {
    fn columns(&self) -> Vec<usize> {
        vec![0]
    }

    fn keep(
        &self,
        columns: &mut PageColumns<'_>,
    ) -> std::result::Result<Option<BooleanArray>, Box<dyn std::error::Error + Send + Sync>> {
        let keys = columns.column(0)?;
        let keys = keys.as_primitive::<Int64Type>().values();
        Ok(Some(keys.iter().map(|key| Some(key % self.0 == self.1)).collect()))
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    fn columns(&mut self) -> Vec<usize> {
        let mut columns: Vec<usize> = (0..5).filter(|_| self.below(2) == 0).collect();
        if self.below(3) == 0 {
            columns.reverse();
        }
        columns
    }
}

fn rows(table: &Table, options: ScanOptions) -> (RecordBatch, ScanFigures) {
    let scan = table.scan(options).unwrap();
    let mut readers = [scan.reader(), scan.reader()];
    // By turns: rows come in no order.
    let mut batches = Vec::new();
    let mut ended = 0;
    while ended < readers.len() {
        ended = 0;
        for reader in &mut readers {
            match reader.next_blocking() {
                Some(batch) => batches.push(batch.unwrap()),
                None => ended += 1,
            }
        }
    }
    (concat_batches(scan.schema(), &batches).unwrap(), scan.figures())
}

/// In the order of their ids, which are the last column.
fn in_order(rows: &RecordBatch) -> RecordBatch {
    let ids = rows.column(rows.num_columns() - 1).as_primitive::<UInt64Type>().values();
    let mut order: Vec<u32> = (0..rows.num_rows() as u32).collect();
    order.sort_by_key(|&row| ids[row as usize]);
    arrow_select::take::take_record_batch(rows, &UInt32Array::from(order)).unwrap()
}

#[test]
fn random_scans_and_fetches() {
    let store = Store::open(simulated().0, Mode::Write).unwrap();
    let mut table = create(&store, "t", 0..60_000);
    table = append(&table, 60_000..100_000);
    let with_ids = || ScanOptions { row_ids: Some("id".into()), ..Default::default() };
    let all = in_order(&rows(&table, with_ids()).0);
    let ids = all.column(5).as_primitive::<UInt64Type>().values().to_vec();
    for (seed, bytes) in [(1, 0), (2, 100 << 10), (3, 1 << 20), (4, 1 << 40)] {
        let budget = Arc::new(Budget(AtomicUsize::new(bytes)));
        let cache = ReadCache::new(Arc::clone(&budget) as _);
        let mut random = Random(seed * 0x9e37_79b9);
        let mut cached = 0;
        for number in 0..60 {
            let columns = random.columns();
            if random.below(3) == 0 {
                let picked: Vec<u32> =
                    (0..random.below(3000)).map(|_| random.below(ids.len() as u64) as u32).collect();
                let wanted: Vec<RowId> =
                    picked.iter().map(|&row| RowId::from_bits(ids[row as usize])).collect();
                let options = FetchOptions {
                    window_bytes: [None, Some(1), Some(200_000)][random.below(3) as usize],
                    cache: Some(cache.visit()),
                    ..Default::default()
                };
                let fetched = table.fetch_blocking(&wanted, &columns, &options).unwrap();
                let right = arrow_select::take::take_record_batch(&all, &UInt32Array::from(picked)).unwrap();
                assert_batches_equal(&fetched, &right.project(&columns).unwrap());
                continue;
            }
            let filter = (random.below(2) == 0).then(|| {
                let divisor = [2, 50, 5000][random.below(3) as usize];
                Remainder(divisor, random.below(divisor as u64) as i64)
            });
            let keep: Vec<u32> = (0..ids.len() as u32)
                .filter(|row| filter.as_ref().is_none_or(|filter| i64::from(*row) % filter.0 == filter.1))
                .collect();
            let options = ScanOptions {
                projection: Some(columns.clone()),
                row_filter: filter.map(|filter| Arc::new(filter) as _),
                filter_first: [None, Some(true), Some(false)][random.below(3) as usize],
                window_bytes: [None, Some(1), Some(300_000)][random.below(3) as usize],
                merge_gap_bytes: [None, Some(0), Some(64 << 10)][random.below(3) as usize],
                cache: Some(cache.visit()),
                ..with_ids()
            };
            let (found, figures) = rows(&table, options);
            let mut right: Vec<usize> = columns;
            right.push(5);
            let right = all.project(&right).unwrap();
            let right = arrow_select::take::take_record_batch(&right, &UInt32Array::from(keep)).unwrap();
            assert_batches_equal(&in_order(&found), &right);
            cached += figures.bytes_cached;
            assert_eq!(cache.bytes() + budget.0.load(Ordering::Relaxed), bytes, "seed {seed}, {number}");
        }
        assert_eq!(cached > 0, bytes > 0, "{cached} bytes were found with {bytes}");
    }
}

#[test]
fn what_is_kept_is_not_read_again() {
    let store = Store::open(simulated().0, Mode::Write).unwrap();
    let table = create(&store, "t", 0..100_000);
    let cache = ReadCache::new(Arc::new(Budget(AtomicUsize::new(1 << 30))));
    let mut read = Vec::new();
    for _ in 0..3 {
        let account = IoAccount::new();
        let options = ScanOptions {
            cache: Some(cache.visit()),
            account: Some(Arc::clone(&account)),
            ..Default::default()
        };
        let (_, figures) = rows(&table, options);
        read.push((figures.bytes_read, figures.requests, figures.bytes_cached));
    }
    assert!(read[0].0 > 1 << 20 && read[0] == read[1] && read[0].2 == 0, "{read:?}");
    assert_eq!((read[2].0, read[2].1), (0, 0), "{read:?}");
    assert!(read[2].2 > read[0].0 / 2, "{read:?}");
}

#[test]
fn what_came_damaged_is_read_anew() {
    let device = simulated().0;
    let store = Store::open(device.clone(), Mode::Write).unwrap();
    let table = create(&store, "t", 0..100_000);
    let name = device.list().unwrap().into_iter().find(|name| name.starts_with("segment-")).unwrap();
    let file = device.open_file(&name, FileClass::Other, OpenMode::ReadWrite).unwrap();
    let flip = || {
        let offset = 64 << 10;
        let mut block = file.read_blocking(offset, device.buffer(4096)).unwrap();
        block.iter_mut().for_each(|byte| *byte ^= 255);
        file.write_blocking(offset, block).unwrap();
    };
    let cache = ReadCache::new(Arc::new(Budget(AtomicUsize::new(1 << 30))));
    let scan = || {
        let scan = table.scan(ScanOptions { cache: Some(cache.visit()), ..Default::default() }).unwrap();
        let mut reader = scan.reader();
        std::iter::from_fn(|| reader.next_blocking()).collect::<Result<Vec<_>>>()
    };
    scan().unwrap();
    flip();
    assert!(scan().is_err(), "it is noticed, and what was read is not kept");
    flip();
    let batches = scan().unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 100_000);
}
