//! Where a row is, as its id says it, and as entries of indexes do.
//!
//! ```text
//!   id of a row          1, place in the heap          0, page and slot in a segment
//!   entry of an index    0, place in the heap          1, page and slot in a segment
//! ```
//!
//! Entries are what the row store has ids for, of its own rows and of those that are elsewhere.

use nandina_rowstore::heap::RowId as HeapRow;

use crate::ids::RowId;

/// The bit of a row's id that tells rows in the heap from those in segments, which have fewer pages than it would take.
const IN_HEAP: u64 = HeapRow::ELSEWHERE;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Heap(HeapRow),
    Segment(RowId),
}

impl Place {
    /// That of the row with this id.
    pub fn of(id: u64) -> Self {
        match id & IN_HEAP {
            0 => Self::Segment(RowId::from_bits(id)),
            _ => Self::Heap(HeapRow(id ^ IN_HEAP)),
        }
    }

    /// What an entry of an index leads to.
    pub fn of_entry(entry: HeapRow) -> Self {
        Self::of(entry.0 ^ IN_HEAP)
    }

    pub fn id(self) -> u64 {
        let (bits, of_heap) = match self {
            Self::Heap(row) => (row.0, IN_HEAP),
            Self::Segment(row) => (row.to_bits(), 0),
        };
        assert!(bits & IN_HEAP == 0, "page numbers of heaps and of segments have less than 48 bits");
        bits | of_heap
    }

    /// The entry of an index that leads there.
    pub fn entry(self) -> HeapRow {
        HeapRow(self.id() ^ IN_HEAP)
    }
}

pub(super) fn id_of(row: HeapRow) -> u64 {
    Place::Heap(row).id()
}

/// The rows of segments, and the ids of those in heaps, among rows with these ids; each in the order in which they come.
pub fn by_place(ids: &[u64]) -> (Vec<RowId>, Vec<u64>) {
    let (mut in_segments, mut in_heap) = (Vec::new(), Vec::new());
    for id in ids {
        match Place::of(*id) {
            Place::Segment(row) => in_segments.push(row),
            Place::Heap(_) => in_heap.push(*id),
        }
    }
    (in_segments, in_heap)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PageNumber;

    #[test]
    fn ids_and_entries_lead_to_places() {
        let (row, heap_row) = (RowId::new(PageNumber(7), 3), HeapRow(7 << 16 | 3));
        for place in [Place::Segment(row), Place::Heap(heap_row)] {
            assert_eq!((Place::of(place.id()), Place::of_entry(place.entry())), (place, place));
        }
        // As it has always been.
        assert_eq!((Place::Segment(row).id(), Place::Heap(heap_row).entry()), (row.to_bits(), heap_row));
        assert!(Place::Segment(row).entry().is_elsewhere());
        let (one, other) = (Place::Segment(row).id(), id_of(heap_row));
        assert_eq!(by_place(&[other, one]), (vec![row], vec![other]));
        // Those of segments come first where ids are sorted.
        assert!(one < other);
    }
}
