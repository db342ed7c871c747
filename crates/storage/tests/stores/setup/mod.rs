//! Tables and rows that several tests use.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "test code")]

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray, StringViewArray,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use nandina_device::Device;
use nandina_simulation::{FaultPlan, Simulation};
use nandina_storage::*;

pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("key", DataType::Int64, false),
        Field::new("price", DataType::Float64, true),
        Field::new("flag", DataType::Boolean, true),
        Field::new("comment", DataType::Utf8, true),
        Field::new("name", DataType::Utf8View, false),
    ]))
}

/// Rows whose values follow from their keys.
pub fn rows(keys: Range<i64>) -> RecordBatch {
    let price = |key: i64| (key % 7 != 0).then_some(key as f64 / 4.0);
    let flag = |key: i64| (key % 5 != 1).then_some(key % 2 == 0);
    let comment =
        |key: i64| (key % 3 != 2).then(|| format!("comment {key} {}", "x".repeat(key as usize % 40)));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(keys.clone())),
        Arc::new(keys.clone().map(price).collect::<Float64Array>()),
        Arc::new(keys.clone().map(flag).collect::<BooleanArray>()),
        Arc::new(keys.clone().map(comment).collect::<StringArray>()),
        Arc::new(StringViewArray::from_iter_values(keys.map(|key| format!("name of number {key}")))),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

pub fn simulated() -> (Device, Simulation) {
    nandina_simulation::in_memory(FaultPlan::none())
}

pub fn definition(name: &str) -> TableDefinition {
    TableDefinition::new(name, schema()).with_page_bytes(32 << 10)
}

/// Creates a table with these rows.
pub fn create(store: &Store, name: &str, keys: Range<i64>) -> Table {
    let writer =
        store.create_table_with_rows(definition(name), IfExists::Fail, WriteOptions::default()).unwrap();
    write(&writer, keys);
    writer.commit_blocking().unwrap();
    store.table(name).unwrap()
}

/// Writes rows in batches of 1000 through one lane.
pub fn write(writer: &TableWriter, keys: Range<i64>) {
    let mut lane = writer.lane();
    let mut from = keys.start;
    while from < keys.end {
        let to = (from + 1000).min(keys.end);
        lane.append_blocking(&rows(from..to)).unwrap();
        from = to;
    }
    lane.finish_blocking().unwrap();
}

pub fn append(table: &Table, keys: Range<i64>) -> Table {
    let writer = table.writer(WriteMode::Append, WriteOptions::default()).unwrap();
    write(&writer, keys);
    writer.commit_blocking().unwrap();
    table.store().table(table.name()).unwrap()
}

/// Asks for all there is in the page indexes, so that each of their parts is read.
#[derive(Debug)]
pub struct AllBounds;

impl PagePruner for AllBounds {
    fn columns(&self) -> Vec<usize> {
        (0..schema().fields().len()).collect()
    }

    fn keep(&self, _: &PageRanges) -> Option<Vec<bool>> {
        None
    }
}

/// All batches of a scan with one reader, as one.
pub fn scan(table: &Table, options: ScanOptions) -> Result<RecordBatch> {
    let scan = table.scan(options)?;
    let mut reader = scan.reader();
    let mut batches = Vec::new();
    while let Some(batch) = reader.next_blocking() {
        batches.push(batch?);
    }
    assert_eq!(reader.held_bytes(), 0, "a finished reader holds buffers");
    Ok(arrow_select::concat::concat_batches(scan.schema(), &batches)?)
}

pub fn read(table: &Table) -> RecordBatch {
    scan(table, ScanOptions::default()).unwrap()
}

pub fn keys(batch: &RecordBatch) -> Vec<i64> {
    let column = batch.column_by_name("key").unwrap();
    column.as_any().downcast_ref::<Int64Array>().unwrap().values().to_vec()
}

pub fn segment_files(device: &Device) -> Vec<String> {
    device.list().unwrap().into_iter().filter(|name| name.starts_with("segment-")).collect()
}

pub fn assert_batches_equal(found: &RecordBatch, expected: &RecordBatch) {
    assert_eq!(found.schema(), expected.schema());
    assert_eq!(found.num_rows(), expected.num_rows());
    for (found, expected) in found.columns().iter().zip(expected.columns()) {
        assert_eq!(found.to_data(), expected.to_data());
    }
}
