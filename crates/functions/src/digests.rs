//! `sha1`: FIPS 180-4, section 6.1. DataFusion has the others.

use std::sync::Arc;

use arrow::array::StringViewArray;
use arrow::datatypes::DataType;
use datafusion::common::cast::{as_binary_array, as_string_view_array};

use crate::function::Kind::{Blob, Text};
use crate::function::{Kernel, arguments};

pub(crate) static FUNCTIONS: &[Kernel] = &[Kernel::new(
    &["sha1"],
    &[&[Text], &[Blob]],
    |_| Ok(DataType::Utf8View),
    |given, _| {
        let [values] = arguments(given)?;
        let digests: StringViewArray = match values.data_type() {
            DataType::Utf8View => {
                let texts = as_string_view_array(values)?.iter();
                texts.map(|text| text.map(|text| sha1(text.as_bytes()))).collect()
            }
            _ => as_binary_array(values)?.iter().map(|bytes| bytes.map(sha1)).collect(),
        };
        Ok(Arc::new(digests))
    },
)];

const BYTES_OF_BLOCK: usize = 64;

/// The digest in hexadecimal digits.
fn sha1(bytes: &[u8]) -> String {
    let mut digest = [0x6745_2301_u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let (blocks, rest) = bytes.as_chunks::<BYTES_OF_BLOCK>();
    blocks.iter().for_each(|block| add(&mut digest, block));
    // A one, zeros, and the number of bits at the end of the last block.
    let mut last = rest.to_vec();
    last.push(0x80);
    while last.len() % BYTES_OF_BLOCK != BYTES_OF_BLOCK - 8 {
        last.push(0);
    }
    last.extend((8 * bytes.len() as u64).to_be_bytes());
    last.as_chunks::<BYTES_OF_BLOCK>().0.iter().for_each(|block| add(&mut digest, block));
    digest.iter().map(|word| format!("{word:08x}")).collect()
}

fn add(digest: &mut [u32; 5], block: &[u8; BYTES_OF_BLOCK]) {
    let mut schedule: Vec<u32> =
        block.as_chunks::<4>().0.iter().map(|bytes| u32::from_be_bytes(*bytes)).collect();
    while let ([.., a, _, b, _, _, _, _, _, c, _, _, _, _, d, _, _], true) =
        (schedule.as_slice(), schedule.len() < 80)
    {
        let word = (a ^ b ^ c ^ d).rotate_left(1);
        schedule.push(word);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *digest;
    for (round, word) in schedule.into_iter().enumerate() {
        let (mixed, constant) = match round {
            ..20 => ((b & c) | (!b & d), 0x5a82_7999),
            20..40 => (b ^ c ^ d, 0x6ed9_eba1),
            40..60 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6_u32),
        };
        let next = a.rotate_left(5).wrapping_add(mixed).wrapping_add(e).wrapping_add(constant);
        (a, b, c, d, e) = (next.wrapping_add(word), a, b.rotate_left(30), c, d);
    }
    for (word, added) in digest.iter_mut().zip([a, b, c, d, e]) {
        *word = word.wrapping_add(added);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_standard() {
        assert_eq!(sha1(b""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert_eq!(sha1(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(sha1(&[b'a'; 1_000_000]), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    }
}
