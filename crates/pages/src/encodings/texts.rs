//! Strings and binary: each distinct value once, or all of them compressed.
//!
//! ```text
//!  Dictionary  │ u8 bits │ 0 × 3 │ u32 values │ packed codes │[validity]│ (values+1) × u32 offsets │ value bytes │
//!  Compressed  │ u8 bits │ u8 codec │ 0 × 2 │ u32 least length │ u32 value bytes │ 0 × 4 │
//!              │ packed lengths, less the least │[validity]│ value bytes, as they are (codec 0) or in LZ4 (1) │
//! ```

use std::sync::Arc;

use arrow_array::types::{BinaryViewType, ByteViewType, StringViewType};
use arrow_array::{ArrayRef, GenericByteViewArray, builder::make_view};
use arrow_buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::bit_packing::{bits_of, pack, packed_bytes, unpack};
use super::{append_validity, is_smaller};
use crate::bitmap::Bitmap;
use crate::error::{PageError, Result};
use crate::format::{Encoding, u32_at};
use crate::mini_page::{DictionaryParts, check_offsets, check_utf8, split, variable_array};

const DICTIONARY_HEADER_BYTES: usize = 8;
const COMPRESSED_HEADER_BYTES: usize = 16;

/// A dictionary is given up once so many rows have been seen and more than half of them had a value of their own.
const ROWS_TO_JUDGE_A_DICTIONARY: usize = 512;

/// LZ4 is kept if it saves an eighth.
const CODEC_NONE: u8 = 0;
const CODEC_LZ4: u8 = 1;

/// LZ4 cannot make more than this of a byte: what claims more is damaged.
const MAX_EXPANSION: usize = 255;

/// Beyond it, values are stored as they are: 32-bit offsets must reach, with room.
const MAX_VALUE_BYTES: usize = 1 << 30;

/// The staged values of a column: value `i` ends at `ends[i]` in `bytes`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StagedTexts<'a> {
    pub ends: &'a [u32],
    pub bytes: &'a [u8],
    /// If there are nulls.
    pub validity: Option<&'a Bitmap>,
}

impl<'a> StagedTexts<'a> {
    fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(self.ends).map(move |(start, &end)| &self.bytes[start as usize..end as usize])
    }

    fn validity_bytes(&self) -> usize {
        self.validity.map_or(0, |_| self.ends.len().div_ceil(8))
    }
}

/// Appends the smallest mini-page of `texts` to `out`, and says which it is; `None` if none is smaller than
/// `raw_bytes` by so much that it pays.
pub(crate) fn encode(texts: StagedTexts<'_>, raw_bytes: u64, out: &mut Vec<u8>) -> Option<Encoding> {
    if texts.bytes.len() > MAX_VALUE_BYTES {
        return None;
    }
    let start = out.len();
    let dictionary = Dictionary::of(texts).filter(|found| is_smaller(found.length(texts) as u64, raw_bytes));
    if let Some(dictionary) = &dictionary {
        let length = dictionary.length(texts);
        // Far smaller than what LZ4 makes of words, and a lookup where that needs a decoder.
        let is_far_smaller = length as u64 <= raw_bytes / 4;
        if is_far_smaller {
            dictionary.append(texts, out);
            return Some(Encoding::Dictionary);
        }
        append_compressed(texts, out);
        if out.len() - start < length {
            return Some(Encoding::Compressed);
        }
        out.truncate(start);
        dictionary.append(texts, out);
        return Some(Encoding::Dictionary);
    }
    append_compressed(texts, out);
    if is_smaller((out.len() - start) as u64, raw_bytes) {
        return Some(Encoding::Compressed);
    }
    out.truncate(start);
    None
}

struct Dictionary<'a> {
    codes: Vec<u32>,
    values: Vec<&'a [u8]>,
    value_bytes: usize,
}

impl<'a> Dictionary<'a> {
    /// `None` if too many values differ.
    fn of(texts: StagedTexts<'a>) -> Option<Self> {
        let mut table: HashTable<u32> = HashTable::new();
        let mut codes = Vec::with_capacity(texts.ends.len());
        let mut values: Vec<&[u8]> = Vec::new();
        let mut value_bytes = 0;
        for (row, text) in texts.iter().enumerate() {
            if row >= ROWS_TO_JUDGE_A_DICTIONARY && values.len() > row / 2 {
                return None;
            }
            let same = |code: &u32| values[*code as usize] == text;
            let code = match table.entry(hash(text), same, |code| hash(values[*code as usize])) {
                Entry::Occupied(found) => *found.get(),
                Entry::Vacant(vacant) => {
                    let code = values.len() as u32;
                    vacant.insert(code);
                    values.push(text);
                    value_bytes += text.len();
                    code
                }
            };
            codes.push(code);
        }
        Some(Self { codes, values, value_bytes })
    }

    fn bits(&self) -> u32 {
        bits_of(self.values.len().saturating_sub(1) as u64)
    }

    fn length(&self, texts: StagedTexts<'_>) -> usize {
        let codes = packed_bytes(self.codes.len(), self.bits());
        let values = (self.values.len() + 1) * 4 + self.value_bytes;
        // Padding before validity is not needed: headers and blocks are multiples of 8.
        DICTIONARY_HEADER_BYTES + codes + texts.validity_bytes() + values
    }

    fn append(&self, texts: StagedTexts<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.bits() as u8, 0, 0, 0]);
        out.extend_from_slice(&(self.values.len() as u32).to_le_bytes());
        pack(self.codes.iter().map(|&code| u64::from(code)), self.bits(), out);
        append_validity(texts.validity, texts.ends.len(), out);
        let mut end = 0u32;
        out.extend_from_slice(&end.to_le_bytes());
        for value in &self.values {
            end += value.len() as u32;
            out.extend_from_slice(&end.to_le_bytes());
        }
        self.values.iter().for_each(|value| out.extend_from_slice(value));
    }
}

/// FNV-1a over words of eight bytes, mixed at the end: values are short, and nothing lasts longer than a page.
fn hash(text: &[u8]) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01B3;
    let (words, rest) = text.as_chunks::<8>();
    let mut hash = 0xCBF2_9CE4_8422_2325 ^ text.len() as u64;
    for word in words {
        hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(PRIME).rotate_left(29);
    }
    for &byte in rest {
        hash = (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    }
    hash = (hash ^ hash >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    hash ^ hash >> 29
}

fn append_compressed(texts: StagedTexts<'_>, out: &mut Vec<u8>) {
    let (mut least, mut greatest) = (u32::MAX, 0);
    for text in texts.iter() {
        let length = text.len() as u32;
        (least, greatest) = (least.min(length), greatest.max(length));
    }
    let least = least.min(greatest);
    let bits = bits_of(u64::from(greatest - least));
    let header = out.len();
    out.extend_from_slice(&[bits as u8, CODEC_NONE, 0, 0]);
    out.extend_from_slice(&least.to_le_bytes());
    out.extend_from_slice(&(texts.bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    pack(texts.iter().map(|text| u64::from(text.len() as u32 - least)), bits, out);
    append_validity(texts.validity, texts.ends.len(), out);
    let start = out.len();
    out.resize(start + lz4_flex::block::get_maximum_output_size(texts.bytes.len()), 0);
    match lz4_flex::block::compress_into(texts.bytes, &mut out[start..]) {
        Ok(length) if length <= texts.bytes.len() / 8 * 7 => {
            out.truncate(start + length);
            out[header + 1] = CODEC_LZ4;
        }
        _ => {
            out.truncate(start);
            out.extend_from_slice(texts.bytes);
        }
    }
}

/// Offsets and value bytes in Arrow's form, and validity. Offsets are checked, UTF-8 is not.
pub(super) struct DecodedTexts {
    pub offsets: ScalarBuffer<i32>,
    pub bytes: Buffer,
    pub validity: Option<NullBuffer>,
}

/// The part of a dictionary mini-page that needs no expansion.
struct DecodedDictionary {
    codes: Vec<u32>,
    offsets: ScalarBuffer<i32>,
    bytes: Buffer,
    validity: Option<NullBuffer>,
}

impl DecodedDictionary {
    fn read(mini_page: &Buffer, rows: usize, null_count: usize, column: &str) -> Result<Self> {
        let damaged = |reason: &str| PageError::malformed(column, reason);
        if mini_page.len() < DICTIONARY_HEADER_BYTES {
            return Err(damaged("its header is cut off"));
        }
        let bits = u32::from(mini_page[0]);
        if bits > u32::BITS {
            return Err(PageError::malformed(column, format!("codes of {bits} bits")));
        }
        let values = u32_at(mini_page, 4) as usize;
        let head_bytes = (DICTIONARY_HEADER_BYTES + packed_bytes(rows, bits)) as u64;
        let (head, validity, tail) = split(mini_page, head_bytes, rows, null_count, column)?;
        let offset_bytes = values.saturating_add(1).saturating_mul(4);
        if tail.len() < offset_bytes {
            return Err(damaged("its dictionary is cut off"));
        }
        let offset = |bytes: &[u8; 4]| i32::from_le_bytes(*bytes);
        let offsets: ScalarBuffer<i32> = tail[..offset_bytes].as_chunks::<4>().0.iter().map(offset).collect();
        let bytes = tail.slice(offset_bytes);
        check_offsets(&offsets, bytes.len(), column)?;
        let codes = unpack(&head[DICTIONARY_HEADER_BYTES..], bits, rows, |code| code as u32);
        // No early exit: the loop vectorises.
        let greatest = codes.iter().fold(0, |greatest, &code| greatest.max(code));
        if rows > 0 && greatest as usize >= values {
            return Err(damaged("a code names no value of its dictionary"));
        }
        Ok(Self { codes, offsets, bytes, validity })
    }

    fn value(&self, code: u32) -> &[u8] {
        let (start, end) = (self.offsets[code as usize], self.offsets[code as usize + 1]);
        &self.bytes[start as usize..end as usize]
    }

    fn views<T: ByteViewType>(self, column: &str) -> Result<ArrayRef> {
        if T::IS_UTF8 {
            check_utf8(&self.offsets, &self.bytes, column)?;
        }
        let starts = self.offsets.iter().enumerate().take(self.offsets.len() - 1);
        let distinct: Vec<u128> =
            starts.map(|(code, &start)| make_view(self.value(code as u32), 0, start as u32)).collect();
        let views: Vec<u128> = self.codes.iter().map(|&code| distinct[code as usize]).collect();
        // SAFETY: each view was made from a slice of `bytes` (the only buffer) found by checked offsets, cut at
        // character boundaries for string types; `split` made validity as long as there are rows.
        Ok(Arc::new(unsafe {
            GenericByteViewArray::<T>::new_unchecked(
                ScalarBuffer::from(views),
                vec![self.bytes],
                self.validity,
            )
        }))
    }

    fn expanded(self, column: &str) -> Result<DecodedTexts> {
        let length = |code: u32| self.value(code).len();
        let total: usize = self.codes.iter().map(|&code| length(code)).sum();
        if total > MAX_VALUE_BYTES {
            return Err(PageError::malformed(column, format!("a dictionary that stands for {total} bytes")));
        }
        let mut bytes = Vec::with_capacity(total);
        let mut offsets = Vec::with_capacity(self.codes.len() + 1);
        offsets.push(0);
        for &code in &self.codes {
            bytes.extend_from_slice(self.value(code));
            offsets.push(bytes.len() as i32);
        }
        Ok(DecodedTexts { offsets: offsets.into(), bytes: bytes.into(), validity: self.validity })
    }
}

/// A column of views, whose values stand once in the dictionary's own bytes.
pub(super) fn dictionary_views(
    mini_page: &Buffer,
    data_type: &DataType,
    rows: usize,
    null_count: usize,
    column: &str,
) -> Result<ArrayRef> {
    let dictionary = DecodedDictionary::read(mini_page, rows, null_count, column)?;
    match data_type {
        DataType::Utf8View => dictionary.views::<StringViewType>(column),
        _ => dictionary.views::<BinaryViewType>(column),
    }
}

pub(super) fn dictionary_parts(
    mini_page: &Buffer,
    field: &Field,
    rows: usize,
    null_count: usize,
) -> Result<DictionaryParts> {
    let dictionary = DecodedDictionary::read(mini_page, rows, null_count, field.name())?;
    let DecodedDictionary { codes, offsets, bytes, validity } = dictionary;
    let values = variable_array(field, offsets, bytes, None)?;
    Ok(DictionaryParts { values, codes, validity })
}

pub(super) fn decode_dictionary(
    mini_page: &Buffer,
    rows: usize,
    null_count: usize,
    column: &str,
) -> Result<DecodedTexts> {
    DecodedDictionary::read(mini_page, rows, null_count, column)?.expanded(column)
}

pub(super) fn decode_compressed(
    mini_page: &Buffer,
    rows: usize,
    null_count: usize,
    column: &str,
) -> Result<DecodedTexts> {
    let damaged = |reason: String| PageError::malformed(column, reason);
    if mini_page.len() < COMPRESSED_HEADER_BYTES {
        return Err(damaged("its header is cut off".into()));
    }
    let (bits, codec) = (u32::from(mini_page[0]), mini_page[1]);
    if bits > u32::BITS {
        return Err(damaged(format!("lengths of {bits} bits")));
    }
    let (least, value_bytes) = (u32_at(mini_page, 4), u32_at(mini_page, 8) as usize);
    let head_bytes = (COMPRESSED_HEADER_BYTES + packed_bytes(rows, bits)) as u64;
    let (head, validity, tail) = split(mini_page, head_bytes, rows, null_count, column)?;
    let bytes = match codec {
        CODEC_NONE => tail,
        CODEC_LZ4 => {
            if value_bytes > MAX_VALUE_BYTES.min(tail.len().saturating_mul(MAX_EXPANSION)) {
                return Err(damaged(format!("{} bytes cannot stand for {value_bytes}", tail.len())));
            }
            let mut bytes = vec![0; value_bytes];
            let written = lz4_flex::block::decompress_into(&tail, &mut bytes)
                .map_err(|error| damaged(format!("it cannot be decompressed: {error}")))?;
            bytes.truncate(written);
            Buffer::from_vec(bytes)
        }
        other => return Err(damaged(format!("unknown codec {other}"))),
    };
    let mut end = 0u64;
    let mut offsets = Vec::with_capacity(rows.next_multiple_of(super::bit_packing::BLOCK) + 1);
    offsets.push(0);
    let lengths = unpack(&head[COMPRESSED_HEADER_BYTES..], bits, rows, |length| length as u32);
    offsets.extend(lengths.iter().map(|&length| {
        end += u64::from(least) + u64::from(length);
        end as i32
    }));
    if bytes.len() != value_bytes || end != value_bytes as u64 {
        return Err(damaged(format!("{value_bytes} bytes announced, {} found for {end}", bytes.len())));
    }
    let offsets = ScalarBuffer::from(offsets);
    check_offsets(&offsets, bytes.len(), column)?;
    Ok(DecodedTexts { offsets, bytes, validity })
}
