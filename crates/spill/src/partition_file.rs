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
//! Where pages are [compressed](crate::compression), several become one group, which lies there like a page.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_buffer::Buffer;
use bytes::Bytes;
use nandina_device::{AlignedBuffer, BLOCK_BYTES, Batch, Completion, File, Request, WriteBuffer, block_on};
use nandina_pages::{Page, PageSchema, Verify};

use crate::compression::{Group, MAX_GROUP_BYTES, Outgoing};
use crate::error::{Result, SpillError};
use crate::sealed_page::SealedPage;
use crate::temp_space::{Extent, QuerySpace};

/// Largest extent that a read of spilled pages covers.
pub const MAX_READ_BYTES: usize = 1 << 20;
/// Smallest read, where memory is short.
pub const MIN_READ_BYTES: usize = 64 << 10;

/// What lies in one piece: a page, or a group of packed ones.
#[derive(Clone, Copy, Debug)]
struct Piece(u32);

impl Piece {
    /// Set in the length of a group. No piece has so many blocks.
    const GROUP: u32 = 1 << 31;

    fn page(bytes: usize) -> Self {
        Self((bytes / BLOCK_BYTES) as u32)
    }

    fn group(bytes: usize) -> Self {
        Self((bytes / BLOCK_BYTES) as u32 | Self::GROUP)
    }

    fn is_group(self) -> bool {
        self.0 & Self::GROUP != 0
    }

    fn len_bytes(self) -> usize {
        (self.0 & !Self::GROUP) as usize * BLOCK_BYTES
    }
}

/// How many pages of a batch, in turn, become which pieces. Groups are no longer than `most_bytes`, unless a single page
/// is.
fn pieces_of(batch: &[Outgoing], most_bytes: usize) -> Vec<(usize, Piece)> {
    let mut pieces = Vec::new();
    let (mut pages, mut bytes) = (0, 0);
    for page in batch {
        let packed_bytes = match page {
            Outgoing::Plain(_) => None,
            Outgoing::Packed(page) => Some(page.len_bytes()),
        };
        let fits = packed_bytes.is_some_and(|len| Group::len_bytes(pages + 1, bytes + len) <= most_bytes);
        if pages > 0 && !fits {
            pieces.push((pages, Piece::group(Group::len_bytes(pages, bytes))));
            (pages, bytes) = (0, 0);
        }
        match packed_bytes {
            Some(len) => (pages, bytes) = (pages + 1, bytes + len),
            None => pieces.push((1, Piece::page(page.page_bytes()))),
        }
    }
    if pages > 0 {
        pieces.push((pages, Piece::group(Group::len_bytes(pages, bytes))));
    }
    pieces
}

/// The bytes of a write, and the extent they go to: a cancelled query drops its files while writes are in
/// flight, and the extent must not find its next owner before they have landed.
pub(crate) struct PinnedWrite {
    bytes: Bytes,
    _extent: Arc<Extent>,
}

impl PinnedWrite {
    pub fn of(bytes: Bytes, extent: &Arc<Extent>) -> WriteBuffer {
        Bytes::from_owner(Self { bytes, _extent: Arc::clone(extent) }).into()
    }
}

impl AsRef<[u8]> for PinnedWrite {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The pages of one partition on the device, in the order in which they were appended.
///
/// Where a piece lies is not kept: it follows from the lengths of those before it ([`Place::of_next`]). A spilled
/// terabyte is tens of millions of pages, whose places would take memory that the query needs.
#[derive(Debug)]
pub struct PartitionFile {
    space: Arc<QuerySpace>,
    extents: Vec<HeldExtent>,
    extent_bytes: usize,
    /// Where the next piece goes, if it fits there.
    tail: Place,
    pieces: Vec<Piece>,
    pages: usize,
    rows: u64,
    bytes: u64,
    /// The most that one piece or one page of it takes in memory.
    largest_bytes: usize,
}

impl PartitionFile {
    /// An empty file that grows by extents of `extent_bytes`.
    pub fn new(space: Arc<QuerySpace>, extent_bytes: usize) -> Self {
        let tail = Place { extent: 0, offset: 0 };
        let (extents, pieces) = (Vec::new(), Vec::new());
        Self { space, extents, extent_bytes, tail, pieces, pages: 0, rows: 0, bytes: 0, largest_bytes: 0 }
    }

    /// Rows in the file.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes of all pages, as they will be in memory.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of pages.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Appends `batch`, uncompressed, and returns the writes that store it, one per extent it touches. The pages may be
    /// read once the writes have completed. Where there is no room for all of it, nothing changes.
    pub fn append(&mut self, batch: Vec<SealedPage>) -> Result<Vec<(File, Request)>> {
        self.append_outgoing(&mut batch.into_iter().map(Outgoing::Plain).collect())
    }

    /// The same for pages some of which are packed. They are taken out of `batch`, if there is room for all.
    pub(crate) fn append_outgoing(&mut self, batch: &mut Vec<Outgoing>) -> Result<Vec<(File, Request)>> {
        let pieces = pieces_of(batch, MAX_GROUP_BYTES.min(self.extent_bytes));
        self.make_room(&pieces)?;
        let mut writes: Vec<(File, Request)> = Vec::new();
        let mut run: Vec<WriteBuffer> = Vec::new();
        let mut run_start = self.tail;
        let mut batch = batch.drain(..);
        for (pages, piece) in pieces {
            let place = self.tail.of_next(&self.extents, piece.len_bytes());
            if place != self.tail {
                self.close_run(&mut run, run_start, &mut writes);
                run_start = place;
            }
            let Some(extent) = self.extent(place).map(Arc::clone) else {
                unreachable!("room has been made for all pieces")
            };
            let bytes = self.bytes_of(batch.by_ref().take(pages));
            run.push(PinnedWrite::of(bytes, &extent));
            self.pieces.push(piece);
            self.largest_bytes = self.largest_bytes.max(piece.len_bytes());
            self.tail = place.behind(piece.len_bytes());
        }
        self.close_run(&mut run, run_start, &mut writes);
        Ok(writes)
    }

    /// Writes pages, packed if that pays, and waits for it: for pages that the caller holds until then. Packed copies
    /// of them take no more memory than two groups of writes.
    pub async fn write(&mut self, pages: Vec<SealedPage>) -> Result<()> {
        let space = Arc::clone(&self.space);
        let group_bytes = space.device().sizes().write_group_bytes();
        let mut pages = pages.into_iter().peekable();
        let mut in_flight: Option<Batch> = None;
        while pages.peek().is_some() {
            let (mut group, mut bytes) = (Vec::new(), 0);
            while let Some(page) = pages.next_if(|_| bytes < group_bytes) {
                bytes += page.len_bytes();
                group.push(space.outgoing(page));
            }
            let writes = self.append_outgoing(&mut group)?;
            let batch = space.device().submit_many(writes, Some(space.io()));
            if let Some(earlier) = in_flight.replace(batch) {
                earlier.wait_async().await?;
            }
        }
        if let Some(last) = in_flight {
            last.wait_async().await?;
        }
        Ok(())
    }

    /// Like [`PartitionFile::write`], blocking the thread.
    pub fn write_blocking(&mut self, pages: Vec<SealedPage>) -> Result<()> {
        block_on(self.write(pages))
    }

    /// Allocates the extents that the pieces will need, or none.
    fn make_room(&mut self, pieces: &[(usize, Piece)]) -> Result<()> {
        let before = self.extents.len();
        let mut tail = self.tail;
        for len in pieces.iter().map(|(_, piece)| piece.len_bytes()) {
            let place = tail.of_next(&self.extents, len);
            if place.extent >= self.extents.len() {
                match self.space.allocate(self.extent_bytes.max(len)) {
                    Ok(extent) => self.extents.push(HeldExtent::new(extent)),
                    Err(error) => {
                        self.extents.truncate(before);
                        return Err(error);
                    }
                }
            }
            tail = place.behind(len);
        }
        Ok(())
    }

    /// Counts the pages of a piece; the bytes that are written of it.
    fn bytes_of(&mut self, pages: impl Iterator<Item = Outgoing>) -> Bytes {
        let mut group = Vec::new();
        let mut plain = Bytes::new();
        for page in pages {
            self.pages += 1;
            self.rows += page.rows() as u64;
            self.bytes += page.page_bytes() as u64;
            self.largest_bytes = self.largest_bytes.max(page.page_bytes());
            self.space.note_spilled(page.page_bytes());
            match page {
                Outgoing::Plain(page) => plain = page.bytes,
                Outgoing::Packed(page) => group.push(page),
            }
        }
        if group.is_empty() { plain } else { Group::write(group, self.space.device()).freeze() }
    }

    fn close_run(&self, run: &mut Vec<WriteBuffer>, run_start: Place, writes: &mut Vec<(File, Request)>) {
        if let Some(extent) = self.extent(run_start).filter(|_| !run.is_empty()) {
            let offset = extent.offset() + run_start.offset as u64;
            writes.push((extent.file().clone(), Request::Write { offset, buffers: std::mem::take(run) }));
        }
    }

    /// Bytes of the largest page.
    pub fn largest_page_bytes(&self) -> usize {
        self.largest_bytes
    }

    /// Reads the pages back in order, with up to `window_bytes` of reads outstanding: as many as the device is to have
    /// at once, each as large as that leaves it, up to the smallest that reaches the device's bandwidth.
    ///
    /// A reader that does not share the file gives its extents back as it goes.
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
            next_piece: 0,
            next_place: Place { extent: 0, offset: 0 },
            reads: VecDeque::new(),
            reading_bytes: 0,
            arrived: VecDeque::new(),
        }
    }

    /// The next run of pieces that one read of about `unit_bytes` covers, from piece `first` on, which comes behind
    /// what ends at `tail`.
    fn read_unit(&self, first: usize, tail: Place, unit_bytes: usize) -> Option<ReadUnit> {
        let place = tail.of_next(&self.extents, self.piece_bytes(first)?);
        let mut unit = ReadUnit { place, first, end: first, len: 0 };
        while let Some(len) = self.piece_bytes(unit.end) {
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

    fn piece_bytes(&self, piece: usize) -> Option<usize> {
        self.pieces.get(piece).map(|piece| piece.len_bytes())
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
    /// Where the next piece of `len` bytes lies, if everything before it ends here: here, or where it does not fit, at
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

/// Pieces that lie behind each other, from `first` up to `end`.
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
    next_piece: usize,
    /// Where the piece before it ends.
    next_place: Place,
    reads: VecDeque<(ReadUnit, Batch)>,
    reading_bytes: usize,
    /// What the last read brought, as far as no page has been made of it.
    arrived: VecDeque<Arrived>,
}

/// A piece that has been read.
#[derive(Debug)]
enum Arrived {
    Page(Bytes),
    Group(Group),
}

impl PartitionReader {
    /// The next page, or `None` after the last; waits on the async runtime.
    pub async fn next(&mut self) -> Result<Option<Page>> {
        loop {
            if let Some(page) = self.take_arrived()? {
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
            if let Some(page) = self.take_arrived()? {
                return Ok(Some(page));
            }
            self.read_ahead();
            let Some((unit, batch)) = self.reads.pop_front() else { return Ok(None) };
            let completions = batch.wait()?;
            self.accept(unit, completions)?;
        }
    }

    /// Submits reads until the window is full. [`PartitionReader::next`] does so by itself; calling it earlier submits
    /// reads of the first pages.
    pub fn read_ahead(&mut self) {
        while let Some(unit) = self.next_unit() {
            // The window is a bound on memory, but one read is always possible.
            if self.reading_bytes > 0 && self.reading_bytes + unit.len > self.window_bytes {
                break;
            }
            self.submit(unit);
        }
    }

    /// Submits the next read whether the window is full or not; whether there is one.
    pub fn read_next_unit(&mut self) -> bool {
        let unit = self.next_unit();
        unit.into_iter().for_each(|unit| self.submit(unit));
        unit.is_some()
    }

    /// Reads that have been submitted and whose pages are not used yet.
    pub fn units_ahead(&self) -> usize {
        self.reads.len()
    }

    /// The share of the pages that has been submitted, about.
    pub fn share_asked(&self) -> f64 {
        self.next_piece as f64 / self.file.pieces.len().max(1) as f64
    }

    fn next_unit(&self) -> Option<ReadUnit> {
        self.file.read_unit(self.next_piece, self.next_place, self.unit_bytes)
    }

    fn submit(&mut self, unit: ReadUnit) {
        let Some(extent) = self.file.extent(unit.place) else {
            unreachable!("an extent is given back behind its reader only")
        };
        let buffer = self.file.space.device().buffer(unit.len);
        let offset = extent.offset() + unit.place.offset as u64;
        let read = Request::Read { offset, buffer };
        let batch = extent.file().submit_for(vec![read], self.file.space.io());
        self.reading_bytes += unit.len;
        self.reads.push_back((unit, batch));
        self.next_piece = unit.end;
        self.next_place = unit.behind();
    }

    fn accept(&mut self, unit: ReadUnit, completions: Vec<Completion>) -> Result<()> {
        self.reading_bytes -= unit.len;
        let buffer = completions
            .into_iter()
            .next()
            .and_then(Completion::into_buffer)
            .ok_or(SpillError::LostRead { pieces: unit.end - unit.first })?;
        let bytes = buffer.freeze();
        let mut offset = 0;
        for piece in &self.file.pieces[unit.first..unit.end] {
            let end = offset + piece.len_bytes();
            let bytes = bytes.slice(offset..end);
            let is_group = piece.is_group();
            self.arrived.push_back(if is_group {
                Arrived::Group(Group::open(bytes)?)
            } else {
                Arrived::Page(bytes)
            });
            offset = end;
        }
        self.release_before(unit.place.extent);
        Ok(())
    }

    /// The next page of those that have been read, verified. Groups are unpacked page by page: more than the bytes read
    /// and one page is never in memory.
    fn take_arrived(&mut self) -> Result<Option<Page>> {
        while let Some(arrived) = self.arrived.front_mut() {
            let bytes = match arrived {
                Arrived::Page(bytes) => Some(std::mem::take(bytes)),
                Arrived::Group(group) => self.file.space.unpack(group)?.map(AlignedBuffer::freeze),
            };
            if !matches!(arrived, Arrived::Group(_)) || bytes.is_none() {
                self.arrived.pop_front();
            }
            if let Some(bytes) = bytes {
                let page = Page::open(Buffer::from(bytes), Arc::clone(&self.schema), Verify::Checksums)?;
                return Ok(Some(page));
            }
        }
        Ok(None)
    }

    /// Gives back the extents before `end`, all of which has been read, if no other reader is to read them.
    fn release_before(&mut self, end: usize) {
        if let Some(file) = Arc::get_mut(&mut self.file) {
            let end = end.max(self.released_extents);
            file.extents[self.released_extents..end].iter_mut().for_each(|held| held.extent = None);
            self.released_extents = end;
        }
    }
}
