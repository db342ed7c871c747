//! Which rows of one side of a join have matched: a bit for each.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One bit per row. Workers set bits concurrently.
#[derive(Debug)]
pub struct RowBits {
    words: Vec<AtomicU64>,
    /// Stands for all bits: without a filter, one probe row matches every build row.
    all: AtomicBool,
}

impl RowBits {
    /// For so many rows, none of which has matched.
    pub fn new(rows: usize) -> Self {
        Self {
            words: (0..rows.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            all: AtomicBool::new(false),
        }
    }

    /// Memory for the bits of so many rows.
    pub fn bytes_for(rows: usize) -> usize {
        rows.div_ceil(64) * size_of::<u64>()
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.words.len() * size_of::<u64>()
    }

    /// Sets the bit of row `number`; whether it was set before.
    #[inline]
    pub fn set(&self, number: usize) -> bool {
        let (word, bit) = (&self.words[number / 64], 1 << (number % 64));
        // Most rows that match do so often: a plain load keeps the cache line shared.
        word.load(Ordering::Relaxed) & bit != 0 || word.fetch_or(bit, Ordering::Relaxed) & bit != 0
    }

    /// Sets all bits.
    pub fn set_all(&self) {
        self.all.store(true, Ordering::Relaxed);
    }

    /// Whether the bit of row `number` is set.
    #[inline]
    pub fn is_set(&self, number: usize) -> bool {
        let bit = 1 << (number % 64);
        self.all.load(Ordering::Relaxed) || self.words[number / 64].load(Ordering::Relaxed) & bit != 0
    }

    /// The bits of a batch's rows.
    pub fn of_rows(&self, rows: Range<usize>) -> Vec<bool> {
        rows.map(|number| self.is_set(number)).collect()
    }

    /// Sets the bits of those rows of a batch, whose first is row `first`, that have `matched`.
    pub fn set_matched(&self, first: usize, matched: &[bool]) {
        for (at, _) in matched.iter().enumerate().filter(|(_, matched)| **matched) {
            self.set(first + at);
        }
    }

    /// Number of bits that are set.
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.load(Ordering::Relaxed).count_ones() as usize).sum()
    }

    /// Takes over the bits of as many rows of `earlier`, from row `first` of those on.
    pub fn copy_from(&self, earlier: &Self, first: usize) {
        let (skipped, shift) = (first / 64, first % 64);
        let all = earlier.all.load(Ordering::Relaxed);
        let before = |at: usize| match earlier.words.get(at) {
            Some(_) if all => u64::MAX,
            Some(word) => word.load(Ordering::Relaxed),
            None => 0,
        };
        for (at, word) in self.words.iter().enumerate() {
            let low = before(skipped + at) >> shift;
            let high = if shift == 0 { 0 } else { before(skipped + at + 1) << (64 - shift) };
            word.store(low | high, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_taken_over_from_where_a_block_begins() {
        let all = RowBits::new(200);
        for number in [0, 63, 64, 100, 199] {
            all.set(number);
        }
        for (first, rows, expected) in
            [(60, 100, vec![3, 4, 40]), (64, 136, vec![0, 36, 135]), (199, 1, vec![0])]
        {
            let part = RowBits::new(rows);
            part.copy_from(&all, first);
            let set: Vec<usize> = (0..rows).filter(|&number| part.is_set(number)).collect();
            assert_eq!(set, expected, "from {first} on");
        }
    }

    #[test]
    fn one_flag_stands_for_all_bits() {
        let bits = RowBits::new(70);
        bits.set_all();
        let copy = RowBits::new(70);
        copy.copy_from(&bits, 0);
        assert!((0..70).all(|number| bits.is_set(number) && copy.is_set(number)));
    }

    #[test]
    fn rows_of_batches_add_up() {
        let bits = RowBits::new(130);
        bits.set_matched(62, &[true, false, true, true]);
        bits.set_matched(62, &[false, true, false, true]);
        assert_eq!(bits.of_rows(61..67), [false, true, true, true, true, false]);
        assert_eq!(bits.count(), 4);
        assert!(bits.set(65) && !bits.set(66));
    }
}
