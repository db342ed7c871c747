//! Scanning a table: readers share out its stripes, prune, read ahead, and decode page by page.
//!
//! ```text
//!  stripes of all segments ──next──► page index ──prune──► needed ranges ──merge──► requests
//!        (shared cursor)               (per stripe, one ahead)                         │
//!                                                                     window of reads  ▼
//!  RecordBatch ◄── decode, verify checksums ◄── first page complete ◄── ░░░░▓▓▓▓▓▓▓▓▓ (in flight)
//! ```
//!
//! A reader keeps requests of up to `window_bytes` submitted and not yet consumed. Batches come in the order of the
//! rows of each stripe, of one page each, and may point into the I/O buffers. With a row filter, its columns are decoded
//! first, and the others only where a row passes. Where few pages have such a row, the others are not even read before
//! ([`filter_first`]).

mod filter_first;
mod reader;

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_buffer::Buffer;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use nandina_device::IoAccount;
use parking_lot::Mutex;

use self::filter_first::HitRate;
pub use self::reader::ScanReader;
use self::reader::{PlannedPage, StripePlan};
use crate::error::{Result, StorageError};
use crate::page_index::{PageRanges, Stripe, StripeIndex, index_columns};
use crate::read_cache::CacheVisit;
use crate::read_plan::{Extents, Needed, Place, plan_beside};
use crate::row_filter::RowFilter;
use crate::rows::RowSet;
use crate::segment::Segment;
use crate::table::Table;

/// Decides from bounds and null counts which pages cannot hold rows of interest. Asked anew for every stripe, so that
/// what becomes known during a query counts from then on.
pub trait PagePruner: Debug + Send + Sync {
    /// Columns of the table whose bounds are wanted.
    fn columns(&self) -> Vec<usize>;

    /// One flag per container: false where no row can be of interest. `None` keeps all.
    fn keep(&self, ranges: &PageRanges) -> Option<Vec<bool>>;
}

#[derive(Debug, Clone, Default)]
pub struct ScanOptions {
    /// Columns of the table, in the order they are wanted; all if `None`.
    pub projection: Option<Vec<usize>>,
    /// Adds a last column of this name (UInt64) with the bits of each row's [`RowId`].
    pub row_ids: Option<Arc<str>>,
    pub pruner: Option<Arc<dyn PagePruner>>,
    /// Only rows that it keeps are returned.
    pub row_filter: Option<Arc<dyn RowFilter>>,
    /// Rows that are left out.
    pub deleted: Option<Arc<RowSet>>,
    /// Whether the columns of the row filter are read before the others, which are read where a row passes; where that
    /// takes less time if `None`.
    pub filter_first: Option<bool>,
    /// Whether all columns of a page are read, as they are where rows are stored one behind the other.
    pub whole_pages: bool,
    /// Only so many pages, spread evenly over the table, for estimates. Pages are not pruned then.
    pub sample_pages: Option<u64>,
    /// Most bytes that each reader keeps read or being read; what the device needs if `None`. At least one page is.
    pub window_bytes: Option<usize>,
    /// Longest gap between needed ranges that is read too; what suits the device if `None`.
    pub merge_gap_bytes: Option<u64>,
    /// Requests are not merged beyond this length; what suits the device if `None`.
    pub request_bytes: Option<u64>,
    /// Traffic is counted for this query too.
    pub account: Option<Arc<IoAccount>>,
    /// What others have read is looked for there first.
    pub cache: Option<CacheVisit>,
}

/// Figures of a scan so far, all readers together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScanFigures {
    pub rows: u64,
    /// Rows that the row filter turned away.
    pub rows_filtered: u64,
    /// Pages decoded, at least in part.
    pub pages_read: u64,
    /// Pages skipped because of their bounds.
    pub pages_pruned: u64,
    /// Pages of which only the columns of the row filter were read.
    pub pages_filtered: u64,
    /// Bytes of table pages requested, without page indexes.
    pub bytes_read: u64,
    /// Bytes that were still in memory.
    pub bytes_cached: u64,
    pub requests: u64,
}

#[derive(Debug, Default)]
struct Counts {
    rows: AtomicU64,
    rows_filtered: AtomicU64,
    pages_read: AtomicU64,
    pages_pruned: AtomicU64,
    pages_filtered: AtomicU64,
    bytes_read: AtomicU64,
    bytes_cached: AtomicU64,
    requests: AtomicU64,
}

/// One scan of a table snapshot. Any number of readers share its work; each page goes to one of them.
#[derive(Debug)]
pub struct Scan {
    table: Table,
    options: ScanOptions,
    /// Columns of the table that are returned, then those that only the row filter needs, and then those that are read
    /// because whole pages are.
    columns: Vec<usize>,
    handed_out: usize,
    /// Positions among `columns`, in the order of the table: those that the row filter needs, and all others.
    filtered: Vec<usize>,
    others: Vec<usize>,
    /// Of the batches.
    schema: SchemaRef,
    /// Longest gap that is read too, and length beyond which requests are not merged.
    merge_gap_bytes: u64,
    request_bytes: u64,
    cursor: Mutex<Cursor>,
    counts: Counts,
    hits: HitRate,
}

/// The next stripe that no reader has taken.
#[derive(Debug, Default)]
struct Cursor {
    segment: usize,
    stripe: usize,
    /// Pages of all stripes before.
    pages: u64,
}

impl Table {
    /// A scan whose readers share its work. Nothing is read yet.
    pub fn scan(&self, options: ScanOptions) -> Result<Arc<Scan>> {
        Scan::new(self.clone(), options)
    }
}

impl Scan {
    pub(crate) fn new(table: Table, options: ScanOptions) -> Result<Arc<Self>> {
        let projection =
            options.projection.clone().unwrap_or_else(|| (0..table.schema().fields().len()).collect());
        table.check_columns(&projection)?;
        let mut columns = projection.clone();
        let of_filter = options.row_filter.as_ref().map(|filter| filter.columns()).unwrap_or_default();
        table.check_columns(&of_filter)?;
        for column in &of_filter {
            if !columns.contains(column) {
                columns.push(*column);
            }
        }
        if options.whole_pages {
            let all = 0..table.schema().fields().len();
            let unwanted: Vec<usize> = all.filter(|column| !columns.contains(column)).collect();
            columns.extend(unwanted);
        }
        let mut ascending: Vec<usize> = (0..columns.len()).collect();
        ascending.sort_unstable_by_key(|&position| columns[position]);
        let (filtered, others) =
            ascending.into_iter().partition(|&position| of_filter.contains(&columns[position]));
        let mut schema = table.schema().project(&projection)?;
        if let Some(name) = &options.row_ids {
            let mut fields = schema.fields().to_vec();
            fields.push(Arc::new(Field::new(name.as_ref(), DataType::UInt64, false)));
            schema = Schema::new_with_metadata(fields, schema.metadata);
        }
        let sizes = table.store().device().sizes();
        Ok(Arc::new(Self {
            columns,
            filtered,
            others,
            handed_out: projection.len(),
            schema: Arc::new(schema),
            merge_gap_bytes: options.merge_gap_bytes.unwrap_or(sizes.gap_bytes as u64),
            request_bytes: options.request_bytes.unwrap_or(sizes.read_bytes as u64),
            table,
            options,
            cursor: Mutex::default(),
            counts: Counts::default(),
            hits: HitRate::default(),
        }))
    }

    /// Schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Whether batches are what a filter leaves of pages.
    pub fn filters_rows(&self) -> bool {
        self.options.row_filter.is_some() || self.options.deleted.is_some()
    }

    pub fn figures(&self) -> ScanFigures {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ScanFigures {
            rows: of(&self.counts.rows),
            rows_filtered: of(&self.counts.rows_filtered),
            pages_read: of(&self.counts.pages_read),
            pages_pruned: of(&self.counts.pages_pruned),
            pages_filtered: of(&self.counts.pages_filtered),
            bytes_read: of(&self.counts.bytes_read),
            bytes_cached: of(&self.counts.bytes_cached),
            requests: of(&self.counts.requests),
        }
    }

    /// A reader for one task or thread.
    pub fn reader(self: &Arc<Self>) -> ScanReader {
        ScanReader::new(self)
    }

    /// Takes the next stripe that may hold rows of interest, and says which of its pages are wanted if this is a sample.
    async fn next_stripe(&self) -> Result<Option<(Arc<Segment>, Stripe, Option<Vec<bool>>)>> {
        loop {
            let number = self.cursor.lock().segment;
            let Some(segment) = self.table.segments().get(number) else { return Ok(None) };
            let directory = segment.directory(self.options.account.as_ref()).await?;
            let taken = {
                let mut cursor = self.cursor.lock();
                if cursor.segment != number {
                    continue;
                }
                let stripe = directory.stripes.get(cursor.stripe).copied();
                cursor.stripe += 1;
                if stripe.is_none() {
                    *cursor = Cursor { segment: number + 1, stripe: 0, pages: cursor.pages };
                }
                let first_page = cursor.pages;
                cursor.pages += stripe.map_or(0, |stripe| stripe.pages);
                stripe.map(|stripe| (cursor.stripe - 1, first_page, stripe))
            };
            let Some((position, first_page, stripe)) = taken else { continue };
            if let Some(wanted) = self.options.sample_pages {
                let sample = sampled(first_page, stripe.pages, wanted, self.table.pages());
                if sample.contains(&true) {
                    return Ok(Some((Arc::clone(segment), stripe, Some(sample))));
                }
                continue;
            }
            if let Some(pruner) = &self.options.pruner {
                let keep = pruner.keep(&directory.ranges_of(position, &pruner.columns()));
                if keep.is_some_and(|keep| !keep[0]) {
                    self.counts.pages_pruned.fetch_add(stripe.pages, Ordering::Relaxed);
                    continue;
                }
            }
            return Ok(Some((Arc::clone(segment), stripe, None)));
        }
    }

    /// Takes the next stripe with pages that may hold rows of interest, and plans its reads.
    async fn next_plan(self: Arc<Self>, max_request_bytes: u64) -> Result<Option<StripePlan>> {
        while let Some((segment, stripe, sample)) = self.next_stripe().await? {
            let pruner = self.options.pruner.as_ref();
            let bounded = pruner.map(|pruner| pruner.columns()).unwrap_or_default();
            let columns = index_columns(&self.columns, &bounded);
            let account = self.options.account.as_ref();
            let index = segment.stripe_index(&stripe, &columns, account).await?;
            let keep = sample.or_else(|| pruner.and_then(|pruner| pruner.keep(&index.ranges(&bounded))));
            let plan = self.plan_stripe(&segment, &stripe, &index, keep.as_deref(), max_request_bytes)?;
            let pruned = (index.pages() - plan.pages.len()) as u64;
            self.counts.pages_pruned.fetch_add(pruned, Ordering::Relaxed);
            if !plan.pages.is_empty() {
                return Ok(Some(plan));
            }
        }
        Ok(None)
    }

    fn plan_stripe(
        &self,
        segment: &Arc<Segment>,
        stripe: &Stripe,
        index: &StripeIndex,
        keep: Option<&[bool]>,
        max_request_bytes: u64,
    ) -> Result<StripePlan> {
        let page_bytes = segment.shape.page_bytes as u64;
        let damaged = || StorageError::damaged(segment.location(), "a page index contradicts itself");
        assert!(keep.is_none_or(|keep| keep.len() == index.pages()), "there is one flag per page");
        let wanted: Vec<usize> =
            (0..index.pages()).filter(|&page| keep.is_none_or(|keep| keep[page])).collect();
        let filter_first = wanted.first().is_some_and(|&page| self.reads_filter_first(index, page));
        let (mut needed, mut last_offset, mut last_later) = (Vec::new(), 0, 0);
        let mut pages = VecDeque::with_capacity(wanted.len());
        for page in wanted {
            let (first_slot, slots, rows) = index.page(page);
            let start = stripe.offset + u64::from(first_slot) * page_bytes;
            let end = start + u64::from(slots) * page_bytes;
            let metas = |positions: &[usize]| {
                let meta = |&position: &usize| {
                    let meta = index.mini_page(page, self.columns[position])?;
                    let (offset, length) = (start + meta.offset_bytes, u64::from(meta.length_bytes));
                    (offset + length <= end).then_some((position, meta))
                };
                positions
                    .iter()
                    .map(|position| meta(position).ok_or_else(damaged))
                    .collect::<Result<Vec<_>>>()
            };
            let (mut now, mut later) = (metas(&self.filtered)?, metas(&self.others)?);
            if !filter_first {
                now.append(&mut later);
                now.sort_unstable_by_key(|&(position, _)| self.columns[position]);
            }
            // Mini-pages stand in the order of the columns: requests ascend, whatever order is wanted.
            let mut mini_pages = Vec::with_capacity(now.len());
            for (position, meta) in now {
                let range = Needed::mini_page(start, &meta);
                if range.offset < last_offset {
                    return Err(damaged());
                }
                last_offset = range.offset;
                mini_pages.push((position, meta, needed.len()));
                needed.push(range);
            }
            for (_, meta) in &later {
                let offset = Needed::mini_page(start, meta).offset;
                if offset < last_later {
                    return Err(damaged());
                }
                last_later = offset;
            }
            mini_pages.sort_unstable_by_key(|&(position, ..)| position);
            let number = stripe.first_page + u64::from(first_slot);
            let later = filter_first.then_some(later);
            pages.push_back(PlannedPage {
                segment: Arc::clone(segment),
                number,
                rows,
                start,
                mini_pages,
                later,
            });
        }
        let (extents, places) = self.planned(segment, &needed, max_request_bytes);
        Ok(StripePlan { extents, places, pages })
    }

    /// The requests for some ranges of a segment, and those that are still in memory.
    fn planned(&self, segment: &Segment, needed: &[Needed], max_request_bytes: u64) -> (Extents, Vec<Place>) {
        let kept = self.options.cache.as_ref().map(|cache| cache.find(segment.key(), needed));
        let kept = kept.unwrap_or_default();
        let bytes: usize = kept.iter().flatten().map(Buffer::len).sum();
        self.counts.bytes_cached.fetch_add(bytes as u64, Ordering::Relaxed);
        plan_beside(kept, needed, self.merge_gap_bytes, max_request_bytes)
    }
}

/// Which of `pages` pages from `first` on are among the `wanted` that are spread evenly over `all`.
fn sampled(first: u64, pages: u64, wanted: u64, all: u64) -> Vec<bool> {
    let before = |page: u64| u128::from(page) * u128::from(wanted) / u128::from(all.max(1));
    (first..first + pages).map(|page| before(page) != before(page + 1)).collect()
}
