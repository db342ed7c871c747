//! Rows that are written once, in the order in which they come, and read by their addresses, in any order.
//!
//! ```text
//!   rows ─► RowFileWriter: [page being filled] [full][full] ─► extents of temporary space
//!                 └─► the address of every row                     │
//!   addresses ─► RowFile::fetch: each page once, many reads at a time ◄┘
//! ```
//!
//! An address says where a page lies, how long it is, and how wide the row is, about: nothing has to be kept in memory for a
//! page, and a reader knows what it asks for.
//!
//! Pages are not compressed: a read is to bring a page, and not a group of them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_buffer::Buffer;
use futures::StreamExt as _;
use nandina_device::{BLOCK_BYTES, Batch, IoAccount, Request, WriteBuffer};
use nandina_pages::{Page, PageBuilder, PageIdentity, PageSchema, Rows, Verify};
use parking_lot::RwLock;

use crate::error::{Result, SpillError};
use crate::partition_file::PinnedWrite;
use crate::temp_space::{Extent, QuerySpace};

/// The size of an extent, unless it is that of a long page.
const EXTENT_BYTES: usize = 1 << 20;
/// Longer pages have extents for themselves, since those that they share would end with too much that is not used.
const MOST_SHARING_BYTES: usize = EXTENT_BYTES / 4;
/// Pages next to each other are read together, up to so many bytes.
const MOST_READ_BYTES: usize = 256 << 10;

/// Where a row lies.
///
/// ```text
///   63    34 33         26 25          19 18  5 4     0
///   ┌────────┬─────────────┬──────────────┬──────┬───────┐      0 blocks: the page has the extent for itself
///   │ extent │ first block │ blocks, or 0 │ slot │ width │      width w: the row has less than 2^w bytes
///   └────────┴─────────────┴──────────────┴──────┴───────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Address(u64);

impl Address {
    const WIDTH_BITS: u32 = 5;
    const SLOT_BITS: u32 = 14;
    const BLOCKS_BITS: u32 = 7;
    const FIRST_BLOCK_BITS: u32 = 8;
    const EXTENT_BITS: u32 =
        u64::BITS - Self::FIRST_BLOCK_BITS - Self::BLOCKS_BITS - Self::SLOT_BITS - Self::WIDTH_BITS;

    fn new(page: PagePlace, slot: u32, width: RowWidth) -> Self {
        let parts = [
            (page.extent as u64, Self::EXTENT_BITS),
            (page.first_block as u64, Self::FIRST_BLOCK_BITS),
            (page.blocks as u64, Self::BLOCKS_BITS),
            (u64::from(slot), Self::SLOT_BITS),
            (u64::from(width.0), Self::WIDTH_BITS),
        ];
        Self(parts.into_iter().fold(0, |address, (part, bits)| {
            assert!(part >> bits == 0, "the parts of an address have their bits");
            address << bits | part
        }))
    }

    /// Some of its bits, and what is above them.
    fn split(bits: u64, low: u32) -> (usize, u64) {
        ((bits & ((1 << low) - 1)) as usize, bits >> low)
    }

    fn width(self) -> RowWidth {
        RowWidth(Self::split(self.0, Self::WIDTH_BITS).0 as u8)
    }

    fn slot(self) -> u32 {
        Self::split(self.0 >> Self::WIDTH_BITS, Self::SLOT_BITS).0 as u32
    }

    fn page(self) -> PagePlace {
        let (blocks, above) = Self::split(self.0 >> (Self::WIDTH_BITS + Self::SLOT_BITS), Self::BLOCKS_BITS);
        let (first_block, extent) = Self::split(above, Self::FIRST_BLOCK_BITS);
        PagePlace { extent: extent as usize, first_block, blocks }
    }
}

/// The bit length of a row's count of bytes, at most 31.
#[derive(Clone, Copy, Debug)]
struct RowWidth(u8);

impl RowWidth {
    fn of(bytes: u64) -> Self {
        Self((u64::BITS - bytes.leading_zeros()).min((1 << Address::WIDTH_BITS) - 1) as u8)
    }

    /// Three quarters of the most, which is what rows of all widths have in the mean.
    fn bytes(self) -> usize {
        (3 << self.0) / 4
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PagePlace {
    extent: usize,
    first_block: usize,
    /// 0 if it is all of the extent.
    blocks: usize,
}

/// Rows on the device. Dropping it, and its writers, gives their space back.
#[derive(Debug)]
pub struct RowFile {
    space: Arc<QuerySpace>,
    schema: Arc<PageSchema>,
    extents: RwLock<Vec<Arc<Extent>>>,
}

/// Writes some of the rows of a [`RowFile`].
pub struct RowFileWriter {
    file: Arc<RowFile>,
    builder: PageBuilder,
    /// Of the rows that have no address yet.
    widths: VecDeque<RowWidth>,
    group_bytes: usize,
    /// The extent that is being filled, its number, and how much of it is taken.
    extent: Option<(Arc<Extent>, usize, usize)>,
    full: Vec<FullPages>,
    full_bytes: usize,
    in_flight: Option<Batch>,
    in_flight_bytes: usize,
}

/// Pages next to each other that are to be written.
struct FullPages {
    extent: Arc<Extent>,
    offset: u64,
    end: u64,
    buffers: Vec<WriteBuffer>,
}

impl RowFile {
    /// The most rows of a page.
    pub const MOST_PAGE_ROWS: usize = 1 << Address::SLOT_BITS;

    /// An empty file.
    pub fn new(schema: Arc<PageSchema>, space: Arc<QuerySpace>) -> Arc<Self> {
        Arc::new(Self { space, schema, extents: RwLock::default() })
    }

    /// The space that it lies in.
    pub fn space(&self) -> &Arc<QuerySpace> {
        &self.space
    }

    /// A writer of pages of `page_bytes`, unless a row is longer. About twice `group_bytes` are in memory: those that have
    /// been gathered for a write, and those of the one before.
    pub fn writer(self: &Arc<Self>, page_bytes: usize, group_bytes: usize) -> RowFileWriter {
        RowFileWriter {
            builder: PageBuilder::new(Arc::clone(&self.schema), page_bytes, Self::MOST_PAGE_ROWS),
            file: Arc::clone(self),
            widths: VecDeque::new(),
            group_bytes,
            extent: None,
            full: Vec::new(),
            full_bytes: 0,
            in_flight: None,
            in_flight_bytes: 0,
        }
    }

    /// Bytes of the row at an address: a quarter less to a half more than it has.
    pub fn row_bytes(address: u64) -> usize {
        Address(address).width().bytes()
    }

    /// The rows at `addresses`, in their order, and how many pages they stood on. Their writers have ended. Up to
    /// `window_bytes` of reads are outstanding, and counted for `account`.
    pub async fn fetch(
        &self,
        addresses: &[u64],
        window_bytes: usize,
        account: &Arc<IoAccount>,
    ) -> Result<(RecordBatch, usize)> {
        let schema = self.schema.arrow();
        let mut order: Vec<u32> = (0..addresses.len() as u32).collect();
        let at = |position: u32| Address(addresses[position as usize]);
        let sorted = addresses.is_sorted();
        if !sorted {
            order.sort_unstable_by_key(|&position| at(position));
        }
        let pages: Vec<WantedPage> = order
            .chunk_by(|&one, &next| at(one).page() == at(next).page())
            .map(|rows| WantedPage {
                place: at(rows[0]).page(),
                slots: rows.iter().map(|&position| at(position).slot()).collect(),
            })
            .collect();
        let pieces = self.read(&pages, window_bytes, account).await?;
        let mut back = vec![0; order.len()];
        order.iter().zip(0..).for_each(|(&from, to)| back[from as usize] = to);
        let back = UInt32Array::from(back);
        let columns = (0..schema.fields().len()).map(|column| {
            let of_column: Vec<&dyn Array> = pieces.iter().map(|piece| piece[column].as_ref()).collect();
            let array = match of_column.as_slice() {
                [] => arrow_array::new_empty_array(schema.field(column).data_type()),
                of_column => {
                    arrow_select::concat::concat(of_column).map_err(nandina_pages::PageError::from)?
                }
            };
            Ok(if sorted {
                array
            } else {
                arrow_select::take::take(&array, &back, None).map_err(nandina_pages::PageError::from)?
            })
        });
        let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        let row_count = RecordBatchOptions::new().with_row_count(Some(addresses.len()));
        let rows = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &row_count);
        Ok((rows.map_err(nandina_pages::PageError::from)?, pages.len()))
    }

    /// The wanted rows of ascending pages, as arrays of each.
    async fn read(
        &self,
        pages: &[WantedPage],
        window_bytes: usize,
        account: &Arc<IoAccount>,
    ) -> Result<Vec<Vec<ArrayRef>>> {
        let mut reads: VecDeque<PlannedRead> = self.planned(pages).into();
        let mut batch = self.space.device().batch(Some(account));
        let mut running: VecDeque<(PlannedRead, Option<Buffer>)> = VecDeque::new();
        let (mut first_running, mut running_bytes) = (0, 0);
        let mut pieces = Vec::with_capacity(pages.len());
        loop {
            while let Some(read) = reads
                .pop_front_if(|read| running_bytes == 0 || running_bytes + read.len_bytes <= window_bytes)
            {
                running_bytes += read.len_bytes;
                let buffer = self.space.device().buffer(read.len_bytes);
                batch.add(vec![(read.extent.file().clone(), Request::read(read.offset, buffer))]);
                running.push_back((read, None));
            }
            if running.is_empty() {
                return Ok(pieces);
            }
            let Some(finished) = batch.next().await else { unreachable!("as many reads end as began") };
            let (number, completion) = finished?;
            let buffer = completion.into_buffer().ok_or(SpillError::LostRead { pieces: 1 })?;
            running[number - first_running].1 = Some(Buffer::from(buffer.freeze()));
            while let Some((read, bytes)) = running.pop_front_if(|(_, bytes)| bytes.is_some()) {
                first_running += 1;
                running_bytes -= read.len_bytes;
                let Some(bytes) = bytes else { unreachable!("it has just been looked at") };
                let mut start = 0;
                for (page, length) in pages[read.pages].iter().zip(read.lengths) {
                    pieces.push(self.rows_of(page, bytes.slice_with_length(start, length))?);
                    start += length;
                }
            }
        }
    }

    /// Reads of ascending pages, those next to each other together.
    fn planned(&self, pages: &[WantedPage]) -> Vec<PlannedRead> {
        let extents = self.extents.read();
        let mut reads: Vec<PlannedRead> = Vec::new();
        let mut end: Option<(usize, u64)> = None;
        for (number, page) in pages.iter().enumerate() {
            let PagePlace { extent: in_file, first_block, blocks } = page.place;
            let Some(extent) = extents.get(in_file) else {
                unreachable!("an address of a row that this file does not have: extent {in_file}")
            };
            let offset = extent.offset() + (first_block * BLOCK_BYTES) as u64;
            let len_bytes = if blocks == 0 { extent.len_bytes() as usize } else { blocks * BLOCK_BYTES };
            match reads.last_mut() {
                Some(last)
                    if end == Some((in_file, offset)) && last.len_bytes + len_bytes <= MOST_READ_BYTES =>
                {
                    last.len_bytes += len_bytes;
                    last.pages.end = number + 1;
                    last.lengths.push(len_bytes);
                }
                _ => reads.push(PlannedRead {
                    extent: Arc::clone(extent),
                    offset,
                    len_bytes,
                    pages: number..number + 1,
                    lengths: vec![len_bytes],
                }),
            }
            end = Some((in_file, offset + len_bytes as u64));
        }
        reads
    }

    fn rows_of(&self, wanted: &WantedPage, bytes: Buffer) -> Result<Vec<ArrayRef>> {
        let page = Page::open(bytes, Arc::clone(&self.schema), Verify::Checksums)?;
        let all = wanted.slots.len() == page.rows();
        let slots = UInt32Array::from(wanted.slots.clone());
        let columns = (0..page.columns()).map(|column| {
            let taken = arrow_select::take::take(&page.column(column)?, &slots, None)
                .map_err(nandina_pages::PageError::from)?;
            // A few texts would keep those of their whole page.
            let taken = if all { Ok(taken) } else { nandina_pages::with_own_buffers(&taken) };
            Ok(taken.map_err(nandina_pages::PageError::from)?)
        });
        columns.collect()
    }

    /// A new extent of at least so many bytes, and its number.
    fn grow(&self, bytes: usize) -> Result<(Arc<Extent>, usize)> {
        let extent = Arc::new(self.space.allocate(bytes)?);
        let mut extents = self.extents.write();
        let most = 1 << Address::EXTENT_BITS;
        if extents.len() == most {
            return Err(SpillError::TooManyExtents { label: self.space.label().to_owned(), extents: most });
        }
        extents.push(Arc::clone(&extent));
        Ok((extent, extents.len() - 1))
    }
}

/// A page, and the slots of it that are wanted, ascending.
struct WantedPage {
    place: PagePlace,
    slots: Vec<u32>,
}

struct PlannedRead {
    extent: Arc<Extent>,
    offset: u64,
    len_bytes: usize,
    /// Those it brings, and how long each is.
    pages: Range<usize>,
    lengths: Vec<usize>,
}

impl RowFileWriter {
    /// Adds rows behind those that came before. The addresses of all rows, in their order, are added to `addresses` page by
    /// page: those of a page that is not full yet come with later rows, or at the end.
    pub async fn push(&mut self, rows: &RecordBatch, addresses: &mut Vec<u64>) -> Result<()> {
        self.widths.extend(nandina_pages::row_bytes(rows).into_iter().map(RowWidth::of));
        let mut next = 0;
        loop {
            next += self.builder.append(rows, Rows::Range(next..rows.num_rows()))?;
            if next == rows.num_rows() {
                return Ok(());
            }
            self.seal(addresses)?;
            if self.full_bytes >= self.group_bytes {
                self.write().await?;
            }
        }
    }

    /// Writes what is left, and waits for it.
    pub async fn finish(mut self, addresses: &mut Vec<u64>) -> Result<()> {
        if !self.builder.is_empty() {
            self.seal(addresses)?;
        }
        self.write().await?;
        match self.in_flight.take() {
            Some(last) => Ok(last.wait_async().await.map(drop)?),
            None => Ok(()),
        }
    }

    /// Memory that rows take until they are on the device, about.
    pub fn memory_bytes(&self) -> usize {
        let pages = (2 * self.group_bytes).max(self.full_bytes + self.in_flight_bytes);
        pages + self.builder.memory_bytes() + self.widths.len()
    }

    /// Ends the page that is being filled.
    fn seal(&mut self, addresses: &mut Vec<u64>) -> Result<()> {
        let rows = self.builder.rows();
        let (place, extent, len_bytes) = self.place(self.builder.encoded_bytes())?;
        let mut buffer = self.file.space.device().buffer(len_bytes);
        self.builder.encode(PageIdentity::default(), &mut buffer)?;
        self.file.space.note_spilled(len_bytes);
        let offset = extent.offset() + (place.first_block * BLOCK_BYTES) as u64;
        let end = offset + len_bytes as u64;
        let bytes = PinnedWrite::of(buffer.freeze(), &extent);
        match self.full.last_mut() {
            Some(last) if Arc::ptr_eq(&last.extent, &extent) && last.end == offset => {
                last.buffers.push(bytes);
                last.end = end;
            }
            _ => self.full.push(FullPages { extent, offset, end, buffers: vec![bytes] }),
        }
        self.full_bytes += len_bytes;
        assert!(self.widths.len() >= rows, "every row that waits for an address has a width");
        let widths = self.widths.drain(..rows);
        addresses.extend((0..).zip(widths).map(|(slot, width)| Address::new(place, slot, width).0));
        Ok(())
    }

    /// Where a page of so many bytes goes, and how many it has there.
    fn place(&mut self, bytes: usize) -> Result<(PagePlace, Arc<Extent>, usize)> {
        if bytes > MOST_SHARING_BYTES {
            let (extent, number) = self.file.grow(bytes)?;
            let len_bytes = extent.len_bytes() as usize;
            return Ok((PagePlace { extent: number, first_block: 0, blocks: 0 }, extent, len_bytes));
        }
        let blocks = bytes.div_ceil(BLOCK_BYTES);
        let len_bytes = blocks * BLOCK_BYTES;
        let has_room = |taken: usize, extent: &Extent| taken + len_bytes <= extent.len_bytes() as usize;
        let (extent, number, taken) = match self.extent.take() {
            Some((extent, number, taken)) if has_room(taken, &extent) => (extent, number, taken),
            _ => {
                let (extent, number) = self.file.grow(EXTENT_BYTES)?;
                (extent, number, 0)
            }
        };
        self.extent = Some((Arc::clone(&extent), number, taken + len_bytes));
        let place = PagePlace { extent: number, first_block: taken / BLOCK_BYTES, blocks };
        Ok((place, extent, len_bytes))
    }

    /// Begins to write the full pages, when those before are on the device.
    async fn write(&mut self) -> Result<()> {
        if let Some(earlier) = self.in_flight.take() {
            earlier.wait_async().await?;
        }
        self.in_flight_bytes = std::mem::take(&mut self.full_bytes);
        let writes = self.full.drain(..).map(|pages| {
            let FullPages { extent, offset, buffers, .. } = pages;
            (extent.file().clone(), Request::Write { offset, buffers })
        });
        let space = &self.file.space;
        self.in_flight = Some(space.device().submit_many(writes.collect(), Some(space.io())));
        Ok(())
    }
}
