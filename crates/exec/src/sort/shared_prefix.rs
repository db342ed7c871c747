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

use arrow::row::Rows;

/// Bytes of a key's head.
pub const HEAD_BYTES: usize = size_of::<Head>();

/// The head of a key, as numbers that compare like its bytes. Not one of sixteen bytes, which would be aligned to as many
/// and make a third more of every position.
pub type Head = [u64; 2];

/// The shared prefix and the lengths of the keys that were added.
#[derive(Clone, Debug, Default)]
pub struct SharedPrefix {
    first: Option<Box<[u8]>>,
    len_bytes: usize,
    longest_bytes: usize,
}

impl SharedPrefix {
    /// Takes more keys into account.
    pub fn add(&mut self, keys: &Rows) {
        keys.iter().for_each(|key| self.add_key(key.data()));
    }

    /// Takes another set of keys into account.
    pub fn join(&mut self, other: &Self) {
        let Some(first) = &other.first else { return };
        self.add_key(first);
        self.len_bytes = self.len_bytes.min(other.len_bytes);
        self.longest_bytes = self.longest_bytes.max(other.longest_bytes);
    }

    #[inline]
    fn add_key(&mut self, key: &[u8]) {
        self.longest_bytes = self.longest_bytes.max(key.len());
        match &self.first {
            Some(first) => {
                let shared = &first[..self.len_bytes];
                if key.get(..shared.len()) != Some(shared) {
                    self.len_bytes =
                        shared.iter().zip(key).take_while(|(ours, theirs)| ours == theirs).count();
                }
            }
            None => {
                self.len_bytes = key.len();
                self.first = Some(key.into());
            }
        }
    }

    /// Bytes that all keys begin with.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Bytes of the longest key.
    pub fn longest_bytes(&self) -> usize {
        self.longest_bytes
    }

    /// Whether keys with the same head are equal. Keys are no beginnings of each other, so that zeros in place of what
    /// a short key lacks make it none that another key has.
    pub fn heads_decide(&self) -> bool {
        self.longest_bytes <= self.len_bytes + HEAD_BYTES
    }
}

/// The bytes of `key` behind the first `skipped_bytes`, as numbers that compare like them.
#[inline]
pub fn head(key: &[u8], skipped_bytes: usize) -> Head {
    [word(key, skipped_bytes), word(key, skipped_bytes + size_of::<u64>())]
}

#[inline]
fn word(key: &[u8], start: usize) -> u64 {
    let rest = key.get(start..).unwrap_or_default();
    match rest.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; size_of::<u64>()];
            bytes.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            u64::from_be_bytes(bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix_of(keys: &[&[u8]]) -> SharedPrefix {
        let mut prefix = SharedPrefix::default();
        keys.iter().for_each(|key| prefix.add_key(key));
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

    #[test]
    fn heads_compare_like_the_bytes_they_stand_for() {
        let keys: [&[u8]; 5] = [b"_", b"_\0\x01", b"_a", b"_abcdefghi", b"_b"];
        let heads: Vec<Head> = keys.iter().map(|key| head(key, 1)).collect();
        assert!(heads.is_sorted());
        assert_eq!(head(b"abc", 9), [0, 0]);
    }
}
