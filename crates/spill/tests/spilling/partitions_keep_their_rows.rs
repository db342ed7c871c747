//! Compressed or not, and whenever a partition is spilled, each partition reads back exactly its
//! rows.

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use nandina_pages::PageSchema;
use nandina_simulation::FaultPlan;
use nandina_spill::{
    Compression, Partition, Partitioner, PartitionerOptions, QuerySpace, Scatter, TempOptions, TempSpace,
    partition_of,
};

/// Simulated devices do not compress by themselves.
const COMPRESSIONS: [Compression; 2] = [Compression::Off, Compression::On];

fn space(compression: Compression) -> (Arc<TempSpace>, Arc<QuerySpace>) {
    let (device, _faults) = nandina_simulation::in_memory(FaultPlan::default());
    let options = TempOptions { compression, ..TempOptions::default() };
    let space = TempSpace::open(device, options).expect("a temporary space");
    let query = space.query("test");
    (space, query)
}

fn options(ring_pages: usize) -> PartitionerOptions {
    PartitionerOptions {
        partition_bits: 3,
        page_bytes: 4096,
        max_page_rows: 8192,
        ring_pages,
        extent_bytes: 64 << 10,
    }
}

fn hash(key: i64) -> u64 {
    (key as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Keys `first..first + rows`, each with a text of its own; every 100th is longer than a page.
fn batch(first: i64, rows: i64) -> RecordBatch {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + rows));
    let text = |key: i64| format!("{key}").repeat(if key % 100 == 99 { 3000 } else { (key % 9) as usize });
    let texts: ArrayRef = Arc::new(StringViewArray::from_iter(
        (first..first + rows).map(|key| (key % 7 != 0).then(|| text(key))),
    ));
    RecordBatch::try_from_iter([("key", keys), ("text", texts)]).expect("a batch")
}

fn partitioner(options: PartitionerOptions, query: &Arc<QuerySpace>) -> Partitioner {
    let schema = PageSchema::try_new(batch(0, 1).schema()).expect("a page schema");
    Partitioner::new(schema, options, Arc::clone(query))
}

fn spill_all(partitioner: &Partitioner) {
    for partition in 0..partitioner.options().partitions() {
        partitioner.spill(partition).expect("a spilled partition");
    }
}

fn push(partitioner: &Partitioner, batch: &RecordBatch) {
    let keys = batch.column(0).as_primitive::<Int64Type>();
    let hashes: Vec<u64> = keys.values().iter().map(|&key| hash(key)).collect();
    let mut scatter = Scatter::default();
    scatter.by_hash(&hashes, partitioner.options().partition_bits);
    partitioner.push(batch, &scatter).expect("a push");
}

/// All rows of a partition, pages on the device first: that is the order of their arrival.
fn rows_of(partition: &Partition, schema: &Arc<PageSchema>) -> Vec<(i64, Option<String>)> {
    let mut pages = Vec::new();
    if let Some(file) = &partition.file {
        let mut reader = file.read(Arc::clone(schema), 1 << 20);
        while let Some(page) = reader.next_blocking().expect("a spilled page") {
            pages.push(page);
        }
        assert_eq!(pages.iter().map(|page| page.rows() as u64).sum::<u64>(), file.rows());
    }
    for page in &partition.resident {
        pages.push(page.open(schema).expect("a resident page"));
    }
    let mut rows = Vec::new();
    for page in pages {
        let batch = page.batch(None).expect("a batch");
        let texts = batch.column(1).as_string_view();
        for (key, text) in batch.column(0).as_primitive::<Int64Type>().values().iter().zip(texts) {
            rows.push((*key, text.map(str::to_owned)));
        }
    }
    rows
}

fn check(partitioner: &Partitioner, rows: i64) -> Vec<Partition> {
    let partitions = partitioner.finish().expect("finished partitions");
    partitioner.drain_to_blocking(0).expect("written partitions");
    let mut total = 0;
    for (number, partition) in partitions.iter().enumerate() {
        let found = rows_of(partition, partitioner.schema());
        let bits = partitioner.options().partition_bits;
        let whole = batch(0, rows);
        let expected: Vec<i64> = (0..rows).filter(|&key| partition_of(hash(key), bits) == number).collect();
        assert_eq!(found.iter().map(|row| row.0).collect::<Vec<_>>(), expected, "partition {number}");
        for (key, text) in &found {
            let texts = whole.column(1).as_string_view();
            let row = *key as usize;
            let wanted = arrow_array::Array::is_valid(texts, row).then(|| texts.value(row));
            assert_eq!(text.as_deref(), wanted, "text of key {key}");
        }
        assert_eq!(partition.rows, found.len() as u64);
        total += found.len();
    }
    assert_eq!(total as i64, rows);
    partitions
}

#[test]
fn spilled_from_the_start() {
    for ring_pages in [1, 4] {
        for compression in COMPRESSIONS {
            let (_space, query) = space(compression);
            let partitioner = partitioner(options(ring_pages), &query);
            spill_all(&partitioner);
            for first in (0..5000).step_by(500) {
                push(&partitioner, &batch(first, 500));
            }
            let partitions = check(&partitioner, 5000);
            let is_spilled =
                |partition: &Partition| partition.resident.is_empty() && partition.file.is_some();
            assert!(partitions.iter().all(is_spilled));
            assert_eq!(partitioner.resident_rows(0), 0);
            let page_bytes: u64 = partitions.iter().map(Partition::bytes).sum();
            assert_eq!(query.spilled_page_bytes(), page_bytes);
        }
    }
}

#[test]
fn spilled_midway_or_never() {
    for compression in COMPRESSIONS {
        let (_space, query) = space(compression);
        let partitioner = partitioner(options(4), &query);
        for first in (0..5000).step_by(500) {
            push(&partitioner, &batch(first, 500));
            if first == 2000 {
                let resident = partitioner.resident_bytes(2);
                let freed =
                    partitioner.try_spill(2).expect("a spill").expect("nobody else holds the partition");
                assert!(freed > 0 && freed == resident, "{freed} of {resident}");
                assert_eq!((partitioner.resident_bytes(2), partitioner.resident_rows(2)), (0, 0));
            }
        }
        let partitions = check(&partitioner, 5000);
        let spilled: Vec<usize> = (0..8).filter(|&number| partitions[number].file.is_some()).collect();
        assert_eq!(spilled, [2]);
        assert!(partitions[2].resident.is_empty());
    }
}

#[test]
fn empty_input_gives_empty_partitions() {
    let (_space, query) = space(Compression::Off);
    let partitioner = partitioner(options(2), &query);
    partitioner.spill(1).expect("a spilled partition");
    let partitions = check(&partitioner, 0);
    assert_eq!(partitions.len(), 8);
    assert_eq!(partitions.iter().map(Partition::bytes).sum::<u64>(), 0);
}

#[test]
fn everything_is_given_back() {
    for compression in COMPRESSIONS {
        let (space, query) = space(compression);
        let partitioner = partitioner(options(2), &query);
        spill_all(&partitioner);
        push(&partitioner, &batch(0, 5000));
        let partitions = check(&partitioner, 5000);
        assert_eq!(partitioner.memory_bytes(), 0);
        let written = query.io().statistics().bytes_written;
        assert!(query.used_bytes() >= written && query.peak_bytes() >= written);
        let page_bytes: u64 = partitions.iter().map(Partition::bytes).sum();
        match compression {
            Compression::On => assert!(written < page_bytes / 2, "{written} of {page_bytes}"),
            _ => assert_eq!(written, page_bytes),
        }
        drop(partitions);
        drop(partitioner);
        assert_eq!((query.used_bytes(), space.used_bytes()), (0, 0));
    }
}

#[test]
fn rings_are_written_together() {
    let (_space, query) = space(Compression::Off);
    // Extents so large that no write has to be split where one ends.
    let partitioner = partitioner(PartitionerOptions { extent_bytes: 16 << 20, ..options(4) }, &query);
    spill_all(&partitioner);
    for first in (0..20_000).step_by(500) {
        push(&partitioner, &batch(first, 500));
    }
    let depth = query.io().statistics().peak_in_flight;
    assert!(depth >= 4, "depth {depth}");
}

#[test]
fn rows_longer_than_pages_do_not_gather_in_rings() {
    let row_bytes = 1 << 20;
    let row = |key: i64| {
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values([key]));
        let texts: ArrayRef =
            Arc::new(StringViewArray::from_iter_values([format!("{key}").repeat(row_bytes)]));
        RecordBatch::try_from_iter_with_nullable([("key", keys, false), ("text", texts, true)])
            .expect("a row")
    };
    let (_space, query) = space(Compression::Off);
    let options = PartitionerOptions { partition_bits: 0, ..options(16) };
    let bound = options.write_buffer_bytes() + 3 * row_bytes;
    let schema = PageSchema::try_new(row(0).schema()).expect("a page schema");
    let partitioner = Partitioner::new(schema, options, Arc::clone(&query));
    spill_all(&partitioner);
    let mut peak = 0;
    for key in 0..9 {
        push(&partitioner, &row(key));
        // The caller that pushes waits for writes in flight.
        partitioner.drain_to_blocking(0).expect("written rows");
        peak = peak.max(partitioner.memory_bytes());
    }
    assert!(peak > row_bytes && peak < bound, "{peak} bytes in memory");
    let partitions = partitioner.finish().expect("a finished partition");
    partitioner.drain_to_blocking(0).expect("a written partition");
    let found = rows_of(&partitions[0], partitioner.schema());
    assert_eq!(found.iter().map(|row| row.0).collect::<Vec<_>>(), (0..9).collect::<Vec<i64>>());
    assert!(found.iter().all(|(_, text)| text.as_ref().is_some_and(|text| text.len() == row_bytes)));
}
