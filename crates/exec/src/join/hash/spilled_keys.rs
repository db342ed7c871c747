//! Which keys lie among the spilled build rows: a filter that keeps probe rows without a match out of the spill.
//!
//! ```text
//!   page of build rows ──► hashes ──► filter        (every page that leaves memory, as it leaves)
//!   probe row of a spilled partition ──► in the filter? ──┬─ maybe ──► spilled with its partition
//!                                                         └─ no ─────► answered now: it has no match
//! ```
//!
//! The filter is filled from the pages themselves, and of the build side alone: a join that does not spill pays nothing. It
//! is given up when it is too full to tell keys apart, or when nearly every probe row passes, as between a foreign key
//! and all of its primary keys.

use std::sync::Arc;

use nandina_spill::SealedPage;
use parking_lot::RwLock;

use super::table::hash_page;
use crate::error::spill_error;
use crate::join::spec::JoinSpec;
use crate::keys::KeyHasher;
use crate::spill::{HashFilter, SpilledHashes};

/// How many keys ahead of its use a line of the filter is asked for.
const AHEAD: usize = 16;

/// The filter over the spilled build rows of one join.
pub struct SpilledKeys {
    spec: Arc<JoinSpec>,
    hasher: KeyHasher,
    bytes: usize,
    hashes: RwLock<SpilledHashes>,
}

impl SpilledKeys {
    /// No keys yet; `hasher` hashes both sides.
    pub fn new(spec: Arc<JoinSpec>, hasher: KeyHasher, memory_limit: Option<usize>) -> Self {
        let bytes = HashFilter::share_of(memory_limit);
        Self { spec, hasher, bytes, hashes: RwLock::default() }
    }

    /// Adds the keys of a page of build rows that leaves memory.
    pub fn add(&self, page: &SealedPage) {
        let Some(filter) = self.hashes.write().filter_to_fill(self.bytes) else { return };
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
                self.give_up();
            }
        }
    }

    /// The filter that probe rows of spilled partitions are held against, if there is one worth it.
    pub fn filter(&self) -> Option<Arc<HashFilter>> {
        self.hashes.read().filter()
    }

    /// Gives the filter up if it is too full to be of use. To be asked when the build side is complete.
    pub fn review(&self) {
        self.hashes.write().review();
    }

    /// Drops the filter: from now on every row passes.
    pub fn give_up(&self) {
        self.hashes.write().give_up();
    }

    /// Memory that the first spilled page will take.
    pub fn bytes_to_come(&self) -> usize {
        match &*self.hashes.read() {
            SpilledHashes::Empty => self.bytes,
            SpilledHashes::Live(_) | SpilledHashes::GivenUp => 0,
        }
    }

    /// Memory of the filter.
    pub fn memory_bytes(&self) -> usize {
        self.hashes.read().memory_bytes()
    }
}
