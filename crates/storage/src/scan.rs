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
//! rows of each stripe, one page each, and point into the I/O buffers.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_buffer::Buffer;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use futures::future::BoxFuture;
use futures::{FutureExt as _, Stream};
use nandina_device::{Batch, Completion, IoAccount, Request};
use nandina_pages::{MiniPageMeta, decode_mini_page};
use parking_lot::Mutex;

use crate::block_on::block_on;
use crate::error::{Result, StorageError};
use crate::ids::RowId;
use crate::page_index::{PageRanges, Stripe, StripeIndex, index_columns};
use crate::read_plan::{Extent, Needed, Place, plan};
use crate::segment::{Segment, into_buffer};
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
    /// Adds a last column `row_id` (UInt64) with the bits of each row's [`RowId`].
    pub row_ids: bool,
    pub pruner: Option<Arc<dyn PagePruner>>,
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
    /// Pages decoded.
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
    projection: Vec<usize>,
    /// Of the batches.
    schema: SchemaRef,
    /// Longest gap that is read too, and length beyond which requests are not merged.
    merge_gap_bytes: u64,
    request_bytes: u64,
    cursor: Mutex<Cursor>,
    counts: Counts,
}

/// The next stripe that nobody has taken.
#[derive(Debug, Default)]
struct Cursor {
    segment: usize,
    stripe: usize,
}

impl Scan {
    pub(crate) fn new(table: Table, options: ScanOptions) -> Result<Arc<Self>> {
        let projection =
            options.projection.clone().unwrap_or_else(|| (0..table.schema().fields().len()).collect());
        table.check_columns(&projection)?;
        let mut schema = table.schema().project(&projection)?;
        if options.row_ids {
            let mut fields = schema.fields().to_vec();
            fields.push(Arc::new(Field::new("row_id", DataType::UInt64, false)));
            schema = Schema::new_with_metadata(fields, schema.metadata);
        }
        let sizes = table.store().device().sizes();
        Ok(Arc::new(Self {
            projection,
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

    pub fn figures(&self) -> ScanFigures {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ScanFigures {
            rows: of(&self.counts.rows),
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

    /// Takes the next stripe that may hold rows of interest.
    async fn next_stripe(&self) -> Result<Option<(Arc<Segment>, Stripe)>> {
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
                    *cursor = Cursor { segment: number + 1, stripe: 0 };
                }
                stripe.map(|stripe| (cursor.stripe - 1, stripe))
            };
            let Some((position, stripe)) = taken else { continue };
            if let Some(pruner) = &self.options.pruner {
                let keep = pruner.keep(&directory.ranges_of(position, &pruner.columns()));
                if keep.is_some_and(|keep| keep.first() == Some(&false)) {
                    self.counts.pages_pruned.fetch_add(stripe.pages, Ordering::Relaxed);
                    continue;
                }
            }
            return Ok(Some((Arc::clone(segment), stripe)));
        }
    }

    /// Takes the next stripe with pages that may hold rows of interest, and plans its reads.
    async fn next_plan(self: Arc<Self>, max_request_bytes: u64) -> Result<Option<StripePlan>> {
        while let Some((segment, stripe)) = self.next_stripe().await? {
            let pruner = self.options.pruner.as_ref();
            let bounded = pruner.map(|pruner| pruner.columns()).unwrap_or_default();
            let columns = index_columns(&self.projection, &bounded);
            let account = self.options.account.as_ref();
            let index = segment.stripe_index(&stripe, &columns, account).await?;
            let keep = pruner.and_then(|pruner| pruner.keep(&index.ranges(&bounded)));
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
        let mut ascending: Vec<usize> = (0..self.projection.len()).collect();
        ascending.sort_unstable_by_key(|&position| self.projection.get(position));
        let mut needed = Vec::new();
        let mut pages = VecDeque::new();
        for page in 0..index.pages() {
            if keep.and_then(|keep| keep.get(page)) == Some(&false) {
                continue;
            }
            let (first_slot, slots, rows) = index.page(page).ok_or_else(damaged)?;
            let start = stripe.offset + u64::from(first_slot) * page_bytes;
            let end = start + u64::from(slots) * page_bytes;
            // Mini-pages stand in the order of the columns: requests ascend, whatever the projection's order.
            let mut mini_pages = vec![None; self.projection.len()];
            for &position in &ascending {
                let column = self.projection.get(position).copied().unwrap_or_default();
                let meta = index.mini_page(page, column).ok_or_else(damaged)?;
                let (offset, length) = (start + meta.offset_bytes, u64::from(meta.length_bytes));
                if offset + length > end {
                    return Err(damaged());
                }
                if let Some(slot) = mini_pages.get_mut(position) {
                    *slot = Some((meta, needed.len()));
                }
                needed.push(Needed { offset, length });
            }
            let mini_pages = mini_pages.into_iter().flatten().collect();
            let number = stripe.first_page + u64::from(first_slot);
            pages.push_back(PlannedPage { segment: Arc::clone(segment), number, rows, mini_pages });
        }
        let (extents, places) = plan(&needed, self.merge_gap_bytes, max_request_bytes);
        Ok(StripePlan { extents, places, pages })
    }
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
    /// In the order of the projection; the number of its place in the plan.
    mini_pages: Vec<(MiniPageMeta, usize)>,
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

    /// Bytes read or being read and not yet handed out.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// The next batch, for blocking threads.
    pub fn next_blocking(&mut self) -> Option<Result<RecordBatch>> {
        block_on(std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)))
    }

    fn poll_batch(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        loop {
            // Prepared early, so that its index is there when the reads of the stripe before have been submitted.
            let prepared = self.poll_prepare(context)?;
            self.submit();
            while !self.first_page_is_complete() && !self.batch_is_idle() {
                match Pin::new(&mut self.batch).poll_next(context) {
                    Poll::Ready(Some(Ok((index, completion)))) => self.store(index, completion),
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(self.located(error)))),
                    Poll::Ready(None) => break,
                    Poll::Pending => return Poll::Pending,
                }
            }
            if self.first_page_is_complete()
                && let Some(page) = self.pages.pop_front()
            {
                return Poll::Ready(Some(self.decode(page)));
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
        let Some(segment) = plan.pages.front().map(|page| Arc::clone(&page.segment)) else { return };
        self.unsubmitted.extend(plan.extents.iter().map(|&extent| (Arc::clone(&segment), extent)));
        for page in plan.pages {
            let mini_pages: Vec<(MiniPageMeta, Place)> = page
                .mini_pages
                .into_iter()
                .filter_map(|(meta, place)| {
                    let place = plan.places.get(place)?;
                    Some((meta, Place { extent: base + place.extent, ..*place }))
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
        // Requests go out in groups, not one for each page handed out.
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
            // Opened for the page index before; the error would have come there.
            let Ok(file) = segment.file() else { break };
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
        if let (Some((slot, _)), Some(buffer)) =
            (self.buffers.get_mut(index.wrapping_sub(self.first_buffer)), completion.into_buffer())
        {
            *slot = Some(into_buffer(buffer));
        }
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

    fn decode(&mut self, page: PendingPage) -> Result<RecordBatch> {
        let rows = page.rows as usize;
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(page.mini_pages.len() + 1);
        for ((meta, place), field) in page.mini_pages.iter().zip(self.scan.schema.fields()) {
            let bytes = if place.length == 0 {
                Buffer::default()
            } else {
                let buffer =
                    self.buffer(place.extent).filter(|buffer| place.start + place.length <= buffer.len());
                buffer.map(|buffer| buffer.slice_with_length(place.start, place.length)).unwrap_or_default()
            };
            let array = decode_mini_page(bytes, field, rows, meta);
            arrays.push(array.map_err(|error| page.segment.in_page(page.number, error))?);
        }
        if self.scan.options.row_ids {
            let first = RowId::new(page.segment.page_number(page.number), 0).to_bits();
            arrays.push(Arc::new((first..first + rows as u64).collect::<UInt64Array>()));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.scan.schema), arrays, &options)?;
        self.scan.counts.rows.fetch_add(rows as u64, Ordering::Relaxed);
        self.scan.counts.pages_read.fetch_add(1, Ordering::Relaxed);
        self.release(page.end_extent);
        Ok(batch)
    }

    /// Lets go of the extents that no later page needs.
    fn release(&mut self, end_extent: usize) {
        let needed_from = self.pages.front().map_or(end_extent, |next| next.first_extent);
        while self.first_buffer < needed_from {
            let Some((_, length)) = self.buffers.pop_front() else { break };
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
