//! Sets of rows by their ids.

use std::collections::HashMap;

use arrow_array::BooleanArray;

use crate::ids::RowId;

const WORD_BITS: usize = u64::BITS as usize;

/// Rows of one table: a bit for each slot of a page, up to the last one that is in the set.
#[derive(Debug, Default)]
pub struct RowSet {
    pages: HashMap<u64, Vec<u64>>,
    rows: u64,
    words: usize,
}

impl RowSet {
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.pages.capacity() * size_of::<(u64, Vec<u64>)>() + self.words * size_of::<u64>()
    }

    /// Adds the row with this id; whether it was not there.
    pub fn insert(&mut self, id: u64) -> bool {
        let row = RowId::from_bits(id);
        let slot = usize::from(row.slot());
        let page = self.pages.entry(row.page().0).or_default();
        let words = slot / WORD_BITS + 1;
        if page.len() < words {
            self.words += words - page.len();
            page.resize(words, 0);
        }
        let (word, bit) = (&mut page[slot / WORD_BITS], 1 << (slot % WORD_BITS));
        let is_new = *word & bit == 0;
        *word |= bit;
        self.rows += u64::from(is_new);
        is_new
    }

    pub(crate) fn contains(&self, id: u64) -> bool {
        let row = RowId::from_bits(id);
        let slot = usize::from(row.slot());
        let word = self.pages.get(&row.page().0).and_then(|page| page.get(slot / WORD_BITS));
        word.is_some_and(|word| word >> (slot % WORD_BITS) & 1 == 1)
    }

    /// How many rows there are of each page.
    pub(crate) fn rows_of_pages(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let ones = |word: &u64| u64::from(word.count_ones());
        self.pages.iter().map(move |(page, words)| (*page, words.iter().map(ones).sum::<u64>()))
    }

    /// Which rows of a page are not in it; `None` if that are all.
    pub(crate) fn others(&self, page: u64, rows: usize) -> Option<BooleanArray> {
        let set = self.pages.get(&page)?;
        let has =
            |row: usize| set.get(row / WORD_BITS).is_some_and(|word| word >> (row % WORD_BITS) & 1 == 1);
        Some((0..rows).map(|row| Some(!has(row))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PageNumber;

    #[test]
    fn what_is_left_of_a_page() {
        let mut set = RowSet::default();
        for (page, slot) in [(3, 0), (3, 70), (4, u16::MAX)] {
            let id = RowId::new(PageNumber(page), slot).to_bits();
            assert!(!set.contains(id) && set.insert(id) && !set.insert(id) && set.contains(id));
        }
        assert_eq!(set.rows(), 3);
        assert_eq!(set.rows_of_pages().find(|(page, _)| *page == 3), Some((3, 2)));
        assert!(set.others(2, 10).is_none());
        let left = set.others(3, 100).unwrap();
        let gone: Vec<usize> = (0..100).filter(|row| !left.value(*row)).collect();
        assert_eq!(gone, [0, 70]);
        let left = set.others(4, 1 << 16).unwrap();
        assert_eq!(left.true_count(), (1 << 16) - 1);
    }
}
