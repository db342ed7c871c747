//! Reading the columns of a row filter first, and the others of pages with a row that it keeps.
//!
//! ```text
//!  stripe 1: filter's columns ─► keep? ─┐
//!  stripe 2: filter's columns ─► keep?  │      the reads of stripe 2 are on their way
//!  stripe 1: other columns of   ◄───────┘      while stripe 1 is decided
//!            pages with rows
//! ```
//!
//! Both cost what the device's profile says: all columns of all pages in sequence, or some of them page by page. How many
//! pages have a row is what the scan has seen so far. It begins with whole pages, and asks anew for every stripe: filters
//! of joins become known while it runs, and values may be clustered.

use std::sync::Arc;

use arrow_array::{Array as _, ArrayRef, RecordBatch, UInt32Array};
use arrow_select::filter::FilterPredicate;
use arrow_select::take::take;
use nandina_pages::{MiniPageMeta, with_own_buffers};
use parking_lot::Mutex;

use super::Scan;
use super::reader::{PendingPage, ScanReader, TablePage, Work};
use crate::error::Result;
use crate::page_index::StripeIndex;
use crate::read_plan::{Needed, plan};

/// Pages that have to be seen before anything is concluded from them.
const LEAST_PAGES: f64 = 64.0;
/// Pages after which those seen before count half.
const MOST_PAGES: f64 = 1024.0;
/// Reading the filter first has to be cheaper by so much: it waits for the device twice.
const WORTH_SHARE: f64 = 0.8;
/// Survivors that take more than this share of the window in memory are not waited with until their stripe ends.
const SURVIVOR_SHARE: u64 = 4;

/// How many pages have a row that the filter keeps, of those seen lately.
#[derive(Debug, Default)]
pub(super) struct HitRate(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    pages: f64,
    hits: f64,
}

impl HitRate {
    pub fn record(&self, is_hit: bool) {
        let mut seen = self.0.lock();
        if seen.pages >= MOST_PAGES {
            seen.pages /= 2.0;
            seen.hits /= 2.0;
        }
        seen.pages += 1.0;
        seen.hits += f64::from(u8::from(is_hit));
    }

    /// The share of pages with such a row; all of them as long as little is known.
    fn share(&self) -> f64 {
        let seen = self.0.lock();
        if seen.pages < LEAST_PAGES { 1.0 } else { seen.hits / seen.pages }
    }
}

/// A page of which the filter's columns are being read.
pub(super) struct Undecided {
    /// Where it begins in the file.
    pub start: u64,
    /// The other columns, in the order of the table.
    pub later: Vec<(usize, MiniPageMeta)>,
    /// Of its stripe.
    pub is_last: bool,
}

/// What the filter keeps of a page.
pub(super) struct Kept {
    /// All rows if `None`.
    keep: Option<FilterPredicate>,
    rows: usize,
    /// Their columns that are known, by position among the scan's.
    known: Vec<(usize, ArrayRef)>,
    /// What that takes in memory, which counts as held by the reader.
    bytes: u64,
}

/// A page with rows, of which other columns are wanted.
pub(super) struct Survivor {
    kept: Kept,
    start: u64,
    later: Vec<(usize, MiniPageMeta)>,
}

/// Pages of one stripe that wait for their other columns to be read.
#[derive(Default)]
pub(super) struct Survivors {
    pages: Vec<(TablePage, Survivor)>,
    /// What is known of their rows takes so much memory.
    bytes: u64,
}

impl Survivors {
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }
}

enum Copied<'a> {
    Filtered(&'a FilterPredicate),
    /// All of so many rows.
    All(UInt32Array),
}

impl Kept {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Scan {
    /// Whether the filter's columns of a stripe are read first, one of whose pages is `page`.
    pub(super) fn reads_filter_first(&self, index: &StripeIndex, page: usize) -> bool {
        let has_both =
            self.options.row_filter.is_some() && !self.filtered.is_empty() && !self.others.is_empty();
        if !has_both || self.options.sample_pages.is_some() || self.options.whole_pages {
            return false;
        }
        self.options.filter_first.unwrap_or_else(|| {
            let profile = self.table.store().device().profile();
            let runs = |positions: &[usize]| self.runs_of(index, page, positions);
            let at_random = |positions: &[usize]| -> f64 {
                runs(positions).iter().map(|&bytes| profile.reads.best_micros(bytes)).sum()
            };
            let mut all = [self.filtered.as_slice(), self.others.as_slice()].concat();
            all.sort_unstable_by_key(|&position| self.columns[position]);
            let bytes: u64 = runs(&all).iter().sum();
            let whole = bytes as f64 / profile.reads.sequential_bandwidth() * 1e6;
            at_random(&self.filtered) + self.hits.share() * at_random(&self.others) < whole * WORTH_SHARE
        })
    }

    /// Bytes of the reads of these columns of one page.
    fn runs_of(&self, index: &StripeIndex, page: usize, positions: &[usize]) -> Vec<u64> {
        let metas = positions.iter().filter_map(|&position| index.mini_page(page, self.columns[position]));
        let needed: Vec<Needed> = metas.map(|meta| Needed::mini_page(0, &meta)).collect();
        if !needed.is_sorted_by_key(|range| range.offset) {
            // A damaged index, which is noticed when the reads are planned.
            return Vec::new();
        }
        let (extents, _) = plan(&needed, self.merge_gap_bytes, self.request_bytes);
        extents.iter().map(|extent| extent.length).collect()
    }
}

impl ScanReader {
    /// Asks the filter about a page whose columns for it are there.
    pub(super) fn decide(&self, page: &PendingPage, undecided: &Undecided) -> Result<Option<Survivor>> {
        let mut columns = self.columns_of(page);
        let keep = self.filtered(&mut columns, page)?;
        let all = page.rows as usize;
        let rows = keep.as_ref().map_or(all, FilterPredicate::count);
        if rows == 0 {
            self.count_filtered();
            return Ok(None);
        }
        // Copied also if all are kept: the buffer that they were read into is let go of.
        let copied = match &keep {
            Some(keep) if rows < all => Copied::Filtered(keep),
            _ => Copied::All(UInt32Array::from_iter_values(0..page.rows)),
        };
        let (mut known, mut bytes) = (Vec::new(), 0);
        for (read, &(position, ..)) in page.mini_pages.iter().enumerate() {
            if self.is_handed_out(position) {
                let array = columns.at(read)?;
                let array = match &copied {
                    Copied::Filtered(keep) => keep.filter(&array)?,
                    Copied::All(places) => take(&array, places, None)?,
                };
                let array = with_own_buffers(&array)?;
                bytes += array.get_buffer_memory_size() as u64;
                known.push((position, array));
            }
        }
        drop(copied);
        let keep = keep.filter(|_| rows < all);
        // A filter of few rows has a number for each of them.
        bytes += if keep.is_some() { (rows * size_of::<usize>()) as u64 } else { 0 };
        let kept = Kept { keep, rows, known, bytes };
        Ok(Some(Survivor { kept, start: undecided.start, later: undecided.later.clone() }))
    }

    /// Keeps a page for later, and has the other columns of all such pages read at the end of a stripe, or if they are many.
    pub(super) fn after_decision(&mut self, page: PendingPage, survivor: Option<Survivor>) {
        let Work::Decide(undecided) = &page.work else { unreachable!("it has just been decided") };
        let is_last = undecided.is_last;
        if let Some(survivor) = survivor {
            self.survivors.bytes += survivor.kept.bytes;
            self.hold(survivor.kept.bytes);
            let page = TablePage { segment: page.segment, number: page.number, rows: page.rows };
            self.survivors.pages.push((page, survivor));
        }
        if is_last || self.survivors.bytes > self.window_bytes() as u64 / SURVIVOR_SHARE {
            self.enqueue_survivors();
        }
    }

    fn enqueue_survivors(&mut self) {
        let Survivors { pages, .. } = std::mem::take(&mut self.survivors);
        let Some((page, _)) = pages.first() else { return };
        let ranges = pages.iter().flat_map(|(_, survivor)| {
            survivor.later.iter().map(|(_, meta)| Needed::mini_page(survivor.start, meta))
        });
        let needed: Vec<Needed> = ranges.collect();
        let segment = Arc::clone(&page.segment);
        let (extents, places) = self.scan().planned(&segment, &needed, self.max_request_bytes());
        let base = self.add_extents(&segment, extents);
        let mut places = places.into_iter();
        for (page, Survivor { kept, later, .. }) in pages {
            let placed = later.into_iter().map(|(position, meta)| {
                let Some(place) = places.next() else { unreachable!("every needed range has a place") };
                (position, meta, place)
            });
            let placed: Vec<_> = placed.collect();
            self.add_page(base, page, placed.into_iter(), Work::Finish(kept));
        }
    }

    /// The rows of a page that the filter has kept.
    pub(super) fn finish(&self, page: &PendingPage, kept: &Kept) -> Result<RecordBatch> {
        let mut columns = self.columns_of(page);
        self.batch_of(&mut columns, &kept.known, kept.keep.as_ref(), kept.rows, page)
    }
}
