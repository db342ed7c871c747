//! Fetching rows by their ids, in bulk: every needed mini-page is read once, however many rows it holds, and reads go
//! out in deep batches.
//!
//! ```text
//!  row ids ──sort──► pages ──index──► mini-pages ──merge──► requests (window)
//!                                                              │
//!  batch in the order of the ids ◄──permute── take per page ◄──┘
//! ```

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_buffer::Buffer;
use arrow_schema::SchemaRef;
use futures::Stream;
use nandina_device::{IoAccount, Request, block_on};
use nandina_pages::{MiniPageMeta, decode_mini_page};

use crate::error::{Result, StorageError};
use crate::ids::{PageNumber, RowId};
use crate::page_index::{Stripe, StripeIndex, index_columns};
use crate::read_cache::CacheVisit;
use crate::read_plan::{Needed, Place, plan_beside};
use crate::segment::{Segment, into_buffer};
use crate::table::Table;

/// Page indexes loaded at once, and groups of pages decoded at once, are bounded by this many pages.
const GROUP_PAGES: usize = 1024;

#[derive(Debug, Clone, Default)]
pub struct FetchOptions {
    /// Most bytes read or being read at once; what suits the device if `None`.
    pub window_bytes: Option<usize>,
    /// Whether all columns of a page are read, as they are where rows are stored one behind the other.
    pub whole_pages: bool,
    /// Traffic is counted for this query too.
    pub account: Option<Arc<IoAccount>>,
    /// What others have read is looked for there first.
    pub cache: Option<CacheVisit>,
    /// Pages are counted here, each once per fetch.
    pub pages: Option<Arc<AtomicU64>>,
}

/// One page and the slots wanted of it, ascending.
struct WantedPage {
    segment: Arc<Segment>,
    /// In the segment.
    number: u64,
    slots: Vec<u32>,
    /// Its first row's position in the result in the order of the ids.
    rows: usize,
    /// In the order of the projection: position in it, and where the mini-page stands. Those that are read because whole
    /// pages are come behind.
    mini_pages: Vec<(usize, MiniPageMeta, Place)>,
    /// PlannedRead it needs: `first..end`, which pages before and behind it may share.
    first_extent: usize,
    end_extent: usize,
}

/// A page before its reads are planned. Its mini-pages are in the order of their offsets.
struct FoundPage {
    segment: Arc<Segment>,
    number: u64,
    slots: Vec<u32>,
    rows: usize,
    /// Where it begins in the file.
    start: u64,
    mini_pages: Vec<(usize, MiniPageMeta)>,
}

/// A read: of which segment, from where, and how long; what is there already has no length.
struct PlannedRead {
    segment: Arc<Segment>,
    offset: u64,
    length: u64,
    kept: Option<Buffer>,
}

impl Table {
    /// The rows of the given ids, in their order, repeated where ids are repeated. Ids must come from this snapshot.
    pub async fn fetch(
        &self,
        row_ids: &[RowId],
        projection: &[usize],
        options: &FetchOptions,
    ) -> Result<RecordBatch> {
        self.check_columns(projection)?;
        let schema: SchemaRef = Arc::new(self.schema().project(projection)?);
        let mut order: Vec<u32> = (0..row_ids.len() as u32).collect();
        let id_at = |position: u32| row_ids[position as usize];
        let sorted = row_ids.is_sorted();
        if !sorted {
            order.sort_by_key(|&position| id_at(position));
        }
        let by_page: Vec<&[u32]> = order.chunk_by(|&a, &b| id_at(a).page() == id_at(b).page()).collect();
        if let Some(pages) = &options.pages {
            pages.fetch_add(by_page.len() as u64, Ordering::Relaxed);
        }
        let mut pieces: Vec<Vec<ArrayRef>> = Vec::new();
        for group in by_page.chunks(GROUP_PAGES) {
            let wanted = group.iter().map(|positions| {
                let slots = positions.iter().map(|&position| u32::from(id_at(position).slot())).collect();
                (id_at(positions[0]).page(), slots)
            });
            self.fetch_pages(wanted.collect(), projection, options, &mut pieces).await?;
        }
        let back = inverse(&order);
        let mut arrays = Vec::with_capacity(projection.len());
        for column in 0..projection.len() {
            let of_column: Vec<&dyn Array> = pieces.iter().map(|piece| piece[column].as_ref()).collect();
            let array = match of_column.as_slice() {
                [] => arrow_array::new_empty_array(schema.field(column).data_type()),
                pieces => arrow_select::concat::concat(pieces)?,
            };
            arrays.push(if sorted { array } else { arrow_select::take::take(&array, &back, None)? });
        }
        let row_count = RecordBatchOptions::new().with_row_count(Some(row_ids.len()));
        Ok(RecordBatch::try_new_with_options(schema, arrays, &row_count)?)
    }

    /// [`fetch`](Self::fetch) for blocking threads.
    pub fn fetch_blocking(
        &self,
        row_ids: &[RowId],
        projection: &[usize],
        options: &FetchOptions,
    ) -> Result<RecordBatch> {
        block_on(self.fetch(row_ids, projection, options))
    }

    /// Reads the wanted slots of ascending pages; one piece of arrays per page is added to `pieces`.
    async fn fetch_pages(
        &self,
        wanted: Vec<(PageNumber, Vec<u32>)>,
        projection: &[usize],
        options: &FetchOptions,
        pieces: &mut Vec<Vec<ArrayRef>>,
    ) -> Result<()> {
        let mut read = projection.to_vec();
        if options.whole_pages {
            let all = 0..self.schema().fields().len();
            read.extend(all.filter(|column| !projection.contains(column)));
        }
        let indexes = self.load_indexes(&wanted, &read, options).await?;
        let mut found = Vec::with_capacity(wanted.len());
        for (page, slots) in wanted {
            let missing = || self.no_row(page, &slots);
            let (segment, stripe_number) = self.stripe_of(page, options).await?.ok_or_else(missing)?;
            let key = (segment.record.first_page, stripe_number);
            let (stripe, index) = indexes.get(&key).ok_or_else(missing)?;
            let number = page.0 - segment.record.first_page;
            let in_stripe = (number - stripe.first_page) as u32;
            let position = index.page_at_slot(in_stripe).ok_or_else(missing)?;
            let (_, page_slots, rows) = index.page(position);
            if slots.last().is_none_or(|&last| last >= rows) {
                return Err(missing());
            }
            let page_bytes = segment.shape.page_bytes as u64;
            let start = stripe.offset + u64::from(in_stripe) * page_bytes;
            let mut mini_pages = Vec::with_capacity(read.len());
            for (at, &column) in read.iter().enumerate() {
                let meta = index
                    .mini_page(position, column)
                    .filter(|meta| meta.range().end as u64 <= u64::from(page_slots) * page_bytes);
                let damaged = || StorageError::damaged(segment.location(), "a page index contradicts itself");
                mini_pages.push((at, meta.ok_or_else(damaged)?));
            }
            mini_pages.sort_unstable_by_key(|(_, meta)| meta.offset_bytes);
            found.push(FoundPage { segment, number, slots, rows: rows as usize, start, mini_pages });
        }
        let (pages, extents) = self.planned(found, options)?;
        self.read_pages(pages, extents, projection, options, pieces).await
    }

    /// The reads for ascending pages: those of neighbouring pages are merged as a scan's are, so that fetching most pages is
    /// a scan of them.
    fn planned(
        &self,
        found: Vec<FoundPage>,
        options: &FetchOptions,
    ) -> Result<(Vec<WantedPage>, Vec<PlannedRead>)> {
        let sizes = self.store().device().sizes();
        let mut pages: Vec<WantedPage> = Vec::with_capacity(found.len());
        let mut extents: Vec<PlannedRead> = Vec::new();
        let mut found = found.into_iter().peekable();
        while let Some(first) = found.next() {
            let segment = Arc::clone(&first.segment);
            let mut of_segment = vec![first];
            while let Some(next) = found.next_if(|next| Arc::ptr_eq(&next.segment, &segment)) {
                of_segment.push(next);
            }
            let ranges = of_segment
                .iter()
                .flat_map(|page| page.mini_pages.iter().map(|(_, meta)| Needed::mini_page(page.start, meta)));
            let needed: Vec<Needed> = ranges.collect();
            if !needed.is_sorted_by_key(|range| range.offset) {
                return Err(StorageError::damaged(segment.location(), "a page index contradicts itself"));
            }
            let base = extents.len();
            let kept = options.cache.as_ref().map(|cache| cache.find(segment.key(), &needed));
            let (gap_bytes, read_bytes) = (sizes.gap_bytes as u64, sizes.read_bytes as u64);
            let (planned, places) = plan_beside(kept.unwrap_or_default(), &needed, gap_bytes, read_bytes);
            extents.extend(planned.into_iter().map(|(extent, kept)| PlannedRead {
                segment: Arc::clone(&segment),
                offset: extent.offset,
                length: if kept.is_some() { 0 } else { extent.length },
                kept,
            }));
            let mut places = places.into_iter();
            for page in of_segment {
                let placed = page.mini_pages.into_iter().zip(places.by_ref());
                let placed = placed
                    .map(|((at, meta), place)| (at, meta, Place { extent: base + place.extent, ..place }));
                let mut mini_pages: Vec<_> = placed.collect();
                mini_pages.sort_unstable_by_key(|&(at, ..)| at);
                let read = || {
                    mini_pages
                        .iter()
                        .filter(|(_, _, place)| place.length > 0)
                        .map(|(_, _, place)| place.extent)
                };
                // Where there is nothing to read, what was read last is kept: the next page may share it.
                let before = pages.last().map_or(0, |page| page.end_extent);
                let first_extent = read().min().unwrap_or(before.saturating_sub(1));
                let end_extent = read().max().map_or(before, |last| last + 1);
                let FoundPage { segment, number, slots, rows, .. } = page;
                pages.push(WantedPage { segment, number, slots, rows, mini_pages, first_extent, end_extent });
            }
        }
        Ok((pages, extents))
    }

    /// Reads the extents in a window and takes the wanted rows page by page.
    async fn read_pages(
        &self,
        pages: Vec<WantedPage>,
        mut extents: Vec<PlannedRead>,
        projection: &[usize],
        options: &FetchOptions,
        pieces: &mut Vec<Vec<ArrayRef>>,
    ) -> Result<()> {
        let device = self.store().device();
        let window_bytes =
            options.window_bytes.unwrap_or_else(|| device.sizes().small_read_window_bytes()) as u64;
        let mut batch = device.batch(options.account.as_ref());
        let mut buffers: Vec<Option<Buffer>> = extents.iter_mut().map(|extent| extent.kept.take()).collect();
        let mut requested = Vec::new();
        let (mut submitted, mut released, mut held_bytes) = (0, 0, 0);
        let mut pages = pages.into_iter().peekable();
        while let Some(page) = pages.next() {
            while released < page.end_extent && !all_read(&buffers, released, page.end_extent) {
                let mut requests = Vec::new();
                // In groups: refill when a quarter of the window is free, or when this page waits for it.
                if submitted < page.end_extent || held_bytes <= window_bytes / 4 * 3 {
                    while let Some(PlannedRead { segment, offset, length, .. }) = extents.get(submitted) {
                        if submitted >= page.end_extent && held_bytes + length > window_bytes {
                            break;
                        }
                        let is_kept = *length == 0;
                        if !is_kept {
                            let request = Request::read(*offset, device.buffer(*length as usize));
                            requests.push((segment.file()?.clone(), request));
                            requested.push(submitted);
                        }
                        held_bytes += length;
                        submitted += 1;
                    }
                }
                if !requests.is_empty() {
                    batch.add(requests);
                }
                let next = std::future::poll_fn(|context| Pin::new(&mut batch).poll_next(context)).await;
                let Some(finished) = next else { unreachable!("a page waits for what is being read") };
                let (at, completion) = finished.map_err(|source| StorageError::PageRead {
                    file: page.segment.location(),
                    page: page.number,
                    source,
                })?;
                let (at, buffer) = (requested[at], completion.into_buffer().map(into_buffer));
                if let Some((cache, buffer)) = options.cache.as_ref().zip(buffer.as_ref()) {
                    let PlannedRead { segment, offset, .. } = &extents[at];
                    cache.offer(segment.key(), *offset, buffer);
                }
                buffers[at] = buffer;
            }
            let rows = self.take_rows(&page, &buffers, projection).inspect_err(|_| {
                options.cache.iter().for_each(|cache| cache.forget(page.segment.key()));
            });
            pieces.push(rows?);
            let needed_from = pages.peek().map_or(page.end_extent, |next| next.first_extent);
            while released < needed_from {
                held_bytes -= extents[released].length;
                buffers[released] = None;
                released += 1;
            }
        }
        Ok(())
    }

    fn take_rows(
        &self,
        page: &WantedPage,
        buffers: &[Option<Buffer>],
        projection: &[usize],
    ) -> Result<Vec<ArrayRef>> {
        let slots = UInt32Array::from(page.slots.clone());
        let mut arrays = Vec::with_capacity(projection.len());
        for ((_, meta, place), &column) in page.mini_pages.iter().zip(projection) {
            let bytes = place.slice(buffers.get(place.extent).and_then(Option::as_ref));
            let field = self.schema().field(column);
            let array = decode_mini_page(bytes, field, page.rows, meta)
                .map_err(|error| page.segment.in_page(page.number, error))?;
            let taken = arrow_select::take::take(&array, &slots, None)?;
            // A few texts would keep those of their whole page.
            let all = page.slots.len() == page.rows;
            arrays.push(if all { taken } else { nandina_pages::with_own_buffers(&taken)? });
        }
        Ok(arrays)
    }

    async fn stripe_of(
        &self,
        page: PageNumber,
        options: &FetchOptions,
    ) -> Result<Option<(Arc<Segment>, usize)>> {
        let Some(segment) = self.segment_of(page) else { return Ok(None) };
        let directory = segment.directory(options.account.as_ref()).await?;
        let stripe = directory.stripe_of(page.0 - segment.record.first_page);
        Ok(stripe.map(|stripe| (Arc::clone(segment), stripe)))
    }

    /// Page indexes of all stripes that hold wanted pages, by segment and stripe; read side by side.
    async fn load_indexes(
        &self,
        wanted: &[(PageNumber, Vec<u32>)],
        projection: &[usize],
        options: &FetchOptions,
    ) -> Result<BTreeMap<(u64, usize), (Stripe, Arc<StripeIndex>)>> {
        let columns = index_columns(projection, &[]);
        let mut stripes: BTreeMap<(u64, usize), (Arc<Segment>, Stripe)> = BTreeMap::new();
        for (page, slots) in wanted {
            let missing = || self.no_row(*page, slots);
            let (segment, number) = self.stripe_of(*page, options).await?.ok_or_else(missing)?;
            let directory = segment.directory(options.account.as_ref()).await?;
            stripes.insert((segment.record.first_page, number), (segment, directory.stripes[number]));
        }
        let cache = self.index_cache();
        let loads = stripes.into_iter().map(|(key, (segment, stripe))| {
            let columns = &columns;
            async move {
                if let Some(index) = cache.get(key, columns) {
                    return Ok((key, (stripe, index)));
                }
                let index = segment.stripe_index(&stripe, columns, options.account.as_ref()).await?;
                let index = Arc::new(index);
                cache.put(key, &index);
                Ok((key, (stripe, index)))
            }
        });
        futures::future::try_join_all(loads).await.map(BTreeMap::from_iter)
    }

    fn no_row(&self, page: PageNumber, slots: &[u32]) -> StorageError {
        let slot = slots.last().copied().unwrap_or(0) as u16;
        StorageError::NoRow { table: self.name().to_owned(), row_id: RowId::new(page, slot) }
    }
}

fn all_read(buffers: &[Option<Buffer>], from: usize, to: usize) -> bool {
    buffers[from..to].iter().all(Option::is_some)
}

/// Where each position went.
fn inverse(order: &[u32]) -> UInt32Array {
    let mut inverse = vec![0u32; order.len()];
    for (to, &from) in order.iter().enumerate() {
        inverse[from as usize] = to as u32;
    }
    inverse.into()
}
