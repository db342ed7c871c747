//! Texts or bytes, one for every group: 16-byte views like Arrow's, whose longer values lie in one heap.
//!
//! ```text
//!   up to 12 bytes   │ length 32 │ value, padded with zeros        96 │
//!   longer           │ length 32 │ first four bytes 32 │ place    64 │ ──► heap
//! ```
//!
//! Most comparisons end with the length and the first four bytes.

#![allow(
    clippy::indexing_slicing,
    reason = "places come from the heap itself, views of a batch from its array"
)]

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryViewArray, StringViewArray};
use arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::DataType;

/// Longest value that a view holds itself.
const INLINE_BYTES: usize = 12;
/// Arrow's views address windows of the heap that begin at multiples of this. A window reaches twice as far, so that
/// every value lies inside one.
const HEAP_WINDOW_BYTES: usize = 1 << 30;
/// A heap smaller than this may hold as much that nobody needs any more as it likes.
const SMALL_HEAP_BYTES: usize = 64 << 10;

/// The values of a batch that groups are compared with: Arrow's views.
#[derive(Clone, Copy)]
pub struct BatchViews<'a> {
    pub views: &'a [u128],
    pub buffers: &'a [Buffer],
}

/// One value per group.
#[derive(Debug, Default)]
pub struct ByteViews {
    views: Vec<u128>,
    heap: Vec<u8>,
    /// Bytes of the heap that no view points to.
    unused_bytes: usize,
}

#[inline]
fn length_of(view: u128) -> usize {
    view as u32 as usize
}

/// The first four bytes, so that they compare as the values do.
#[inline]
fn head_of(view: u128) -> u32 {
    ((view >> 32) as u32).swap_bytes()
}

/// The bytes of a value whose view holds it.
#[inline]
fn inline_bytes(view: &[u8; 16]) -> &[u8] {
    let length = usize::from(view[0]).min(INLINE_BYTES);
    &view[4..4 + length]
}

impl BatchViews<'_> {
    /// The bytes of a value of more than [`INLINE_BYTES`].
    #[inline]
    fn long(&self, view: u128) -> &[u8] {
        let (buffer, offset) = ((view >> 64) as u32 as usize, (view >> 96) as u32 as usize);
        &self.buffers[buffer][offset..offset + length_of(view)]
    }
}

impl ByteViews {
    /// Appends the value of `row`.
    #[inline]
    pub fn push(&mut self, batch: BatchViews<'_>, row: usize) {
        let view = self.stored(batch, batch.views[row]);
        self.views.push(view);
    }

    /// Appends an empty value.
    #[inline]
    pub fn push_empty(&mut self) {
        self.views.push(0);
    }

    /// Appends empty values until there are so many groups.
    pub fn extend_to(&mut self, groups: usize) {
        self.views.resize(groups.max(self.views.len()), 0);
    }

    /// The value of a batch as a view into the heap.
    #[inline]
    fn stored(&mut self, batch: BatchViews<'_>, view: u128) -> u128 {
        if length_of(view) <= INLINE_BYTES {
            return view;
        }
        let place = append(&mut self.heap, batch.long(view)) as u128;
        place << 64 | u128::from(view as u64)
    }

    #[inline]
    fn long(&self, view: u128) -> &[u8] {
        let place = (view >> 64) as usize;
        &self.heap[place..place + length_of(view)]
    }

    /// Whether the value of `group` is that of `row`.
    #[inline]
    pub fn is_equal(&self, group: usize, batch: BatchViews<'_>, row: usize) -> bool {
        let (ours, theirs) = (self.views[group], batch.views[row]);
        if ours as u64 != theirs as u64 {
            return false;
        }
        if length_of(ours) <= INLINE_BYTES {
            return ours == theirs;
        }
        self.long(ours) == batch.long(theirs)
    }

    /// How the value of `row` compares with that of `group`, byte by byte.
    #[inline]
    pub fn compare(&self, batch: BatchViews<'_>, row: usize, group: usize) -> Ordering {
        let (ours, theirs) = (self.views[group], batch.views[row]);
        head_of(theirs).cmp(&head_of(ours)).then_with(|| {
            let (our_bytes, their_bytes) = (ours.to_le_bytes(), theirs.to_le_bytes());
            let ours =
                if length_of(ours) <= INLINE_BYTES { inline_bytes(&our_bytes) } else { self.long(ours) };
            let theirs = if length_of(theirs) <= INLINE_BYTES {
                inline_bytes(&their_bytes)
            } else {
                batch.long(theirs)
            };
            theirs.cmp(ours)
        })
    }

    /// Puts the value of `row` in the place of that of `group`.
    pub fn replace(&mut self, group: usize, batch: BatchViews<'_>, row: usize) {
        let (old, new) = (self.views[group], batch.views[row]);
        let old_bytes = if length_of(old) > INLINE_BYTES { length_of(old) } else { 0 };
        if (INLINE_BYTES + 1..=old_bytes).contains(&length_of(new)) {
            let place = (old >> 64) as usize;
            self.heap[place..place + length_of(new)].copy_from_slice(batch.long(new));
            self.unused_bytes += old_bytes - length_of(new);
            self.views[group] = old >> 64 << 64 | u128::from(new as u64);
            return;
        }
        self.views[group] = self.stored(batch, new);
        self.unused_bytes += old_bytes;
        // It looks at all groups: rarely, if there are many of them and few bytes.
        let is_worth_it = self.unused_bytes > SMALL_HEAP_BYTES.max(self.views.len());
        if is_worth_it && self.unused_bytes > self.heap.len() / 2 {
            self.compact();
        }
    }

    /// Lets go of what no view points to.
    fn compact(&mut self) {
        let mut heap = Vec::with_capacity(self.heap.len() - self.unused_bytes);
        for view in self.views.iter_mut().filter(|view| length_of(**view) > INLINE_BYTES) {
            let from = (*view >> 64) as usize;
            let place = append(&mut heap, &self.heap[from..from + length_of(*view)]) as u128;
            *view = place << 64 | u128::from(*view as u64);
        }
        self.heap = heap;
        self.unused_bytes = 0;
    }

    /// Bytes held, spare capacity included.
    pub fn memory_bytes(&self) -> usize {
        self.views.capacity() * size_of::<u128>() + self.heap.capacity()
    }

    /// The values of all groups as an array of views of this type; none remain.
    pub fn take(&mut self, data_type: &DataType, nulls: Option<NullBuffer>) -> ArrayRef {
        if self.heap.len() > SMALL_HEAP_BYTES && self.unused_bytes > self.heap.len() / 4 {
            self.compact();
        }
        let Self { views, heap, .. } = std::mem::take(self);
        let (views, buffers) = arrow_views(views, heap);
        match data_type {
            DataType::Utf8View => Arc::new(
                // SAFETY: values were copied whole from arrays of strings; views lie within the buffers.
                unsafe { StringViewArray::new_unchecked(views, buffers, nulls) },
            ),
            _ => Arc::new(
                // SAFETY: every view lies within the buffers.
                unsafe { BinaryViewArray::new_unchecked(views, buffers, nulls) },
            ),
        }
    }
}

/// Appends a value; where it begins. One that is longer than what windows overlap by begins with a window.
fn append(heap: &mut Vec<u8>, value: &[u8]) -> usize {
    if value.len() >= HEAP_WINDOW_BYTES {
        heap.resize(heap.len().next_multiple_of(HEAP_WINDOW_BYTES), 0);
    }
    let place = heap.len();
    heap.extend_from_slice(value);
    place
}

/// Views as Arrow has them, and the windows of the heap that they point into.
fn arrow_views(mut views: Vec<u128>, heap: Vec<u8>) -> (ScalarBuffer<u128>, Vec<Buffer>) {
    for view in views.iter_mut().filter(|view| length_of(**view) > INLINE_BYTES) {
        let place = (*view >> 64) as usize;
        let (window, offset) = (place / HEAP_WINDOW_BYTES, place % HEAP_WINDOW_BYTES);
        *view = (offset as u128) << 96 | (window as u128) << 64 | u128::from(*view as u64);
    }
    let heap = Buffer::from_vec(heap);
    let windows = (0..heap.len())
        .step_by(HEAP_WINDOW_BYTES)
        .map(|start| heap.slice_with_length(start, (heap.len() - start).min(2 * HEAP_WINDOW_BYTES - 1)));
    (ScalarBuffer::from(views), windows.collect())
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, AsArray};

    use super::*;

    fn batch(values: &StringViewArray) -> BatchViews<'_> {
        BatchViews { views: values.views(), buffers: values.data_buffers() }
    }

    #[test]
    fn values_compare_byte_by_byte() {
        let texts = [
            "",
            "a",
            "a\0",
            "ab",
            "twelve bytes",
            "twelve bytes\0",
            "twelve bytes and more",
            "\u{ff}",
            "zzz",
        ];
        let values = StringViewArray::from(texts.to_vec());
        let mut groups = ByteViews::default();
        (0..texts.len()).for_each(|row| groups.push(batch(&values), row));
        for (row, text) in texts.iter().enumerate() {
            for (group, other) in texts.iter().enumerate() {
                assert_eq!(groups.compare(batch(&values), row, group), text.as_bytes().cmp(other.as_bytes()));
                assert_eq!(groups.is_equal(group, batch(&values), row), row == group);
            }
        }
    }

    #[test]
    fn replaced_values_leave_no_heap_behind() {
        let texts: Vec<String> = (0..2000).map(|number| "x".repeat(number * 7 % 300)).collect();
        let values = StringViewArray::from(texts.iter().map(String::as_str).collect::<Vec<_>>());
        let mut groups = ByteViews::default();
        groups.extend_to(texts.len());
        for shift in 0..20 {
            for group in 0..texts.len() {
                groups.replace(group, batch(&values), (group + shift * 13) % texts.len());
            }
        }
        assert!(groups.memory_bytes() < 2 << 20, "{}", groups.memory_bytes());
        let taken = groups.take(&DataType::Utf8View, None);
        let taken = taken.as_string_view();
        for group in 0..texts.len() {
            assert_eq!(taken.value(group), texts[(group + 19 * 13) % texts.len()]);
        }
        assert_eq!(groups.take(&DataType::Utf8View, None).len(), 0);
    }
}
