//! Rows of a row file are read by their addresses, in any order, of any width, from several writers.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use futures::executor::block_on;
use nandina_pages::PageSchema;
use nandina_simulation::FaultPlan;
use nandina_spill::{QuerySpace, RowFile, SpillError, TempOptions, TempSpace};
use proptest::prelude::*;

const WINDOW_BYTES: usize = 100 << 10;

fn space(faults: FaultPlan) -> (Arc<TempSpace>, Arc<QuerySpace>) {
    let (device, _faults) = nandina_simulation::in_memory(faults);
    let space = TempSpace::open(device, TempOptions::default()).unwrap();
    let query = space.query("test");
    (space, query)
}

/// Rows with these numbers and texts of these widths; every seventh has none.
fn batch(first: i64, widths: &[usize]) -> RecordBatch {
    let numbers = first..first + widths.len() as i64;
    let texts = numbers.clone().zip(widths);
    let texts = texts.map(|(number, width)| (number % 7 != 0).then(|| format!("{number} ").repeat(*width)));
    let texts: ArrayRef = Arc::new(StringViewArray::from_iter(texts));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
    RecordBatch::try_new(schema(), vec![numbers, texts]).unwrap()
}

fn schema() -> SchemaRef {
    let text = Field::new("text", DataType::Utf8View, true);
    Arc::new(Schema::new(vec![Field::new("number", DataType::Int64, false), text]))
}

fn file(query: &Arc<QuerySpace>) -> Arc<RowFile> {
    RowFile::new(PageSchema::try_new(schema()).unwrap(), Arc::clone(query))
}

/// The addresses of the rows that a writer of its own has written.
fn written(file: &Arc<RowFile>, batches: &[RecordBatch]) -> Result<Vec<u64>, SpillError> {
    block_on(async {
        let mut addresses = Vec::new();
        let mut writer = file.writer(8 << 10, 64 << 10);
        for batch in batches {
            writer.push(batch, &mut addresses).await?;
        }
        writer.finish(&mut addresses).await?;
        Ok(addresses)
    })
}

fn fetched(file: &Arc<RowFile>, addresses: &[u64]) -> Result<RecordBatch, SpillError> {
    let (rows, pages) = block_on(file.fetch(addresses, WINDOW_BYTES, file.space().io()))?;
    assert!(pages <= addresses.len());
    Ok(rows)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn rows_are_found_by_their_addresses(
        widths in prop::collection::vec(prop::collection::vec(0usize..6000, 0..40), 1..8),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..200),
    ) {
        let (space, query) = space(FaultPlan::none());
        let file = file(&query);
        let mut first = 0;
        let batches: Vec<RecordBatch> = widths.iter().map(|widths| {
            let batch = batch(first, widths);
            first += widths.len() as i64;
            batch
        }).collect();
        let (one, other) = batches.split_at(batches.len() / 2);
        let mut addresses = written(&file, one).unwrap();
        prop_assert!(addresses.is_sorted());
        addresses.extend(written(&file, other).unwrap());
        let all = concat_batches(&schema(), &batches).unwrap();
        prop_assert_eq!(addresses.len(), all.num_rows());
        prop_assert_eq!(&fetched(&file, &addresses).unwrap(), &all);
        let picks: Vec<usize> = picks.iter().filter(|_| !addresses.is_empty())
            .map(|pick| pick.index(addresses.len())).collect();
        let wanted: Vec<u64> = picks.iter().map(|&pick| addresses[pick]).collect();
        let rows: Vec<RecordBatch> = picks.iter().map(|&pick| all.slice(pick, 1)).collect();
        let expected = concat_batches(&schema(), &rows).unwrap();
        prop_assert_eq!(fetched(&file, &wanted).unwrap(), expected);
        drop(file);
        prop_assert_eq!(space.used_bytes(), 0);
    }
}

#[test]
fn a_row_of_a_hundred_megabytes_has_an_extent_for_itself() {
    let (space, query) = space(FaultPlan::none());
    let file = file(&query);
    let batch = batch(1, &[3, 50 << 20, 3]);
    let addresses = written(&file, std::slice::from_ref(&batch)).unwrap();
    assert_eq!(addresses.len(), 3);
    assert!(space.used_bytes() > 100 << 20);
    let reversed: Vec<u64> = addresses.iter().rev().copied().collect();
    let rows = fetched(&file, &reversed).unwrap();
    for row in 0..3 {
        assert_eq!(rows.slice(row, 1), batch.slice(2 - row, 1));
    }
}

#[test]
fn addresses_tell_how_wide_rows_are() {
    let (space, query) = space(FaultPlan::none());
    let file = file(&query);
    // Numbers of two digits: a text of width w has 3 w bytes.
    let widths: Vec<usize> =
        (0..80).map(|number| if number % 8 == 5 { 1 << (number % 15) } else { 3 }).collect();
    let addresses = written(&file, &[batch(11, &widths)]).unwrap();
    for ((number, width), address) in (11..).zip(widths).zip(addresses) {
        let bytes = 8 + 16 + if number % 7 == 0 { 0 } else { 3 * width };
        let told = RowFile::row_bytes(address);
        assert!(told * 4 >= bytes * 3 && told * 2 <= bytes * 3, "{told} for {bytes}");
    }
    drop(space);
}

#[test]
fn rows_of_more_than_half_a_megabyte_leave_little_of_their_extents() {
    let (space, query) = space(FaultPlan::none());
    let file = file(&query);
    let batch = batch(10, &[200_000; 20]);
    let addresses = written(&file, std::slice::from_ref(&batch)).unwrap();
    // Three rows have no text.
    assert!(space.used_bytes() < 20 * 660_000, "{}", space.used_bytes());
    assert_eq!(fetched(&file, &addresses).unwrap(), batch);
}

#[test]
fn damaged_and_failed_reads_are_errors() {
    let widths = vec![900; 300];
    let of = |faults: FaultPlan| {
        let (_space, query) = space(faults);
        let file = file(&query);
        let addresses = written(&file, &[batch(0, &widths)])?;
        fetched(&file, &addresses).map(|rows| assert_eq!(rows, batch(0, &widths)))
    };
    of(FaultPlan::none()).unwrap();
    // Far more requests than there are writes.
    let (mut damaged, mut failed) = (0, 0);
    for request in (0..40).step_by(3) {
        match of(FaultPlan::none().corrupt_read(request, 100)) {
            Err(SpillError::Page(error)) => damaged += usize::from(error.is_damage()),
            other => other.unwrap(),
        }
        failed += usize::from(of(FaultPlan::none().fail_request(request)).is_err());
    }
    assert!(damaged > 3 && failed > 3, "{damaged} damaged, {failed} failed");
}
