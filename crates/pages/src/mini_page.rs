//! Decoding one mini-page, from its own bytes, into Arrow: without copying values where they stand in Arrow's form.
//!
//! ```text
//! Fixed      │ rows × width          │pad 8│[validity]│
//! Bits       │ rows bits             │pad 8│[validity]│
//! Offsets32  │ (rows+1) × 4 offsets  │pad 8│[validity]│ value bytes │
//! Offsets64  │ (rows+1) × 8 offsets  │pad 8│[validity]│ value bytes │
//! ```
//!
//! Lengths, offsets and UTF-8 are always checked: what comes out is sound whatever came in. Strings of ASCII, the
//! common case, are checked at the speed of memory. View arrays get fresh views, which point into the value bytes;
//! `LargeUtf8` and `LargeBinary` get fresh 64-bit offsets where 32 bits were stored. The other encodings:
//! [`encodings`](crate::encodings).
#![warn(clippy::indexing_slicing, reason = "what is decoded may be damaged in any way")]

use std::sync::Arc;

use arrow_array::builder::make_view;
use arrow_array::types::{
    BinaryType, BinaryViewType, ByteArrayType, ByteViewType, LargeBinaryType, LargeUtf8Type, StringViewType,
    Utf8Type,
};
use arrow_array::{
    ArrayRef, BooleanArray, FixedSizeBinaryArray, GenericByteArray, GenericByteViewArray, NullArray,
    PrimitiveArray, downcast_primitive,
};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field};

use crate::encodings;
use crate::error::{PageError, Result};
use crate::format::{Encoding, MiniPageMeta};
use crate::pieces::Pieces;
use crate::schema::ColumnLayout;

/// The widest Arrow native types are aligned to 16 bytes.
const WIDEST_ALIGNMENT: usize = 16;

/// The buffers of one column of one page, for kernels that work below Arrow arrays.
#[derive(Debug, Clone)]
pub struct ColumnParts {
    pub rows: usize,
    /// `None` without nulls.
    pub validity: Option<NullBuffer>,
    pub values: PartValues,
}

#[derive(Debug, Clone)]
pub enum PartValues {
    /// Every row is null.
    Null,
    /// Booleans: one bit per row.
    Bits(BooleanBuffer),
    /// `rows × width_bytes` bytes, aligned to the width (16 at most).
    Fixed { width_bytes: usize, bytes: Buffer },
    /// `rows + 1` offsets into `bytes`, from 0, never decreasing, ending at `bytes.len()`.
    Variable { offsets: ScalarBuffer<i32>, bytes: Buffer },
    /// The same with 64-bit offsets: more than 2 GiB in one mini-page.
    LargeVariable { offsets: ScalarBuffer<i64>, bytes: Buffer },
    /// Nested, dictionary, run-end and union columns have no flat form.
    Array(ArrayRef),
}

/// Decodes the mini-page whose `meta.length_bytes` bytes stand at the start of `bytes`, after verifying its checksum.
///
/// For scans that read single mini-pages and take `meta` from a page index.
pub fn decode_mini_page(bytes: Buffer, field: &Field, rows: usize, meta: &MiniPageMeta) -> Result<ArrayRef> {
    let bytes = mini_page_slice(bytes, meta, field)?;
    verify_checksum(&bytes, field.name(), meta)?;
    column_array(bytes, field, rows, meta)
}

/// The distinct values of such a mini-page and a code per row, for a reader that would rather look at each value once;
/// `None` if it is no [dictionary](Encoding::Dictionary).
pub fn decode_dictionary(
    bytes: Buffer,
    field: &Field,
    rows: usize,
    meta: &MiniPageMeta,
) -> Result<Option<DictionaryParts>> {
    if meta.encoding != Encoding::Dictionary || ColumnLayout::of(field.data_type()) != ColumnLayout::Variable
    {
        return Ok(None);
    }
    let bytes = mini_page_slice(bytes, meta, field)?;
    verify_checksum(&bytes, field.name(), meta)?;
    encodings::dictionary_parts(&bytes, field, rows, meta).map(Some)
}

/// A column of few values.
#[derive(Debug, Clone)]
pub struct DictionaryParts {
    /// Of the column's type, all different.
    pub values: ArrayRef,
    /// Row by row, the position of its value.
    pub codes: Vec<u32>,
    /// `None` without nulls.
    pub validity: Option<NullBuffer>,
}

fn mini_page_slice(bytes: Buffer, meta: &MiniPageMeta, field: &Field) -> Result<Buffer> {
    let length = meta.length_bytes as usize;
    if bytes.len() < length {
        return Err(PageError::malformed(
            field.name(),
            format!("its mini-page is {length} bytes long, {} were read", bytes.len()),
        ));
    }
    Ok(bytes.slice_with_length(0, length))
}

/// The checksum in [`MiniPageMeta`]: crc32c.
pub fn mini_page_checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

pub(crate) fn verify_checksum(bytes: &[u8], column: &str, meta: &MiniPageMeta) -> Result<()> {
    let computed = mini_page_checksum(bytes);
    if computed != meta.checksum {
        return Err(PageError::MiniPageChecksum {
            page_number: None,
            column: column.to_owned(),
            expected: meta.checksum,
            computed,
        });
    }
    Ok(())
}

/// Splits a mini-page of exactly `meta.length_bytes` bytes into its buffers and checks them.
pub(crate) fn column_parts(
    bytes: Buffer,
    field: &Field,
    rows: usize,
    meta: &MiniPageMeta,
) -> Result<ColumnParts> {
    if !meta.encoding.is_arrow() {
        return encodings::column_parts(&bytes, field, rows, meta);
    }
    let name = field.name();
    let null_count = meta.null_count as usize;
    let bytes = aligned(bytes);
    let layout = ColumnLayout::of(field.data_type());
    let encoded_as = |expected: &[Encoding]| {
        if expected.contains(&meta.encoding) {
            return Ok(());
        }
        Err(PageError::malformed(
            name,
            format!("{:?} is not an encoding of {}", meta.encoding, field.data_type()),
        ))
    };
    match layout {
        ColumnLayout::Null => {
            encoded_as(&[Encoding::Null])?;
            if null_count != rows || !bytes.is_empty() {
                return Err(PageError::malformed(name, "a column without values holds some"));
            }
            Ok(ColumnParts { rows, validity: None, values: PartValues::Null })
        }
        ColumnLayout::Bits => {
            encoded_as(&[Encoding::Bits])?;
            let (head, validity, tail) = split(&bytes, rows.div_ceil(8) as u64, rows, null_count, name)?;
            no_tail(&tail, name)?;
            let values = PartValues::Bits(BooleanBuffer::new(head, 0, rows));
            Ok(ColumnParts { rows, validity, values })
        }
        ColumnLayout::Fixed { width_bytes } => {
            encoded_as(&[Encoding::Fixed])?;
            let head_bytes = rows as u64 * width_bytes as u64;
            let (bytes, validity, tail) = split(&bytes, head_bytes, rows, null_count, name)?;
            no_tail(&tail, name)?;
            Ok(ColumnParts { rows, validity, values: PartValues::Fixed { width_bytes, bytes } })
        }
        ColumnLayout::Variable => {
            encoded_as(&[Encoding::Offsets32, Encoding::Offsets64])?;
            let width = if meta.encoding == Encoding::Offsets32 { 4 } else { 8 };
            let (head, validity, bytes) = split(&bytes, (rows as u64 + 1) * width, rows, null_count, name)?;
            let values = if width == 4 {
                let offsets = ScalarBuffer::<i32>::new(head, 0, rows + 1);
                check_offsets(&offsets, bytes.len(), name)?;
                PartValues::Variable { offsets, bytes }
            } else {
                let offsets = ScalarBuffer::<i64>::new(head, 0, rows + 1);
                check_offsets(&offsets, bytes.len(), name)?;
                PartValues::LargeVariable { offsets, bytes }
            };
            Ok(ColumnParts { rows, validity, values })
        }
        ColumnLayout::Nested => {
            encoded_as(&[Encoding::Nested])?;
            let array = crate::nested::decode(&bytes, field, rows)?;
            Ok(ColumnParts { rows, validity: array.nulls().cloned(), values: PartValues::Array(array) })
        }
    }
}

pub(crate) fn column_array(
    bytes: Buffer,
    field: &Field,
    rows: usize,
    meta: &MiniPageMeta,
) -> Result<ArrayRef> {
    if let Some(views) = encodings::column_views(&bytes, field, rows, meta) {
        return views;
    }
    let ColumnParts { rows, validity, values } = column_parts(bytes, field, rows, meta)?;
    let name = field.name();
    match values {
        PartValues::Null => Ok(Arc::new(NullArray::new(rows))),
        PartValues::Bits(bits) => Ok(Arc::new(BooleanArray::new(bits, validity))),
        PartValues::Fixed { width_bytes, bytes } => fixed_array(bytes, field, rows, width_bytes, validity),
        PartValues::Variable { offsets, bytes } => variable_array(field, offsets, bytes, validity),
        PartValues::LargeVariable { offsets, bytes } => match field.data_type() {
            DataType::LargeUtf8 => byte_array::<LargeUtf8Type>(offsets, bytes, validity, name),
            DataType::LargeBinary => byte_array::<LargeBinaryType>(offsets, bytes, validity, name),
            other => {
                Err(PageError::malformed(name, format!("{other} has 32-bit offsets, 64-bit were stored")))
            }
        },
        PartValues::Array(array) => Ok(array),
    }
}

/// Device buffers are aligned to 4 KiB; bytes that come from elsewhere are copied if they must be.
fn aligned(bytes: Buffer) -> Buffer {
    if bytes.as_ptr().align_offset(WIDEST_ALIGNMENT) == 0 {
        bytes
    } else {
        Buffer::from_slice_ref(bytes.as_slice())
    }
}

/// Cuts a mini-page into head, validity and tail.
pub(crate) fn split(
    bytes: &Buffer,
    head_bytes: u64,
    rows: usize,
    null_count: usize,
    column: &str,
) -> Result<(Buffer, Option<NullBuffer>, Buffer)> {
    let pieces = Pieces::new(head_bytes, rows, null_count > 0);
    if pieces.tail_start > bytes.len() as u64 {
        return Err(PageError::malformed(
            column,
            format!("{rows} rows need {} bytes, its mini-page has {}", pieces.tail_start, bytes.len()),
        ));
    }
    let head = bytes.slice_with_length(0, head_bytes as usize);
    let validity = if null_count == 0 {
        None
    } else {
        let bits = bytes.slice_with_length(pieces.validity_start as usize, pieces.validity_bytes as usize);
        let nulls = NullBuffer::new(BooleanBuffer::new(bits, 0, rows));
        if nulls.null_count() != null_count {
            return Err(PageError::malformed(
                column,
                format!("{null_count} nulls announced, {} found", nulls.null_count()),
            ));
        }
        Some(nulls)
    };
    let tail = bytes.slice_with_length(pieces.tail_start as usize, bytes.len() - pieces.tail_start as usize);
    Ok((head, validity, tail))
}

pub(crate) fn no_tail(tail: &Buffer, column: &str) -> Result<()> {
    if tail.is_empty() {
        return Ok(());
    }
    Err(PageError::malformed(column, format!("{} bytes follow its last value", tail.len())))
}

/// Offsets start at 0, never decrease and end at `end`.
pub(crate) fn check_offsets<O: ArrowNativeType + PartialOrd>(
    offsets: &[O],
    end: usize,
    column: &str,
) -> Result<()> {
    let starts_at_zero = offsets.first().is_some_and(|first| *first == O::default());
    let ends = offsets.last().and_then(|last| last.to_usize()) == Some(end);
    // No early exit: the loop vectorises.
    let decreases = offsets
        .iter()
        .zip(offsets.get(1..).unwrap_or_default())
        .fold(false, |any, (start, end)| any | (start > end));
    if starts_at_zero && ends && !decreases {
        return Ok(());
    }
    Err(PageError::malformed(column, format!("offsets do not ascend from 0 to {end}")))
}

/// The bytes are UTF-8 and no offset cuts a character.
pub(crate) fn check_utf8<O: ArrowNativeType>(offsets: &[O], bytes: &[u8], column: &str) -> Result<()> {
    if bytes.is_ascii() {
        return Ok(());
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| PageError::malformed(column, format!("strings are not UTF-8: {error}")))?;
    if offsets.iter().all(|offset| text.is_char_boundary(offset.as_usize())) {
        return Ok(());
    }
    Err(PageError::malformed(column, "an offset cuts a character in two"))
}

/// Strings or binary of any form. Offsets were checked.
pub(crate) fn variable_array(
    field: &Field,
    offsets: ScalarBuffer<i32>,
    bytes: Buffer,
    validity: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let name = field.name();
    match field.data_type() {
        DataType::Utf8 => byte_array::<Utf8Type>(offsets, bytes, validity, name),
        DataType::Binary => byte_array::<BinaryType>(offsets, bytes, validity, name),
        DataType::LargeUtf8 => byte_array::<LargeUtf8Type>(widened(&offsets), bytes, validity, name),
        DataType::LargeBinary => byte_array::<LargeBinaryType>(widened(&offsets), bytes, validity, name),
        DataType::Utf8View => view_array::<StringViewType>(&offsets, bytes, validity, name),
        _ => view_array::<BinaryViewType>(&offsets, bytes, validity, name),
    }
}

fn widened(offsets: &ScalarBuffer<i32>) -> ScalarBuffer<i64> {
    offsets.iter().map(|&offset| i64::from(offset)).collect()
}

fn byte_array<T: ByteArrayType>(
    offsets: ScalarBuffer<T::Offset>,
    bytes: Buffer,
    validity: Option<NullBuffer>,
    column: &str,
) -> Result<ArrayRef> {
    if matches!(T::DATA_TYPE, DataType::Utf8 | DataType::LargeUtf8) {
        check_utf8(&offsets, &bytes, column)?;
    }
    // SAFETY: `check_offsets` proved that the offsets ascend from 0 to the length of `bytes`.
    let offsets = unsafe { OffsetBuffer::new_unchecked(offsets) };
    // SAFETY: as above, and `check_utf8` has checked string types; `split` made validity as long as the offsets say.
    Ok(Arc::new(unsafe { GenericByteArray::<T>::new_unchecked(offsets, bytes, validity) }))
}

fn view_array<T: ByteViewType>(
    offsets: &ScalarBuffer<i32>,
    bytes: Buffer,
    validity: Option<NullBuffer>,
    column: &str,
) -> Result<ArrayRef> {
    if T::IS_UTF8 {
        check_utf8(offsets, &bytes, column)?;
    }
    let mut views = Vec::with_capacity(offsets.len().saturating_sub(1));
    for &[start, end] in offsets.array_windows() {
        let value = bytes.get(start as usize..end as usize);
        let value = value.unwrap_or_else(|| unreachable!("offsets were checked"));
        views.push(make_view(value, 0, start as u32));
    }
    // SAFETY: each view was made from a slice of `bytes` (the only buffer) found by checked offsets, cut at character
    // boundaries for string types; `split` made validity as long as the views.
    Ok(Arc::new(unsafe {
        GenericByteViewArray::<T>::new_unchecked(ScalarBuffer::from(views), vec![bytes], validity)
    }))
}

pub(crate) fn fixed_array(
    bytes: Buffer,
    field: &Field,
    rows: usize,
    width_bytes: usize,
    validity: Option<NullBuffer>,
) -> Result<ArrayRef> {
    macro_rules! primitive {
        ($type:ty) => {{
            let values =
                ScalarBuffer::<<$type as arrow_array::ArrowPrimitiveType>::Native>::new(bytes, 0, rows);
            let array = PrimitiveArray::<$type>::try_new(values, validity)?;
            Ok(Arc::new(array.with_data_type(field.data_type().clone())))
        }};
    }
    downcast_primitive! {
        field.data_type() => (primitive),
        DataType::FixedSizeBinary(_) => {
            let array = FixedSizeBinaryArray::try_new_with_len(width_bytes as i32, bytes, validity, rows)?;
            Ok(Arc::new(array))
        },
        other => Err(PageError::malformed(field.name(), format!("{other} has no fixed width"))),
    }
}
