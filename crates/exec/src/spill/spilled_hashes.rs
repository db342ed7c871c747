//! Which hashes the rows in temporary space have, as far as that is worth knowing.
//!
//! How many rows will leave memory is not known beforehand, nor whether any will. The filter is therefore made when the
//! first of them leaves, with a fixed share of memory, and given up when it is too full to tell hashes apart.

use std::sync::Arc;

use super::HashFilter;

/// The hashes of an operator's rows in temporary space.
#[derive(Debug, Default)]
pub(crate) enum SpilledHashes {
    /// Nothing is there.
    #[default]
    Empty,
    Live(Arc<HashFilter>),
    /// They are not told apart any more.
    GivenUp,
}

impl SpilledHashes {
    /// The filter that hashes are to be added to, made of `bytes` if there is none yet.
    pub(crate) fn filter_to_fill(&mut self, bytes: usize) -> Option<Arc<HashFilter>> {
        if let Self::Empty = self {
            *self = Self::Live(Arc::new(HashFilter::new(bytes)));
        }
        self.filter()
    }

    /// The filter that rows are held against, if there is one worth it.
    pub(crate) fn filter(&self) -> Option<Arc<HashFilter>> {
        match self {
            Self::Live(filter) => Some(Arc::clone(filter)),
            Self::Empty | Self::GivenUp => None,
        }
    }

    /// Whether a row with this hash may be in temporary space.
    pub(crate) fn may_hold(&self, hash: u64) -> bool {
        match self {
            Self::Empty => false,
            Self::Live(filter) => filter.may_hold(hash),
            Self::GivenUp => true,
        }
    }

    /// Gives the filter up if it is too full to be of use.
    pub(crate) fn review(&mut self) {
        if self.filter().is_some_and(|filter| filter.is_too_full()) {
            self.give_up();
        }
    }

    /// Drops the filter: from now on every row may be there.
    pub(crate) fn give_up(&mut self) {
        *self = Self::GivenUp;
    }

    /// Memory of the filter.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.filter().map_or(0, |filter| filter.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_made_with_the_first_hash_and_given_up_when_full() {
        let mut spilled = SpilledHashes::default();
        assert!(!spilled.may_hold(7), "nothing is in temporary space");
        assert_eq!(spilled.memory_bytes(), 0);
        let filter = spilled.filter_to_fill(4096).expect("the first hash makes the filter");
        filter.insert(7 << 32 | 7);
        assert!(spilled.may_hold(7 << 32 | 7) && !spilled.may_hold(9 << 40 | 1 << 30));
        assert_eq!(spilled.memory_bytes(), 4096);
        spilled.review();
        assert!(spilled.filter().is_some(), "one hash does not fill it");
        (0..1 << 16).for_each(|number: u64| filter.insert(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        spilled.review();
        assert!(spilled.filter().is_none() && spilled.may_hold(1) && spilled.filter_to_fill(4096).is_none());
        assert_eq!(spilled.memory_bytes(), 0);
    }
}
