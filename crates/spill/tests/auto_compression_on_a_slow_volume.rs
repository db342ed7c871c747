//! On a volume that everybody waits for, pages are compressed without being told to, and come back.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use futures::executor::block_on;
use nandina_device::DeviceOptions;
use nandina_pages::PageSchema;
use nandina_simulation::PacedDrive;
use nandina_simulation::drive::{DriveModel, VolumeParameters};
use nandina_spill::{Compression, Partitioner, PartitionerOptions, Scatter, TempOptions, TempSpace};

const ROWS: i64 = 8192;
/// 64 KiB each.
const BATCHES: i64 = 160;

fn batch(number: i64) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(number * ROWS..(number + 1) * ROWS));
    RecordBatch::try_from_iter([("number", numbers)]).unwrap()
}

#[test]
fn pages_are_compressed_where_the_device_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    // So slow that whatever else the machine does, this is what is waited for.
    let parameters = VolumeParameters { bytes_per_second: 5_000_000, ..VolumeParameters::cloud_volume() };
    let drive = PacedDrive { model: DriveModel::Volume(parameters), seed: 1, discard: false };
    let device = drive.open(folder.path(), &DeviceOptions::default()).unwrap();
    let space =
        TempSpace::open(device, TempOptions { compression: Compression::Auto, ..TempOptions::default() })
            .unwrap();
    let query = space.query("test");
    let options = PartitionerOptions {
        partition_bits: 0,
        page_bytes: 64 << 10,
        max_page_rows: 8192,
        ring_pages: 4,
        extent_bytes: 1 << 20,
    };
    let schema = PageSchema::try_new(batch(0).schema()).unwrap();
    let partitioner = Partitioner::new(Arc::clone(&schema), options, Arc::clone(&query));
    partitioner.spill(0).unwrap();
    let mut scatter = Scatter::default();
    for number in 0..BATCHES {
        scatter.to_partition(0, ROWS as usize, 0);
        partitioner.push(&batch(number), &scatter).unwrap();
        block_on(partitioner.throttle()).unwrap();
    }
    let partition = partitioner.finish().unwrap().pop().unwrap();
    partitioner.drain_to_blocking(0).unwrap();
    let written = query.io().statistics().bytes_written;
    let mut reader = partition.file.unwrap().read(schema, 1 << 20);
    let mut next = 0;
    while let Some(page) = reader.next_blocking().unwrap() {
        let batch = page.batch(None).unwrap();
        let numbers = batch.column(0).as_primitive::<Int64Type>();
        assert!(numbers.values().iter().copied().eq(next..next + numbers.values().len() as i64));
        next += numbers.values().len() as i64;
    }
    assert_eq!(next, BATCHES * ROWS);
    let pages = query.spilled_page_bytes();
    assert!(written < pages * 9 / 10, "{written} of {pages}");
}
