//! The hash table over the pages of one build partition.
//!
//! ```text
//!             directory: one word per bucket                entries: bucket after bucket
//!   hash ──►  ┌──────── end (48 bits) ───────┬ filter (16) ┐   ┌ hash (32) ┬ row ref (32) ┐
//!             │ bucket b ends at entry 17    │ 0100…0010   │   │           │              │
//!             └──────────────────────────────┴─────────────┘   └───────────┴──────────────┘
//! ```
//!
//! The layout is that of the *unchained* hash table (Birler, Schmidt, Fent, Neumann: *Simple, Efficient, and
//! Robust Hash Tables for Join Processing*, DaMoN 2024): since the build side is complete before the first
//! probe, the entries of a bucket stand next to each other, so that duplicates cost sequential reads instead
//! of a chain of cache misses, and 16 filter bits in the directory word turn most misses away after one.
//! Where the paper stores tuples in the buckets, these are references into PAX pages.
//!
//! The top bits of a hash chose the partition; the next ones choose the bucket.

use arrow::buffer::NullBuffer;
use datafusion::common::Result;
use nandina_pages::Page;

use crate::error::pages_error;
use crate::join::rows::{RowRef, row_ref};
use crate::join::spec::JoinSpec;
use crate::keys::KeyHasher;
use nandina_pages::prefetch::prefetch;

const FILTER_BITS: u32 = 16;

/// How many entries are compared at a time, without a branch: nearly all buckets have no more.
pub const GROUP: usize = 4;

/// Bytes that a build row costs besides its page while and after its table is made: its entry, its share of
/// the directory, and its hash while the table is made.
pub const TABLE_BYTES_PER_ROW: usize = 28;

/// The hashes of a page's rows, and which rows can match: `None` if all can.
pub type PageHashes = (Vec<u64>, Option<NullBuffer>);

/// Hashes the rows of a build page by their keys.
pub fn hash_page(spec: &JoinSpec, hasher: &KeyHasher, page: &Page) -> Result<PageHashes> {
    let keys = spec.build.keys.iter().map(|&column| page.column(column).map_err(pages_error));
    let keys = keys.collect::<Result<Vec<_>>>()?;
    let mut hashes = Vec::new();
    hasher.hash(&keys, page.rows(), &mut hashes)?;
    Ok((hashes, spec.matchable(&keys)))
}

/// A build partition in memory: its pages, and the hash table over them.
#[derive(Debug)]
pub struct PartitionTable {
    pages: Vec<Page>,
    /// Number of the first page in the row references.
    first_page: usize,
    /// `directory[b + 1]` ends bucket `b`; `directory[b]` therefore starts it.
    directory: Vec<u64>,
    /// With `GROUP - 1` more behind the last, which are in no bucket.
    entries: Vec<u64>,
    partition_bits: u32,
    bucket_bits: u32,
}

impl PartitionTable {
    /// Builds the table over `pages`, whose rows were scattered here by the top `partition_bits` of `hasher`.
    /// Rows whose keys are null where nulls equal nothing are in the pages but not in the table.
    pub fn build(
        spec: &JoinSpec,
        hasher: &KeyHasher,
        partition_bits: u32,
        pages: Vec<Page>,
        first_page: usize,
    ) -> Result<Self> {
        let rows: usize = pages.iter().map(Page::rows).sum();
        // Between 0.75 and 1.5 buckets per row.
        let bucket_bits = (rows * 3 / 4).next_power_of_two().trailing_zeros();
        let mut table = Self {
            directory: vec![0; (1 << bucket_bits) + 1],
            entries: Vec::new(),
            pages,
            first_page,
            partition_bits,
            bucket_bits,
        };
        let hashed = table.hash_pages(spec, hasher)?;
        table.fill(&hashed);
        Ok(table)
    }

    /// The hashes of every page's rows, and which of them can match.
    fn hash_pages(&self, spec: &JoinSpec, hasher: &KeyHasher) -> Result<Vec<PageHashes>> {
        self.pages.iter().map(|page| hash_page(spec, hasher, page)).collect()
    }

    fn fill(&mut self, hashed: &[PageHashes]) {
        let matchable =
            |hashes: &PageHashes, slot: usize| hashes.1.as_ref().is_none_or(|nulls| nulls.is_valid(slot));
        let mut count = 0;
        for page in hashed {
            for (_, &hash) in page.0.iter().enumerate().filter(|(slot, _)| matchable(page, *slot)) {
                let bucket = self.bucket(hash);
                self.directory[bucket + 1] =
                    (self.directory[bucket + 1] + (1 << FILTER_BITS)) | filter_bit(hash);
                count += 1;
            }
        }
        // Counts become starts; filling moves each start to its bucket's end.
        let mut start = 0;
        for word in &mut self.directory {
            let counted = *word >> FILTER_BITS;
            *word = (start << FILTER_BITS) | (*word & FILTER_MASK);
            start += counted;
        }
        self.entries = vec![0; count + GROUP - 1];
        for (page_number, page) in hashed.iter().enumerate() {
            for (slot, &hash) in page.0.iter().enumerate().filter(|(slot, _)| matchable(page, *slot)) {
                let bucket = self.bucket(hash);
                let word = &mut self.directory[bucket + 1];
                let row = row_ref(self.first_page + page_number, slot);
                self.entries[(*word >> FILTER_BITS) as usize] = (hash << 32) | u64::from(row);
                *word += 1 << FILTER_BITS;
            }
        }
    }

    #[inline]
    fn bucket(&self, hash: u64) -> usize {
        // Shifting twice keeps a table of one bucket from shifting by 64.
        ((hash << self.partition_bits >> 1) >> (63 - self.bucket_bits)) as usize
    }

    /// The entries that a row with this hash may match; empty if none can.
    #[inline]
    pub fn candidates(&self, hash: u64) -> std::ops::Range<usize> {
        let bucket = self.bucket(hash);
        let word = self.directory[bucket + 1];
        let start = self.directory[bucket] >> FILTER_BITS;
        // By arithmetic: whether the filter knows the hash is up to the data, and a branch would mispredict.
        let known = u64::from(word & filter_bit(hash) != 0);
        start as usize..(start + ((word >> FILTER_BITS) - start) * known) as usize
    }

    /// Whether one of `candidates` has this hash. Costs a second line where [`candidates`](Self::candidates) costs one, but
    /// only for hashes that it does not turn away, and lets hardly another pass.
    #[inline]
    pub fn has_hash(&self, candidates: std::ops::Range<usize>, hash: u64) -> bool {
        let (start, end) = (candidates.start, candidates.end);
        (start..end).step_by(GROUP).any(|at| self.group(at, end, hash).1 != 0)
    }

    /// Asks for the directory word of a hash, which [`PartitionTable::candidates`] will read.
    #[inline]
    pub fn prefetch_bucket(&self, hash: u64) {
        prefetch(&self.directory, self.bucket(hash));
    }

    /// Asks for an entry, which [`PartitionTable::group`] will read.
    #[inline]
    pub fn prefetch_entry(&self, at: usize) {
        prefetch(&self.entries, at);
    }

    /// The rows of the entries from `at` on, and as bits which of them, up to `end`, have the hash of the probing row.
    /// `at` must be an entry of a bucket.
    #[inline]
    pub fn group(&self, at: usize, end: usize, hash: u64) -> ([RowRef; GROUP], u32) {
        let entries = &self.entries[at..at + GROUP];
        let mut rows = [0; GROUP];
        let mut same = 0;
        for (number, &entry) in entries.iter().enumerate() {
            rows[number] = entry as RowRef;
            same |= u32::from((entry >> 32) as u32 == hash as u32) << number;
        }
        (rows, same & ((1 << (end - at).min(GROUP)) - 1))
    }

    /// The pages, in order.
    pub fn pages(&self) -> &[Page] {
        &self.pages
    }

    /// Number of the first page in the row references.
    pub fn first_page(&self) -> usize {
        self.first_page
    }

    /// Bytes of directory and entries.
    pub fn table_bytes(&self) -> usize {
        (self.directory.len() + self.entries.len()) * size_of::<u64>()
    }

    /// Bytes of the table and its pages.
    pub fn memory_bytes(&self) -> usize {
        self.table_bytes() + self.pages.iter().map(Page::memory_bytes).sum::<usize>()
    }
}

const FILTER_MASK: u64 = (1 << FILTER_BITS) - 1;

/// The filter bit of a hash, from bits that neither bucket nor entry depend on much.
#[inline]
fn filter_bit(hash: u64) -> u64 {
    1 << ((hash >> 32) & 15)
}
