//! Build rows in memory, and which of them have matched.

use std::sync::Arc;

use datafusion::common::Result;
use nandina_pages::Page;

use crate::join::row_bits::RowBits;
use crate::join::rows::PageRows;
use crate::join::spec::JoinSpec;

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

    /// The same block, not probed yet, with the earlier matches of its rows: they are `first_row` and following of
    /// `earlier`.
    pub fn matched_earlier(self, earlier: Option<&RowBits>, first_row: usize) -> Self {
        if let (Some(matched), Some(earlier)) = (&self.matched, earlier) {
            matched.copy_from(earlier, first_row);
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
