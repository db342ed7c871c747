//! Feeds arbitrary bytes to every entry of the page decoder. Used by the fuzz target, and by a test of `nandina-pages`
//! that mutates valid pages, so that ordinary test runs cover the same ground.
//!
//! Input: one byte that selects a schema, then the page.

use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use arrow_buffer::Buffer;
use arrow_schema::{
    DataType, Field, Fields, IntervalUnit, Schema, SchemaRef, TimeUnit, UnionFields, UnionMode,
};
use nandina_pages::{
    CompactPage, Encoding, MiniPageMeta, Page, PageBuilder, PageIdentity, PageSchema, Rows, Verify,
    decode_mini_page,
};

/// Rows beyond this are not read back one by one: columns without bytes (nulls) may claim four billion.
const MAX_REENCODED_ROWS: usize = 100_000;

/// Opens the bytes in every way; whatever opens must be valid Arrow and must encode again.
pub fn decode_everything(input: &[u8]) {
    let Some((&selector, bytes)) = input.split_first() else { return };
    let schemas = schemas();
    let Some(schema) = schemas.get(usize::from(selector) % schemas.len()) else { return };
    let schema = PageSchema::try_new(Arc::clone(schema)).expect("all types here are supported");
    for verify in [Verify::Checksums, Verify::Trusted] {
        let Ok(page) = Page::open(Buffer::from(bytes), Arc::clone(&schema), verify) else { continue };
        for column in 0..page.columns() {
            let _ = page.parts(column);
            if let Ok(array) = page.column(column) {
                array.to_data().validate_full().expect("a decoded array is valid");
            }
        }
        if let Ok(batch) = page.batch(None) {
            encode_again(&batch, &schema);
        }
    }
    decode_as_mini_pages(bytes, &schema);
}

fn encode_again(batch: &RecordBatch, schema: &Arc<PageSchema>) {
    if batch.num_rows() > MAX_REENCODED_ROWS {
        return;
    }
    let mut builder = PageBuilder::new(Arc::clone(schema), 1 << 30, 1 << 20);
    let Ok(taken) = builder.append(batch, Rows::Range(0..batch.num_rows())) else { return };
    let mut compact = CompactPage::default();
    builder.encode_compact(&mut compact).expect("what decoded encodes");
    assert_eq!(compact.rows(), taken);
    let mut out = vec![0; builder.encoded_bytes()];
    let meta = builder.encode(PageIdentity::default(), &mut out).expect("what decoded encodes");
    assert_eq!(meta.rows as usize, taken);
}

/// The first bytes say how many rows and nulls there are; the rest is the mini-page.
fn decode_as_mini_pages(bytes: &[u8], schema: &PageSchema) {
    let Some((&[rows, nulls, encoding], rest)) = bytes.split_first_chunk::<3>() else { return };
    let meta = MiniPageMeta {
        offset_bytes: 0,
        length_bytes: rest.len() as u32,
        null_count: u32::from(nulls),
        encoding: Encoding::from_byte(encoding % 9).unwrap_or(Encoding::Fixed),
        checksum: 0,
    };
    for field in schema.arrow().fields() {
        assert!(decode_mini_page(Buffer::from(rest), field, rows.into(), &meta).is_err() || rest.is_empty());
        let meta = MiniPageMeta { checksum: nandina_pages::mini_page_checksum(rest), ..meta };
        if let Ok(array) = decode_mini_page(Buffer::from(rest), field, rows.into(), &meta) {
            array.to_data().validate_full().expect("a decoded array is valid");
        }
    }
}

/// Between them, every type that a page can hold.
pub fn schemas() -> Vec<SchemaRef> {
    use DataType as T;
    let nullable = |name: &str, data_type: T| Field::new(name, data_type, true);
    let item = |data_type: T| Arc::new(Field::new("item", data_type, true));
    let entries = T::Struct(Fields::from(vec![
        Field::new("keys", T::Utf8, false),
        Field::new("values", T::Int32, true),
    ]));
    let union_fields = UnionFields::try_new([1, 4], [nullable("a", T::Int64), nullable("b", T::Utf8)])
        .expect("distinct type ids");
    let of = |types: Vec<T>| -> SchemaRef {
        let fields: Vec<Field> =
            types.into_iter().enumerate().map(|(number, t)| nullable(&format!("c{number}"), t)).collect();
        Arc::new(Schema::new(fields))
    };
    vec![
        of(vec![T::Int64, T::Utf8, T::Boolean]),
        of(vec![T::Utf8View, T::BinaryView, T::LargeUtf8, T::LargeBinary, T::Binary]),
        of(vec![T::Null, T::Int8, T::Float16, T::Date32, T::Decimal128(20, 2), T::Decimal256(50, 3)]),
        of(vec![
            T::FixedSizeBinary(3),
            T::FixedSizeBinary(0),
            T::Interval(IntervalUnit::MonthDayNano),
            T::Interval(IntervalUnit::DayTime),
            T::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
            T::Time32(TimeUnit::Second),
        ]),
        of(vec![
            T::List(item(T::Utf8View)),
            T::LargeList(item(T::Int32)),
            T::FixedSizeList(item(T::Int16), 3),
        ]),
        of(vec![
            T::Map(Arc::new(Field::new("entries", entries, false)), false),
            T::Struct(Fields::from(vec![nullable("x", T::Utf8), nullable("y", T::List(item(T::Boolean)))])),
        ]),
        of(vec![
            T::Dictionary(Box::new(T::Int8), Box::new(T::Utf8)),
            T::Dictionary(Box::new(T::UInt32), Box::new(T::Float64)),
            T::RunEndEncoded(
                Arc::new(Field::new("run_ends", T::Int32, false)),
                Arc::new(nullable("values", T::Utf8)),
            ),
        ]),
        of(vec![T::Union(union_fields.clone(), UnionMode::Sparse), T::Union(union_fields, UnionMode::Dense)]),
        of(vec![]),
    ]
}
