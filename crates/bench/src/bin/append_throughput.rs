//! How fast do rows go into pages? The hot loop of hash partitioning, one core, in cache.
//!
//! `cargo run --release -p nandina-bench --bin append_throughput`

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a measuring program may stop at the first surprise"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray, StringViewArray};
use arrow::buffer::Buffer;
use arrow::datatypes::{Field, Schema};
use nandina_pages::{Page, PageBuilder, PageIdentity, PageSchema, Rows, Verify};

const PAGE_BYTES: usize = 64 << 10;
const BATCH_ROWS: usize = 8192;
const PAYLOAD_BYTES: usize = 2 << 30;

fn main() {
    let text = |row: usize| "comment of an order".repeat(3).get(..10 + row % 40).map(str::to_owned);
    let int64: ArrayRef = Arc::new((0..BATCH_ROWS as i64).collect::<Int64Array>());
    let nullable: ArrayRef =
        Arc::new((0..BATCH_ROWS as i64).map(|v| (v % 10 != 0).then_some(v)).collect::<Int64Array>());
    let utf8: ArrayRef = Arc::new((0..BATCH_ROWS).map(text).collect::<StringArray>());
    let views: ArrayRef = Arc::new((0..BATCH_ROWS).map(text).collect::<StringViewArray>());
    println!("{:<28} {:>10} {:>12} {:>12}", "columns", "rows/call", "append GB/s", "+encode GB/s");
    for (name, column, count) in [
        ("int64", &int64, 8),
        ("int64 nullable", &nullable, 8),
        ("utf8 (avg 29 B)", &utf8, 4),
        ("utf8 view", &views, 4),
    ] {
        let batch = batch_of(column, count);
        for rows_per_call in [16, 128, 1024] {
            let (append, encode) = measure(&batch, rows_per_call);
            println!("{:<28} {rows_per_call:>10} {append:>12.2} {encode:>12.2}", format!("{count} × {name}"));
        }
    }
    read_back(&batch_of(&int64, 8), "8 × int64");
    read_back(&batch_of(&utf8, 4), "4 × utf8");
    read_back(&batch_of(&views, 4), "4 × utf8 view");
}

fn batch_of(column: &ArrayRef, count: usize) -> RecordBatch {
    let fields: Vec<_> =
        (0..count).map(|number| Field::new(format!("c{number}"), column.data_type().clone(), true)).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![Arc::clone(column); count]).unwrap()
}

/// Payload per second of appending alone, and of appending and encoding.
fn measure(batch: &RecordBatch, rows_per_call: usize) -> (f64, f64) {
    let schema = PageSchema::try_new(batch.schema()).unwrap();
    let mut builder = PageBuilder::new(schema, PAGE_BYTES, 1 << 20);
    // Scattered row numbers, as a partitioner's selection vectors are.
    let scattered: Vec<u32> = (0..BATCH_ROWS).map(|row| (row * 5 % BATCH_ROWS) as u32).collect();
    let mut out = vec![0u8; PAGE_BYTES];
    let mut rates = [0.0; 2];
    for (with_encode, rate) in [false, true].into_iter().zip(&mut rates) {
        let (mut payload, mut used) = (0usize, 0usize);
        let start = Instant::now();
        'fill: loop {
            for mut rows in scattered.chunks(rows_per_call) {
                while !rows.is_empty() {
                    let taken = builder.append(batch, Rows::Indices(rows)).unwrap();
                    rows = &rows[taken..];
                    if builder.is_full() {
                        used = builder.encoded_bytes();
                        payload += used;
                        if with_encode {
                            builder.encode(PageIdentity::default(), &mut out).unwrap();
                            black_box(&out);
                        } else {
                            builder.clear();
                        }
                    }
                }
                if payload > PAYLOAD_BYTES {
                    break 'fill;
                }
            }
        }
        assert!(used > PAGE_BYTES / 2);
        *rate = payload as f64 / start.elapsed().as_secs_f64() / 1e9;
    }
    (rates[0], rates[1])
}

fn read_back(batch: &RecordBatch, name: &str) {
    let schema = PageSchema::try_new(batch.schema()).unwrap();
    let mut builder = PageBuilder::new(Arc::clone(&schema), PAGE_BYTES, 1 << 20);
    builder.append(batch, Rows::Range(0..BATCH_ROWS)).unwrap();
    let mut out = vec![0u8; PAGE_BYTES];
    builder.encode(PageIdentity::default(), &mut out).unwrap();
    let bytes = Buffer::from(out);
    for verify in [Verify::Checksums, Verify::Trusted] {
        let start = Instant::now();
        let rounds = 20_000;
        for _ in 0..rounds {
            let page = Page::open(bytes.clone(), Arc::clone(&schema), verify).unwrap();
            black_box(page.batch(None).unwrap().column(0).len());
        }
        let rate = (rounds * PAGE_BYTES) as f64 / start.elapsed().as_secs_f64() / 1e9;
        println!("open + batch, {name}, {verify:?}: {rate:.1} GB/s");
    }
}
