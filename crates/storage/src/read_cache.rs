//! What was read of segments, kept in memory for later queries as long as nobody else needs it.
//!
//! ```text
//!   read ──► another query has read there before? ── no ──► remembered
//!                        │ yes
//!                        ▼
//!               room in the budget? ── yes ──► kept, as it was read
//!                        │ no
//!                        ▼
//!               one of a few that were drawn was not used lately ──► kept in its place
//! ```
//!
//! What is read once costs no memory, and no time for it. What is kept leaves by lot, among those that are used least: a table a
//! little larger than the memory, read over and over, is found in part, of which the least recently used order would find
//! nothing. Segments never change, so that nothing that is kept is ever old.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_buffer::Buffer;
use parking_lot::Mutex;

use crate::read_plan::Needed;

/// Where another query has read is known by parts of segments of so many bytes.
const REGION_BYTES: u64 = 16 << 20;
/// Regions that are remembered; of more, all are forgotten.
const MOST_REGIONS: usize = 1 << 20;
/// So many reads are drawn, to leave or to lose a use.
const DRAWN: usize = 4;
/// Uses that count.
const MOST_USES: u8 = 3;

/// Memory that the cache may take.
pub trait CacheBudget: Send + Sync + std::fmt::Debug {
    /// Takes so many bytes, if nobody needs them.
    fn try_take(&self, bytes: usize) -> bool;

    fn give_back(&self, bytes: usize);
}

/// A segment as it was opened: no other one of this process has the same number, not even that of a copy of its database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SegmentKey(u64);

impl SegmentKey {
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A read: its segment, and where it begins.
type Place = (SegmentKey, u64);

/// See the [module documentation](self).
pub struct ReadCache {
    budget: Arc<dyn CacheBudget>,
    kept: Mutex<Kept>,
    visits: AtomicU64,
}

#[derive(Default)]
struct Kept {
    reads: BTreeMap<Place, KeptRead>,
    /// The keys of all reads, in no order.
    places: Vec<Place>,
    bytes: usize,
    /// The first query that has read there.
    regions: HashMap<(SegmentKey, u64), u64>,
    drawn: u64,
}

struct KeptRead {
    buffer: Buffer,
    uses: u8,
    /// Among the places.
    at: usize,
}

/// A query that uses a cache.
#[derive(Debug, Clone)]
pub struct CacheVisit {
    cache: Arc<ReadCache>,
    number: u64,
}

impl ReadCache {
    pub fn new(budget: Arc<dyn CacheBudget>) -> Arc<Self> {
        Arc::new(Self { budget, kept: Mutex::default(), visits: AtomicU64::new(0) })
    }

    /// For a query that is about to read.
    pub fn visit(self: &Arc<Self>) -> CacheVisit {
        CacheVisit { cache: Arc::clone(self), number: self.visits.fetch_add(1, Ordering::Relaxed) }
    }

    /// Bytes that are kept.
    pub fn bytes(&self) -> usize {
        self.kept.lock().bytes
    }

    /// Has so many bytes leave, or all there are; how many did.
    pub fn evict(&self, bytes: usize) -> usize {
        let mut kept = self.kept.lock();
        let mut freed = 0;
        while freed < bytes {
            let Some(place) = kept.least_used() else { break };
            freed += kept.remove(place);
        }
        drop(kept);
        self.budget.give_back(freed);
        freed
    }
}

impl std::fmt::Debug for ReadCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadCache").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl Drop for ReadCache {
    fn drop(&mut self) {
        self.budget.give_back(self.kept.get_mut().bytes);
    }
}

impl CacheVisit {
    /// What is kept of some ranges of a segment.
    pub(crate) fn find(&self, segment: SegmentKey, ranges: &[Needed]) -> Vec<Option<Buffer>> {
        let mut kept = self.cache.kept.lock();
        if kept.reads.is_empty() {
            return Vec::new();
        }
        ranges.iter().map(|range| kept.find(segment, range)).collect()
    }

    /// Lets go of a segment, in which something is damaged: what was read may be, and not what is on the device.
    pub(crate) fn forget(&self, segment: SegmentKey) {
        let mut kept = self.cache.kept.lock();
        let places = kept.reads.range((segment, 0)..=(segment, u64::MAX));
        let places: Vec<Place> = places.map(|(place, _)| *place).collect();
        let freed = places.into_iter().map(|place| kept.remove(place)).sum();
        drop(kept);
        self.cache.budget.give_back(freed);
    }

    /// Offers what was read of a segment from a place on.
    pub(crate) fn offer(&self, segment: SegmentKey, offset: u64, buffer: &Buffer) {
        let mut kept = self.cache.kept.lock();
        if !kept.was_read_before(segment, offset, self.number) {
            return;
        }
        let place = (segment, offset);
        if kept.reads.get(&place).is_some_and(|read| read.buffer.len() >= buffer.len()) {
            return;
        }
        let mut freed = kept.remove(place);
        let bytes = buffer.len();
        let mut has_room = self.cache.budget.try_take(bytes);
        while !has_room && freed < bytes {
            let Some(unused) = kept.unused() else { break };
            freed += kept.remove(unused);
            has_room = freed >= bytes;
            if has_room {
                freed -= bytes;
            }
        }
        if has_room {
            kept.insert(place, buffer.clone());
        }
        drop(kept);
        self.cache.budget.give_back(freed);
    }
}

impl Kept {
    fn find(&mut self, segment: SegmentKey, range: &Needed) -> Option<Buffer> {
        if range.length == 0 {
            return None;
        }
        let (&(of, offset), read) = self.reads.range_mut(..=(segment, range.offset)).next_back()?;
        if of != segment || range.offset + range.length > offset + read.buffer.len() as u64 {
            return None;
        }
        let from = range.offset - offset;
        read.uses = (read.uses + 1).min(MOST_USES);
        Some(read.buffer.slice_with_length(from as usize, range.length as usize))
    }

    /// Whether another query has read there before this one.
    fn was_read_before(&mut self, segment: SegmentKey, offset: u64, visit: u64) -> bool {
        if self.regions.len() >= MOST_REGIONS {
            self.regions.clear();
        }
        let first = *self.regions.entry((segment, offset / REGION_BYTES)).or_insert(visit);
        first != visit
    }

    fn insert(&mut self, place: Place, buffer: Buffer) {
        self.bytes += buffer.len();
        self.places.push(place);
        let read = KeptRead { buffer, uses: 0, at: self.places.len() - 1 };
        let before = self.reads.insert(place, read);
        assert!(before.is_none(), "what is kept at a place is taken out before something else is");
    }

    /// Takes a read out, if it is there; its bytes.
    fn remove(&mut self, place: Place) -> usize {
        let Some(read) = self.reads.remove(&place) else { return 0 };
        self.places.swap_remove(read.at);
        if let Some(moved) = self.places.get(read.at) {
            let Some(moved) = self.reads.get_mut(moved) else { unreachable!("every place has a read") };
            moved.at = read.at;
        }
        self.bytes -= read.buffer.len();
        read.buffer.len()
    }

    /// That which was used least, of some that are drawn, if it was not used lately; it has one use less otherwise.
    fn unused(&mut self) -> Option<Place> {
        let place = self.least_used()?;
        let read = self.read_mut(place);
        if read.uses == 0 {
            return Some(place);
        }
        read.uses -= 1;
        None
    }

    /// That which was used least, of some that are drawn.
    fn least_used(&mut self) -> Option<Place> {
        let mut least: Option<(u8, Place)> = None;
        for _ in 0..DRAWN {
            let place = self.draw()?;
            let uses = self.read_mut(place).uses;
            if least.is_none_or(|(fewest, _)| uses < fewest) {
                least = Some((uses, place));
            }
        }
        least.map(|(_, place)| place)
    }

    fn read_mut(&mut self, place: Place) -> &mut KeptRead {
        let Some(read) = self.reads.get_mut(&place) else { unreachable!("every place has a read") };
        read
    }

    fn draw(&mut self) -> Option<Place> {
        // Numbers of Weyl's sequence, the upper bits of which are well spread.
        self.drawn = self.drawn.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.drawn ^ (self.drawn >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let number = (u128::from(mixed) * self.places.len() as u128) >> 64;
        self.places.get(number as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Debug)]
    struct Budget {
        left: AtomicUsize,
    }

    impl CacheBudget for Budget {
        fn try_take(&self, bytes: usize) -> bool {
            let take = |left: usize| left.checked_sub(bytes);
            self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
        }

        fn give_back(&self, bytes: usize) {
            self.left.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn cache(bytes: usize) -> (Arc<Budget>, Arc<ReadCache>) {
        let budget = Arc::new(Budget { left: AtomicUsize::new(bytes) });
        (Arc::clone(&budget), ReadCache::new(budget))
    }

    const KEY: SegmentKey = SegmentKey(3);

    /// Bytes that tell where they are from.
    fn read(offset: u64, length: usize) -> Buffer {
        Buffer::from_vec((offset..offset + length as u64).map(|at| (at % 251) as u8).collect::<Vec<u8>>())
    }

    fn found(visit: &CacheVisit, offset: u64, length: usize) -> bool {
        let found = visit.find(KEY, &[Needed { offset, length: length as u64 }]);
        let buffer = found.into_iter().next().flatten();
        assert!(buffer.as_ref().is_none_or(|buffer| *buffer == read(offset, length)), "{offset}");
        buffer.is_some()
    }

    #[test]
    fn the_second_query_that_reads_keeps_and_the_third_one_finds() {
        let (budget, cache) = cache(100_000);
        let [first, second, third] = [cache.visit(), cache.visit(), cache.visit()];
        for visit in [&first, &second] {
            visit.offer(KEY, 8192, &read(8192, 4096));
            visit.offer(KEY, 16384, &read(16384, 8192));
            // Again, as by another column: it is kept once.
            visit.offer(KEY, 8192, &read(8192, 2000));
            assert_eq!(cache.bytes(), if visit.number == 0 { 0 } else { 12288 });
        }
        assert!(found(&third, 8192, 4096) && found(&third, 9000, 100) && found(&third, 20000, 500));
        assert!(!found(&third, 8191, 10) && !found(&third, 12000, 1000) && !found(&third, 40000, 1));
        let other = SegmentKey(4);
        assert_eq!(third.find(other, &[Needed { offset: 8192, length: 10 }]), [None]);
        assert_eq!(budget.left.load(Ordering::Relaxed), 100_000 - 12288);
        second.offer(KEY, 8192, &read(8192, 6000));
        assert_eq!(cache.bytes(), 14192, "a longer one takes the place of a shorter one");
        assert!(cache.evict(5000) >= 5000);
        cache.evict(usize::MAX);
        assert_eq!((cache.bytes(), budget.left.load(Ordering::Relaxed)), (0, 100_000));
    }

    #[test]
    fn a_part_of_what_is_larger_than_the_memory_is_found_each_time() {
        const READS: u64 = 1000;
        let (budget, cache) = cache(600 * 100);
        let round = || -> u64 {
            let visit = cache.visit();
            let each = (0..READS).map(|number| {
                let is_found = found(&visit, number * 100, 100);
                if !is_found {
                    visit.offer(KEY, number * 100, &read(number * 100, 100));
                }
                u64::from(is_found)
            });
            each.sum()
        };
        round();
        round();
        for _ in 0..8 {
            let found = round();
            assert!(found > 250, "{found} of {READS} reads were found");
            assert_eq!(cache.bytes() + budget.left.load(Ordering::Relaxed), 600 * 100);
        }
    }

    #[test]
    fn what_is_used_often_stays_while_other_things_pass() {
        let (_budget, cache) = cache(100 * 100);
        let often: Vec<u64> = (0..50).map(|number| number * 100).collect();
        for _ in 0..2 {
            let visit = cache.visit();
            often.iter().for_each(|&offset| visit.offer(KEY, offset, &read(offset, 100)));
        }
        let mut passed = 1_000_000;
        for _ in 0..20 {
            let visit = cache.visit();
            let missing = often.iter().filter(|offset| !found(&visit, **offset, 100)).count();
            assert!(missing < 15, "{missing} are gone");
            for offset in &often {
                visit.offer(KEY, *offset, &read(*offset, 100));
            }
            for _ in 0..100 {
                passed += 100;
                visit.offer(KEY, passed, &read(passed, 100));
            }
        }
    }

    #[test]
    fn nothing_is_lost_when_a_cache_ends() {
        let (budget, cache) = cache(1000);
        let visits = [cache.visit(), cache.visit()];
        visits.iter().for_each(|visit| visit.offer(KEY, 0, &read(0, 700)));
        assert_eq!(budget.left.load(Ordering::Relaxed), 300);
        let other = SegmentKey(4);
        visits[0].forget(other);
        assert_eq!(budget.left.load(Ordering::Relaxed), 300);
        visits[0].forget(KEY);
        assert_eq!(budget.left.load(Ordering::Relaxed), 1000);
        visits.iter().for_each(|visit| visit.offer(KEY, 0, &read(0, 700)));
        drop((visits, cache));
        assert_eq!(budget.left.load(Ordering::Relaxed), 1000);
    }
}
