//! The rows of one column while a page is filled, and their encoding into a mini-page.
//!
//! One growable vector per column, monomorphised by value width, so that scattering a hundred rows costs one dispatch
//! and a tight copy loop. Validity bits exist from the first null on. Capacity is kept from page to page.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    BinaryType, BinaryViewType, ByteArrayType, ByteViewType, LargeBinaryType, LargeUtf8Type, StringViewType,
    Utf8Type,
};
use arrow_array::{Array, GenericByteArray, GenericByteViewArray, downcast_primitive};
use arrow_data::MAX_INLINE_VIEW_LEN;
use arrow_schema::{DataType, Field};

use crate::bitmap::Bitmap;
use crate::encodings::{MAX_ENCODED_ROWS, StagedTexts, encode_integers, encode_texts};
use crate::error::{PageError, Result};
use crate::format::{Encoding, align_up};
use crate::nested::NestedStaging;
use crate::pieces::Pieces;
use crate::prefetch::prefetch_address;
use crate::rows::Rows;
use crate::schema::ColumnLayout;

/// 32-bit Arrow offsets and view positions are signed.
const MAX_OFFSET32_BYTES: u64 = i32::MAX as u64;

#[derive(Debug)]
pub(crate) struct ColumnStaging {
    rows: usize,
    nulls: usize,
    /// Meaningful only while `nulls > 0`: built when the first null arrives.
    validity: Bitmap,
    values: Values,
}

#[derive(Debug)]
enum Values {
    Null,
    Bits(Bitmap),
    Fixed1(Vec<[u8; 1]>),
    Fixed2(Vec<[u8; 2]>),
    Fixed4(Vec<[u8; 4]>),
    Fixed8(Vec<[u8; 8]>),
    Fixed16(Vec<[u8; 16]>),
    Fixed32(Vec<[u8; 32]>),
    FixedOther {
        width_bytes: usize,
        bytes: Vec<u8>,
    },
    /// `ends[i]` is where value `i` ends in `bytes`. `large` columns may use all 32 bits.
    Variable {
        ends: Vec<u32>,
        bytes: Vec<u8>,
        large: bool,
    },
    Nested(Box<NestedStaging>),
}

impl ColumnStaging {
    pub fn new(field: &Field) -> Self {
        let values = match ColumnLayout::of(field.data_type()) {
            ColumnLayout::Null => Values::Null,
            ColumnLayout::Bits => Values::Bits(Bitmap::default()),
            ColumnLayout::Fixed { width_bytes } => match width_bytes {
                1 => Values::Fixed1(Vec::new()),
                2 => Values::Fixed2(Vec::new()),
                4 => Values::Fixed4(Vec::new()),
                8 => Values::Fixed8(Vec::new()),
                16 => Values::Fixed16(Vec::new()),
                32 => Values::Fixed32(Vec::new()),
                _ => Values::FixedOther { width_bytes, bytes: Vec::new() },
            },
            ColumnLayout::Variable => {
                let large = matches!(field.data_type(), DataType::LargeUtf8 | DataType::LargeBinary);
                Values::Variable { ends: Vec::new(), bytes: Vec::new(), large }
            }
            ColumnLayout::Nested => Values::Nested(Box::new(NestedStaging::new(field))),
        };
        Self { rows: 0, nulls: 0, validity: Bitmap::default(), values }
    }

    pub fn clear(&mut self) {
        self.rows = 0;
        self.nulls = 0;
        self.validity.clear();
        match &mut self.values {
            Values::Null => {}
            Values::Bits(bits) => bits.clear(),
            Values::Fixed1(values) => values.clear(),
            Values::Fixed2(values) => values.clear(),
            Values::Fixed4(values) => values.clear(),
            Values::Fixed8(values) => values.clear(),
            Values::Fixed16(values) => values.clear(),
            Values::Fixed32(values) => values.clear(),
            Values::FixedOther { bytes, .. } => bytes.clear(),
            Values::Variable { ends, bytes, .. } => {
                ends.clear();
                bytes.clear();
            }
            Values::Nested(nested) => nested.clear(),
        }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn null_count(&self) -> usize {
        self.nulls
    }

    /// Bytes held in memory, capacity included.
    pub fn capacity_bytes(&self) -> usize {
        let values = match &self.values {
            Values::Null => 0,
            Values::Bits(bits) => bits.capacity_bytes(),
            Values::Fixed1(values) => values.capacity(),
            Values::Fixed2(values) => values.capacity() * 2,
            Values::Fixed4(values) => values.capacity() * 4,
            Values::Fixed8(values) => values.capacity() * 8,
            Values::Fixed16(values) => values.capacity() * 16,
            Values::Fixed32(values) => values.capacity() * 32,
            Values::FixedOther { bytes, .. } => bytes.capacity(),
            Values::Variable { ends, bytes, .. } => ends.capacity() * 4 + bytes.capacity(),
            Values::Nested(nested) => nested.capacity_bytes(),
        };
        values + self.validity.capacity_bytes()
    }

    /// Length of the mini-page of the staged values. Exact for flat columns, an upper bound for nested ones.
    pub fn mini_page_bytes(&self) -> u64 {
        self.size(self.rows, 0, self.nulls > 0)
    }

    /// Length of the mini-page if `rows` of `array` were appended. Never decreases as rows are added.
    pub fn mini_page_bytes_with(&self, array: &dyn Array, rows: &Rows<'_>) -> Result<u64> {
        let added = match &self.values {
            Values::Variable { .. } => variable_bytes(array, rows),
            Values::Nested(nested) => return nested.bound_bytes_with(array, rows),
            _ => 0,
        };
        let has_nulls = self.nulls > 0 || array.null_count() > 0 && count_nulls(array, rows) > 0;
        Ok(self.size(self.rows + rows.len(), added, has_nulls))
    }

    /// Whether appending would overflow something other than the page's size (a nested dictionary's key type).
    pub fn overflows_with(&self, array: &dyn Array, rows: &Rows<'_>) -> Result<bool> {
        match &self.values {
            Values::Nested(nested) => nested.overflows_with(array, rows),
            _ => Ok(false),
        }
    }

    fn size(&self, rows: usize, added_value_bytes: u64, has_nulls: bool) -> u64 {
        let rows_u64 = rows as u64;
        let pieces = |head_bytes: u64| Pieces::new(head_bytes, rows, has_nulls).tail_start;
        match &self.values {
            Values::Null => 0,
            Values::Bits(_) => pieces(rows.div_ceil(8) as u64),
            Values::Fixed1(_) => pieces(rows_u64),
            Values::Fixed2(_) => pieces(rows_u64 * 2),
            Values::Fixed4(_) => pieces(rows_u64 * 4),
            Values::Fixed8(_) => pieces(rows_u64 * 8),
            Values::Fixed16(_) => pieces(rows_u64 * 16),
            Values::Fixed32(_) => pieces(rows_u64 * 32),
            Values::FixedOther { width_bytes, .. } => pieces(rows_u64 * *width_bytes as u64),
            Values::Variable { bytes, .. } => {
                let value_bytes = bytes.len() as u64 + added_value_bytes;
                pieces((rows_u64 + 1) * offset_width(value_bytes)) + value_bytes
            }
            Values::Nested(nested) => nested.bound_bytes(),
        }
    }

    /// Appends rows; their numbers were checked against the length of `array`.
    pub fn append(&mut self, array: &dyn Array, rows: &Rows<'_>, column_name: &str) -> Result<()> {
        let count = rows.len();
        match &mut self.values {
            Values::Null => self.nulls += count,
            Values::Bits(bits) => bits.append(array.as_boolean().values(), rows.clone()),
            Values::Fixed1(values) => append_fixed(values, fixed_bytes(array), rows),
            Values::Fixed2(values) => append_fixed(values, fixed_bytes(array), rows),
            Values::Fixed4(values) => append_fixed(values, fixed_bytes(array), rows),
            Values::Fixed8(values) => append_fixed(values, fixed_bytes(array), rows),
            Values::Fixed16(values) => append_fixed(values, fixed_bytes(array), rows),
            Values::Fixed32(values) => append_fixed(values, fixed_bytes(array), rows),
            Values::FixedOther { width_bytes, bytes } => {
                append_fixed_other(bytes, *width_bytes, fixed_bytes(array), rows);
            }
            Values::Variable { ends, bytes, large } => {
                let added = variable_bytes(array, rows);
                let max_bytes = if *large { u64::from(u32::MAX) } else { MAX_OFFSET32_BYTES };
                if bytes.len() as u64 + added > max_bytes {
                    let column = column_name.to_owned();
                    return Err(PageError::ValueTooLong { column, value_bytes: added, max_bytes });
                }
                append_variable(ends, bytes, added as usize, array, rows);
            }
            Values::Nested(nested) => {
                nested.append(array, rows)?;
                // Beside its own validity, for the page index.
                self.nulls += count_nulls(array, rows);
            }
        }
        if !matches!(self.values, Values::Null | Values::Nested(_)) {
            self.append_validity(array, rows);
        }
        self.rows += count;
        Ok(())
    }

    fn append_validity(&mut self, array: &dyn Array, rows: &Rows<'_>) {
        let Some(nulls) = array.nulls().filter(|nulls| nulls.null_count() > 0) else {
            if self.nulls > 0 {
                self.validity.append_ones(rows.len());
            }
            return;
        };
        let added = count_nulls(array, rows);
        if self.nulls == 0 {
            if added == 0 {
                return;
            }
            self.validity.append_ones(self.rows);
        }
        self.validity.append(nulls.inner(), rows.clone());
        self.nulls += added;
    }

    /// Writes the mini-page to the start of `out` and returns its encoding and length.
    pub fn encode(&self, out: &mut [u8], column_name: &str) -> Result<(Encoding, usize)> {
        if let Values::Nested(nested) = &self.values {
            return Ok((Encoding::Nested, nested.encode(out, column_name)?));
        }
        let length = self.mini_page_bytes() as usize;
        let buffer_bytes = out.len();
        let out =
            out.get_mut(..length).ok_or(PageError::BufferTooSmall { needed_bytes: length, buffer_bytes })?;
        let encoding = match &self.values {
            Values::Null | Values::Nested(_) => Encoding::Null,
            Values::Bits(bits) => {
                bits.write(out);
                self.write_validity(out, self.rows.div_ceil(8));
                Encoding::Bits
            }
            Values::Fixed1(values) => self.write_fixed(out, values.as_flattened()),
            Values::Fixed2(values) => self.write_fixed(out, values.as_flattened()),
            Values::Fixed4(values) => self.write_fixed(out, values.as_flattened()),
            Values::Fixed8(values) => self.write_fixed(out, values.as_flattened()),
            Values::Fixed16(values) => self.write_fixed(out, values.as_flattened()),
            Values::Fixed32(values) => self.write_fixed(out, values.as_flattened()),
            Values::FixedOther { bytes, .. } => self.write_fixed(out, bytes),
            Values::Variable { ends, bytes, .. } => {
                let width = offset_width(bytes.len() as u64) as usize;
                let head_bytes = (self.rows + 1) * width;
                out[..width].fill(0);
                let offsets = &mut out[width..head_bytes];
                if width == 4 {
                    for (target, end) in offsets.as_chunks_mut::<4>().0.iter_mut().zip(ends) {
                        *target = end.to_le_bytes();
                    }
                } else {
                    for (target, end) in offsets.as_chunks_mut::<8>().0.iter_mut().zip(ends) {
                        *target = u64::from(*end).to_le_bytes();
                    }
                }
                let tail_start = self.write_validity(out, head_bytes);
                out[tail_start..].copy_from_slice(bytes);
                if width == 4 { Encoding::Offsets32 } else { Encoding::Offsets64 }
            }
        };
        Ok((encoding, length))
    }

    /// Appends the smallest mini-page there is to `out`, and returns its encoding. `out` ends at a multiple of 8.
    pub fn encode_compact(&self, out: &mut Vec<u8>, column_name: &str) -> Result<Encoding> {
        let raw_bytes = self.mini_page_bytes();
        let validity = (self.nulls > 0).then_some(&self.validity);
        let integers = |is_smaller: bool| is_smaller.then_some(Encoding::FrameOfReference);
        let encoded = if self.rows > MAX_ENCODED_ROWS {
            None
        } else {
            match &self.values {
                Values::Fixed1(values) => integers(encode_integers(values, validity, raw_bytes, out)),
                Values::Fixed2(values) => integers(encode_integers(values, validity, raw_bytes, out)),
                Values::Fixed4(values) => integers(encode_integers(values, validity, raw_bytes, out)),
                Values::Fixed8(values) => integers(encode_integers(values, validity, raw_bytes, out)),
                Values::Fixed16(values) => integers(encode_integers(values, validity, raw_bytes, out)),
                Values::Variable { ends, bytes, .. } => {
                    encode_texts(StagedTexts { ends, bytes, validity }, raw_bytes, out)
                }
                Values::Null
                | Values::Bits(_)
                | Values::Fixed32(_)
                | Values::FixedOther { .. }
                | Values::Nested(_) => None,
            }
        };
        if let Some(encoding) = encoded {
            return Ok(encoding);
        }
        let start = out.len();
        out.resize(start + raw_bytes as usize, 0);
        let (encoding, length) = self.encode(&mut out[start..], column_name)?;
        out.truncate(start + length);
        Ok(encoding)
    }

    fn write_fixed(&self, out: &mut [u8], values: &[u8]) -> Encoding {
        out[..values.len()].copy_from_slice(values);
        self.write_validity(out, values.len());
        Encoding::Fixed
    }

    /// Returns where the value bytes start.
    fn write_validity(&self, out: &mut [u8], head_bytes: usize) -> usize {
        let pieces = Pieces::new(head_bytes as u64, self.rows, self.nulls > 0);
        let start = pieces.validity_start as usize;
        out[head_bytes..start].fill(0);
        if self.nulls > 0 {
            self.validity.write(&mut out[start..]);
        }
        pieces.tail_start as usize
    }
}

/// Offsets take 64 bits only if 32 signed bits do not reach.
pub(crate) fn offset_width(value_bytes: u64) -> u64 {
    if value_bytes <= MAX_OFFSET32_BYTES { 4 } else { 8 }
}

fn count_nulls(array: &dyn Array, rows: &Rows<'_>) -> usize {
    let Some(nulls) = array.nulls() else { return 0 };
    match rows {
        Rows::Range(range) => nulls.slice(range.start, range.len()).null_count(),
        Rows::Indices(indices) => indices.iter().filter(|&&index| nulls.is_null(index as usize)).count(),
    }
}

/// The value bytes of a fixed-width array, whatever its type.
pub(crate) fn fixed_bytes(array: &dyn Array) -> &[u8] {
    macro_rules! primitive {
        ($type:ty) => {
            array.as_primitive::<$type>().values().inner().as_slice()
        };
    }
    downcast_primitive! {
        array.data_type() => (primitive),
        DataType::FixedSizeBinary(_) => array.as_fixed_size_binary().value_data(),
        other => unreachable!("{other} has no fixed width"),
    }
}

fn append_fixed<const WIDTH: usize>(out: &mut Vec<[u8; WIDTH]>, values: &[u8], rows: &Rows<'_>) {
    let (values, _) = values.as_chunks::<WIDTH>();
    match rows {
        Rows::Range(range) => out.extend_from_slice(&values[range.clone()]),
        Rows::Indices(indices) => out.extend(indices.iter().map(|&index| values[index as usize])),
    }
}

fn append_fixed_other(out: &mut Vec<u8>, width: usize, values: &[u8], rows: &Rows<'_>) {
    match rows {
        Rows::Range(range) => out.extend_from_slice(&values[range.start * width..range.end * width]),
        Rows::Indices(indices) => {
            out.reserve(indices.len() * width);
            for &index in *indices {
                let start = index as usize * width;
                out.extend_from_slice(&values[start..start + width]);
            }
        }
    }
}

/// Calls `$function::<ArrowType>(downcast array, …)` for the six types of variable width.
macro_rules! dispatch_variable {
    ($array:expr, $bytes:ident, $views:ident ($($argument:expr),*)) => {
        match $array.data_type() {
            DataType::Utf8 => $bytes($array.as_bytes::<Utf8Type>() $(, $argument)*),
            DataType::LargeUtf8 => $bytes($array.as_bytes::<LargeUtf8Type>() $(, $argument)*),
            DataType::Binary => $bytes($array.as_bytes::<BinaryType>() $(, $argument)*),
            DataType::LargeBinary => $bytes($array.as_bytes::<LargeBinaryType>() $(, $argument)*),
            DataType::Utf8View => $views($array.as_byte_view::<StringViewType>() $(, $argument)*),
            _ => $views($array.as_byte_view::<BinaryViewType>() $(, $argument)*),
        }
    };
}

pub(crate) fn variable_bytes(array: &dyn Array, rows: &Rows<'_>) -> u64 {
    dispatch_variable!(array, byte_array_bytes, view_array_bytes(rows))
}

fn byte_array_bytes<T: ByteArrayType>(array: &GenericByteArray<T>, rows: &Rows<'_>) -> u64 {
    use arrow_buffer::ArrowNativeType;
    let offsets = array.value_offsets();
    match rows {
        Rows::Range(range) => (offsets[range.end].as_usize() - offsets[range.start].as_usize()) as u64,
        Rows::Indices(indices) => indices
            .iter()
            .map(|&index| {
                let index = index as usize;
                (offsets[index + 1].as_usize() - offsets[index].as_usize()) as u64
            })
            .sum(),
    }
}

/// The length of a view stands in its lowest 32 bits. Null slots count as empty.
fn view_array_bytes<T: ByteViewType + ?Sized>(array: &GenericByteViewArray<T>, rows: &Rows<'_>) -> u64 {
    let views = array.views();
    let length = |index: usize| u64::from(views[index] as u32);
    match array.nulls() {
        None => rows.sum(length),
        Some(nulls) => rows.sum(|index| if nulls.is_null(index) { 0 } else { length(index) }),
    }
}

fn append_variable(
    ends: &mut Vec<u32>,
    bytes: &mut Vec<u8>,
    added_bytes: usize,
    array: &dyn Array,
    rows: &Rows<'_>,
) {
    ends.reserve(rows.len());
    bytes.reserve(added_bytes);
    dispatch_variable!(array, append_byte_array, append_view_array(ends, bytes, rows));
}

fn append_byte_array<T: ByteArrayType>(
    array: &GenericByteArray<T>,
    ends: &mut Vec<u32>,
    bytes: &mut Vec<u8>,
    rows: &Rows<'_>,
) {
    use arrow_buffer::ArrowNativeType;
    let (offsets, values) = (array.value_offsets(), array.value_data());
    match rows {
        Rows::Range(range) => {
            let first = offsets[range.start].as_usize();
            let base = bytes.len();
            let moved = |offset: &T::Offset| (base + (offset.as_usize() - first)) as u32;
            ends.extend(offsets[range.start + 1..=range.end].iter().map(moved));
            bytes.extend_from_slice(&values[first..offsets[range.end].as_usize()]);
        }
        Rows::Indices(indices) => {
            for &index in *indices {
                let index = index as usize;
                bytes.extend_from_slice(&values[offsets[index].as_usize()..offsets[index + 1].as_usize()]);
                ends.push(bytes.len() as u32);
            }
        }
    }
}

fn append_view_array<T: ByteViewType + ?Sized>(
    array: &GenericByteViewArray<T>,
    ends: &mut Vec<u32>,
    bytes: &mut Vec<u8>,
    rows: &Rows<'_>,
) {
    let mut append = |index: usize| {
        if array.is_valid(index) {
            bytes.extend_from_slice(array.value(index).as_ref());
        }
        ends.push(bytes.len() as u32);
    };
    match rows {
        Rows::Range(range) => range.clone().for_each(append),
        Rows::Indices(indices) => {
            for (at, &index) in indices.iter().enumerate() {
                if let Some(&ahead) = indices.get(at + TEXTS_AHEAD) {
                    prefetch_long_value(array, ahead as usize);
                }
                append(index as usize);
            }
        }
    }
}

/// Rows ahead of its use that a text is asked for: copying one takes longer than what [`prefetch`](crate::prefetch) is
/// made for.
const TEXTS_AHEAD: usize = 8;

/// Asks for the first line of a value that its view does not hold.
#[inline]
fn prefetch_long_value<T: ByteViewType + ?Sized>(array: &GenericByteViewArray<T>, index: usize) {
    let view = array.views()[index];
    let (buffer, offset) = ((view >> 64) as u32 as usize, (view >> 96) as u32 as usize);
    if view as u32 > MAX_INLINE_VIEW_LEN
        && let Some(buffer) = array.data_buffers().get(buffer)
    {
        prefetch_address(buffer.as_ptr().wrapping_add(offset));
    }
}

/// Where the next mini-page starts after one that ends at `end`.
pub(crate) fn next_start(end: usize) -> usize {
    align_up(end, crate::format::MINI_PAGE_ALIGNMENT)
}
