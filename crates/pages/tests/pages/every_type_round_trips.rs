//! Every supported Arrow type survives a page: with nulls, without, empty, sliced, scattered by index.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

use std::sync::Arc;

use arrow_array::builder::{
    Int32Builder, ListBuilder, MapBuilder, StringBuilder, StringDictionaryBuilder, StringViewBuilder,
};
use arrow_array::types::*;
use arrow_array::*;
use arrow_buffer::{Buffer, IntervalDayTime, IntervalMonthDayNano, NullBuffer, ScalarBuffer, i256};
use arrow_schema::{DataType, Field, Fields, Schema, UnionFields};
use nandina_pages::*;

fn primitive<T: ArrowPrimitiveType>(rows: usize, value: impl Fn(usize) -> T::Native) -> PrimitiveArray<T> {
    (0..rows).map(|row| (row % 5 != 3).then(|| value(row))).collect()
}

fn text(row: usize) -> Option<String> {
    (row % 7 != 2).then(|| match row % 4 {
        0 => String::new(),
        1 => format!("row {row}"),
        2 => "a string too long for a view to hold it inline".repeat(row % 3 + 1),
        _ => format!("žluťoučký kůň {row} 🐎"),
    })
}

/// One column of every type, all nullable.
fn every_type(rows: usize) -> RecordBatch {
    let mut columns: Vec<(&str, ArrayRef)> = vec![
        ("null", Arc::new(NullArray::new(rows))),
        (
            "boolean",
            Arc::new((0..rows).map(|row| (row % 3 != 1).then_some(row % 2 == 0)).collect::<BooleanArray>()),
        ),
        ("int8", Arc::new(primitive::<Int8Type>(rows, |row| row as i8))),
        ("int16", Arc::new(primitive::<Int16Type>(rows, |row| row as i16 - 7))),
        ("int32", Arc::new(primitive::<Int32Type>(rows, |row| row as i32 * -3))),
        ("int64", Arc::new(primitive::<Int64Type>(rows, |row| row as i64 * 1_000_000_007))),
        ("uint8", Arc::new(primitive::<UInt8Type>(rows, |row| row as u8))),
        ("uint16", Arc::new(primitive::<UInt16Type>(rows, |row| row as u16))),
        ("uint32", Arc::new(primitive::<UInt32Type>(rows, |row| row as u32))),
        ("uint64", Arc::new(primitive::<UInt64Type>(rows, |row| u64::MAX - row as u64))),
        (
            "float16",
            Arc::new(primitive::<Float16Type>(rows, |row| {
                <Float16Type as ArrowPrimitiveType>::Native::from_bits(row as u16)
            })),
        ),
        ("float32", Arc::new(primitive::<Float32Type>(rows, |row| row as f32 / 3.0))),
        ("float64", Arc::new(primitive::<Float64Type>(rows, |row| row as f64 / 7.0))),
        ("date32", Arc::new(primitive::<Date32Type>(rows, |row| row as i32))),
        ("date64", Arc::new(primitive::<Date64Type>(rows, |row| row as i64))),
        ("time32s", Arc::new(primitive::<Time32SecondType>(rows, |row| row as i32))),
        ("time32ms", Arc::new(primitive::<Time32MillisecondType>(rows, |row| row as i32))),
        ("time64us", Arc::new(primitive::<Time64MicrosecondType>(rows, |row| row as i64))),
        ("time64ns", Arc::new(primitive::<Time64NanosecondType>(rows, |row| row as i64))),
        ("timestamp_s", Arc::new(primitive::<TimestampSecondType>(rows, |row| row as i64))),
        (
            "timestamp_tz",
            Arc::new(
                primitive::<TimestampNanosecondType>(rows, |row| row as i64).with_timezone("Europe/Prague"),
            ),
        ),
        ("duration", Arc::new(primitive::<DurationMicrosecondType>(rows, |row| row as i64))),
        ("interval_ym", Arc::new(primitive::<IntervalYearMonthType>(rows, |row| row as i32))),
        (
            "interval_dt",
            Arc::new(primitive::<IntervalDayTimeType>(rows, |row| IntervalDayTime::new(row as i32, -1))),
        ),
        (
            "interval_mdn",
            Arc::new(primitive::<IntervalMonthDayNanoType>(rows, |row| {
                IntervalMonthDayNano::new(1, row as i32, 9)
            })),
        ),
        (
            "decimal32",
            Arc::new(
                primitive::<Decimal32Type>(rows, |row| row as i32).with_precision_and_scale(7, 2).unwrap(),
            ),
        ),
        (
            "decimal64",
            Arc::new(
                primitive::<Decimal64Type>(rows, |row| row as i64).with_precision_and_scale(15, 2).unwrap(),
            ),
        ),
        (
            "decimal128",
            Arc::new(
                primitive::<Decimal128Type>(rows, |row| row as i128 * -99)
                    .with_precision_and_scale(30, 4)
                    .unwrap(),
            ),
        ),
        (
            "decimal256",
            Arc::new(
                primitive::<Decimal256Type>(rows, |row| i256::from_i128(row as i128))
                    .with_precision_and_scale(60, 4)
                    .unwrap(),
            ),
        ),
        ("utf8", Arc::new((0..rows).map(text).collect::<StringArray>())),
        ("large_utf8", Arc::new((0..rows).map(text).collect::<LargeStringArray>())),
        ("utf8_view", Arc::new((0..rows).map(text).collect::<StringViewArray>())),
        ("binary", Arc::new((0..rows).map(|row| text(row).map(String::into_bytes)).collect::<BinaryArray>())),
        (
            "large_binary",
            Arc::new((0..rows).map(|row| text(row).map(String::into_bytes)).collect::<LargeBinaryArray>()),
        ),
        (
            "binary_view",
            Arc::new((0..rows).map(|row| text(row).map(String::into_bytes)).collect::<BinaryViewArray>()),
        ),
    ];
    for width in [0, 1, 3, 16, 20] {
        let bytes: Vec<u8> = (0..rows * width).map(|byte| byte as u8).collect();
        let nulls: NullBuffer = (0..rows).map(|row| row % 4 != 0).collect::<Vec<_>>().into();
        let array =
            FixedSizeBinaryArray::try_new_with_len(width as i32, Buffer::from(bytes), Some(nulls), rows)
                .unwrap();
        columns.push(("fixed_size_binary", Arc::new(array)));
    }
    columns.extend(nested(rows));
    let fields: Vec<Field> = columns
        .iter()
        .enumerate()
        .map(|(number, (name, array))| {
            Field::new(format!("{name}_{number}"), array.data_type().clone(), true)
        })
        .collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns.into_iter().map(|(_, array)| array).collect())
        .unwrap()
}

fn nested(rows: usize) -> Vec<(&'static str, ArrayRef)> {
    let mut list = ListBuilder::new(StringViewBuilder::new());
    let mut map = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    let mut dictionary = StringDictionaryBuilder::<Int8Type>::new();
    for row in 0..rows {
        for item in 0..row % 4 {
            list.values().append_option(text(row + item));
            map.keys().append_value(format!("key {item}"));
            map.values().append_option((item != 1).then_some(row as i32));
        }
        list.append(row % 5 != 0);
        map.append(row % 6 != 1).unwrap();
        if row % 3 == 0 {
            dictionary.append_null()
        } else {
            dictionary.append_value(format!("value {}", row % 50))
        }
    }
    let list: ArrayRef = Arc::new(list.finish());
    let dictionary: ArrayRef = Arc::new(dictionary.finish());
    let integers: ArrayRef = Arc::new(primitive::<Int64Type>(rows, |row| row as i64));
    let fields: Fields = vec![
        Field::new("list", list.data_type().clone(), true),
        Field::new("dictionary", dictionary.data_type().clone(), true),
        Field::new("integer", DataType::Int64, true),
    ]
    .into();
    let nulls: NullBuffer = (0..rows).map(|row| row % 9 != 4).collect::<Vec<_>>().into();
    let children = vec![Arc::clone(&list), Arc::clone(&dictionary), Arc::clone(&integers)];
    let structs: ArrayRef =
        Arc::new(StructArray::try_new_with_length(fields, children, Some(nulls.clone()), rows).unwrap());
    let item = Arc::new(Field::new("item", DataType::Int64, true));
    let values = Arc::new(primitive::<Int64Type>(rows * 3, |row| row as i64));
    let fixed_list = FixedSizeListArray::try_new_with_length(item, 3, values, Some(nulls), rows).unwrap();
    let ends: PrimitiveArray<Int32Type> = (1..=rows as i32).map(|end| end * 2).collect();
    let runs = RunArray::<Int32Type>::try_new(&ends, &integers).unwrap().slice(0, rows);
    let text_values: ArrayRef = Arc::new((0..rows).map(text).collect::<StringArray>());
    let union_fields = UnionFields::try_new(
        [3, 5],
        [Field::new("integer", DataType::Int64, true), Field::new("text", DataType::Utf8, true)],
    )
    .unwrap();
    let type_ids: ScalarBuffer<i8> = (0..rows).map(|row| if row % 2 == 0 { 3 } else { 5 }).collect();
    let offsets: ScalarBuffer<i32> = (0..rows as i32).collect();
    let children = vec![integers, text_values];
    let sparse = UnionArray::try_new(union_fields.clone(), type_ids.clone(), None, children.clone()).unwrap();
    let dense = UnionArray::try_new(union_fields, type_ids, Some(offsets), children).unwrap();
    vec![
        ("list", list),
        ("map", Arc::new(map.finish())),
        ("dictionary", dictionary),
        ("struct", structs),
        ("fixed_size_list", Arc::new(fixed_list)),
        ("run_end", Arc::new(runs)),
        ("sparse_union", Arc::new(sparse)),
        ("dense_union", Arc::new(dense)),
    ]
}

/// Writes all rows into pages of `page_bytes` and returns the pages.
fn write(batch: &RecordBatch, page_bytes: usize, mut rows: Rows<'_>) -> Vec<Page> {
    let schema = PageSchema::try_new(batch.schema()).unwrap();
    let mut builder = PageBuilder::new(Arc::clone(&schema), page_bytes, u16::MAX as usize);
    let mut pages = Vec::new();
    loop {
        let taken = builder.append(batch, rows.clone()).unwrap();
        rows = rows.skip(taken);
        if !rows.is_empty() {
            assert!(builder.is_full(), "rows were refused by a builder that is not full");
        }
        let bound = builder.encoded_bytes();
        let mut out = vec![0xA5u8; bound.next_multiple_of(4096)];
        let meta = builder.encode(PageIdentity::new(pages.len() as u64), &mut out).unwrap();
        assert!(meta.used_bytes <= bound);
        assert!(out[meta.used_bytes..].iter().all(|&byte| byte == 0), "the tail is not zeroed");
        let page = Page::open(Buffer::from(out), Arc::clone(&schema), Verify::Checksums).unwrap();
        assert_eq!(page.meta(), &meta);
        pages.push(page);
        if rows.is_empty() {
            return pages;
        }
    }
}

fn read(pages: &[Page]) -> RecordBatch {
    let batches: Vec<RecordBatch> = pages.iter().map(|page| page.batch(None).unwrap()).collect();
    arrow_select::concat::concat_batches(&batches[0].schema(), &batches).unwrap()
}

/// Union and run-end arrays have no `PartialEq` of their own beyond `ArrayData`'s, which compares values.
fn assert_same(found: &RecordBatch, expected: &RecordBatch) {
    assert_eq!(found.num_rows(), expected.num_rows());
    for (column, (found, expected)) in found.columns().iter().zip(expected.columns()).enumerate() {
        assert_eq!(found.to_data(), expected.to_data(), "column {column}");
    }
}

fn taken(batch: &RecordBatch, indices: &[u32]) -> RecordBatch {
    arrow_select::take::take_record_batch(batch, &UInt32Array::from(indices.to_vec())).unwrap()
}

#[test]
fn all_rows_in_one_page() {
    let batch = every_type(100);
    let pages = write(&batch, 4 << 20, Rows::Range(0..100));
    assert_eq!(pages.len(), 1);
    assert_same(&pages[0].batch(None).unwrap(), &batch);
}

#[test]
fn an_empty_page() {
    let batch = every_type(0);
    let pages = write(&batch, 32 << 10, Rows::Range(0..0));
    assert_same(&pages[0].batch(None).unwrap(), &batch);
}

#[test]
fn many_pages() {
    let batch = every_type(1000);
    let pages = write(&batch, 32 << 10, Rows::Range(0..1000));
    assert!(pages.len() > 5, "{} pages", pages.len());
    for page in &pages {
        assert!(page.meta().used_bytes <= 32 << 10);
    }
    let expected: Vec<u32> = (0..1000).collect();
    assert_same(&read(&pages), &taken(&batch, &expected));
}

#[test]
fn ranges_inside_a_batch() {
    let batch = every_type(300);
    let expected: Vec<u32> = (37..211).collect();
    assert_same(&read(&write(&batch, 4 << 20, Rows::Range(37..211))), &taken(&batch, &expected));
}

#[test]
fn slices_with_offsets() {
    let batch = every_type(300);
    let slice = batch.slice(13, 201);
    let expected: Vec<u32> = (13..214).collect();
    assert_same(&read(&write(&slice, 4 << 20, Rows::Range(0..201))), &taken(&batch, &expected));
    let indices = [200, 0, 0, 7, 64, 65, 199];
    let expected: Vec<u32> = indices.iter().map(|index| index + 13).collect();
    assert_same(&read(&write(&slice, 4 << 20, Rows::Indices(&indices))), &taken(&batch, &expected));
}

#[test]
fn indices_in_any_order_and_repeated() {
    let batch = every_type(500);
    let indices: Vec<u32> = (0..700u32).map(|row| row * 7919 % 500).collect();
    assert_same(&read(&write(&batch, 64 << 10, Rows::Indices(&indices))), &taken(&batch, &indices));
}

#[test]
fn several_appends_fill_one_page() {
    let batch = every_type(200);
    let schema = PageSchema::try_new(batch.schema()).unwrap();
    let mut builder = PageBuilder::new(Arc::clone(&schema), 4 << 20, 1000);
    let mut expected = Vec::new();
    // Rows without nulls come first in some columns, so that validity starts late.
    for chunk in [&[0u32, 5, 10][..], &[1, 2, 3], &[7; 70], &[], &[199, 100]] {
        assert_eq!(builder.append(&batch, Rows::Indices(chunk)).unwrap(), chunk.len());
        expected.extend_from_slice(chunk);
    }
    assert_eq!(builder.rows(), expected.len());
    let mut out = vec![0u8; builder.encoded_bytes()];
    builder.encode(PageIdentity::new(3), &mut out).unwrap();
    let page = Page::open(Buffer::from(out), schema, Verify::Trusted).unwrap();
    assert_eq!(page.identity().page_number, 3);
    assert_same(&page.batch(None).unwrap(), &taken(&batch, &expected));
}

#[test]
fn nulls_only_count_where_they_are() {
    let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int32, true)]));
    let array = Int32Array::from(vec![Some(1), None, Some(3)]);
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(array)]).unwrap();
    let page = &write(&batch, 32 << 10, Rows::Indices(&[0, 2]))[0];
    assert_eq!(page.meta().columns[0].null_count, 0);
    assert_eq!(page.meta().columns[0].length_bytes, 8);
    assert!(page.parts(0).unwrap().validity.is_none());
}

#[test]
fn a_value_longer_than_the_page_makes_it_oversized() {
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("text", DataType::Utf8View, false),
    ]));
    let huge = "x".repeat(5 << 20);
    let texts = StringViewArray::from(vec!["short", huge.as_str(), "again short"]);
    let batch =
        RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(vec![1, 2, 3])), Arc::new(texts)])
            .unwrap();
    let pages = write(&batch, 32 << 10, Rows::Range(0..3));
    assert_eq!(pages.iter().map(Page::rows).collect::<Vec<_>>(), [1, 1, 1]);
    assert!(pages[1].meta().used_bytes > 5 << 20);
    assert_same(&read(&pages), &batch);
}

#[test]
fn encoded_bytes_are_exact_for_flat_columns() {
    let batch = every_type(120);
    let flat: Vec<usize> = (0..batch.num_columns() - 8).collect();
    let batch = batch.project(&flat).unwrap();
    let schema = PageSchema::try_new(batch.schema()).unwrap();
    let mut builder = PageBuilder::new(schema, 1 << 20, 1000);
    for end in [1u32, 2, 64, 120] {
        let indices: Vec<u32> = (0..end).collect();
        builder.append(&batch, Rows::Indices(&indices)).unwrap();
        let announced = builder.encoded_bytes();
        let mut out = vec![0; announced];
        assert_eq!(builder.encode(PageIdentity::default(), &mut out).unwrap().used_bytes, announced);
    }
}

#[test]
fn small_dictionary_keys_never_overflow() {
    let schema = Arc::new(Schema::new(vec![Field::new(
        "d",
        DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8)),
        false,
    )]));
    let batch = |from: usize| {
        let mut builder = StringDictionaryBuilder::<Int8Type>::new();
        (from..from + 100).for_each(|value| builder.append_value(format!("value {value}")));
        RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(builder.finish())]).unwrap()
    };
    let mut builder = PageBuilder::new(PageSchema::try_new(Arc::clone(&schema)).unwrap(), 1 << 20, 10_000);
    assert_eq!(builder.append(&batch(0), Rows::Range(0..100)).unwrap(), 100);
    assert_eq!(builder.append(&batch(100), Rows::Range(0..100)).unwrap(), 27);
    assert!(builder.is_full());
    let mut out = vec![0; builder.encoded_bytes()];
    assert_eq!(builder.encode(PageIdentity::default(), &mut out).unwrap().rows, 127);
}

#[test]
fn projection_and_zero_columns() {
    let batch = every_type(40);
    let page = &write(&batch, 4 << 20, Rows::Range(0..40))[0];
    let projected = page.batch(Some(&[5, 1])).unwrap();
    assert_same(&projected, &batch.project(&[5, 1]).unwrap());
    assert_eq!(page.batch(Some(&[])).unwrap().num_rows(), 40);
    assert!(matches!(page.column(1000), Err(PageError::NoSuchColumn { column: 1000, .. })));
}

#[test]
fn single_mini_pages_decode_from_their_own_bytes() {
    let batch = every_type(90);
    let page = &write(&batch, 4 << 20, Rows::Range(0..90))[0];
    let mut out = vec![0u8; page.meta().used_bytes];
    let schema = PageSchema::try_new(batch.schema()).unwrap();
    let mut builder = PageBuilder::new(schema, 4 << 20, 1000);
    builder.append(&batch, Rows::Range(0..90)).unwrap();
    out.resize(builder.encoded_bytes(), 0);
    let meta = builder.encode(PageIdentity::default(), &mut out).unwrap();
    for (column, mini_page) in meta.columns.iter().enumerate() {
        // Deliberately misaligned: the decoder copies then.
        let mut shifted = vec![0u8];
        shifted.extend_from_slice(&out[mini_page.range()]);
        let bytes = Buffer::from(shifted).slice(1);
        let array = decode_mini_page(bytes, batch.schema().field(column), 90, mini_page).unwrap();
        assert_eq!(array.to_data(), batch.column(column).to_data(), "column {column}");
    }
}

#[test]
fn values_are_not_copied() {
    let batch = every_type(50);
    let pages = write(&batch, 4 << 20, Rows::Range(0..50));
    let PartValues::Variable { bytes, .. } = pages[0].parts(29).unwrap().values else {
        panic!("not variable")
    };
    let array = pages[0].column(29).unwrap();
    let strings = array.as_any().downcast_ref::<StringArray>().unwrap();
    assert_eq!(strings.value_data().as_ptr(), bytes.as_ptr());
}

#[test]
fn wrong_batches_are_refused() {
    let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int32, true)]));
    let other = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
    let mut builder = PageBuilder::new(PageSchema::try_new(schema).unwrap(), 32 << 10, 10);
    let batch = RecordBatch::try_new(other, vec![Arc::new(Int64Array::from(vec![1]))]).unwrap();
    assert!(matches!(
        builder.append(&batch, Rows::Range(0..1)),
        Err(PageError::TypeMismatch { column: 0, .. })
    ));
    let batch =
        RecordBatch::try_new(builder.schema().arrow().clone(), vec![Arc::new(Int32Array::from(vec![1]))])
            .unwrap();
    assert!(matches!(
        builder.append(&batch, Rows::Indices(&[0, 1])),
        Err(PageError::RowOutOfRange { row: 1, rows: 1 })
    ));
}
