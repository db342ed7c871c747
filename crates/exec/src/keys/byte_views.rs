//! Texts or bytes, one for every group: Arrow's 16-byte views, whose longer values lie in a heap.
//!
//! ```text
//!   up to 12 bytes   │ length 32 │ value, padded with zeros                   96 │
//!   longer           │ length 32 │ first four bytes 32 │ piece 32 │ offset 32 │ ──► heap
//! ```
//!
//! Most comparisons end with the length and the first four bytes.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryViewArray, StringViewArray};
use arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::DataType;

/// Longest value that a view holds itself.
const INLINE_BYTES: usize = 12;
/// Of a heap that grows, the next piece is this part of what it has, within bounds: small enough that little of it stays
/// free, large enough that the kernel does not spend its time with giving and taking pieces.
const PIECE_SHARE: usize = 4;
const LEAST_PIECE_BYTES: usize = 4 << 10;
const MOST_PIECE_BYTES: usize = 16 << 20;
/// Values longer than this part of the next piece have one of their own, so that pieces have no large gaps at their ends.
const OWN_PIECE_SHARE: usize = 16;
/// A heap smaller than this may hold any amount of values that are no longer needed.
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
    heap: Heap,
    /// Bytes of the heap that no view points to.
    unused_bytes: usize,
}

/// Values in pieces that never move. In one piece it would grow by being copied into another of twice its size, so that
/// there were three times as many bytes as values for a moment.
#[derive(Debug, Default)]
struct Heap {
    pieces: Vec<Vec<u8>>,
    /// The piece that is being filled.
    current: usize,
    /// Of all values.
    used_bytes: usize,
    /// Of all pieces, with the free bytes at their ends.
    capacity_bytes: usize,
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
        self.heap.append(batch.long(view)) | u128::from(view as u64)
    }

    #[inline]
    fn long(&self, view: u128) -> &[u8] {
        let (piece, range) = place_of(view);
        &self.heap.pieces[piece][range]
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
            let (piece, old_range) = place_of(old);
            let range = old_range.start..old_range.start + length_of(new);
            self.heap.pieces[piece][range].copy_from_slice(batch.long(new));
            self.unused_bytes += old_bytes - length_of(new);
            self.views[group] = old >> 64 << 64 | u128::from(new as u64);
            return;
        }
        self.views[group] = self.stored(batch, new);
        self.unused_bytes += old_bytes;
        // It looks at all groups: rarely, if there are many of them and few bytes.
        let is_worth_it = self.unused_bytes > SMALL_HEAP_BYTES.max(self.views.len());
        if is_worth_it && self.unused_bytes > self.heap.used_bytes / 2 {
            self.compact();
        }
    }

    /// Lets go of what no view points to.
    fn compact(&mut self) {
        let mut heap = Heap::default();
        for view in self.views.iter_mut().filter(|view| length_of(**view) > INLINE_BYTES) {
            let (piece, range) = place_of(*view);
            *view = heap.append(&self.heap.pieces[piece][range]) | u128::from(*view as u64);
        }
        self.heap = heap;
        self.unused_bytes = 0;
    }

    /// Bytes held, spare capacity included.
    pub fn memory_bytes(&self) -> usize {
        let pieces = self.heap.pieces.capacity() * size_of::<Vec<u8>>();
        self.views.capacity() * size_of::<u128>() + self.heap.capacity_bytes + pieces
    }

    /// The values of all groups as an array of views of this type; none remain.
    pub fn take(&mut self, data_type: &DataType, nulls: Option<NullBuffer>) -> ArrayRef {
        let heap_bytes = self.heap.used_bytes;
        if heap_bytes > SMALL_HEAP_BYTES && self.unused_bytes > heap_bytes / 4 {
            self.compact();
        }
        let Self { views, heap, .. } = std::mem::take(self);
        let views = ScalarBuffer::from(views);
        let buffers: Vec<Buffer> = heap.pieces.into_iter().map(Buffer::from_vec).collect();
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

/// Piece and range of a value of more than [`INLINE_BYTES`].
#[inline]
fn place_of(view: u128) -> (usize, Range<usize>) {
    let (piece, offset) = ((view >> 64) as u32 as usize, (view >> 96) as u32 as usize);
    (piece, offset..offset + length_of(view))
}

impl Heap {
    /// Appends a value. Its place, in the upper half of a view.
    fn append(&mut self, value: &[u8]) -> u128 {
        let has_room = |piece: &Vec<u8>| piece.capacity() - piece.len() >= value.len();
        let index = if self.pieces.get(self.current).is_some_and(has_room) {
            self.current
        } else {
            self.begin_piece(value.len())
        };
        let piece = &mut self.pieces[index];
        let offset = piece.len();
        piece.extend_from_slice(value);
        self.used_bytes += value.len();
        (offset as u128) << 96 | (index as u128) << 64
    }

    /// A piece with room for a value of so many bytes.
    fn begin_piece(&mut self, value_bytes: usize) -> usize {
        let next_bytes = (self.capacity_bytes / PIECE_SHARE).clamp(LEAST_PIECE_BYTES, MOST_PIECE_BYTES);
        let is_own = value_bytes > next_bytes / OWN_PIECE_SHARE;
        let piece = Vec::with_capacity(if is_own { value_bytes } else { next_bytes });
        self.capacity_bytes += piece.capacity();
        self.pieces.push(piece);
        let index = self.pieces.len() - 1;
        if !is_own {
            self.current = index;
        }
        index
    }
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

    #[test]
    fn heaps_grow_by_little() {
        for length in [13, 100, 3_000, 32_000] {
            let texts: Vec<String> = (0..400).map(|number| format!("{number:0length$}")).collect();
            let values = StringViewArray::from(texts.iter().map(String::as_str).collect::<Vec<_>>());
            let mut groups = ByteViews::default();
            for _ in 0..3 {
                (0..texts.len()).for_each(|row| groups.push(batch(&values), row));
                let bytes = groups.views.len() * length;
                assert!(groups.heap.capacity_bytes < bytes + bytes / 4 + bytes / 16 + (8 << 10), "{length}");
            }
            let taken = groups.take(&DataType::Utf8View, None);
            assert!(taken.as_string_view().iter().flatten().eq(texts.iter().cycle().take(1_200)));
        }
    }
}
