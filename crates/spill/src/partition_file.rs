//! The spilled pages of one partition: where they lie, and how they come back.
//!
//! ```text
//!   extent 0                       extent 1
//!   ┌────┬────┬──────┬────┬─────┐  ┌────┬────┬───────────┐
//!   │ p0 │ p1 │  p2  │ p3 │ gap │  │ p4 │ p5 │   free    │     pages: multiples of 4 KiB, in write order
//!   └────┴────┴──────┴────┴─────┘  └────┴────┴───────────┘
//!   └── one read ────┘└─ next ─┘   └─ next ─┘
//! ```
//!
//! Pages written together lie next to each other, so a flush becomes one write per partition and extent, and
//! reading back takes few requests, as large as the device's profile asks for, several of them outstanding.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_buffer::Buffer;
use bytes::Bytes;
use nandina_device::{AlignedBuffer, BLOCK_BYTES, Batch, Completion, File, Request, WriteBuffer};
use nandina_pages::{Page, PageSchema, Verify};

use crate::error::{Result, SpillError};
use crate::temp_space::{Extent, QuerySpace};

/// Largest extent that a read of spilled pages covers.
pub const MAX_READ_BYTES: usize = 1 << 20;
/// Smallest read, where memory is short.
pub const MIN_READ_BYTES: usize = 64 << 10;

/// A page that will not grow any more: encoded, checksummed, padded to 4 KiB, ready to be written as it is.
#[derive(Clone, Debug)]
pub struct SealedPage {
    bytes: Bytes,
    rows: u32,
}

impl SealedPage {
    pub(crate) fn new(buffer: AlignedBuffer, rows: u32) -> Self {
        Self { bytes: buffer.freeze(), rows }
    }

    /// Rows in the page.
    pub fn rows(&self) -> usize {
        self.rows as usize
    }

    /// Bytes the page occupies, in memory as on the device.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Opens the page where it lies, without copying.
    pub fn open(&self, schema: &Arc<PageSchema>) -> Result<Page> {
        Ok(Page::open(Buffer::from(self.bytes.clone()), Arc::clone(schema), Verify::Trusted)?)
    }
}

/// The bytes of a write, and the extent they go to: a cancelled query drops its files while writes are in
/// flight, and the extent must not find its next owner before they have landed.
struct PinnedWrite {
    bytes: Bytes,
    _extent: Arc<Extent>,
}

impl AsRef<[u8]> for PinnedWrite {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The pages of one partition on the device, in the order in which they were appended.
///
/// Where a page lies is not kept: it follows from the lengths of those before it ([`Place::of_next`]). A spilled
/// terabyte is tens of millions of pages, whose places would take memory that the query needs.
#[derive(Debug)]
pub struct PartitionFile {
    space: Arc<QuerySpace>,
    extents: Vec<HeldExtent>,
    extent_bytes: usize,
    /// Where the next page goes, if it fits there.
    tail: Place,
    /// The length of every page, in blocks.
    page_blocks: Vec<u32>,
    rows: u64,
    bytes: u64,
}

impl PartitionFile {
    /// An empty file that grows by extents of `extent_bytes`.
    pub fn new(space: Arc<QuerySpace>, extent_bytes: usize) -> Self {
        let tail = Place { extent: 0, offset: 0 };
        Self { space, extents: Vec::new(), extent_bytes, tail, page_blocks: Vec::new(), rows: 0, bytes: 0 }
    }

    /// Rows in the file.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes of all pages.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of pages.
    pub fn pages(&self) -> usize {
        self.page_blocks.len()
    }

    /// Places `batch` behind what is there and returns the writes that put it there, one per extent it
    /// touches. The pages may be read once the writes have completed.
    pub fn append(&mut self, batch: Vec<SealedPage>) -> Result<Vec<(File, Request)>> {
        let mut writes: Vec<(File, Request)> = Vec::new();
        let mut run: Vec<WriteBuffer> = Vec::new();
        let mut run_start = self.tail;
        for page in batch {
            let len = page.len_bytes();
            let place = self.tail.of_next(&self.extents, len);
            if place.extent >= self.extents.len() {
                self.extents.push(HeldExtent::new(self.space.allocate(self.extent_bytes.max(len))?));
            }
            if place != self.tail {
                self.close_run(&mut run, run_start, &mut writes);
                run_start = place;
            }
            let Some(extent) = self.extent(place) else { continue };
            let write = PinnedWrite { bytes: page.bytes.clone(), _extent: Arc::clone(extent) };
            run.push(Bytes::from_owner(write).into());
            self.page_blocks.push((len / BLOCK_BYTES) as u32);
            self.tail = place.behind(len);
            self.rows += page.rows() as u64;
            self.bytes += len as u64;
        }
        self.close_run(&mut run, run_start, &mut writes);
        Ok(writes)
    }

    fn close_run(&self, run: &mut Vec<WriteBuffer>, run_start: Place, writes: &mut Vec<(File, Request)>) {
        if let Some(extent) = self.extent(run_start).filter(|_| !run.is_empty()) {
            let offset = extent.offset() + run_start.offset as u64;
            writes.push((extent.file().clone(), Request::Write { offset, buffers: std::mem::take(run) }));
        }
    }

    /// Bytes of the largest page.
    pub fn largest_page_bytes(&self) -> usize {
        self.page_blocks.iter().max().map_or(0, |&blocks| blocks as usize * BLOCK_BYTES)
    }

    /// Reads the pages back in order, with up to `window_bytes` of reads outstanding: as many as the device is to have
    /// at once, each as large as that leaves it, up to the smallest that reaches the device's bandwidth.
    ///
    /// A reader that nobody shares the file with gives its extents back as it goes.
    pub fn read(self: &Arc<Self>, schema: Arc<PageSchema>, window_bytes: usize) -> PartitionReader {
        let sizes = self.space.device().sizes();
        let reads = sizes.read_window_bytes() / sizes.read_bytes;
        let unit_bytes =
            (window_bytes / reads.max(1)).clamp(MIN_READ_BYTES, sizes.read_bytes.max(MIN_READ_BYTES));
        Self::read_in_units(Arc::clone(self), schema, window_bytes.max(MIN_READ_BYTES), unit_bytes)
    }

    /// The same in reads of about `unit_bytes`.
    pub(crate) fn read_in_units(
        file: Arc<Self>,
        schema: Arc<PageSchema>,
        window_bytes: usize,
        unit_bytes: usize,
    ) -> PartitionReader {
        PartitionReader {
            file,
            schema,
            window_bytes,
            unit_bytes,
            released_extents: 0,
            next_page: 0,
            next_place: Place { extent: 0, offset: 0 },
            reads: VecDeque::new(),
            reading_bytes: 0,
            pages: VecDeque::new(),
        }
    }

    /// The next run of pages that one read of about `unit_bytes` covers, from page `first` on, which comes behind
    /// what ends at `tail`.
    fn read_unit(&self, first: usize, tail: Place, unit_bytes: usize) -> Option<ReadUnit> {
        let place = tail.of_next(&self.extents, self.page_bytes(first)?);
        let mut unit = ReadUnit { place, first, end: first, len: 0 };
        while let Some(len) = self.page_bytes(unit.end) {
            let contiguous = unit.behind() == unit.behind().of_next(&self.extents, len);
            if unit.len > 0 && (!contiguous || unit.len + len > unit_bytes) {
                break;
            }
            unit.len += len;
            unit.end += 1;
        }
        Some(unit)
    }

    /// The extent that something lies in, unless it has been given back.
    fn extent(&self, place: Place) -> Option<&Arc<Extent>> {
        self.extents.get(place.extent)?.extent.as_ref()
    }

    fn page_bytes(&self, page: usize) -> Option<usize> {
        self.page_blocks.get(page).map(|&blocks| blocks as usize * BLOCK_BYTES)
    }
}

/// An extent of a [`PartitionFile`], and its length, which is known also when it has been given back.
#[derive(Debug)]
struct HeldExtent {
    extent: Option<Arc<Extent>>,
    len_bytes: usize,
}

impl HeldExtent {
    fn new(extent: Extent) -> Self {
        Self { len_bytes: extent.len_bytes() as usize, extent: Some(Arc::new(extent)) }
    }
}

/// Where something lies in a [`PartitionFile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// Number of the extent.
    extent: usize,
    /// Offset in it.
    offset: usize,
}

impl Place {
    /// Where the next page of `len` bytes lies, if everything before it ends here: here, or where it does not fit, at
    /// the start of the next extent.
    fn of_next(self, extents: &[HeldExtent], len: usize) -> Self {
        match extents.get(self.extent) {
            Some(extent) if self.offset + len > extent.len_bytes => {
                Self { extent: self.extent + 1, offset: 0 }
            }
            _ => self,
        }
    }

    fn behind(self, len: usize) -> Self {
        Self { offset: self.offset + len, ..self }
    }
}

/// Pages that lie behind each other, from `first` up to `end`.
#[derive(Clone, Copy, Debug)]
struct ReadUnit {
    place: Place,
    first: usize,
    end: usize,
    len: usize,
}

impl ReadUnit {
    fn behind(&self) -> Place {
        self.place.behind(self.len)
    }
}

/// Streams the pages of a [`PartitionFile`] in order.
#[derive(Debug)]
pub struct PartitionReader {
    file: Arc<PartitionFile>,
    schema: Arc<PageSchema>,
    window_bytes: usize,
    unit_bytes: usize,
    /// So many extents, from the first on, have been given back.
    released_extents: usize,
    next_page: usize,
    /// Where the page before it ends.
    next_place: Place,
    reads: VecDeque<(ReadUnit, Batch)>,
    reading_bytes: usize,
    pages: VecDeque<Page>,
}

impl PartitionReader {
    /// The next page, or `None` after the last; waits on the async runtime.
    pub async fn next(&mut self) -> Result<Option<Page>> {
        loop {
            if let Some(page) = self.pages.pop_front() {
                return Ok(Some(page));
            }
            self.read_ahead();
            let Some((unit, batch)) = self.reads.pop_front() else { return Ok(None) };
            let completions = batch.wait_async().await?;
            self.accept(unit, completions)?;
        }
    }

    /// Like [`PartitionReader::next`], blocking the thread.
    pub fn next_blocking(&mut self) -> Result<Option<Page>> {
        loop {
            if let Some(page) = self.pages.pop_front() {
                return Ok(Some(page));
            }
            self.read_ahead();
            let Some((unit, batch)) = self.reads.pop_front() else { return Ok(None) };
            let completions = batch.wait()?;
            self.accept(unit, completions)?;
        }
    }

    /// Submits reads until the window is full. [`PartitionReader::next`] does so by itself; calling it earlier
    /// gets the first pages on their way.
    pub fn read_ahead(&mut self) {
        while let Some(unit) = self.file.read_unit(self.next_page, self.next_place, self.unit_bytes) {
            // The window is a bound on memory, but one read is always possible.
            if self.reading_bytes > 0 && self.reading_bytes + unit.len > self.window_bytes {
                break;
            }
            let Some(extent) = self.file.extent(unit.place) else { break };
            let buffer = self.file.space.device().buffer(unit.len);
            let offset = extent.offset() + unit.place.offset as u64;
            let read = Request::Read { offset, buffer };
            let batch = extent.file().submit_for(vec![read], self.file.space.io());
            self.reading_bytes += unit.len;
            self.reads.push_back((unit, batch));
            self.next_page = unit.end;
            self.next_place = unit.behind();
        }
    }

    fn accept(&mut self, unit: ReadUnit, completions: Vec<Completion>) -> Result<()> {
        self.reading_bytes -= unit.len;
        let buffer = completions
            .into_iter()
            .next()
            .and_then(Completion::into_buffer)
            .ok_or(SpillError::LostRead { pages: unit.end - unit.first })?;
        let bytes = Buffer::from(buffer.freeze());
        let mut offset = 0;
        for &blocks in self.file.page_blocks.get(unit.first..unit.end).unwrap_or(&[]) {
            let len = blocks as usize * BLOCK_BYTES;
            let page = bytes.slice_with_length(offset, len);
            self.pages.push_back(Page::open(page, Arc::clone(&self.schema), Verify::Checksums)?);
            offset += len;
        }
        self.release_before(unit.place.extent);
        Ok(())
    }

    /// Gives back the extents before `end`, all of which has been read, if nobody else is to read them.
    fn release_before(&mut self, end: usize) {
        if let Some(file) = Arc::get_mut(&mut self.file) {
            let read = file.extents.get_mut(self.released_extents..end).unwrap_or_default();
            read.iter_mut().for_each(|held| held.extent = None);
            self.released_extents = end.max(self.released_extents);
        }
    }
}
