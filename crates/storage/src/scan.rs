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
//! first, and the others only where a row passes.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_buffer::Buffer;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::filter::{FilterBuilder, FilterPredicate};
use futures::future::BoxFuture;
use futures::{FutureExt as _, Stream};
use nandina_device::{Batch, Completion, IoAccount, Request, block_on};
use nandina_pages::MiniPageMeta;
use parking_lot::Mutex;

use crate::error::{Result, StorageError};
use crate::ids::RowId;
use crate::page_index::{PageRanges, Stripe, StripeIndex, index_columns};
use crate::read_plan::{Extent, Needed, Place, plan};
use crate::row_filter::{PageColumns, ReadColumn, RowFilter};
use crate::segment::{Segment, into_buffer};
use crate::table::Table;

/// Pages without matching rows that may be decoded one after the other before other tasks get their turn.
const PAGES_PER_POLL: usize = 16;

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
    /// Bytes of table pages requested, without page indexes.
    pub bytes_read: u64,
    pub requests: u64,
}

#[derive(Debug, Default)]
struct Counts {
    rows: AtomicU64,
    rows_filtered: AtomicU64,
    pages_read: AtomicU64,
    pages_pruned: AtomicU64,
    bytes_read: AtomicU64,
    requests: AtomicU64,
}

/// One scan of a table snapshot. Any number of readers share its work; each page goes to one of them.
#[derive(Debug)]
pub struct Scan {
    table: Table,
    options: ScanOptions,
    /// Columns of the table that are returned, and then those that only the row filter needs.
    columns: Vec<usize>,
    handed_out: usize,
    /// Of the batches.
    schema: SchemaRef,
    /// Longest gap that is read too, and length beyond which requests are not merged.
    merge_gap_bytes: u64,
    request_bytes: u64,
    cursor: Mutex<Cursor>,
    counts: Counts,
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
        if let Some(filter) = &options.row_filter {
            let more = filter.columns();
            table.check_columns(&more)?;
            more.iter().for_each(|column| {
                if !columns.contains(column) {
                    columns.push(*column);
                }
            });
        }
        let mut schema = table.schema().project(&projection)?;
        if let Some(name) = &options.row_ids {
            let mut fields = schema.fields().to_vec();
            fields.push(Arc::new(Field::new(name.as_ref(), DataType::UInt64, false)));
            schema = Schema::new_with_metadata(fields, schema.metadata);
        }
        let sizes = table.store().device().sizes();
        Ok(Arc::new(Self {
            columns,
            handed_out: projection.len(),
            schema: Arc::new(schema),
            merge_gap_bytes: options.merge_gap_bytes.unwrap_or(sizes.gap_bytes as u64),
            request_bytes: options.request_bytes.unwrap_or(sizes.read_bytes as u64),
            table,
            options,
            cursor: Mutex::default(),
            counts: Counts::default(),
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
        self.options.row_filter.is_some()
    }

    pub fn figures(&self) -> ScanFigures {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ScanFigures {
            rows: of(&self.counts.rows),
            rows_filtered: of(&self.counts.rows_filtered),
            pages_read: of(&self.counts.pages_read),
            pages_pruned: of(&self.counts.pages_pruned),
            bytes_read: of(&self.counts.bytes_read),
            requests: of(&self.counts.requests),
        }
    }

    /// A reader for one task or thread.
    pub fn reader(self: &Arc<Self>) -> ScanReader {
        let device = self.table.store().device();
        let batch = device.batch(self.options.account.as_ref());
        let window_bytes = self.options.window_bytes.unwrap_or_else(|| device.sizes().read_window_bytes());
        ScanReader {
            scan: Arc::clone(self),
            batch,
            window_bytes,
            buffers: VecDeque::new(),
            first_buffer: 0,
            held_bytes: 0,
            pages: VecDeque::new(),
            unsubmitted: VecDeque::new(),
            preparing: None,
            prepared: None,
            exhausted: false,
        }
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
        let mut ascending: Vec<usize> = (0..self.columns.len()).collect();
        ascending.sort_unstable_by_key(|&position| self.columns[position]);
        assert!(keep.is_none_or(|keep| keep.len() == index.pages()), "there is one flag per page");
        let (mut needed, mut last_offset) = (Vec::new(), 0);
        let mut pages = VecDeque::new();
        for page in 0..index.pages() {
            if keep.is_some_and(|keep| !keep[page]) {
                continue;
            }
            let (first_slot, slots, rows) = index.page(page);
            let start = stripe.offset + u64::from(first_slot) * page_bytes;
            let end = start + u64::from(slots) * page_bytes;
            // Mini-pages stand in the order of the columns: requests ascend, whatever order is wanted.
            let mut mini_pages = Vec::with_capacity(self.columns.len());
            for &position in &ascending {
                let meta = index.mini_page(page, self.columns[position]).ok_or_else(damaged)?;
                let (offset, length) = (start + meta.offset_bytes, u64::from(meta.length_bytes));
                if offset < last_offset || offset + length > end {
                    return Err(damaged());
                }
                last_offset = offset;
                mini_pages.push((position, meta, needed.len()));
                needed.push(Needed { offset, length });
            }
            mini_pages.sort_unstable_by_key(|&(position, ..)| position);
            let number = stripe.first_page + u64::from(first_slot);
            pages.push_back(PlannedPage { segment: Arc::clone(segment), number, rows, mini_pages });
        }
        let (extents, places) = plan(&needed, self.merge_gap_bytes, max_request_bytes);
        Ok(StripePlan { extents, places, pages })
    }
}

/// Which of `pages` pages from `first` on are among the `wanted` that are spread evenly over `all`.
fn sampled(first: u64, pages: u64, wanted: u64, all: u64) -> Vec<bool> {
    let before = |page: u64| u128::from(page) * u128::from(wanted) / u128::from(all.max(1));
    (first..first + pages).map(|page| before(page) != before(page + 1)).collect()
}

/// The reads of one stripe.
struct StripePlan {
    extents: Vec<Extent>,
    places: Vec<Place>,
    pages: VecDeque<PlannedPage>,
}

struct PlannedPage {
    segment: Arc<Segment>,
    /// In the segment.
    number: u64,
    rows: u32,
    /// In the order of the scan's columns: position among them, and the number of its place in the plan.
    mini_pages: Vec<(usize, MiniPageMeta, usize)>,
}

/// A page whose extents have numbers in the reader's sequence.
struct PendingPage {
    segment: Arc<Segment>,
    number: u64,
    rows: u32,
    mini_pages: Vec<(MiniPageMeta, Place)>,
    /// Extents it needs: `first..end`, empty without columns.
    first_extent: usize,
    end_extent: usize,
}

/// Reads its share of a [`Scan`], as a [`Stream`] or blocking.
pub struct ScanReader {
    scan: Arc<Scan>,
    batch: Batch,
    window_bytes: usize,
    /// Buffers of submitted extents, from number `first_buffer` on; `None` while in flight.
    buffers: VecDeque<(Option<Buffer>, u64)>,
    first_buffer: usize,
    /// Length of all `buffers`.
    held_bytes: u64,
    pages: VecDeque<PendingPage>,
    unsubmitted: VecDeque<(Arc<Segment>, Extent)>,
    preparing: Option<BoxFuture<'static, Result<Option<StripePlan>>>>,
    prepared: Option<StripePlan>,
    exhausted: bool,
}

impl ScanReader {
    pub fn scan(&self) -> &Arc<Scan> {
        &self.scan
    }

    /// Changes how far to read ahead from now on.
    pub fn set_window_bytes(&mut self, window_bytes: usize) {
        self.window_bytes = window_bytes;
    }

    /// Bytes read or being read and not yet returned.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// The next batch, for blocking threads.
    pub fn next_blocking(&mut self) -> Option<Result<RecordBatch>> {
        block_on(std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)))
    }

    fn poll_batch(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        let mut pages_without_rows = 0;
        loop {
            // Prepared early, so that its index is there when the reads of the stripe before have been submitted.
            let prepared = self.poll_prepare(context)?;
            self.submit();
            while !self.first_page_is_complete() && !self.batch_is_idle() {
                match Pin::new(&mut self.batch).poll_next(context) {
                    Poll::Ready(Some(Ok((index, completion)))) => self.store(index, completion),
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(self.located(error)))),
                    Poll::Ready(None) => unreachable!("a scan ends with the read that fails"),
                    Poll::Pending => return Poll::Pending,
                }
            }
            if self.first_page_is_complete()
                && let Some(page) = self.pages.pop_front()
            {
                if let Some(batch) = self.decode(page).transpose() {
                    return Poll::Ready(Some(batch));
                }
                pages_without_rows += 1;
                if pages_without_rows == PAGES_PER_POLL {
                    // Other tasks have to get on too, though there is nothing to return.
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                continue;
            }
            if self.pages.is_empty() && self.unsubmitted.is_empty() {
                if self.exhausted {
                    return Poll::Ready(None);
                }
                ready!(prepared);
            }
        }
    }

    /// Keeps one stripe prepared, or in preparation, beside the one that is being read: its page index takes two reads
    /// one after the other, for which the device must not have to wait. Pending if there is nothing else to submit.
    fn poll_prepare(&mut self, context: &mut Context<'_>) -> Result<Poll<()>> {
        let mut is_preparing = false;
        if self.prepared.is_none() && !self.exhausted {
            let max_request_bytes = self.scan.request_bytes.min(self.window_bytes as u64 / 2).max(1);
            let next = || Arc::clone(&self.scan).next_plan(max_request_bytes).boxed();
            let preparing = self.preparing.get_or_insert_with(next);
            match preparing.as_mut().poll(context) {
                Poll::Ready(plan) => {
                    self.preparing = None;
                    self.prepared = plan?;
                    self.exhausted = self.prepared.is_none();
                }
                Poll::Pending => is_preparing = true,
            }
        }
        if !self.unsubmitted.is_empty() {
            return Ok(Poll::Ready(()));
        }
        if let Some(plan) = self.prepared.take() {
            self.enqueue(plan);
        } else if is_preparing {
            return Ok(Poll::Pending);
        }
        Ok(Poll::Ready(()))
    }

    fn enqueue(&mut self, plan: StripePlan) {
        let base = self.first_buffer + self.buffers.len();
        let segment = Arc::clone(&plan.pages[0].segment);
        self.unsubmitted.extend(plan.extents.iter().map(|&extent| (Arc::clone(&segment), extent)));
        for page in plan.pages {
            let mini_pages: Vec<(MiniPageMeta, Place)> = page
                .mini_pages
                .into_iter()
                .map(|(_, meta, place)| {
                    let place = plan.places[place];
                    (meta, Place { extent: base + place.extent, ..place })
                })
                .collect();
            let extents =
                || mini_pages.iter().filter(|(_, place)| place.length > 0).map(|(_, place)| place.extent);
            let first_extent = extents().min().unwrap_or(base);
            let end_extent = extents().max().map_or(first_extent, |last| last + 1);
            let (segment, number, rows) = (page.segment, page.number, page.rows);
            self.pages.push_back(PendingPage { segment, number, rows, mini_pages, first_extent, end_extent });
        }
    }

    /// The window, or less of it while other queries use the device: what waits for the device is memory that waits.
    fn granted_window_bytes(&self) -> u64 {
        let request_bytes = self.scan.request_bytes.max(1);
        let flow = self.scan.options.account.as_ref().map(|account| account.flow()).unwrap_or_default();
        let device = self.scan.table.store().device();
        let granted = device.granted_depth(flow, request_bytes as usize) as u64;
        (self.window_bytes as u64).min(2 * granted * request_bytes)
    }

    /// Submits reads while there is room in the window, or as far as the first page needs them.
    fn submit(&mut self) {
        let window_bytes = self.granted_window_bytes();
        let submitted = self.first_buffer + self.buffers.len();
        let first_needs = self.pages.front().map_or(0, |page| page.end_extent.saturating_sub(submitted));
        // Requests go out in groups, not one for each page returned.
        if first_needs == 0 && self.held_bytes > window_bytes / 4 * 3 {
            return;
        }
        let device = self.scan.table.store().device().clone();
        let mut requests = Vec::new();
        while let Some((segment, extent)) = self.unsubmitted.front() {
            let fits = self.held_bytes + extent.length <= window_bytes;
            if !fits && requests.len() >= first_needs && !self.buffers.is_empty() {
                break;
            }
            let Ok(file) = segment.file() else { unreachable!("it was opened for the page index") };
            requests
                .push((file.clone(), Request::read(extent.offset, device.buffer(extent.length as usize))));
            self.buffers.push_back((None, extent.length));
            self.held_bytes += extent.length;
            self.unsubmitted.pop_front();
        }
        if requests.is_empty() {
            return;
        }
        let bytes = requests.iter().map(|(_, request)| request_bytes(request)).sum();
        self.scan.counts.bytes_read.fetch_add(bytes, Ordering::Relaxed);
        self.scan.counts.requests.fetch_add(requests.len() as u64, Ordering::Relaxed);
        // Requests of a batch are numbered in the order they are added, as the extents are.
        self.batch.add(requests);
    }

    fn store(&mut self, index: usize, completion: Completion) {
        self.buffers[index - self.first_buffer].0 = completion.into_buffer().map(into_buffer);
    }

    fn batch_is_idle(&self) -> bool {
        self.buffers.iter().all(|(buffer, _)| buffer.is_some())
    }

    fn first_page_is_complete(&self) -> bool {
        self.pages.front().is_some_and(|page| {
            (page.first_extent..page.end_extent).all(|extent| self.buffer(extent).is_some())
        })
    }

    fn buffer(&self, extent: usize) -> Option<&Buffer> {
        self.buffers.get(extent.checked_sub(self.first_buffer)?)?.0.as_ref()
    }

    /// The rows of a page that the row filter keeps; `None` if it keeps none.
    fn decode(&mut self, page: PendingPage) -> Result<Option<RecordBatch>> {
        let rows = page.rows as usize;
        let mut columns = self.columns_of(&page);
        let keep = match &self.scan.options.row_filter {
            Some(filter) => filter.keep(&mut columns).map_err(|source| filter_error(source, &page))?,
            None => None,
        };
        assert!(keep.as_ref().is_none_or(|keep| keep.len() == rows), "there is one flag per row");
        let keep = keep.map(|keep| FilterBuilder::new(&keep).optimize().build());
        let kept = keep.as_ref().map_or(rows, FilterPredicate::count);
        let counts = &self.scan.counts;
        counts.pages_read.fetch_add(1, Ordering::Relaxed);
        counts.rows.fetch_add(kept as u64, Ordering::Relaxed);
        counts.rows_filtered.fetch_add((rows - kept) as u64, Ordering::Relaxed);
        let batch =
            if kept > 0 { Some(self.batch_of(&mut columns, keep.as_ref(), kept, &page)?) } else { None };
        drop(columns);
        self.release(page.end_extent);
        Ok(batch)
    }

    fn batch_of(
        &self,
        columns: &mut PageColumns<'_>,
        keep: Option<&FilterPredicate>,
        kept: usize,
        page: &PendingPage,
    ) -> Result<RecordBatch> {
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.scan.handed_out + 1);
        for position in 0..self.scan.handed_out {
            arrays.push(columns.at(position)?);
        }
        if self.scan.options.row_ids.is_some() {
            let first = RowId::new(page.segment.page_number(page.number), 0).to_bits();
            arrays.push(Arc::new((first..first + u64::from(page.rows)).collect::<UInt64Array>()));
        }
        if let Some(keep) = keep.filter(|_| kept < page.rows as usize) {
            arrays = arrays.iter().map(|array| keep.filter(array)).collect::<Result<_, _>>()?;
        }
        let options = RecordBatchOptions::new().with_row_count(Some(kept));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.scan.schema), arrays, &options)?)
    }

    fn columns_of<'a>(&self, page: &'a PendingPage) -> PageColumns<'a> {
        let read = page.mini_pages.iter().zip(&self.scan.columns).map(|((meta, place), &number)| {
            let bytes = place.slice(self.buffer(place.extent));
            let field = page.segment.shape.page_schema().arrow().field(number);
            ReadColumn { number, field, meta: *meta, bytes, decoded: None, dictionary: None }
        });
        PageColumns {
            segment: &page.segment,
            page: page.number,
            rows: page.rows as usize,
            read: read.collect(),
        }
    }

    /// Lets go of the extents that no later page needs.
    fn release(&mut self, end_extent: usize) {
        let needed_from = self.pages.front().map_or(end_extent, |next| next.first_extent);
        while self.first_buffer < needed_from {
            let Some((_, length)) = self.buffers.pop_front() else { unreachable!("it was read") };
            self.first_buffer += 1;
            self.held_bytes -= length;
        }
    }

    /// Names the first page waited for: the error itself names file and offset.
    fn located(&self, source: nandina_device::Error) -> StorageError {
        match self.pages.front() {
            None => source.into(),
            Some(page) => StorageError::PageRead { file: page.segment.location(), page: page.number, source },
        }
    }
}

/// What the filter itself complains about, or the page that it could not be given.
fn filter_error(source: Box<dyn std::error::Error + Send + Sync>, page: &PendingPage) -> StorageError {
    match source.downcast::<StorageError>() {
        Ok(error) => *error,
        Err(source) => StorageError::RowFilter { file: page.segment.location(), page: page.number, source },
    }
}

fn request_bytes(request: &Request) -> u64 {
    match request {
        Request::Read { buffer, .. } => buffer.len() as u64,
        Request::Write { .. } => 0,
    }
}

impl Stream for ScanReader {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_batch(context)
    }
}

impl Debug for ScanReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScanReader")
            .field("table", &self.scan.table.name())
            .field("held_bytes", &self.held_bytes)
            .field("pages", &self.pages.len())
            .finish()
    }
}
