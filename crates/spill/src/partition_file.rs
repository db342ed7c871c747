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
//! reading back takes requests of [`MIN_READ_BYTES`] to [`MAX_READ_BYTES`], several of them outstanding.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_buffer::Buffer;
use bytes::Bytes;
use nandina_device::{AlignedBuffer, Batch, Completion, File, Request, WriteBuffer};
use nandina_pages::{Page, PageSchema, Verify};

use crate::error::{Result, SpillError};
use crate::temp_space::{Extent, QuerySpace};

/// Largest read of spilled pages: the device reaches its sequential bandwidth with a few of these outstanding
/// (docs/benchmarks/device.md).
pub const MAX_READ_BYTES: usize = 1 << 20;
/// Smallest read, where memory is short.
pub const MIN_READ_BYTES: usize = 64 << 10;
/// Reads outstanding that a window is divided into.
const READS_PER_WINDOW: usize = 6;

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

/// Where one page lies: extent, offset in it, length.
#[derive(Clone, Copy, Debug)]
struct PageSlot {
    extent: usize,
    offset: usize,
    len: usize,
}

/// The pages of one partition on the device, in the order in which they were appended.
#[derive(Debug)]
pub struct PartitionFile {
    space: Arc<QuerySpace>,
    extents: Vec<Arc<Extent>>,
    extent_bytes: usize,
    /// Bytes used in the last extent.
    tail: usize,
    slots: Vec<PageSlot>,
    rows: u64,
    bytes: u64,
}

impl PartitionFile {
    /// An empty file that grows by extents of `extent_bytes`.
    pub fn new(space: Arc<QuerySpace>, extent_bytes: usize) -> Self {
        Self { space, extents: Vec::new(), extent_bytes, tail: 0, slots: Vec::new(), rows: 0, bytes: 0 }
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
        self.slots.len()
    }

    /// Places `batch` behind what is there and returns the writes that put it there, one per extent it
    /// touches. The pages may be read once the writes have completed.
    pub fn append(&mut self, batch: Vec<SealedPage>) -> Result<Vec<(File, Request)>> {
        let mut writes: Vec<(File, Request)> = Vec::new();
        let mut run: Vec<WriteBuffer> = Vec::new();
        let mut run_start = self.tail;
        for page in batch {
            let len = page.len_bytes();
            let room = self.extents.last().map_or(0, |extent| extent.len_bytes() as usize - self.tail);
            if len > room {
                self.close_run(&mut run, run_start, &mut writes);
                self.extents.push(Arc::new(self.space.allocate(self.extent_bytes.max(len))?));
                self.tail = 0;
                run_start = 0;
            }
            let Some(extent) = self.extents.last() else { continue };
            let write = PinnedWrite { bytes: page.bytes.clone(), _extent: Arc::clone(extent) };
            run.push(Bytes::from_owner(write).into());
            self.slots.push(PageSlot { extent: self.extents.len() - 1, offset: self.tail, len });
            self.tail += len;
            self.rows += page.rows() as u64;
            self.bytes += len as u64;
        }
        self.close_run(&mut run, run_start, &mut writes);
        Ok(writes)
    }

    fn close_run(&self, run: &mut Vec<WriteBuffer>, run_start: usize, writes: &mut Vec<(File, Request)>) {
        if let Some(extent) = self.extents.last().filter(|_| !run.is_empty()) {
            let offset = extent.offset() + run_start as u64;
            writes.push((extent.file().clone(), Request::Write { offset, buffers: std::mem::take(run) }));
        }
    }

    /// Reads the pages back in order, with up to `window_bytes` of reads outstanding.
    pub fn read(self: &Arc<Self>, schema: Arc<PageSchema>, window_bytes: usize) -> PartitionReader {
        PartitionReader {
            file: Arc::clone(self),
            schema,
            window_bytes: window_bytes.max(MIN_READ_BYTES),
            unit_bytes: (window_bytes / READS_PER_WINDOW).clamp(MIN_READ_BYTES, MAX_READ_BYTES),
            next_slot: 0,
            reads: VecDeque::new(),
            reading_bytes: 0,
            pages: VecDeque::new(),
        }
    }

    /// The next run of slots that one read of about `unit_bytes` covers, from `first` on.
    fn read_unit(&self, first: usize, unit_bytes: usize) -> Option<ReadUnit> {
        let start = *self.slots.get(first)?;
        let mut len = start.len;
        let mut end = first + 1;
        while let Some(slot) = self.slots.get(end) {
            let contiguous = slot.extent == start.extent && slot.offset == start.offset + len;
            if !contiguous || len + slot.len > unit_bytes {
                break;
            }
            len += slot.len;
            end += 1;
        }
        Some(ReadUnit { first, end, len })
    }
}

#[derive(Clone, Copy, Debug)]
struct ReadUnit {
    first: usize,
    end: usize,
    len: usize,
}

/// Streams the pages of a [`PartitionFile`] in order.
#[derive(Debug)]
pub struct PartitionReader {
    file: Arc<PartitionFile>,
    schema: Arc<PageSchema>,
    window_bytes: usize,
    unit_bytes: usize,
    next_slot: usize,
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
        while let Some(unit) = self.file.read_unit(self.next_slot, self.unit_bytes) {
            // The window is a bound on memory, but one read is always possible.
            if self.reading_bytes > 0 && self.reading_bytes + unit.len > self.window_bytes {
                break;
            }
            let Some((slot, extent)) = self
                .file
                .slots
                .get(unit.first)
                .and_then(|slot| self.file.extents.get(slot.extent).map(|extent| (slot, extent)))
            else {
                break;
            };
            let buffer = self.file.space.device().buffer(unit.len);
            let offset = extent.offset() + slot.offset as u64;
            let read = Request::Read { offset, buffer };
            let batch = extent.file().submit_for(vec![read], self.file.space.io());
            self.reading_bytes += unit.len;
            self.reads.push_back((unit, batch));
            self.next_slot = unit.end;
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
        for slot in self.file.slots.get(unit.first..unit.end).unwrap_or(&[]) {
            let page = bytes.slice_with_length(offset, slot.len);
            self.pages.push_back(Page::open(page, Arc::clone(&self.schema), Verify::Checksums)?);
            offset += slot.len;
        }
        Ok(())
    }
}
