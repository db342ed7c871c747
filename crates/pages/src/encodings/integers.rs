//! Frame of reference: integers as distances from the least of their mini-page, packed to the bits that these need.
//!
//! ```text
//!  │ u8 bits │ 0 × 7 │ i128 least value │ packed distances │ [validity] │
//! ```
//!
//! For every type whose values are integers of up to 16 bytes, decimals, dates and times among them. Values count as
//! signed: where that is wrong, as for the upper half of `UInt64`, nothing is lost but some of the gain. Null rows hold
//! the least value.

use arrow_buffer::{Buffer, NullBuffer};

use super::bit_packing::{bits_of, pack, packed_bytes, unpack};
use super::{append_validity, is_smaller};
use crate::bitmap::Bitmap;
use crate::error::{PageError, Result};
use crate::mini_page::{no_tail, split};

const HEADER_BYTES: usize = 24;

/// An integer of `WIDTH` bytes.
trait Integer<const WIDTH: usize>: Copy + Ord {
    fn read(bytes: [u8; WIDTH]) -> Self;
    fn widened(self) -> i128;
    fn narrowed(wide: i128) -> Self;
    fn plus(self, distance: u64) -> Self;
}

macro_rules! integer {
    ($type:ty, $width:literal) => {
        impl Integer<$width> for $type {
            fn read(bytes: [u8; $width]) -> Self {
                Self::from_le_bytes(bytes)
            }

            fn widened(self) -> i128 {
                self.into()
            }

            fn narrowed(wide: i128) -> Self {
                wide as Self
            }

            fn plus(self, distance: u64) -> Self {
                self.wrapping_add(distance as Self)
            }
        }
    };
}

integer!(i8, 1);
integer!(i16, 2);
integer!(i32, 4);
integer!(i64, 8);
integer!(i128, 16);

/// Appends the mini-page of `values` to `out`; leaves it alone and returns false if that would save nothing worth the
/// decoding. `validity` has a bit per value if there are nulls.
pub(crate) fn encode<const WIDTH: usize>(
    values: &[[u8; WIDTH]],
    validity: Option<&Bitmap>,
    raw_bytes: u64,
    out: &mut Vec<u8>,
) -> bool {
    // Rust has no way to go from a width to a type.
    let values = values.as_flattened();
    match WIDTH {
        1 => encode_as::<i8, 1>(values, validity, raw_bytes, out),
        2 => encode_as::<i16, 2>(values, validity, raw_bytes, out),
        4 => encode_as::<i32, 4>(values, validity, raw_bytes, out),
        8 => encode_as::<i64, 8>(values, validity, raw_bytes, out),
        16 => encode_as::<i128, 16>(values, validity, raw_bytes, out),
        _ => unreachable!("values of {WIDTH} bytes are no integers"),
    }
}

fn encode_as<T: Integer<WIDTH>, const WIDTH: usize>(
    values: &[u8],
    validity: Option<&Bitmap>,
    raw_bytes: u64,
    out: &mut Vec<u8>,
) -> bool {
    let values = values.as_chunks::<WIDTH>().0;
    let valid = || {
        let is_valid = |row: usize| validity.is_none_or(|validity| validity.get(row));
        values.iter().enumerate().filter(move |&(row, _)| is_valid(row)).map(|(_, &bytes)| T::read(bytes))
    };
    let bounds = match validity {
        None => bounds(values.iter().map(|&bytes| T::read(bytes))),
        Some(_) => bounds(valid()),
    };
    let (least, greatest) = bounds.unwrap_or((T::narrowed(0), T::narrowed(0)));
    let least = least.widened();
    let Some(range) = greatest.widened().checked_sub(least).and_then(|range| u64::try_from(range).ok())
    else {
        return false;
    };
    let bits = bits_of(range);
    let validity_bytes = validity.map_or(0, |_| values.len().div_ceil(8));
    let length = HEADER_BYTES + packed_bytes(values.len(), bits) + validity_bytes;
    if !is_smaller(length as u64, raw_bytes) {
        return false;
    }
    let mut header = [0; HEADER_BYTES];
    header[0] = bits as u8;
    header[8..].copy_from_slice(&least.to_le_bytes());
    out.extend_from_slice(&header);
    let distance = |bytes: [u8; WIDTH]| (T::read(bytes).widened().wrapping_sub(least)) as u64;
    match validity {
        None => pack(values.iter().map(|&bytes| distance(bytes)), bits, out),
        Some(validity) => {
            let distances = values
                .iter()
                .enumerate()
                .map(|(row, &bytes)| if validity.get(row) { distance(bytes) } else { 0 });
            pack(distances, bits, out);
        }
    }
    append_validity(validity, values.len(), out);
    true
}

fn bounds<T: Ord + Copy>(values: impl Iterator<Item = T>) -> Option<(T, T)> {
    let mut values = values;
    let first = values.next()?;
    Some(values.fold((first, first), |(least, greatest), value| (least.min(value), greatest.max(value))))
}

/// Values of `width_bytes` in Arrow's form, and validity.
pub(super) fn decode(
    bytes: &Buffer,
    width_bytes: usize,
    rows: usize,
    null_count: usize,
    column: &str,
) -> Result<(Buffer, Option<NullBuffer>)> {
    let header: &[u8; HEADER_BYTES] =
        bytes.first_chunk().ok_or_else(|| PageError::malformed(column, "its header is cut off"))?;
    let bits = u32::from(header[0]);
    if bits > u64::BITS {
        return Err(PageError::malformed(column, format!("integers of {bits} bits")));
    }
    let mut least = [0; 16];
    least.copy_from_slice(&header[8..]);
    let least = i128::from_le_bytes(least);
    let head_bytes = (HEADER_BYTES + packed_bytes(rows, bits)) as u64;
    let (head, validity, tail) = split(bytes, head_bytes, rows, null_count, column)?;
    no_tail(&tail, column)?;
    let packed = &head[HEADER_BYTES..];
    let values = match width_bytes {
        1 => values::<i8, 1>(packed, bits, rows, least),
        2 => values::<i16, 2>(packed, bits, rows, least),
        4 => values::<i32, 4>(packed, bits, rows, least),
        8 => values::<i64, 8>(packed, bits, rows, least),
        16 => values::<i128, 16>(packed, bits, rows, least),
        _ => return Err(PageError::malformed(column, format!("no integer is {width_bytes} bytes long"))),
    };
    Ok((values, validity))
}

fn values<T, const WIDTH: usize>(packed: &[u8], bits: u32, rows: usize, least: i128) -> Buffer
where
    T: Integer<WIDTH> + arrow_buffer::ArrowNativeType,
{
    let least = T::narrowed(least);
    Buffer::from_vec(unpack(packed, bits, rows, |distance| least.plus(distance)))
}
