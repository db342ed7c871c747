//! Columns in their smallest encodings: which is chosen, how long it is, and that every value comes back.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

use std::sync::Arc;

use arrow_array::types::*;
use arrow_array::*;
use arrow_buffer::Buffer;
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema};
use nandina_pages::*;

const ROWS: usize = 5000;

/// Encodes a column, checks that it comes back in every form, and returns the encoding and the mini-page's length.
fn through(array: ArrayRef) -> (Encoding, usize) {
    let field = Field::new("c", array.data_type().clone(), true);
    let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![Arc::clone(&array)]).unwrap();
    let schema = PageSchema::try_new(batch.schema()).unwrap();
    let mut builder = PageBuilder::new(Arc::clone(&schema), 1 << 28, 1 << 20);
    assert_eq!(builder.append(&batch, Rows::Range(0..batch.num_rows())).unwrap(), batch.num_rows());
    let mut page = CompactPage::default();
    builder.encode_compact(&mut page).unwrap();
    assert_eq!(builder.rows(), batch.num_rows(), "rows stay staged");
    let mut out = vec![0xEE; page.used_bytes().next_multiple_of(4096)];
    let meta = page.write(PageIdentity::new(1), &mut out).unwrap();
    assert_eq!(meta.used_bytes, page.used_bytes());
    let page = Page::open(Buffer::from(out), schema, Verify::Checksums).unwrap();
    let found = page.column(0).unwrap();
    found.to_data().validate_full().unwrap();
    assert_eq!(&found, &array);
    check_dictionary(&page, &found);
    let parts = page.parts(0).unwrap();
    assert_eq!(parts.validity.map_or(0, |nulls| nulls.null_count()), array.null_count());
    (meta.columns[0].encoding, meta.columns[0].length_bytes as usize)
}

/// Values and codes, if there are any, make the same column.
fn check_dictionary(page: &Page, expected: &ArrayRef) {
    let mut bytes = vec![0xEE; page.meta().used_bytes];
    let schema = Arc::clone(page.schema());
    let field = schema.arrow().field(0);
    let mut builder = PageBuilder::new(Arc::clone(&schema), 1 << 28, 1 << 20);
    builder.append(&page.batch(None).unwrap(), Rows::Range(0..page.rows())).unwrap();
    let mut again = CompactPage::default();
    builder.encode_compact(&mut again).unwrap();
    let meta = again.write(PageIdentity::new(1), &mut bytes).unwrap();
    let mini_page = Buffer::from(&bytes[meta.columns[0].range()]);
    let parts = decode_dictionary(mini_page, field, page.rows(), &meta.columns[0]).unwrap();
    assert_eq!(parts.is_some(), meta.columns[0].encoding == Encoding::Dictionary);
    let Some(parts) = parts else { return };
    let codes = UInt32Array::new(parts.codes.into(), parts.validity);
    assert_eq!(&arrow_select::take::take(&parts.values, &codes, None).unwrap(), expected);
}

fn integers<T: ArrowPrimitiveType>(value: impl Fn(usize) -> T::Native) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::from_iter_values((0..ROWS).map(value)))
}

fn with_nulls(array: &ArrayRef) -> ArrayRef {
    let rows: UInt32Array = (0..array.len() as u32).map(|row| (row % 7 != 3).then_some(row)).collect();
    arrow_select::take::take(array, &rows, None).unwrap()
}

/// Every type of variable width.
fn in_all_forms(texts: &[&str]) -> Vec<ArrayRef> {
    let texts: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
    let types = [
        DataType::Utf8,
        DataType::LargeUtf8,
        DataType::Utf8View,
        DataType::Binary,
        DataType::LargeBinary,
        DataType::BinaryView,
    ];
    types.iter().map(|data_type| cast(&texts, data_type).unwrap()).collect()
}

#[test]
fn integers_take_the_bits_that_their_range_needs() {
    let blocks = ROWS.div_ceil(256);
    for (array, bits) in [
        (integers::<Int8Type>(|row| row as i8 % 3), 3),
        (integers::<Int16Type>(|row| 1000 + (row % 100) as i16), 7),
        (integers::<Int32Type>(|row| -1_000_000 + row as i32), 13),
        (integers::<Int64Type>(|row| i64::MIN + row as i64), 13),
        (integers::<Int64Type>(|row| (row as i64) << 35), 48),
        (integers::<UInt64Type>(|row| u64::MAX - row as u64), 13),
        (integers::<Date32Type>(|row| 9000 + (row % 2500) as i32), 12),
        (integers::<TimestampMicrosecondType>(|row| 1_600_000_000_000_000 + row as i64 * 60_000_000), 39),
        (integers::<Decimal128Type>(|row| 90_000 + (row as i128 * 7919) % 10_000_000), 24),
        (integers::<Decimal128Type>(|row| i128::MIN + row as i128), 13),
        (integers::<Int64Type>(|_| 42), 0),
    ] {
        for array in [Arc::clone(&array), with_nulls(&array)] {
            let (encoding, length) = through(Arc::clone(&array));
            assert_eq!(encoding, Encoding::FrameOfReference, "{}", array.data_type());
            let validity = if array.null_count() > 0 { ROWS.div_ceil(8) } else { 0 };
            assert!(length <= 24 + blocks * 32 * bits + validity, "{}: {length}", array.data_type());
        }
    }
}

#[test]
fn what_nulls_hide_does_not_widen_the_range() {
    let values: Vec<i64> = (0..ROWS as i64).map(|row| if row % 2 == 0 { i64::MIN } else { row }).collect();
    let nulls = (0..ROWS).map(|row| row % 2 == 1).collect::<Vec<bool>>();
    let (encoding, length) = through(Arc::new(Int64Array::new(values.into(), Some(nulls.into()))));
    assert_eq!(encoding, Encoding::FrameOfReference);
    assert!(length < ROWS * 2 + ROWS / 8 + 512, "{length}");
}

#[test]
fn integers_that_fill_their_width_stay_as_they_are() {
    let scattered = |row: usize| (row as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    assert_eq!(through(integers::<Int64Type>(|row| scattered(row) as i64)).0, Encoding::Fixed);
    assert_eq!(through(integers::<Int8Type>(|row| scattered(row) as i8)).0, Encoding::Fixed);
    let extremes = |row| if row % 2 == 0 { i128::MAX } else { i128::MIN };
    assert_eq!(through(integers::<Decimal128Type>(extremes)).0, Encoding::Fixed);
    // The range needs 64 bits, of 128.
    let halves = |row| if row % 2 == 0 { i128::from(i64::MAX) } else { i128::from(i64::MIN) };
    assert_eq!(through(integers::<Decimal128Type>(halves)).0, Encoding::FrameOfReference);
    assert_eq!(through(integers::<Float64Type>(|row| (scattered(row) as f64).sqrt())).0, Encoding::Fixed);
}

#[test]
fn columns_of_a_row_none_or_nothing_but_nulls() {
    for rows in [0, 1, 2, 255, 256, 257] {
        through(Arc::new(Int64Array::from(vec![7; rows])));
        through(Arc::new(Int64Array::from(vec![None; rows])));
        through(Arc::new(StringViewArray::from(vec!["a text that is not inline"; rows])));
        through(Arc::new(StringViewArray::from(vec![None::<&str>; rows])));
        through(Arc::new(StringArray::from(vec![""; rows])));
    }
}

#[test]
fn texts_of_few_values_become_codes() {
    let modes = ["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK", "", "žluťoučký kůň a jeho hřebec"];
    let texts: Vec<&str> = (0..ROWS).map(|row| modes[row * 7919 % modes.len()]).collect();
    for array in in_all_forms(&texts) {
        for array in [Arc::clone(&array), with_nulls(&array)] {
            let (encoding, length) = through(Arc::clone(&array));
            assert_eq!(encoding, Encoding::Dictionary, "{}", array.data_type());
            assert!(length < ROWS / 2 + ROWS / 8 + 600, "{}: {length}", array.data_type());
        }
    }
}

#[test]
fn texts_of_many_values_are_compressed() {
    let words = ["carefully", "final", "deposits", "sleep", "quickly", "Žižka", "requests", "according"];
    let texts: Vec<String> = (0..ROWS)
        .map(|row| {
            (0..row % 6).map(|word| words[row * (word + 3) % words.len()]).collect::<Vec<_>>().join(" ")
        })
        .enumerate()
        .map(|(row, text)| format!("{text} {row}"))
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let raw_bytes = texts.iter().map(|text| text.len() + 4).sum::<usize>();
    for array in in_all_forms(&texts) {
        for array in [Arc::clone(&array), with_nulls(&array)] {
            let (encoding, length) = through(Arc::clone(&array));
            assert_eq!(encoding, Encoding::Compressed, "{}", array.data_type());
            assert!(length < raw_bytes / 2, "{}: {length} of {raw_bytes}", array.data_type());
        }
    }
}

#[test]
fn texts_without_pattern_lose_their_offsets_only() {
    let mut random = 1u64;
    let mut byte = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 56) as u8
    };
    let values: Vec<Vec<u8>> = (0..ROWS).map(|_| (0..15).map(|_| byte()).collect()).collect();
    let array: ArrayRef = Arc::new(BinaryArray::from_iter_values(&values));
    let (encoding, length) = through(Arc::clone(&array));
    assert_eq!(encoding, Encoding::Compressed);
    assert_eq!(length, 16 + ROWS * 15);
    // Of long values, offsets are not worth the decoding.
    let values: Vec<Vec<u8>> = (0..200).map(|_| (0..1500).map(|_| byte()).collect()).collect();
    assert_eq!(through(Arc::new(BinaryArray::from_iter_values(&values))).0, Encoding::Offsets32);
}

#[test]
fn huge_texts() {
    let huge = "a huge text ".repeat(1 << 20);
    let (encoding, length) = through(Arc::new(StringViewArray::from(vec![huge.as_str(), "", "short"])));
    assert_eq!(encoding, Encoding::Compressed);
    assert!(length < huge.len() / 50, "{length}");
}

#[test]
fn a_dictionary_that_does_not_pay_is_none() {
    // Half of the values come twice, far apart: a dictionary would hold nearly all there is.
    let texts: Vec<String> = (0..ROWS).map(|row| format!("{:016x}", (row % 3400) * 0x9E37_79B9)).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    assert_eq!(through(Arc::new(StringArray::from(texts))).0, Encoding::Compressed);
}

#[test]
fn pages_of_more_rows_than_damage_may_claim_stay_as_they_are() {
    let array: ArrayRef = Arc::new(Int32Array::from(vec![1; MAX_ENCODED_ROWS + 1]));
    assert_eq!(through(array).0, Encoding::Fixed);
    let array: ArrayRef = Arc::new(Int32Array::from(vec![1; MAX_ENCODED_ROWS]));
    assert_eq!(through(array), (Encoding::FrameOfReference, 24));
}
