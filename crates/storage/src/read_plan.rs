//! From needed byte ranges to read requests: whole 4 KiB blocks, neighbours merged.
//!
//! ```text
//!  needed     ▓▓▓      ▓▓▓▓▓ ▓▓                     ▓▓▓
//!  blocks   ├────┼────┼────┼────┼────┼────┼────┼────┼────┤
//!  extents  [════════════════════]              [════════]
//!                 gap is read too                gap is skipped
//! ```
//!
//! Which gaps are read, and how long requests become, follows from the device's profile
//! ([`nandina_device::profile::IoSizes`]): a gap is read if that costs less than another request, and requests do
//! not grow beyond the smallest read that reaches the full bandwidth. Longer ones would let batches of different pages
//! share a buffer, of which each then keeps all alive.

use arrow_buffer::Buffer;
use nandina_pages::MiniPageMeta;

const BLOCK_BYTES: u64 = 4096;

/// A needed range of a file, and where it will be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needed {
    pub offset: u64,
    pub length: u64,
}

impl Needed {
    /// A mini-page of the page that stands at `page_offset`.
    pub fn mini_page(page_offset: u64, meta: &MiniPageMeta) -> Self {
        Self { offset: page_offset + meta.offset_bytes, length: meta.length_bytes.into() }
    }
}

/// One read request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub offset: u64,
    pub length: u64,
}

/// Where a needed range stands: in which extent, and from which byte of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub extent: usize,
    pub start: usize,
    pub length: usize,
}

impl Place {
    /// The needed range, out of its extent; empty ranges have none.
    pub fn slice(&self, extent: Option<&Buffer>) -> Buffer {
        match extent {
            _ if self.length == 0 => Buffer::default(),
            Some(bytes) => bytes.slice_with_length(self.start, self.length),
            None => unreachable!("an extent is read before what stands in it is decoded"),
        }
    }
}

/// Plans the requests for `needed`, which ascends by offset. Empty ranges are placed nowhere in particular.
pub(crate) fn plan(
    needed: &[Needed],
    merge_gap_bytes: u64,
    max_request_bytes: u64,
) -> (Vec<Extent>, Vec<Place>) {
    let mut extents: Vec<Extent> = Vec::new();
    let mut places = Vec::with_capacity(needed.len());
    for range in needed {
        if range.length == 0 {
            places.push(Place { extent: 0, start: 0, length: 0 });
            continue;
        }
        let start = range.offset / BLOCK_BYTES * BLOCK_BYTES;
        let end = (range.offset + range.length).next_multiple_of(BLOCK_BYTES);
        match extents.last_mut() {
            Some(last) if joins(last, start, end, merge_gap_bytes, max_request_bytes) => {
                last.length = last.length.max(end - last.offset);
            }
            _ => extents.push(Extent { offset: start, length: end - start }),
        }
        let extent = extents.len() - 1;
        let start = (range.offset - extents[extent].offset) as usize;
        places.push(Place { extent, start, length: range.length as usize });
    }
    (extents, places)
}

fn joins(last: &Extent, start: u64, end: u64, merge_gap_bytes: u64, max_request_bytes: u64) -> bool {
    let last_end = last.offset + last.length;
    assert!(start >= last.offset, "ranges ascend");
    // Ranges that share a block always share the request: no block is read twice.
    start < last_end || (start - last_end <= merge_gap_bytes && end - last.offset <= max_request_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed(ranges: &[(u64, u64)]) -> Vec<Needed> {
        ranges.iter().map(|&(offset, length)| Needed { offset, length }).collect()
    }

    fn extents(ranges: &[(u64, u64)], gap: u64, max: u64) -> Vec<(u64, u64)> {
        plan(&needed(ranges), gap, max).0.iter().map(|extent| (extent.offset, extent.length)).collect()
    }

    #[test]
    fn whole_blocks() {
        assert_eq!(extents(&[(100, 10)], 0, 1 << 20), [(0, 4096)]);
        assert_eq!(extents(&[(4000, 200)], 0, 1 << 20), [(0, 8192)]);
        assert_eq!(extents(&[(4096, 4096)], 0, 1 << 20), [(4096, 4096)]);
    }

    #[test]
    fn ranges_in_one_block_share_a_request() {
        let (extents, places) = plan(&needed(&[(100, 10), (200, 50), (4000, 200), (8000, 10)]), 0, 4096);
        assert_eq!(extents, [Extent { offset: 0, length: 8192 }]);
        assert_eq!(places.iter().map(|place| place.start).collect::<Vec<_>>(), [100, 200, 4000, 8000]);
    }

    #[test]
    fn gaps_up_to_the_limit_are_read() {
        assert_eq!(extents(&[(0, 4096), (12288, 4096)], 8192, 1 << 20), [(0, 16384)]);
        assert_eq!(extents(&[(0, 4096), (12288, 4096)], 8191, 1 << 20), [(0, 4096), (12288, 4096)]);
    }

    #[test]
    fn requests_do_not_grow_beyond_the_limit() {
        assert_eq!(extents(&[(0, 4096), (4096, 4096), (8192, 4096)], 0, 8192), [(0, 8192), (8192, 4096)]);
        assert_eq!(extents(&[(0, 1 << 20)], 0, 8192), [(0, 1 << 20)]);
    }

    #[test]
    fn empty_ranges_need_nothing() {
        let (extents, places) = plan(&needed(&[(50, 0), (5000, 8), (6000, 0)]), 0, 1 << 20);
        assert_eq!(extents, [Extent { offset: 4096, length: 4096 }]);
        assert_eq!(places.len(), 3);
        assert_eq!(places[1], Place { extent: 0, start: 904, length: 8 });
    }
}
