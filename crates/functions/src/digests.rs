//! `sha1` (FIPS 180-4, section 6.1) and `sha256`, in hexadecimal digits. DataFusion gives the bytes of the latter, and has no `sha1`.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use datafusion::common::Result;
use datafusion::common::cast::as_binary_array;
use datafusion::functions::crypto::sha256;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};

use crate::function::Kind::{Blob, Text};
use crate::function::{Kernel, arguments};

pub(crate) static FUNCTIONS: &[Kernel] = &[
    Kernel::new(
        &["sha1"],
        &[&[Text], &[Blob]],
        |_| Ok(DataType::Utf8View),
        |given, _| {
            let [values] = arguments(given)?;
            let bytes = cast(values, &DataType::Binary)?;
            let digests = as_binary_array(&bytes)?.iter().map(|bytes| bytes.map(sha1));
            Ok(Arc::new(digests.collect::<StringViewArray>()))
        },
    ),
    Kernel::new(
        &["sha256"],
        &[&[Text], &[Blob]],
        |_| Ok(DataType::Utf8View),
        |given, _| {
            let [values] = arguments(given)?;
            let digests = cast(&bytes_of_sha256(values)?, &DataType::Binary)?;
            let digits = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let digests = as_binary_array(&digests)?.iter().map(|bytes| bytes.map(digits));
            Ok(Arc::new(digests.collect::<StringViewArray>()))
        },
    ),
];

fn bytes_of_sha256(values: &ArrayRef) -> Result<ArrayRef> {
    let argument = Field::new("bytes", values.data_type().clone(), true);
    let call = ScalarFunctionArgs {
        args: vec![ColumnarValue::Array(Arc::clone(values))],
        arg_fields: vec![Arc::new(argument)],
        number_rows: values.len(),
        return_field: Arc::new(Field::new("sha256", DataType::Binary, true)),
        config_options: Arc::default(),
    };
    sha256().invoke_with_args(call)?.into_array(values.len())
}

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
