//! The leading bytes that all keys of a set share, and the rest, which is compared.
//!
//! ```text
//!   key    01 80 00 00 00 00 0a 31 7f
//!   key    01 80 00 00 00 02 c4 09 11
//!          └─ shared ──┘ └──── head ────┘    up to sixteen bytes as two numbers: most comparisons end here
//! ```
//!
//! Keys begin with bytes that say little: that a value is not null, the high bytes of small numbers, the text that
//! all names start with. Skipping them leaves the bytes that differ to the head.

use super::keys::{HEAD_BYTES, Key, Keys, shared_bytes};

/// The shared prefix and the lengths of the keys that were added.
#[derive(Clone, Debug, Default)]
pub struct SharedPrefix {
    first: Option<Box<[u8]>>,
    len_bytes: usize,
    longest_bytes: usize,
    /// Texts have zeros, which may stand where another key has ended.
    has_zeros: bool,
}

impl SharedPrefix {
    /// Takes more keys into account.
    pub fn add(&mut self, keys: &Keys) {
        keys.iter().for_each(|key| self.add_key(key));
    }

    /// Takes another set of keys into account.
    pub fn join(&mut self, other: &Self) {
        let Some(first) = &other.first else { return };
        match &self.first {
            Some(ours) => self.len_bytes = shared_bytes(&ours[..self.len_bytes], &first[..other.len_bytes]),
            None => (self.first, self.len_bytes) = (Some(first.clone()), other.len_bytes),
        }
        self.longest_bytes = self.longest_bytes.max(other.longest_bytes);
        self.has_zeros |= other.has_zeros;
    }

    #[inline]
    fn add_key(&mut self, key: Key) {
        self.longest_bytes = self.longest_bytes.max(key.len());
        self.has_zeros = self.has_zeros || key.has_zeros();
        match &self.first {
            Some(first) => self.len_bytes = key.shared_bytes(&first[..self.len_bytes]),
            None => {
                self.len_bytes = key.len();
                self.first = Some(key.to_bytes());
            }
        }
    }

    /// Bytes that all keys begin with.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Whether keys with the same head are equal.
    pub fn heads_decide(&self) -> bool {
        self.decide(self.len_bytes + HEAD_BYTES)
    }

    /// Whether keys whose first `bytes` are the same are equal: none goes on behind them, and those that have ended before are
    /// filled up with bytes that no longer key has there.
    pub fn decide(&self, bytes: usize) -> bool {
        self.longest_bytes <= bytes && !self.has_zeros
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix_of(keys: &[&[u8]]) -> SharedPrefix {
        let mut prefix = SharedPrefix::default();
        keys.iter().for_each(|key| prefix.add_key(Key::encoded(key)));
        prefix
    }

    #[test]
    fn shrinks_to_what_all_keys_share() {
        let prefix = prefix_of(&[b"number 12", b"number 1", b"number 7"]);
        assert_eq!(prefix.len_bytes(), 7);
        assert!(prefix.heads_decide());
        let mut joined = prefix_of(&[b"nobody"]);
        joined.join(&prefix);
        joined.join(&SharedPrefix::default());
        assert_eq!((joined.len_bytes(), joined.heads_decide()), (1, true));
        assert!(!prefix_of(&[b"a", b"bcdefghijklmnopqr"]).heads_decide());
    }
}
