//! Any batch, cut into any pages by any row selection, comes back the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "test code")]

use std::sync::Arc;

use arrow_array::{Array, RecordBatch, UInt32Array};
use arrow_buffer::Buffer;
use arrow_schema::DataType;
use nandina_pages::{CompactPage, Page, PageBuilder, PageIdentity, PageSchema, Rows, Verify};
use proptest::prelude::*;

use crate::arbitrary;
use crate::page_decoder;

/// Appends `selection` in pieces of `rows_per_call`, reads all pages back.
fn through_pages(
    batch: &RecordBatch,
    selection: &[u32],
    rows_per_call: usize,
    page_bytes: usize,
) -> RecordBatch {
    let schema = PageSchema::try_new(batch.schema()).unwrap();
    let mut builder = PageBuilder::new(Arc::clone(&schema), page_bytes, 65_535);
    let (mut batches, mut compact) = (Vec::new(), Vec::new());
    let mut flush = |builder: &mut PageBuilder| {
        let rows = builder.rows();
        compact.push(through_compact_page(builder));
        let mut out = vec![0xEE; builder.encoded_bytes()];
        let meta = builder.encode(PageIdentity::new(batches.len() as u64), &mut out).unwrap();
        assert!(meta.used_bytes <= page_bytes || rows == 1, "page of {rows} rows exceeds its size");
        let page = Page::open(Buffer::from(out), Arc::clone(&schema), Verify::Checksums).unwrap();
        batches.push(page.batch(None).unwrap());
    };
    for mut rows in selection.chunks(rows_per_call) {
        loop {
            let taken = builder.append(batch, Rows::Indices(rows)).unwrap();
            rows = &rows[taken..];
            if rows.is_empty() {
                break;
            }
            flush(&mut builder);
        }
    }
    flush(&mut builder);
    for (number, (found, expected)) in compact.iter().zip(&batches).enumerate() {
        assert_eq!(found, expected, "page {number} in its smallest encodings");
    }
    arrow_select::concat::concat_batches(&batch.schema(), &batches).unwrap()
}

/// The staged rows, encoded as small as they get and read back. They stay staged.
fn through_compact_page(builder: &PageBuilder) -> RecordBatch {
    let mut page = CompactPage::default();
    builder.encode_compact(&mut page).unwrap();
    let mut out = vec![0xEE; page.used_bytes()];
    page.write(PageIdentity::new(5), &mut out).unwrap();
    Page::open(Buffer::from(out), Arc::clone(builder.schema()), Verify::Checksums)
        .unwrap()
        .batch(None)
        .unwrap()
}

fn arbitrary_batch() -> impl Strategy<Value = RecordBatch> {
    prop::sample::select(page_decoder::schemas()).prop_flat_map(|schema| arbitrary::batch(schema, 1..600))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn round_trip(
        batch in arbitrary_batch(),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..300),
        rows_per_call in 1usize..130,
        page_bytes in 600usize..20_000,
        slice_from in 0usize..20,
    ) {
        let from = slice_from.min(batch.num_rows() - 1);
        let batch = batch.slice(from, batch.num_rows() - from);
        let selection: Vec<u32> = picks.iter().map(|pick| pick.index(batch.num_rows()) as u32).collect();
        let found = through_pages(&batch, &selection, rows_per_call, page_bytes);
        prop_assert_eq!(found.num_rows(), selection.len());
        if batch.num_columns() > 0 {
            // Arrow's `take` loses the row count of values without width, so they are not compared with it.
            let compared: Vec<usize> = (0..batch.num_columns())
                .filter(|&column| batch.column(column).data_type() != &DataType::FixedSizeBinary(0))
                .collect();
            let (batch, found) = (batch.project(&compared).unwrap(), found.project(&compared).unwrap());
            let indices = UInt32Array::from(selection);
            let expected = arrow_select::take::take_record_batch(&batch, &indices).unwrap();
            for (found, expected) in found.columns().iter().zip(expected.columns()) {
                prop_assert_eq!(found.to_data(), expected.to_data());
            }
        }
    }
}
