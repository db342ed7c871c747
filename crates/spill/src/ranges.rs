//! Sets of ranges of a file.

use std::collections::BTreeMap;

/// Ranges that do not overlap: start to length, neighbours merged.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    lengths: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Ranges {
    /// Bytes of all ranges.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes `bytes` off the first range that is long enough; returns where they start.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<u64> {
        let (&offset, &length) = self.lengths.iter().find(|(_, length)| **length >= bytes)?;
        self.lengths.remove(&offset);
        if length > bytes {
            self.lengths.insert(offset + bytes, length - bytes);
        }
        self.bytes -= bytes;
        Some(offset)
    }

    /// Adds a range that touches none of those that are there, or only at its ends.
    pub(crate) fn put(&mut self, mut offset: u64, mut bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.bytes += bytes;
        if let Some((&before, &length)) = self.lengths.range(..offset).next_back()
            && before + length == offset
        {
            self.lengths.remove(&before);
            offset = before;
            bytes += length;
        }
        if let Some(length) = self.lengths.remove(&(offset + bytes)) {
            bytes += length;
        }
        self.lengths.insert(offset, bytes);
    }

    /// Length of the longest range, 0 without any.
    pub(crate) fn longest_bytes(&self) -> u64 {
        self.lengths.values().copied().max().unwrap_or(0)
    }

    /// Takes the longest range: where it starts, and its length.
    pub(crate) fn take_longest(&mut self) -> Option<(u64, u64)> {
        let (&offset, &bytes) = self.lengths.iter().max_by_key(|(_, length)| **length)?;
        self.lengths.remove(&offset);
        self.bytes -= bytes;
        Some((offset, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_merged_and_the_first_that_is_long_enough_is_taken() {
        let mut ranges = Ranges::default();
        ranges.put(100, 10);
        ranges.put(0, 20);
        ranges.put(40, 5);
        ranges.put(20, 20);
        assert_eq!((ranges.bytes(), ranges.longest_bytes()), (55, 45));
        assert_eq!(ranges.take(46), None);
        assert_eq!(ranges.take(40), Some(0));
        assert_eq!(ranges.take(10), Some(100));
        assert_eq!(ranges.take_longest(), Some((40, 5)));
        assert_eq!((ranges.take_longest(), ranges.bytes()), (None, 0));
    }
}
