//! Which keys lie among the spilled build rows: a filter that keeps probe rows without a match out of the spill.
//!
//! ```text
//!   page of build rows ──► hashes ──► filter        (every page that leaves memory, as it leaves)
//!   probe row of a spilled partition ──► in the filter? ──┬─ maybe ──► spilled with its partition
//!                                                         └─ no ─────► answered now: it has no match
//! ```
//!
//! Whether a join will spill is not known beforehand, nor how many rows. The filter is therefore made when the
//! first page leaves memory, with a fixed share of it, and filled from the pages themselves: a join that does
//! not spill pays nothing. It is given up when it turns out to be too full to tell keys apart, or when nearly
//! every probe row passes, as between a foreign key and all of its primary keys.

use std::sync::Arc;

use nandina_spill::SealedPage;
use parking_lot::RwLock;

use super::table::hash_page;
use crate::error::spill_error;
use crate::join::spec::JoinSpec;
use crate::keys::KeyHasher;
use crate::spill::HashFilter;

/// How many keys ahead of its use a line of the filter is asked for.
const AHEAD: usize = 16;

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
        let bytes = HashFilter::share_of(memory_limit);
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
        let is_unneeded = matches!(*self.filter.read(), Filter::Unneeded);
        if is_unneeded {
            let mut filter = self.filter.write();
            if let Filter::Unneeded = *filter {
                *filter = Filter::Live(Arc::new(HashFilter::new(self.bytes)));
            }
        }
        self.filter()
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
        if self.filter().is_some_and(|filter| filter.is_too_full()) {
            self.give_up();
        }
    }

    /// Drops the filter: from now on every row passes.
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
        self.filter().map_or(0, |filter| filter.bytes())
    }
}
