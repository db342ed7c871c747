//! Which hashes were there: a filter that says no for certain, and yes a little too often.
//!
//! A blocked Bloom filter (Putze, Sanders, Singler: *Cache-, Hash- and Space-Efficient Bloom Filters*, WEA 2007)
//! with blocks of one word: a lookup costs one cache line, which is asked for ahead of its use.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

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

/// A set of hashes that may name a few more than were put in.
#[derive(Debug)]
pub struct HashFilter {
    words: Vec<AtomicU64>,
    asked: AtomicUsize,
    passed: AtomicUsize,
}

impl HashFilter {
    /// Memory for a filter of an operator that may use `memory_limit` bytes.
    pub fn share_of(memory_limit: Option<usize>) -> usize {
        let share = memory_limit.map_or(DEFAULT_BYTES, |limit| limit / MEMORY_SHARE);
        share.clamp(MIN_BYTES, MAX_BYTES)
    }

    /// An empty filter.
    pub fn new(bytes: usize) -> Self {
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

    /// Puts a hash in.
    pub fn insert(&self, hash: u64) {
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
    pub fn is_too_full(&self) -> bool {
        let step = (self.words.len() / 4096).max(1);
        let sample = self.words.iter().step_by(step);
        let set: u32 = sample.clone().map(|word| word.load(Ordering::Relaxed).count_ones()).sum();
        set as usize * 100 > sample.len() * 64 * MAX_FILL_PERCENT
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.words.len() * size_of::<u64>()
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
