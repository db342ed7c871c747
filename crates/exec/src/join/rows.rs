//! Rows of PAX pages, addressed and gathered by reference.
//!
//! A build side in memory is its sealed pages and nothing else: there is no second, contiguous copy. Rows are
//! named by a [`RowRef`] of 32 bits, page and slot, and columns of the output are gathered straight from the
//! mini-pages:
//!
//! ```text
//!   RowRef    ┌─ page (19 bits) ─┬─ slot (13 bits) ─┐
//!                     │                   │
//!   column c:  values[page] ──► mini-page [ v0 v1 v2 … v(slot) … ]
//! ```
//!
//! Safety of the whole module: a [`PageRows`] holds raw pointers into pages that it does not own, so that
//! single partitions can be freed under it. The owner of a partition's pages is its
//! [`PartitionTable`](super::table::PartitionTable), and the only references that anyone can hold to its rows
//! come out of that table: the holder of a reference holds the table, and with it the pages. References are
//! made slot by slot from the very same pages, which is what keeps them in bounds; [`PageRows::new`] checks
//! that every mini-page is as long as its page's row count asks for, and the limits on which packing rests.

use std::sync::Arc;

use arrow::array::ArrayData;
use arrow::array::{
    Array, ArrayRef, BinaryViewArray, BooleanBufferBuilder, StringViewArray, make_array, new_empty_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, MutableBuffer, NullBuffer, ScalarBuffer};
use arrow::compute::interleave;
use arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result};
use nandina_pages::{ColumnLayout, Page, PageSchema, PartValues};

use crate::error::pages_error;
use crate::memory::MAX_PAGE_ROWS;
use nandina_pages::prefetch::{AHEAD, prefetch_address};

/// Bits of a [`RowRef`] that hold the slot.
pub const SLOT_BITS: u32 = 13;
/// A slot must be able to name every row of a page.
const _: () = assert!(MAX_PAGE_ROWS <= 1 << SLOT_BITS);
/// Most pages that one [`PageRows`] can address.
pub const MAX_PAGES: usize = 1 << (32 - SLOT_BITS);

/// Longest value that a string view holds itself.
const INLINE_BYTES: usize = 12;
/// Most bytes in one buffer of a view array, whose offsets have 32 bits.
const MAX_HEAP_BYTES: usize = i32::MAX as usize;

/// A row of a [`PageRows`]: page number and slot in it.
pub type RowRef = u32;

/// Packs a page number and a slot.
#[inline]
pub fn row_ref(page: usize, slot: usize) -> RowRef {
    debug_assert!(page < MAX_PAGES && slot < MAX_PAGE_ROWS);
    ((page << SLOT_BITS) | slot) as RowRef
}

#[inline]
fn page_of(row: RowRef) -> usize {
    (row >> SLOT_BITS) as usize
}

#[inline]
fn slot_of(row: RowRef) -> usize {
    (row & (MAX_PAGE_ROWS as RowRef - 1)) as usize
}

/// Raw positions of one column's mini-pages, page by page.
pub(super) struct PageColumn {
    data_type: DataType,
    layout: ColumnLayout,
    values: Vec<*const u8>,
    /// Variable columns: `rows + 1` offsets of 32 bits, or of 64 where `wide` says so.
    offsets: Vec<*const u8>,
    wide: Vec<bool>,
    /// Validity bitmaps; null where the mini-page has no nulls.
    validity: Vec<*const u8>,
    any_nulls: bool,
    /// Nested columns are gathered through Arrow's own kernels.
    nested: Vec<ArrayRef>,
}

// SAFETY: the pointers refer to immutable page bytes, kept alive as the module's documentation says.
unsafe impl Send for PageColumn {}
// SAFETY: see `Send`; nothing is ever written through them.
unsafe impl Sync for PageColumn {}

impl PageColumn {
    fn new(index: usize, data_type: &DataType, layout: ColumnLayout, pages: &[&Page]) -> Result<Self> {
        let mut column = Self {
            data_type: data_type.clone(),
            layout,
            values: Vec::with_capacity(pages.len()),
            offsets: Vec::new(),
            wide: Vec::new(),
            validity: Vec::with_capacity(pages.len()),
            any_nulls: false,
            nested: Vec::new(),
        };
        for page in pages {
            if matches!(layout, ColumnLayout::Nested | ColumnLayout::Null) {
                column.nested.push(page.column(index).map_err(pages_error)?);
                continue;
            }
            let parts = page.parts(index).map_err(pages_error)?;
            let values = match &parts.values {
                PartValues::Bits(bits) => byte_aligned(bits)?,
                PartValues::Fixed { bytes, .. } => bytes.as_ptr(),
                PartValues::Variable { offsets, bytes } => {
                    column.offsets.push(offsets.inner().as_ptr());
                    column.wide.push(false);
                    bytes.as_ptr()
                }
                PartValues::LargeVariable { offsets, bytes } => {
                    column.offsets.push(offsets.inner().as_ptr());
                    column.wide.push(true);
                    bytes.as_ptr()
                }
                PartValues::Null | PartValues::Array(_) => {
                    return Err(DataFusionError::Internal(format!("column {index} of a page is not flat")));
                }
            };
            column.values.push(values);
            column.any_nulls |= parts.validity.is_some();
            let validity = parts.validity.as_ref().map(|nulls| byte_aligned(nulls.inner())).transpose()?;
            column.validity.push(validity.unwrap_or(std::ptr::null()));
        }
        Ok(column)
    }

    pub(super) fn layout(&self) -> ColumnLayout {
        self.layout
    }

    pub(super) fn any_nulls(&self) -> bool {
        self.any_nulls
    }

    /// Whether the value of `row` is not null.
    #[inline]
    pub(super) fn is_valid(&self, row: RowRef) -> bool {
        let slot = slot_of(row);
        let Some(&bits) = self.validity.get(page_of(row)) else {
            return self.nested[page_of(row)].is_valid(slot);
        };
        // SAFETY: a bitmap has a bit for every slot of its page.
        bits.is_null() || unsafe { (*bits.add(slot / 8) >> (slot % 8)) & 1 == 1 }
    }

    /// The value of `row` in a column of values of the width of `T`.
    #[inline]
    pub(super) fn fixed<T: Copy>(&self, row: RowRef) -> T {
        // SAFETY: the mini-page holds a value of this width for every slot of its page.
        unsafe { self.values[page_of(row)].cast::<T>().add(slot_of(row)).read_unaligned() }
    }

    /// Asks for the value of `row`, which [`PageColumn::fixed`] will read.
    #[inline]
    pub(super) fn prefetch_fixed<T>(&self, row: RowRef) {
        if let Some(values) = self.values.get(page_of(row)) {
            prefetch_address(values.wrapping_add(slot_of(row) * size_of::<T>()));
        }
    }

    /// Asks for the offsets of `row` in a variable column.
    #[inline]
    fn prefetch_offsets(&self, row: RowRef) {
        let page = page_of(row);
        if let (Some(offsets), Some(&wide)) = (self.offsets.get(page), self.wide.get(page)) {
            prefetch_address(offsets.wrapping_add(slot_of(row) * if wide { 8 } else { 4 }));
        }
    }

    #[inline]
    pub(super) fn bit(&self, row: RowRef) -> bool {
        let slot = slot_of(row);
        // SAFETY: the mini-page holds a bit for every slot of its page.
        unsafe { (*self.values[page_of(row)].add(slot / 8) >> (slot % 8)) & 1 == 1 }
    }

    /// The bytes of `row` in a variable column, or in a fixed one of `width` bytes.
    #[inline]
    pub(super) fn bytes(&self, row: RowRef) -> &[u8] {
        let (page, slot) = (page_of(row), slot_of(row));
        if let ColumnLayout::Fixed { width_bytes } = self.layout {
            // SAFETY: as in `fixed`.
            return unsafe {
                std::slice::from_raw_parts(self.values[page].add(slot * width_bytes), width_bytes)
            };
        }
        let offsets = self.offsets[page];
        // SAFETY: there are `rows + 1` offsets, ascending and within the value bytes: checked when the page was opened.
        unsafe {
            let (start, end) = if self.wide[page] {
                let offsets = offsets.cast::<i64>().add(slot);
                (offsets.read_unaligned() as usize, offsets.add(1).read_unaligned() as usize)
            } else {
                let offsets = offsets.cast::<i32>().add(slot);
                (offsets.read_unaligned() as usize, offsets.add(1).read_unaligned() as usize)
            };
            std::slice::from_raw_parts(self.values[page].add(start), end - start)
        }
    }

    fn gather_fixed<T: Copy>(&self, refs: &[RowRef]) -> Buffer
    where
        Buffer: From<Vec<T>>,
    {
        let mut values: Vec<T> = Vec::with_capacity(refs.len());
        values.extend(refs.iter().enumerate().map(|(at, &row)| {
            if let Some(&ahead) = refs.get(at + AHEAD) {
                self.prefetch_fixed::<T>(ahead);
            }
            self.fixed::<T>(row)
        }));
        Buffer::from(values)
    }

    fn gather_nulls(&self, refs: &[RowRef]) -> Option<NullBuffer> {
        if !self.any_nulls {
            return None;
        }
        let mut valid = BooleanBufferBuilder::new(refs.len());
        for &row in refs {
            valid.append(self.is_valid(row));
        }
        Some(NullBuffer::new(valid.finish())).filter(|nulls| nulls.null_count() > 0)
    }

    /// Offsets and value bytes of the rows, in a plain string or binary layout.
    fn gather_offsets<O: TryFrom<usize>>(&self, refs: &[RowRef]) -> Result<(Vec<O>, Vec<u8>)> {
        let total: usize = refs.iter().map(|&row| self.bytes(row).len()).sum();
        let mut values: Vec<u8> = Vec::with_capacity(total);
        let mut offsets: Vec<O> = Vec::with_capacity(refs.len() + 1);
        let too_long = |_| DataFusionError::Execution(format!("{total} bytes of strings exceed one batch"));
        offsets.push(O::try_from(0).map_err(|_| too_long(()))?);
        for &row in refs {
            values.extend_from_slice(self.bytes(row));
            offsets.push(O::try_from(values.len()).map_err(|_| too_long(()))?);
        }
        Ok((offsets, values))
    }

    /// Views over fresh buffers: short values inline, long ones copied, so that an output batch does not
    /// hold on to thousands of pages.
    fn gather_views(&self, refs: &[RowRef]) -> (ScalarBuffer<u128>, Vec<Buffer>) {
        let mut views: Vec<u128> = Vec::with_capacity(refs.len());
        let mut heaps: Vec<Buffer> = Vec::new();
        let mut long = 0;
        for (at, &row) in refs.iter().enumerate() {
            if let Some(&ahead) = refs.get(at + AHEAD) {
                self.prefetch_offsets(ahead);
            }
            let bytes = self.bytes(row);
            prefetch_address(bytes.as_ptr());
            if bytes.len() > INLINE_BYTES {
                long += bytes.len();
            }
        }
        let mut heap: Vec<u8> = Vec::with_capacity(long.min(MAX_HEAP_BYTES));
        for &row in refs {
            let bytes = self.bytes(row);
            let mut view = [0u8; 16];
            view[..4].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
            if bytes.len() <= INLINE_BYTES {
                view[4..4 + bytes.len()].copy_from_slice(bytes);
            } else {
                if heap.len() + bytes.len() > MAX_HEAP_BYTES && !heap.is_empty() {
                    heaps.push(Buffer::from(std::mem::take(&mut heap)));
                }
                view[4..8].copy_from_slice(&bytes[..4]);
                view[8..12].copy_from_slice(&(heaps.len() as u32).to_le_bytes());
                view[12..].copy_from_slice(&(heap.len() as u32).to_le_bytes());
                heap.extend_from_slice(bytes);
            }
            views.push(u128::from_le_bytes(view));
        }
        heaps.push(Buffer::from(heap));
        (ScalarBuffer::from(views), heaps)
    }

    fn gather(&self, refs: &[RowRef]) -> Result<ArrayRef> {
        if refs.is_empty() {
            return Ok(new_empty_array(&self.data_type));
        }
        let nulls = self.gather_nulls(refs);
        let buffers = match (self.layout, &self.data_type) {
            (ColumnLayout::Nested | ColumnLayout::Null, _) => return self.gather_nested(refs),
            (ColumnLayout::Bits, _) => {
                let mut bits = BooleanBufferBuilder::new(refs.len());
                refs.iter().for_each(|&row| bits.append(self.bit(row)));
                vec![bits.finish().into_inner()]
            }
            (ColumnLayout::Fixed { width_bytes }, _) => vec![match width_bytes {
                1 => self.gather_fixed::<u8>(refs),
                2 => self.gather_fixed::<u16>(refs),
                4 => self.gather_fixed::<u32>(refs),
                8 => self.gather_fixed::<u64>(refs),
                16 => self.gather_fixed::<u128>(refs),
                width => {
                    let mut values = MutableBuffer::new(width * refs.len());
                    refs.iter().for_each(|&row| values.extend_from_slice(self.bytes(row)));
                    values.into()
                }
            }],
            (ColumnLayout::Variable, DataType::Utf8View) => {
                let (views, heaps) = self.gather_views(refs);
                // SAFETY: the bytes are strings of a column of strings, and every view lies within `heaps`.
                return Ok(Arc::new(unsafe { StringViewArray::new_unchecked(views, heaps, nulls) }));
            }
            (ColumnLayout::Variable, DataType::BinaryView) => {
                let (views, heaps) = self.gather_views(refs);
                // SAFETY: every view lies within `heaps`.
                return Ok(Arc::new(unsafe { BinaryViewArray::new_unchecked(views, heaps, nulls) }));
            }
            (ColumnLayout::Variable, DataType::LargeUtf8 | DataType::LargeBinary) => {
                let (offsets, values) = self.gather_offsets::<i64>(refs)?;
                vec![Buffer::from(offsets), Buffer::from(values)]
            }
            (ColumnLayout::Variable, _) => {
                let (offsets, values) = self.gather_offsets::<i32>(refs)?;
                vec![Buffer::from(offsets), Buffer::from(values)]
            }
        };
        let data = ArrayData::builder(self.data_type.clone()).len(refs.len()).buffers(buffers).nulls(nulls);
        // SAFETY: the buffers were just laid out for this type and length, from values of this type.
        Ok(make_array(unsafe { data.build_unchecked() }))
    }

    fn gather_nested(&self, refs: &[RowRef]) -> Result<ArrayRef> {
        // Only the pages that occur take part: `interleave` looks at every array it is given.
        let mut used: Vec<usize> = refs.iter().map(|&row| page_of(row)).collect();
        used.sort_unstable();
        used.dedup();
        let arrays: Vec<&dyn Array> = used.iter().map(|&page| self.nested[page].as_ref()).collect();
        let places: Vec<(usize, usize)> = refs
            .iter()
            .map(|&row| (used.partition_point(|&page| page < page_of(row)), slot_of(row)))
            .collect();
        Ok(interleave(&arrays, &places)?)
    }
}

/// Where the bits of a bitmap start; mini-pages hold them from a byte's first bit on.
fn byte_aligned(bits: &BooleanBuffer) -> Result<*const u8> {
    if !bits.offset().is_multiple_of(8) {
        return Err(DataFusionError::Internal("a bitmap of a page starts inside a byte".to_owned()));
    }
    // SAFETY: the offset lies within the buffer.
    Ok(unsafe { bits.inner().as_ptr().add(bits.offset() / 8) })
}

/// The rows of a list of pages.
pub struct PageRows {
    columns: Vec<PageColumn>,
}

impl PageRows {
    /// Opens `pages`, which the caller keeps alive, for gathering.
    pub fn new(schema: &Arc<PageSchema>, pages: &[&Page]) -> Result<Self> {
        if pages.len() > MAX_PAGES || pages.iter().any(|page| page.rows() > MAX_PAGE_ROWS) {
            return Err(DataFusionError::Internal(format!(
                "a join table of {} pages exceeds the {MAX_PAGES} that row references can address",
                pages.len()
            )));
        }
        let fields = schema.arrow().fields().iter().zip(schema.layouts()).enumerate();
        let columns = fields
            .map(|(index, (field, layout))| PageColumn::new(index, field.data_type(), *layout, pages))
            .collect::<Result<_>>()?;
        Ok(Self { columns })
    }

    /// Column `column` of the rows that `refs` name, in that order.
    pub fn gather(&self, column: usize, refs: &[RowRef]) -> Result<ArrayRef> {
        self.columns[column].gather(refs)
    }

    pub(super) fn column(&self, column: usize) -> &PageColumn {
        &self.columns[column]
    }
}
