//! Build rows in memory, and which of them have matched.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use datafusion::common::Result;
use nandina_pages::Page;

use crate::join::rows::PageRows;
use crate::join::spec::JoinSpec;

/// One bit per build row: whether a probe row has matched it. Workers set bits concurrently.
#[derive(Debug)]
pub struct RowBits {
    words: Vec<AtomicU64>,
    /// Stands for all bits: without a filter, one probe row matches every build row.
    all: AtomicBool,
}

impl RowBits {
    fn new(rows: usize) -> Self {
        Self {
            words: (0..rows.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            all: AtomicBool::new(false),
        }
    }

    /// Memory for the bits of so many rows.
    pub fn bytes_for(rows: usize) -> usize {
        rows.div_ceil(64) * size_of::<u64>()
    }

    /// Sets the bit of row `number`.
    #[inline]
    pub fn set(&self, number: usize) {
        let (word, bit) = (&self.words[number / 64], 1 << (number % 64));
        // Most rows that match do so often: a plain load keeps the cache line shared.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
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

    /// Takes over the bits of rows that are `first_row` and following of `earlier`.
    fn copy_from(&self, earlier: &RowBits, first_row: usize, rows: usize) {
        for number in (0..rows).filter(|number| earlier.is_set(first_row + number)) {
            self.set(number);
        }
    }

    fn memory_bytes(&self) -> usize {
        self.words.len() * size_of::<u64>()
    }
}

/// Pages of build rows, for gathering and comparing.
pub struct Block {
    pages: Vec<Page>,
    /// Refers to the bytes of `pages`.
    rows: PageRows,
    /// Number of every page's first row, and behind them the number of rows.
    first_rows: Vec<usize>,
    matched: Option<Arc<RowBits>>,
    row_bytes: usize,
}

impl Block {
    /// The rows of `pages`; with `tracks` it is noted which of them match.
    pub fn new(spec: &JoinSpec, pages: Vec<Page>, tracks: bool) -> Result<Self> {
        let rows = PageRows::new(&spec.build.pages, &pages.iter().collect::<Vec<_>>())?;
        let mut first_rows = Vec::with_capacity(pages.len() + 1);
        let mut count = 0;
        first_rows.push(count);
        for page in &pages {
            count += page.rows();
            first_rows.push(count);
        }
        let bytes: usize = pages.iter().map(Page::memory_bytes).sum();
        let matched = tracks.then(|| Arc::new(RowBits::new(count)));
        Ok(Self { pages, rows, first_rows, matched, row_bytes: bytes / count.max(1) })
    }

    /// The same block, not probed yet, with what is known of its rows: they are `first_row` and following of `earlier`.
    pub fn matched_earlier(self, earlier: Option<&RowBits>, first_row: usize) -> Self {
        if let (Some(matched), Some(earlier)) = (&self.matched, earlier) {
            matched.copy_from(earlier, first_row, self.row_count());
        }
        self
    }

    /// The pages that hold the rows.
    pub fn pages(&self) -> &[Page] {
        &self.pages
    }

    /// The rows, for gathering.
    pub fn rows(&self) -> &PageRows {
        &self.rows
    }

    /// Number of rows.
    pub fn row_count(&self) -> usize {
        self.first_rows.last().copied().unwrap_or(0)
    }

    /// Mean size of a row, for bounding output batches in bytes.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// The number of a row in the block, by which its bit is found.
    #[inline]
    pub fn number(&self, page: usize, slot: usize) -> usize {
        self.first_rows[page] + slot
    }

    /// Which rows have matched, if that is noted.
    pub fn matched(&self) -> Option<&Arc<RowBits>> {
        self.matched.as_ref()
    }

    /// Memory of pages and bits.
    pub fn memory_bytes(&self) -> usize {
        let pages: usize = self.pages.iter().map(Page::memory_bytes).sum();
        pages + self.matched_bytes()
    }

    /// Memory of the bits alone.
    pub fn matched_bytes(&self) -> usize {
        self.matched.as_ref().map_or(0, |matched| matched.memory_bytes())
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
        let part = RowBits::new(100);
        part.copy_from(&all, 60, 100);
        let set: Vec<usize> = (0..100).filter(|&number| part.is_set(number)).collect();
        assert_eq!(set, [3, 4, 40]);
    }

    #[test]
    fn one_flag_stands_for_all_bits() {
        let bits = RowBits::new(70);
        bits.set_all();
        let copy = RowBits::new(70);
        copy.copy_from(&bits, 0, 70);
        assert!((0..70).all(|number| bits.is_set(number) && copy.is_set(number)));
    }
}
