//! How many rows go into a page, when their encoded length is not known beforehand.
//!
//! ```text
//!  rows ─► staged, as many as the page before would have held ─► encoded ─┬─ fits, and fills it ──► page
//!                ▲                                                        ├─ leaves much room ────► stage more
//!                └── the page's share of them, the rest waits ◄───────────┴─ too long
//! ```
//!
//! Pages of a table resemble each other, so that nearly all are encoded once.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use nandina_pages::{CompactPage, Page, PageBuilder, PageIdentity, PageSchema, Rows, Verify};

use crate::error::{Result, StorageError};
use crate::ids::RowId;
use crate::statistics::{bounds, bounds_type, has_bounds, joined, unknown};

/// A page stands for at most so many times its size: readers hold what they decode.
pub(crate) const MOST_EXPANSION: usize = 8;

/// Rows of the first attempt, from which the rest follows.
const FIRST_ROWS: usize = 256;

/// Part of a page that the next one is meant to fill, and with which it is good enough, in 64ths.
const WANTED_64THS: usize = 62;
const ENOUGH_64THS: usize = 56;

#[derive(Debug)]
pub(crate) struct PageFiller {
    builder: PageBuilder,
    page_bytes: usize,
    /// Bounds of the rows in the builder, one entry per batch they came from.
    bounds: Vec<Vec<PieceBounds>>,
    /// Rows that were given and are not staged; the last come first.
    waiting: Vec<RecordBatch>,
    wanted_rows: usize,
    /// How often the rows staged have been too many: what fits now is good enough.
    retries: usize,
    page: CompactPage,
}

/// A page and the bounds of its columns.
#[derive(Debug)]
pub(crate) struct FilledPage<'a> {
    pub page: &'a CompactPage,
    pub bounds: Vec<(ArrayRef, ArrayRef)>,
}

impl PageFiller {
    pub fn new(schema: Arc<PageSchema>, page_bytes: usize) -> Self {
        Self {
            builder: PageBuilder::new(schema, page_bytes * MOST_EXPANSION, RowId::SLOTS),
            page_bytes,
            bounds: Vec::new(),
            waiting: Vec::new(),
            wanted_rows: FIRST_ROWS,
            retries: 0,
            page: CompactPage::default(),
        }
    }

    pub fn push(&mut self, batch: &RecordBatch) {
        assert!(self.waiting.is_empty(), "all pages of a batch are taken before the next one comes");
        self.waiting.push(batch.clone());
    }

    /// The next full page, if the rows given make one.
    pub fn full_page(&mut self) -> Result<Option<FilledPage<'_>>> {
        self.next_page(false)
    }

    /// The next page of all rows given, full or not.
    pub fn last_page(&mut self) -> Result<Option<FilledPage<'_>>> {
        self.next_page(true)
    }

    fn next_page(&mut self, is_last: bool) -> Result<Option<FilledPage<'_>>> {
        loop {
            self.stage()?;
            let rows = self.builder.rows();
            let is_complete = rows >= self.wanted_rows || self.builder.is_full();
            if rows == 0 || !is_complete && !is_last {
                return Ok(None);
            }
            self.builder.encode_compact(&mut self.page).map_err(StorageError::Encode)?;
            let used_bytes = self.page.used_bytes();
            let wanted_bytes = self.page_bytes / 64 * WANTED_64THS;
            let fitting = (rows as u64 * wanted_bytes as u64 / used_bytes.max(1) as u64).max(1) as usize;
            if used_bytes > self.page_bytes && rows > 1 {
                // Where long rows come first, their mean misleads: halving ends that.
                self.wanted_rows = fitting.min(if self.retries > 0 { rows / 2 } else { rows - 1 });
                self.retries += 1;
                let rest = self.take_staged()?;
                self.waiting.extend(rest);
                continue;
            }
            let is_enough = used_bytes >= self.page_bytes / 64 * ENOUGH_64THS;
            let is_rest = is_last && self.waiting.is_empty();
            if !(is_enough || is_rest || self.retries > 0 || self.builder.is_full()) {
                self.wanted_rows = fitting.clamp(rows + 1, RowId::SLOTS);
                continue;
            }
            self.wanted_rows = fitting;
            self.retries = 0;
            self.builder.clear();
            let bounds = joined_bounds(&std::mem::take(&mut self.bounds), self.builder.schema())?;
            return Ok(Some(FilledPage { page: &self.page, bounds }));
        }
    }

    /// Moves waiting rows into the builder, up to the number wanted.
    fn stage(&mut self) -> Result<()> {
        self.forget_huge_rows();
        while self.builder.rows() < self.wanted_rows && !self.builder.is_full() {
            let Some(batch) = self.waiting.pop() else { break };
            let wanted = batch.num_rows().min(self.wanted_rows - self.builder.rows());
            let taken = self.builder.append(&batch, Rows::Range(0..wanted)).map_err(StorageError::Encode)?;
            if taken > 0 {
                let of_rows = batch.columns().iter().map(|array| PieceBounds::of(&array.slice(0, taken)));
                self.bounds.push(of_rows.collect());
            }
            if taken < batch.num_rows() {
                self.waiting.push(batch.slice(taken, batch.num_rows() - taken));
            }
        }
        Ok(())
    }

    /// Lets go of what a row that is longer than many pages has made of the buffers.
    fn forget_huge_rows(&mut self) {
        let usual_bytes = 2 * MOST_EXPANSION * self.page_bytes;
        if self.builder.is_empty() && self.builder.memory_bytes() > usual_bytes {
            let (schema, cap) = (Arc::clone(self.builder.schema()), MOST_EXPANSION * self.page_bytes);
            self.builder = PageBuilder::new(schema, cap, RowId::SLOTS);
        }
        if self.page.memory_bytes() > usual_bytes {
            self.page = CompactPage::default();
        }
    }

    /// All rows given that no page holds; they are here no more.
    pub fn take_rest(&mut self) -> Result<Vec<RecordBatch>> {
        let mut rest = Vec::from_iter(self.take_staged()?);
        rest.extend(self.waiting.drain(..).rev());
        Ok(rest)
    }

    /// The rows in the builder as a batch; they are staged no more.
    fn take_staged(&mut self) -> Result<Option<RecordBatch>> {
        self.bounds.clear();
        if self.builder.is_empty() {
            return Ok(None);
        }
        let mut bytes = vec![0; self.builder.encoded_bytes()];
        self.builder.encode(PageIdentity::default(), &mut bytes).map_err(StorageError::Encode)?;
        let page = Page::open(bytes.into(), Arc::clone(self.builder.schema()), Verify::Trusted);
        page.and_then(|page| page.batch(None)).map(Some).map_err(StorageError::Encode)
    }
}

/// Bounds of a column of the rows that one batch gave to a page.
#[derive(Debug)]
struct PieceBounds {
    min: ArrayRef,
    max: ArrayRef,
    /// Without values, null bounds mean just that; with values, that nothing is known.
    has_values: bool,
}

impl PieceBounds {
    fn of(array: &ArrayRef) -> Self {
        let (min, max) = if has_bounds(array.data_type()) {
            bounds(array.as_ref())
        } else {
            unknown(&bounds_type(array.data_type()))
        };
        Self { min, max, has_values: array.null_count() < array.len() }
    }
}

/// Bounds of a page from those of its pieces.
fn joined_bounds(pieces: &[Vec<PieceBounds>], schema: &PageSchema) -> Result<Vec<(ArrayRef, ArrayRef)>> {
    let of_column = |column: usize| -> Result<(ArrayRef, ArrayRef)> {
        let pieces: Vec<&PieceBounds> = pieces.iter().map(|piece| &piece[column]).collect();
        if let [only] = pieces.as_slice() {
            return Ok((Arc::clone(&only.min), Arc::clone(&only.max)));
        }
        let mins: Vec<&dyn Array> = pieces.iter().map(|piece| piece.min.as_ref()).collect();
        let maxes: Vec<&dyn Array> = pieces.iter().map(|piece| piece.max.as_ref()).collect();
        let has_values = |piece: usize| pieces[piece].has_values;
        Ok(joined(&arrow_select::concat::concat(&mins)?, &arrow_select::concat::concat(&maxes)?, has_values))
    };
    (0..schema.columns()).map(of_column).collect()
}
