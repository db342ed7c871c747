//! Which keys lie among the spilled build rows: a filter that keeps probe rows without a match out of the spill.
//!
//! ```text
//!   page of build rows ──► hashes ──► filter        (every page that leaves memory, as it leaves)
//!   probe row of a spilled partition ──► in the filter? ──┬─ maybe ──► spilled with its partition
//!                                                         └─ no ─────► answered now: it has no match
//! ```
//!
//! A blocked Bloom filter (Putze, Sanders, Singler: *Cache-, Hash- and Space-Efficient Bloom Filters*, WEA 2007)
//! with blocks of one word: a lookup costs one cache line, which is asked for ahead of its use.
//!
//! Nobody knows beforehand whether a join will spill, nor how many rows. The filter is therefore made when the
//! first page leaves memory, with a fixed share of it, and filled from the pages themselves: a join that does
//! not spill pays nothing. It is given up when it turns out to be too full to tell keys apart, or when nearly
//! every probe row passes, as between a foreign key and all of its primary keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use nandina_spill::SealedPage;
use parking_lot::RwLock;

use super::spec::JoinSpec;
use super::table::hash_page;
use crate::error::spill_error;
use crate::key_hasher::KeyHasher;
use nandina_pages::prefetch::prefetch;

/// The share of memory that a filter takes: 4 bits per row where 16 million rows meet 128 MiB.
const MEMORY_SHARE: usize = 16;
const MAX_BYTES: usize = 64 << 20;
const MIN_BYTES: usize = 32 << 10;
/// Size where no limit is known.
const DEFAULT_BYTES: usize = 16 << 20;
/// Bits per key. More would need more memory per row than there usually is.
const BITS_PER_KEY: u32 = 3;
/// A filter with more of its bits set than this many percent lets a third of everything pass.
const MAX_FILL_PERCENT: usize = 69;
/// Rows after which a filter has to have turned some away, and the percentage of rows that may pass.
const TRIAL_ROWS: usize = 1 << 17;
const MAX_PASS_PERCENT: usize = 90;

/// How many keys ahead of its use a line of the filter is asked for.
const AHEAD: usize = 16;

/// A set of hashes that may name a few more than were put in.
#[derive(Debug)]
pub struct HashFilter {
    words: Vec<AtomicU64>,
    asked: AtomicUsize,
    passed: AtomicUsize,
}

impl HashFilter {
    fn new(bytes: usize) -> Self {
        let words = (0..(bytes / size_of::<u64>()).max(1)).map(|_| AtomicU64::new(0)).collect();
        Self { words, asked: AtomicUsize::new(0), passed: AtomicUsize::new(0) }
    }

    /// The word of a hash, by its low half: the top bits are the same for all rows of a partition.
    #[inline]
    fn position(&self, hash: u64) -> usize {
        (((hash & u64::from(u32::MAX)) * self.words.len() as u64) >> 32) as usize
    }

    #[inline]
    fn bits(hash: u64) -> u64 {
        (0..BITS_PER_KEY).fold(0, |bits, at| bits | 1 << ((hash >> (32 + 6 * at)) & 63))
    }

    fn insert(&self, hash: u64) {
        if let Some(word) = self.words.get(self.position(hash)) {
            let bits = Self::bits(hash);
            // A plain load first: repeated keys leave the cache line shared.
            if word.load(Ordering::Relaxed) & bits != bits {
                word.fetch_or(bits, Ordering::Relaxed);
            }
        }
    }

    /// Whether a row with this hash may be among those put in.
    #[inline]
    pub fn may_hold(&self, hash: u64) -> bool {
        let bits = Self::bits(hash);
        self.words.get(self.position(hash)).is_none_or(|word| word.load(Ordering::Relaxed) & bits == bits)
    }

    /// Asks for the line that [`HashFilter::may_hold`] will read.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch(&self.words, self.position(hash));
    }

    /// Notes how many of `asked` rows passed.
    pub fn note(&self, asked: usize, passed: usize) {
        self.asked.fetch_add(asked, Ordering::Relaxed);
        self.passed.fetch_add(passed, Ordering::Relaxed);
    }

    /// Whether asking has not been worth it.
    pub fn passes_nearly_all(&self) -> bool {
        let (asked, passed) = (self.asked.load(Ordering::Relaxed), self.passed.load(Ordering::Relaxed));
        asked >= TRIAL_ROWS && passed * 100 > asked * MAX_PASS_PERCENT
    }

    /// Whether so many bits are set that the filter tells little apart. Judged by a sample.
    fn is_too_full(&self) -> bool {
        let step = (self.words.len() / 4096).max(1);
        let sample = self.words.iter().step_by(step);
        let set: u32 = sample.clone().map(|word| word.load(Ordering::Relaxed).count_ones()).sum();
        set as usize * 100 > sample.len() * 64 * MAX_FILL_PERCENT
    }

    fn bytes(&self) -> usize {
        self.words.len() * size_of::<u64>()
    }
}

enum Filter {
    /// Nothing has been spilled.
    Unneeded,
    Live(Arc<HashFilter>),
    GivenUp,
}

/// The filter over the spilled build rows of one join.
pub struct SpilledKeys {
    spec: Arc<JoinSpec>,
    hasher: KeyHasher,
    bytes: usize,
    filter: RwLock<Filter>,
}

impl SpilledKeys {
    /// No keys yet; `hasher` hashes both sides.
    pub fn new(spec: Arc<JoinSpec>, hasher: KeyHasher, memory_limit: Option<usize>) -> Self {
        let share = memory_limit.map_or(DEFAULT_BYTES, |limit| limit / MEMORY_SHARE);
        let bytes = share.clamp(MIN_BYTES, MAX_BYTES);
        Self { spec, hasher, bytes, filter: RwLock::new(Filter::Unneeded) }
    }

    /// Adds the keys of a page of build rows that leaves memory.
    pub fn add(&self, page: &SealedPage) {
        let Some(filter) = self.open() else { return };
        let hashed = page
            .open(&self.spec.build.pages)
            .map_err(spill_error)
            .and_then(|page| hash_page(&self.spec, &self.hasher, &page));
        match hashed {
            Ok((hashes, matchable)) => {
                for (row, &hash) in hashes.iter().enumerate() {
                    if let Some(&ahead) = hashes.get(row + AHEAD) {
                        filter.prefetch(ahead);
                    }
                    if matchable.as_ref().is_none_or(|valid| valid.is_valid(row)) {
                        filter.insert(hash);
                    }
                }
            }
            Err(error) => {
                // Without these keys the filter would turn away rows that match.
                log::warn!("a join goes on without a filter for spilled rows: {error}");
                *self.filter.write() = Filter::GivenUp;
            }
        }
    }

    /// The filter to add keys to, made if there is none yet.
    fn open(&self) -> Option<Arc<HashFilter>> {
        match &*self.filter.read() {
            Filter::Live(filter) => return Some(Arc::clone(filter)),
            Filter::GivenUp => return None,
            Filter::Unneeded => {}
        }
        let mut filter = self.filter.write();
        if let Filter::Unneeded = *filter {
            *filter = Filter::Live(Arc::new(HashFilter::new(self.bytes)));
        }
        match &*filter {
            Filter::Live(filter) => Some(Arc::clone(filter)),
            Filter::Unneeded | Filter::GivenUp => None,
        }
    }

    /// The filter that probe rows of spilled partitions are held against, if there is one worth it.
    pub fn filter(&self) -> Option<Arc<HashFilter>> {
        match &*self.filter.read() {
            Filter::Live(filter) => Some(Arc::clone(filter)),
            Filter::Unneeded | Filter::GivenUp => None,
        }
    }

    /// Gives the filter up if it is too full to be of use. To be asked when the build side is complete.
    pub fn review(&self) {
        let too_full = match &*self.filter.read() {
            Filter::Live(filter) => filter.is_too_full(),
            Filter::Unneeded | Filter::GivenUp => false,
        };
        if too_full {
            self.give_up();
        }
    }

    /// Lets go of the filter: from now on every row passes.
    pub fn give_up(&self) {
        *self.filter.write() = Filter::GivenUp;
    }

    /// Memory that the filter takes, or will once it is made.
    pub fn filter_bytes(&self) -> usize {
        match &*self.filter.read() {
            Filter::Unneeded | Filter::Live(_) => self.bytes,
            Filter::GivenUp => 0,
        }
    }

    /// Memory of the filter.
    pub fn memory_bytes(&self) -> usize {
        match &*self.filter.read() {
            Filter::Live(filter) => filter.bytes(),
            Filter::Unneeded | Filter::GivenUp => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64) -> u64 {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 32)).wrapping_mul(0x9fb2_1c65_1e98_df25)
    }

    fn filter_of(keys: u64, bytes: usize) -> HashFilter {
        let filter = HashFilter::new(bytes);
        (0..keys).for_each(|key| filter.insert(hash(key)));
        filter
    }

    #[test]
    fn every_key_is_found_and_few_others_are() {
        let filter = filter_of(100_000, 100_000);
        assert!((0..100_000).all(|key| filter.may_hold(hash(key))));
        let wrong = (100_000..200_000).filter(|&key| filter.may_hold(hash(key))).count();
        assert!(wrong < 6_000, "{wrong} of 100000 keys that are not there pass at 8 bits per key");
        assert!(!filter.is_too_full());
    }

    #[test]
    fn a_filter_of_one_partition_spreads_its_keys() {
        let filter = HashFilter::new(8 << 10);
        let hashes = (0..).map(hash).filter(|hash| hash >> 58 == 5);
        hashes.clone().take(4_000).for_each(|hash| filter.insert(hash));
        let wrong = hashes.skip(4_000).take(4_000).filter(|&hash| filter.may_hold(hash)).count();
        assert!(wrong < 120, "{wrong} of 4000 pass at 16 bits per key");
    }

    #[test]
    fn a_crowded_filter_knows_it() {
        assert!(filter_of(1_000_000, 64 << 10).is_too_full());
    }

    #[test]
    fn a_filter_that_everything_passes_is_not_worth_asking() {
        let filter = filter_of(10, 1024);
        filter.note(TRIAL_ROWS, TRIAL_ROWS / 2);
        assert!(!filter.passes_nearly_all());
        filter.note(TRIAL_ROWS * 10, TRIAL_ROWS * 10);
        assert!(filter.passes_nearly_all());
    }
}
