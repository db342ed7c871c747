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

/// Requests and what is kept, in the order of the ranges: extents of the second kind are there already, and end where the range does.
pub(crate) type Extents = Vec<(Extent, Option<Buffer>)>;

/// Plans the requests for those of the ranges that are not `kept`, which has a place for each of them or none at all.
pub(crate) fn plan_beside(
    kept: Vec<Option<Buffer>>,
    needed: &[Needed],
    merge_gap_bytes: u64,
    max_request_bytes: u64,
) -> (Extents, Vec<Place>) {
    let mut extents: Extents = Vec::new();
    let mut places = Vec::with_capacity(needed.len());
    let mut missing_from = 0;
    let mut kept = kept.into_iter().enumerate().filter_map(|(number, kept)| Some((number, kept?)));
    loop {
        let next = kept.next();
        let missing_to = next.as_ref().map_or(needed.len(), |(number, _)| *number);
        let base = extents.len();
        let (planned, placed) = plan(&needed[missing_from..missing_to], merge_gap_bytes, max_request_bytes);
        extents.extend(planned.into_iter().map(|extent| (extent, None)));
        places.extend(placed.into_iter().map(|place| Place { extent: base + place.extent, ..place }));
        let Some((number, buffer)) = next else { break };
        let Needed { offset, length } = needed[number];
        places.push(Place { extent: extents.len(), start: 0, length: length as usize });
        extents.push((Extent { offset, length }, Some(buffer)));
        missing_from = number + 1;
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
    fn what_is_kept_is_not_read() {
        let ranges = needed(&[(0, 100), (4096, 50), (5000, 20), (8192, 4096), (20000, 8), (20100, 8)]);
        let buffer = |bytes: usize| Some(Buffer::from_vec(vec![7_u8; bytes]));
        let kept = vec![None, buffer(50), None, None, buffer(8), None];
        let (extents, places) = plan_beside(kept, &ranges, 1 << 20, 1 << 20);
        let shown: Vec<_> =
            extents.iter().map(|(extent, kept)| (extent.offset, extent.length, kept.is_some())).collect();
        assert_eq!(
            shown,
            [(0, 4096, false), (4096, 50, true), (4096, 8192, false), (20000, 8, true), (16384, 4096, false)]
        );
        let shown: Vec<_> = places.iter().map(|place| (place.extent, place.start, place.length)).collect();
        assert_eq!(shown, [(0, 0, 100), (1, 0, 50), (2, 904, 20), (2, 4096, 4096), (3, 0, 8), (4, 3716, 8)]);
        let (all, places_of_all) = plan_beside(Vec::new(), &ranges, 0, 1 << 20);
        let (planned, placed) = plan(&ranges, 0, 1 << 20);
        assert_eq!(all.iter().map(|(extent, _)| *extent).collect::<Vec<_>>(), planned);
        assert_eq!(places_of_all, placed);
    }

    #[test]
    fn empty_ranges_need_nothing() {
        let (extents, places) = plan(&needed(&[(50, 0), (5000, 8), (6000, 0)]), 0, 1 << 20);
        assert_eq!(extents, [Extent { offset: 4096, length: 4096 }]);
        assert_eq!(places.len(), 3);
        assert_eq!(places[1], Place { extent: 0, start: 904, length: 8 });
    }
}
