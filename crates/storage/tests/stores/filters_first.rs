//! Scans that read the columns of a filter before the others.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use crate::setup;

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{BooleanArray, RecordBatch};
use nandina_simulation::FaultPlan;
use nandina_storage::*;
use setup::*;

/// Rows by their keys.
#[derive(Debug)]
enum Keys {
    Every(i64),
    From(i64),
    All,
}

impl RowFilter for Keys {
    fn columns(&self) -> Vec<usize> {
        vec![0]
    }

    fn keep(
        &self,
        page: &mut PageColumns<'_>,
    ) -> std::result::Result<Option<BooleanArray>, Box<dyn Error + Send + Sync>> {
        let keys = page.column(0)?;
        let keys = keys.as_primitive::<Int64Type>().values().iter();
        Ok(match self {
            Self::Every(step) => Some(keys.map(|key| Some(key % step == 0)).collect()),
            Self::From(first) => Some(keys.map(|key| Some(key >= first)).collect()),
            Self::All => None,
        })
    }
}

fn scanned(table: &Table, options: ScanOptions) -> (RecordBatch, ScanFigures) {
    let scan = table.scan(options).unwrap();
    let mut reader = scan.reader();
    let batches: Vec<_> = std::iter::from_fn(|| reader.next_blocking()).map(Result::unwrap).collect();
    assert_eq!(reader.held_bytes(), 0);
    (arrow_select::concat::concat_batches(scan.schema(), &batches).unwrap(), scan.figures())
}

fn options(filter: Keys, filter_first: Option<bool>) -> ScanOptions {
    ScanOptions {
        row_filter: Some(Arc::new(filter)),
        filter_first,
        merge_gap_bytes: Some(0),
        ..Default::default()
    }
}

#[test]
fn the_rows_are_the_same_and_fewer_bytes_are_read() {
    let store = Store::open(simulated().0, Mode::Write).unwrap();
    let mut table = create(&store, "t", 0..120_000);
    table = append(&table, 120_000..121_000);
    for step in [1, 2, 50, 1000, 30_011, 1_000_000] {
        for projection in [None, Some(vec![4, 1]), Some(vec![3, 0, 2]), Some(vec![0]), Some(vec![])] {
            for window_bytes in [None, Some(1), Some(64 << 10)] {
                let row_ids = Some("row_id".into());
                let with = |filter_first| ScanOptions {
                    projection: projection.clone(),
                    window_bytes,
                    row_ids: row_ids.clone(),
                    ..options(Keys::Every(step), filter_first)
                };
                let (rows, whole) = scanned(&table, with(Some(false)));
                let (same, first) = scanned(&table, with(Some(true)));
                assert_batches_equal(&same, &rows);
                assert_eq!(rows.num_rows() as i64, 120_999 / step + 1);
                let seen = |figures: ScanFigures| (figures.rows, figures.rows_filtered, figures.pages_read);
                assert_eq!(seen(first), seen(whole), "{step} {projection:?} {window_bytes:?}");
                if step >= 30_011 && projection.is_none() {
                    assert!(first.bytes_read < whole.bytes_read / 2, "{first:?} {whole:?}");
                    assert!(first.pages_filtered >= table.pages() - 6, "{first:?}");
                }
            }
        }
    }
}

#[test]
fn filters_that_keep_whole_pages() {
    let store = Store::open(simulated().0, Mode::Write).unwrap();
    let table = create(&store, "t", 0..120_000);
    let (all, _) = scanned(&table, options(Keys::All, Some(true)));
    assert_batches_equal(&all, &rows(0..120_000));
    let (tail, figures) = scanned(&table, options(Keys::From(100_000), Some(true)));
    assert_batches_equal(&tail, &rows(100_000..120_000));
    assert!(figures.pages_filtered > table.pages() / 2, "{figures:?}");
}

/// Keeps no row of the first pages, and then every hundredth.
#[derive(Debug)]
struct Later(AtomicI64);

impl RowFilter for Later {
    fn columns(&self) -> Vec<usize> {
        vec![3]
    }

    fn keep(
        &self,
        page: &mut PageColumns<'_>,
    ) -> std::result::Result<Option<BooleanArray>, Box<dyn Error + Send + Sync>> {
        let none = self.0.fetch_add(1, Ordering::Relaxed) < 300;
        let texts = page.column(3)?;
        let ends =
            texts.as_string::<i32>().iter().map(|text| Some(text.is_some_and(|text| text.contains("00 "))));
        Ok(Some(if none { BooleanArray::from(vec![false; texts.len()]) } else { ends.collect() }))
    }
}

#[test]
fn several_readers_and_a_filter_that_changes() {
    let store = Store::open(simulated().0, Mode::Write).unwrap();
    let table = create(&store, "t", 0..600_000);
    let changing = ScanOptions {
        row_filter: Some(Arc::new(Later(AtomicI64::new(0)))),
        filter_first: Some(true),
        ..Default::default()
    };
    let scan = table.scan(changing).unwrap();
    let mut readers = [scan.reader(), scan.reader(), scan.reader()];
    let mut found: Vec<i64> = Vec::new();
    let mut left = readers.len();
    while left > 0 {
        left = readers.len();
        for reader in &mut readers {
            match reader.next_blocking() {
                Some(batch) => found.extend(batch.unwrap().column(0).as_primitive::<Int64Type>().values()),
                None => left -= 1,
            }
        }
    }
    found.sort_unstable();
    let figures = scan.figures();
    assert_eq!(figures.pages_read, table.pages());
    assert_eq!(found.len() as u64, figures.rows);
    assert!(figures.rows > 300 && figures.rows + figures.rows_filtered == 600_000, "{figures:?}");
    assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "no row comes twice");
    // What a reader has begun may be dropped.
    let mut reader = table.scan(options(Keys::Every(1000), Some(true))).unwrap().reader();
    reader.next_blocking().unwrap().unwrap();
}

#[test]
fn what_has_been_seen_decides() {
    let store = Store::open(simulated().0, Mode::Write).unwrap();
    let table = create(&store, "t", 0..2_000_000);
    let (none, few) = scanned(&table, options(Keys::Every(i64::MAX), None));
    assert_eq!(none.num_rows(), 1, "the key 0");
    let (_, most) = scanned(&table, options(Keys::Every(2), None));
    assert_eq!(most.pages_filtered, 0, "every page has rows");
    assert!(few.pages_filtered > 0 && few.bytes_read < most.bytes_read, "{few:?} {most:?}");
}

#[test]
fn a_read_that_fails_is_named() {
    let (device, simulation) = simulated();
    let table = create(&Store::open(device, Mode::Write).unwrap(), "t", 0..120_000);
    let mut failures = 0;
    for nth in 0..200 {
        let scan = table.scan(options(Keys::Every(997), Some(true))).unwrap();
        let mut reader = scan.reader();
        simulation.set_plan(FaultPlan::none().fail_request(simulation.requests() + nth));
        let outcome: Result<Vec<RecordBatch>> = std::iter::from_fn(|| reader.next_blocking()).collect();
        simulation.set_plan(FaultPlan::none());
        match outcome {
            Ok(batches) => assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 121),
            Err(error) => {
                assert!(error.to_string().contains("segment"), "{error}");
                failures += 1;
            }
        }
    }
    assert!(failures > 50, "{failures} reads failed");
}
