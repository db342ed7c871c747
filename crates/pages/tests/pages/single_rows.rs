//! Rows written one by one come back the same, also where their table has got columns since; damaged ones are errors.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "test code")]

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use nandina_pages::{PageSchema, RowCodec};
use proptest::prelude::*;

use crate::arbitrary;
use crate::page_decoder;

fn codec(schema: &SchemaRef) -> RowCodec {
    RowCodec::try_new(PageSchema::try_new(Arc::clone(schema)).unwrap()).unwrap()
}

fn rows_of(codec: &RowCodec, batch: &RecordBatch) -> Vec<Vec<u8>> {
    let mut encoder = codec.encoder(batch).unwrap();
    (0..batch.num_rows())
        .map(|row| {
            let mut bytes = vec![0xEE; 3];
            encoder.encode(row, &mut bytes).unwrap();
            bytes.split_off(3)
        })
        .collect()
}

fn arbitrary_batch() -> impl Strategy<Value = RecordBatch> {
    prop::sample::select(page_decoder::schemas()).prop_flat_map(|schema| arbitrary::batch(schema, 1..40))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn rows_come_back(
        batch in arbitrary_batch(),
        from in 0usize..5,
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0u8..8), 1..4),
        kept in any::<prop::sample::Index>(),
    ) {
        let from = from.min(batch.num_rows() - 1);
        let batch = batch.slice(from, batch.num_rows() - from);
        let codec = codec(&batch.schema());
        let rows = rows_of(&codec, &batch);
        let columns: Vec<usize> = match batch.num_columns() {
            0 => Vec::new(),
            columns => picks.iter().map(|pick| pick.index(columns)).collect(),
        };
        let mut decoder = codec.decoder(&columns).unwrap();
        // Twice, as a decoder begins anew.
        for _ in 0..2 {
            for row in &rows {
                decoder.push(row).unwrap();
            }
            prop_assert_eq!(decoder.rows(), rows.len());
            let found = decoder.finish().unwrap();
            prop_assert_eq!(found.num_rows(), rows.len());
            for (found, column) in found.columns().iter().zip(&columns) {
                prop_assert_eq!(found.to_data(), batch.column(*column).to_data());
            }
        }
        // Damaged rows are errors, or other values: nothing worse.
        let all: Vec<usize> = (0..batch.num_columns()).collect();
        for row in &rows {
            let mut damaged = row.clone();
            for (at, bit) in &flips {
                let at = at.index(damaged.len());
                damaged[at] ^= 1 << bit;
            }
            damaged.truncate(kept.index(2 * damaged.len()));
            let mut decoder = codec.decoder(&all).unwrap();
            if decoder.push(&damaged).is_ok() && let Ok(found) = decoder.finish() {
                for column in found.columns() {
                    column.to_data().validate_full().unwrap();
                }
            }
        }
    }
}

#[test]
fn columns_that_were_added_are_null_in_older_rows() {
    let field = |name: &str| Field::new(name, DataType::Utf8, true);
    let older = Arc::new(Schema::new(vec![field("a"), Field::new("b", DataType::Int32, true)]));
    let newer =
        Schema::new([older.fields().to_vec(), vec![Arc::new(field("c")), Arc::new(field("d"))]].concat());
    let long = "x".repeat(70_000);
    let batch = RecordBatch::try_new(
        Arc::clone(&older),
        vec![
            Arc::new(StringArray::from(vec![Some("one"), None, Some(&long)])),
            Arc::new(arrow_array::Int32Array::from(vec![Some(1), Some(2), None])),
        ],
    );
    let rows = rows_of(&codec(&older), &batch.unwrap());
    let codec = codec(&Arc::new(newer));
    let mut decoder = codec.decoder(&[3, 1, 0]).unwrap();
    rows.iter().for_each(|row| decoder.push(row).unwrap());
    let found = decoder.finish().unwrap();
    assert_eq!(found.column(0).null_count(), 3);
    assert_eq!(found.column(1).as_primitive::<arrow_array::types::Int32Type>().value(1), 2);
    let texts = found.column(2).as_string::<i32>();
    assert_eq!((texts.value(0), texts.is_null(1), texts.value(2)), ("one", true, long.as_str()));
    let none = decoder.finish().unwrap();
    assert_eq!((none.num_rows(), none.num_columns()), (0, 3));
    // The other way round it is an error.
    let wide = rows_of(&codec, &RecordBatch::new_empty(Arc::clone(codec.schema())));
    assert!(wide.is_empty());
    let mut row = rows[0].clone();
    row[0] = 5;
    assert!(codec.decoder(&[0]).unwrap().push(&row).unwrap_err().is_damage());
}
