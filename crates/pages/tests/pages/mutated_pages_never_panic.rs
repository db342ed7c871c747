//! Valid pages, damaged in thousands of ways: the decoder returns errors or valid arrays, and nothing else.
//!
//! The same entry function as the fuzz target, with a fixed seed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "test code")]

use std::sync::Arc;

use arrow_array::RecordBatch;
use nandina_pages::{CompactPage, PageBuilder, PageIdentity, PageSchema, Rows};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::page_decoder;

use crate::arbitrary;

const BASE_PAGES_PER_SCHEMA: usize = 40;
const MUTATIONS_PER_BASE_PAGE: usize = 50;

struct Random(u64);

impl Random {
    /// xorshift64*
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

fn valid_page(batch: &RecordBatch, is_compact: bool) -> Vec<u8> {
    let schema = PageSchema::try_new(batch.schema()).unwrap();
    let mut builder = PageBuilder::new(schema, 1 << 20, 10_000);
    builder.append(batch, Rows::Range(0..batch.num_rows())).unwrap();
    if is_compact {
        let mut compact = CompactPage::default();
        builder.encode_compact(&mut compact).unwrap();
        let mut page = vec![0; compact.used_bytes()];
        compact.write(PageIdentity::new(7), &mut page).unwrap();
        return page;
    }
    let mut page = vec![0; builder.encoded_bytes()];
    builder.encode(PageIdentity::new(7), &mut page).unwrap();
    page
}

fn mutate(page: &mut Vec<u8>, random: &mut Random, columns: usize) {
    let front = 64 + 20 * columns;
    for _ in 0..=random.below(3) {
        if page.is_empty() {
            return;
        }
        // Half of all damage goes into header and directory, where it does most.
        let reach = if random.below(2) == 0 { front.min(page.len()) } else { page.len() };
        let at = random.below(reach);
        match random.below(6) {
            0 => page[at] ^= 1 << random.below(8),
            1 => page[at] = random.next() as u8,
            2 => {
                let interesting = [0u32, 1, 0x7FFF_FFFF, 0x8000_0000, u32::MAX, page.len() as u32];
                let value = interesting[random.below(interesting.len())].to_le_bytes();
                let at = at & !3;
                let end = (at + 4).min(page.len());
                page[at..end].copy_from_slice(&value[..end - at]);
            }
            3 => page.truncate(at),
            4 => {
                let from = random.below(page.len());
                let length = random.below(64).min(page.len() - from.max(at));
                page.copy_within(from..from + length, at);
            }
            _ => page[at] = page[at].wrapping_add(1),
        }
    }
}

#[test]
fn damaged_pages_are_errors_or_valid_arrays() {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[42; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for (selector, schema) in page_decoder::schemas().iter().enumerate() {
        let columns = schema.fields().len();
        for number in 0..BASE_PAGES_PER_SCHEMA {
            // Columns are long enough for encodings to pay only in some pages.
            let is_compact = number % 2 == 1;
            let rows = if is_compact { 0..700 } else { 0..40 };
            let batch = arbitrary::batch(Arc::clone(schema), rows).new_tree(&mut runner).unwrap().current();
            let base = valid_page(&batch, is_compact);
            for _ in 0..MUTATIONS_PER_BASE_PAGE {
                let mut page = base.clone();
                mutate(&mut page, &mut random, columns);
                page.insert(0, selector as u8);
                page_decoder::decode_everything(&page);
            }
        }
    }
}

#[test]
fn noise_is_an_error() {
    let mut random = Random(1);
    for length in [0, 1, 63, 64, 65, 200, 4096] {
        for _ in 0..100 {
            let bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
            page_decoder::decode_everything(&bytes);
        }
    }
}
