//! Reading a share of a scan.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use arrow_array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_buffer::Buffer;
use arrow_select::filter::{FilterBuilder, FilterPredicate};
use futures::future::BoxFuture;
use futures::{FutureExt as _, Stream};
use nandina_device::{Batch, Completion, Request, block_on};
use nandina_pages::MiniPageMeta;

use super::Scan;
use super::filter_first::{Kept, Survivors, Undecided};
use crate::error::{Result, StorageError};
use crate::ids::RowId;
use crate::read_plan::{Extent, Extents, Place};
use crate::row_filter::{PageColumns, ReadColumn};
use crate::segment::{Segment, into_buffer};

/// Pages without matching rows that may be decoded one after the other before other tasks get their turn.
const PAGES_PER_POLL: usize = 16;

/// The reads of one stripe.
pub(super) struct StripePlan {
    pub extents: Extents,
    pub places: Vec<Place>,
    pub pages: VecDeque<PlannedPage>,
}

pub(super) struct PlannedPage {
    pub segment: Arc<Segment>,
    /// In the segment.
    pub number: u64,
    pub rows: u32,
    /// Where it begins in the file.
    pub start: u64,
    /// In the order of the scan's columns: position among them, and the number of its place in the plan.
    pub mini_pages: Vec<(usize, MiniPageMeta, usize)>,
    /// What is read if the filter keeps a row, if that is known by then, in the order of the table's columns.
    pub later: Option<Vec<(usize, MiniPageMeta)>>,
}

/// A page whose extents have numbers in the reader's sequence.
pub(super) struct PendingPage {
    pub segment: Arc<Segment>,
    pub number: u64,
    pub rows: u32,
    pub mini_pages: Vec<(usize, MiniPageMeta, Place)>,
    pub work: Work,
    /// Extents it needs: `first..end`, empty without columns.
    pub first_extent: usize,
    pub end_extent: usize,
}

/// A page of a table.
pub(super) struct TablePage {
    pub segment: Arc<Segment>,
    /// In the segment.
    pub number: u64,
    pub rows: u32,
}

/// What is to be done with a page when its extents are there.
pub(super) enum Work {
    /// All of it.
    Whole,
    /// Only the columns of the filter are.
    Decide(Undecided),
    /// The other ones are, and the filter keeps a row.
    Finish(Kept),
}

/// An extent that the device was asked for.
struct Requested {
    number: usize,
    segment: Arc<Segment>,
    offset: u64,
}

/// Reads its share of a [`Scan`], as a [`Stream`] or blocking.
pub struct ScanReader {
    scan: Arc<Scan>,
    batch: Batch,
    window_bytes: usize,
    /// Buffers of submitted extents, from number `first_buffer` on; `None` while in flight.
    buffers: VecDeque<(Option<Buffer>, u64)>,
    first_buffer: usize,
    /// Length of all `buffers`, and what is known of rows whose other columns are to be read.
    held_bytes: u64,
    pages: VecDeque<PendingPage>,
    unsubmitted: VecDeque<(Arc<Segment>, Extent, Option<Buffer>)>,
    /// The extents of the batch's requests, from number `first_request` on.
    requested: VecDeque<Requested>,
    first_request: usize,
    preparing: Option<BoxFuture<'static, Result<Option<StripePlan>>>>,
    prepared: Option<StripePlan>,
    exhausted: bool,
    pub(super) survivors: Survivors,
    /// Nothing comes behind an error: rows would be missing.
    has_failed: bool,
}

impl ScanReader {
    pub(super) fn new(scan: &Arc<Scan>) -> Self {
        let device = scan.table.store().device();
        let batch = device.batch(scan.options.account.as_ref());
        let window_bytes = scan.options.window_bytes.unwrap_or_else(|| device.sizes().read_window_bytes());
        Self {
            scan: Arc::clone(scan),
            batch,
            window_bytes,
            buffers: VecDeque::new(),
            first_buffer: 0,
            held_bytes: 0,
            pages: VecDeque::new(),
            unsubmitted: VecDeque::new(),
            requested: VecDeque::new(),
            first_request: 0,
            preparing: None,
            prepared: None,
            exhausted: false,
            survivors: Survivors::default(),
            has_failed: false,
        }
    }

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
                let segment = page.segment.key();
                if let Some(batch) = self.work(page).transpose() {
                    if let (Err(_), Some(cache)) = (&batch, &self.scan.options.cache) {
                        cache.forget(segment);
                    }
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
                    assert!(self.survivors.is_empty(), "pages with rows are read before a scan ends");
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
            let max_request_bytes = self.max_request_bytes();
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

    pub(super) fn window_bytes(&self) -> usize {
        self.window_bytes
    }

    /// Whether a column, by its position among the scan's, is not only there for the filter.
    pub(super) fn is_handed_out(&self, position: usize) -> bool {
        position < self.scan.handed_out
    }

    /// Counts memory that is held beside buffers.
    pub(super) fn hold(&mut self, bytes: u64) {
        self.held_bytes += bytes;
    }

    pub(super) fn count_filtered(&self) {
        self.scan.counts.pages_filtered.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn max_request_bytes(&self) -> u64 {
        self.scan.request_bytes.min(self.window_bytes as u64 / 2).max(1)
    }

    fn enqueue(&mut self, plan: StripePlan) {
        let last = plan.pages.len() - 1;
        let base = self.add_extents(&plan.pages[0].segment, plan.extents);
        for (number, page) in plan.pages.into_iter().enumerate() {
            let placed = page
                .mini_pages
                .into_iter()
                .map(|(position, meta, place)| (position, meta, plan.places[place]));
            let work = match page.later {
                None => Work::Whole,
                Some(later) => Work::Decide(Undecided { start: page.start, later, is_last: number == last }),
            };
            let page = TablePage { segment: page.segment, number: page.number, rows: page.rows };
            self.add_page(base, page, placed, work);
        }
    }

    /// Adds extents to be submitted, and says which number the first of them has.
    pub(super) fn add_extents(&mut self, segment: &Arc<Segment>, extents: Extents) -> usize {
        let base = self.first_buffer + self.buffers.len() + self.unsubmitted.len();
        let extents = extents.into_iter().map(|(extent, kept)| (Arc::clone(segment), extent, kept));
        self.unsubmitted.extend(extents);
        base
    }

    /// Adds a page to be worked on when its extents are there, which are numbered from `base` on.
    pub(super) fn add_page(
        &mut self,
        base: usize,
        page: TablePage,
        placed: impl Iterator<Item = (usize, MiniPageMeta, Place)>,
        work: Work,
    ) {
        let numbered = placed
            .map(|(position, meta, place)| (position, meta, Place { extent: base + place.extent, ..place }));
        let mini_pages: Vec<_> = numbered.collect();
        let extents =
            || mini_pages.iter().filter(|(_, _, place)| place.length > 0).map(|(_, _, place)| place.extent);
        let first_extent = extents().min().unwrap_or(base);
        let end_extent = extents().max().map_or(first_extent, |last| last + 1);
        let TablePage { segment, number, rows } = page;
        self.pages.push_back(PendingPage {
            segment,
            number,
            rows,
            mini_pages,
            work,
            first_extent,
            end_extent,
        });
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
        let (mut requests, mut taken) = (Vec::new(), 0);
        while let Some((_, extent, _)) = self.unsubmitted.front() {
            // What is kept counts, too: it may leave the cache while this reader holds it.
            let length = extent.length;
            let fits = self.held_bytes + length <= window_bytes;
            if !fits && taken >= first_needs && !self.buffers.is_empty() {
                break;
            }
            let Some((segment, extent, kept)) = self.unsubmitted.pop_front() else {
                unreachable!("it is there")
            };
            if kept.is_none() {
                let Ok(file) = segment.file() else { unreachable!("it was opened for the page index") };
                let buffer = device.buffer(extent.length as usize);
                requests.push((file.clone(), Request::read(extent.offset, buffer)));
                let number = self.first_buffer + self.buffers.len();
                self.requested.push_back(Requested { number, segment, offset: extent.offset });
            }
            self.buffers.push_back((kept, length));
            self.held_bytes += length;
            taken += 1;
        }
        if requests.is_empty() {
            return;
        }
        let bytes = requests.iter().map(|(_, request)| request_bytes(request)).sum();
        self.scan.counts.bytes_read.fetch_add(bytes, Ordering::Relaxed);
        self.scan.counts.requests.fetch_add(requests.len() as u64, Ordering::Relaxed);
        // Requests of a batch are numbered in the order they are added.
        self.batch.add(requests);
    }

    fn store(&mut self, index: usize, completion: Completion) {
        let Requested { number, segment, offset } = &self.requested[index - self.first_request];
        let buffer = completion.into_buffer().map(into_buffer);
        if let Some((cache, buffer)) = self.scan.options.cache.as_ref().zip(buffer.as_ref()) {
            cache.offer(segment.key(), *offset, buffer);
        }
        self.buffers[number - self.first_buffer].0 = buffer;
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

    /// The rows that come of a page, if any do.
    fn work(&mut self, page: PendingPage) -> Result<Option<RecordBatch>> {
        let batch = match &page.work {
            Work::Whole => self.decode(&page)?,
            Work::Decide(undecided) => {
                let survivor = self.decide(&page, undecided)?;
                self.release(page.end_extent);
                self.after_decision(page, survivor);
                return Ok(None);
            }
            Work::Finish(kept) => {
                self.held_bytes -= kept.bytes();
                Some(self.finish(&page, kept)?)
            }
        };
        self.release(page.end_extent);
        Ok(batch)
    }

    /// The rows of a page that the row filter keeps; `None` if it keeps none.
    fn decode(&self, page: &PendingPage) -> Result<Option<RecordBatch>> {
        let mut columns = self.columns_of(page);
        let keep = self.filtered(&mut columns, page)?;
        let kept = keep.as_ref().map_or(page.rows as usize, FilterPredicate::count);
        if kept == 0 {
            return Ok(None);
        }
        self.batch_of(&mut columns, &[], keep.as_ref(), kept, page).map(Some)
    }

    /// The rows of a page that the row filter keeps; all if `None`.
    pub(super) fn filtered(
        &self,
        columns: &mut PageColumns<'_>,
        page: &PendingPage,
    ) -> Result<Option<FilterPredicate>> {
        let rows = page.rows as usize;
        let keep = match &self.scan.options.row_filter {
            Some(filter) => filter.keep(columns).map_err(|source| filter_error(source, page))?,
            None => None,
        };
        assert!(keep.as_ref().is_none_or(|keep| keep.len() == rows), "there is one flag per row");
        let number = page.segment.page_number(page.number).0;
        let left = self.scan.options.deleted.as_ref().and_then(|deleted| deleted.others(number, rows));
        let keep = match (keep, left) {
            (Some(keep), Some(left)) => Some(BooleanArray::from(keep.values() & left.values())),
            (keep, left) => keep.or(left),
        };
        let keep = keep.map(|keep| FilterBuilder::new(&keep).optimize().build());
        let kept = keep.as_ref().map_or(rows, FilterPredicate::count);
        let counts = &self.scan.counts;
        counts.pages_read.fetch_add(1, Ordering::Relaxed);
        counts.rows.fetch_add(kept as u64, Ordering::Relaxed);
        counts.rows_filtered.fetch_add((rows - kept) as u64, Ordering::Relaxed);
        self.scan.hits.record(kept > 0);
        Ok(keep)
    }

    /// A batch of columns that have been read, and of those that are `known` already.
    pub(super) fn batch_of(
        &self,
        columns: &mut PageColumns<'_>,
        known: &[(usize, ArrayRef)],
        keep: Option<&FilterPredicate>,
        kept: usize,
        page: &PendingPage,
    ) -> Result<RecordBatch> {
        let keep = keep.filter(|_| kept < page.rows as usize);
        let filtered = |array: ArrayRef| match keep {
            Some(keep) => keep.filter(&array),
            None => Ok(array),
        };
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.scan.handed_out + 1);
        for position in 0..self.scan.handed_out {
            if let Some((_, array)) = known.iter().find(|(of, _)| *of == position) {
                arrays.push(Arc::clone(array));
                continue;
            }
            let read = page.mini_pages.iter().position(|(of, ..)| *of == position);
            let Some(read) = read else { unreachable!("a column is read or known") };
            arrays.push(filtered(columns.at(read)?)?);
        }
        if self.scan.options.row_ids.is_some() {
            let first = RowId::new(page.segment.page_number(page.number), 0).to_bits();
            arrays.push(filtered(Arc::new((first..first + u64::from(page.rows)).collect::<UInt64Array>()))?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(kept));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.scan.schema), arrays, &options)?)
    }

    pub(super) fn columns_of<'a>(&self, page: &'a PendingPage) -> PageColumns<'a> {
        let read = page.mini_pages.iter().map(|&(position, meta, place)| {
            let number = self.scan.columns[position];
            let bytes = place.slice(self.buffer(place.extent));
            let field = page.segment.shape.page_schema().arrow().field(number);
            ReadColumn { number, field, meta, bytes, decoded: None, dictionary: None }
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
        while self.requested.front().is_some_and(|request| request.number < self.first_buffer) {
            self.requested.pop_front();
            self.first_request += 1;
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
        if self.has_failed {
            return Poll::Ready(None);
        }
        let polled = self.poll_batch(context);
        self.has_failed = matches!(polled, Poll::Ready(Some(Err(_))));
        polled
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
