//! Damaged, truncated, foreign and future pages: the error says what is wrong, and with which page.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "test code")]

use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch, StringArray};
use arrow_buffer::Buffer;
use arrow_schema::{DataType, Field, Schema};
use nandina_pages::{Page, PageBuilder, PageIdentity, PageSchema, Rows, Verify, decode_mini_page};

fn schema() -> Arc<PageSchema> {
    let fields = vec![Field::new("key", DataType::Int64, false), Field::new("comment", DataType::Utf8, true)];
    PageSchema::try_new(Arc::new(Schema::new(fields))).unwrap()
}

fn page_17() -> Vec<u8> {
    let comments =
        StringArray::from_iter((0..100).map(|row| (row % 3 > 0).then(|| format!("comment {row}"))));
    let keys = Int64Array::from_iter_values(0..100);
    let batch =
        RecordBatch::try_new(schema().arrow().clone(), vec![Arc::new(keys), Arc::new(comments)]).unwrap();
    let mut builder = PageBuilder::new(schema(), 32 << 10, 1000);
    builder.append(&batch, Rows::Range(0..100)).unwrap();
    let mut out = vec![0; 8192];
    builder.encode(PageIdentity::new(17), &mut out).unwrap();
    out
}

fn error_of(bytes: Vec<u8>) -> String {
    Page::open(Buffer::from(bytes), schema(), Verify::Checksums).unwrap_err().to_string()
}

#[test]
fn every_flipped_bit_of_the_used_bytes_is_noticed() {
    let intact = page_17();
    let page = Page::open(Buffer::from(intact.clone()), schema(), Verify::Checksums).unwrap();
    let used = page.meta().columns.iter().map(|column| column.range()).collect::<Vec<_>>();
    for at in 0..page.meta().used_bytes {
        let padding = at >= 64 + 2 * 20 && !used.iter().any(|range| range.contains(&at));
        let mut damaged = intact.clone();
        damaged[at] ^= 0x10;
        let opened = Page::open(Buffer::from(damaged), schema(), Verify::Checksums);
        assert_eq!(opened.is_ok(), padding, "byte {at}");
    }
}

#[test]
fn a_damaged_mini_page_names_page_and_column() {
    let mut bytes = page_17();
    let page = Page::open(Buffer::from(bytes.clone()), schema(), Verify::Checksums).unwrap();
    bytes[page.meta().columns[1].range().start + 30] ^= 1;
    let message = error_of(bytes);
    assert!(
        message.starts_with("mini-page of column \"comment\" of page 17 is damaged: checksum"),
        "{message}"
    );
}

#[test]
fn a_damaged_directory_names_the_page() {
    let mut bytes = page_17();
    bytes[64 + 5] ^= 1;
    let message = error_of(bytes);
    assert!(message.starts_with("header of page 17 is damaged: checksum"), "{message}");
}

#[test]
fn mini_pages_in_each_other_s_place() {
    let mut bytes = page_17();
    let (first, second) = bytes[64..104].split_at_mut(20);
    first[..4].swap_with_slice(&mut second[..4]);
    let error = Page::open(Buffer::from(bytes), schema(), Verify::Trusted).unwrap_err().to_string();
    assert!(error.contains("\"#1\" of page 17 cannot be decoded: mini-page at 128..1"), "{error}");
    assert!(error.contains("overlaps the one before, or ends behind the page's 8192 bytes"), "{error}");
}

#[test]
fn nothing_at_all() {
    assert!(error_of(Vec::new()).starts_with("page is 0 bytes long, but its header needs 64"));
}

#[test]
fn truncated_pages() {
    let bytes = page_17();
    assert!(
        error_of(bytes[..70].to_vec())
            .starts_with("page is 70 bytes long, but its column directory needs 104")
    );
    let message = error_of(bytes[..1024].to_vec());
    assert!(message.starts_with("page is 1024 bytes long, but its mini-pages needs"), "{message}");
    assert!(message.contains("truncated"), "{message}");
}

#[test]
fn another_kind_of_file() {
    let mut bytes = page_17();
    bytes[..4].copy_from_slice(b"PAR1");
    assert!(error_of(bytes).starts_with("not a PAX page: it starts with 0x31524150"));
}

#[test]
fn a_newer_format() {
    let mut bytes = page_17();
    bytes[4] = 9;
    let message = error_of(bytes);
    assert_eq!(
        message,
        "page 17 has format version 9, this build reads version 2: open it with the release that wrote it"
    );
}

#[test]
fn a_page_of_another_table() {
    let other =
        PageSchema::try_new(Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]))).unwrap();
    let error = Page::open(Buffer::from(page_17()), other, Verify::Checksums).unwrap_err();
    assert_eq!(error.to_string(), "page 17 has 2 columns, its schema has 1: it belongs to another table");
}

#[test]
fn columns_of_another_type() {
    let fields =
        vec![Field::new("key", DataType::Int16, false), Field::new("comment", DataType::Int64, true)];
    let other = PageSchema::try_new(Arc::new(Schema::new(fields))).unwrap();
    let page = Page::open(Buffer::from(page_17()), other, Verify::Checksums).unwrap();
    let message = page.column(0).unwrap_err().to_string();
    assert!(
        message.starts_with("column \"key\" of page 17 cannot be decoded: 600 bytes follow"),
        "{message}"
    );
    let message = page.parts(1).unwrap_err().to_string();
    assert!(message.contains("Offsets32 is not an encoding of Int64"), "{message}");
}

#[test]
fn a_short_mini_page() {
    let bytes = page_17();
    let page = Page::open(Buffer::from(bytes.clone()), schema(), Verify::Checksums).unwrap();
    let meta = page.meta().columns[0];
    let short = Buffer::from(bytes[meta.range()][..100].to_vec());
    let error = decode_mini_page(short, schema().arrow().field(0), 100, &meta).unwrap_err();
    let message = error.in_page(17).to_string();
    assert!(
        message.starts_with("column \"key\" of page 17 cannot be decoded: its mini-page is 800 bytes"),
        "{message}"
    );
}
