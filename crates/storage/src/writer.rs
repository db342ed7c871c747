//! Writing rows: one segment file per statement, filled by any number of lanes side by side.
//!
//! ```text
//!  lane 1 ─► page filler ─► write buffer (1 MiB) ──►┐
//!  lane 2 ─► page filler ─► write buffer            ├─► device, a window of writes in flight per lane
//!    …          each lane fills a stripe of its own │
//!                                                   ┘
//!  commit: last pages, page indexes, directory, header ─► fsync ─► manifest
//! ```
//!
//! Nothing shows until the commit; a writer dropped before it leaves nothing behind.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arrow_array::{Array, RecordBatch};
use arrow_schema::SchemaRef;
use futures::Stream;
use nandina_device::{AlignedBuffer, Batch, Device, File, FileClass, IoAccount, Request, block_on};
use nandina_pages::{PageIdentity, PageMeta};
use parking_lot::Mutex;

use crate::definition::{IfExists, TableDefinition, Target};
use crate::error::{Result, StorageError};
use crate::ids::{SegmentId, TableId};
use crate::manifest::{SegmentRecord, encode_schema};
use crate::page_filler::{FilledPage, MOST_EXPANSION, PageFiller};
use crate::page_index::{Stripe, StripeColumn, StripeIndexBuilder, encode_directory};
use crate::segment::{BLOCK_BYTES, TableShape, encode_header, file_name};
use crate::store::{Store, shape};
use crate::table::Table;

/// Length of stripes: long enough that its page index is a few blocks per column, short enough to share out work.
const STRIPE_BYTES: usize = 16 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteMode {
    Append,
    /// The rows written take the place of all rows there are.
    Overwrite,
}

#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// Most bytes in flight per lane; what the device needs if `None`.
    pub window_bytes: Option<usize>,
    /// Traffic is counted for this query too.
    pub account: Option<Arc<IoAccount>>,
}

/// What a commit stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommitSummary {
    pub rows: u64,
    pub pages: u64,
    /// Length of the new file.
    pub file_bytes: u64,
}

impl Table {
    /// A writer of rows into this table, which has no indexes: [`StorageError::HasIndexes`].
    pub fn writer(&self, mode: WriteMode, options: WriteOptions) -> Result<TableWriter> {
        self.store().check_writable()?;
        let shape = Arc::clone(self.shape());
        let newest = self.store().newest(self)?;
        if newest.has_indexes() {
            return Err(StorageError::HasIndexes { name: self.name().to_owned() });
        }
        let changes = newest.heap_changes();
        let overwrite = (mode == WriteMode::Overwrite).then_some(changes);
        let target = Target::Rows { shape: Arc::clone(&shape), overwrite };
        TableWriter::new(self.store().clone(), shape, target, options)
    }
}

impl Store {
    /// A writer whose commit creates the table with the rows written, or replaces an existing one: all or nothing.
    pub fn create_table_with_rows(
        &self,
        definition: TableDefinition,
        if_exists: IfExists,
        options: WriteOptions,
    ) -> Result<TableWriter> {
        self.check_writable()?;
        definition.check()?;
        if if_exists == IfExists::Fail && self.has_table(&definition.name) {
            return Err(StorageError::TableExists { name: definition.name });
        }
        let definition = self.sized(definition);
        let page_bytes = definition.page_bytes_on(self.device());
        let shape = shape(TableId(0), &definition.name, page_bytes, &definition.schema)?;
        let definition = Box::new(definition);
        TableWriter::new(self.clone(), shape, Target::Create { definition, if_exists, rows: None }, options)
    }
}

/// Collects the rows of one statement. Lanes write, [`commit`](Self::commit) makes it all take effect.
#[derive(Debug)]
pub struct TableWriter {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    store: Store,
    device: Device,
    shape: Arc<TableShape>,
    target: Target,
    account: Option<Arc<IoAccount>>,
    /// Most bytes in flight per lane, and length of writes, or the page size if that is more.
    window_bytes: usize,
    write_bytes: usize,
    segment: SegmentId,
    file: File,
    schema_message: Vec<u8>,
    header_bytes: u64,
    space: Mutex<Space>,
    stripes: Mutex<Vec<(Stripe, Vec<StripeColumn>)>>,
    /// A finished lane, kept with its partly filled page and stripe for the next one or the commit.
    idle: Mutex<Option<Lane>>,
    open_lanes: AtomicUsize,
    rows: AtomicU64,
    committed: Mutex<bool>,
}

/// The end of the file as allotted so far.
#[derive(Debug)]
struct Space {
    next_offset: u64,
    next_page: u64,
}

impl TableWriter {
    pub(crate) fn new(
        store: Store,
        shape: Arc<TableShape>,
        target: Target,
        options: WriteOptions,
    ) -> Result<Self> {
        let device = store.device().clone();
        let sizes = device.sizes();
        let segment = store.new_segment_id();
        let file = device.create(&file_name(segment), FileClass::Table)?;
        let schema_message = encode_schema(shape.page_schema().arrow());
        let header_bytes =
            encode_header(store.database(), segment, shape.page_bytes, &schema_message).len() as u64;
        let space = Mutex::new(Space { next_offset: header_bytes, next_page: 0 });
        let shared = Shared {
            store,
            device,
            shape,
            target,
            window_bytes: options.window_bytes.unwrap_or_else(|| sizes.write_window_bytes()),
            write_bytes: sizes.bulk_write_bytes(),
            account: options.account,
            segment,
            file,
            schema_message,
            header_bytes,
            space,
            stripes: Mutex::default(),
            idle: Mutex::default(),
            open_lanes: AtomicUsize::new(0),
            rows: AtomicU64::new(0),
            committed: Mutex::new(false),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    pub fn schema(&self) -> &SchemaRef {
        self.shared.shape.page_schema().arrow()
    }

    /// A lane for one thread or task. All lanes must be finished before the commit.
    pub fn lane(&self) -> WriterLane {
        self.shared.open_lanes.fetch_add(1, Ordering::AcqRel);
        let lane = self.shared.idle.lock().take().unwrap_or_else(|| Lane::new(&self.shared));
        WriterLane { shared: Arc::clone(&self.shared), lane }
    }

    /// Memory that a lane takes for rows and the page it fills with them, besides its window of writes.
    pub fn lane_bytes(page_bytes: usize) -> usize {
        2 * MOST_EXPANSION * page_bytes
    }

    /// Rows appended so far.
    pub fn rows(&self) -> u64 {
        self.shared.rows.load(Ordering::Acquire)
    }

    /// Makes the rows of all lanes durable and visible, at once. On error nothing has changed.
    pub async fn commit(self) -> Result<CommitSummary> {
        let shared = &self.shared;
        if shared.open_lanes.load(Ordering::Acquire) > 0 {
            return Err(StorageError::UnfinishedLane { table: shared.shape.name.clone() });
        }
        let lane = shared.idle.lock().take();
        if let Some(mut lane) = lane {
            lane.flush(shared).await?;
        }
        let record = shared.finish_file().await?;
        let summary = record.as_ref().map_or_else(CommitSummary::default, |record| CommitSummary {
            rows: record.rows,
            pages: record.pages,
            file_bytes: record.file_bytes,
        });
        let keeps_file = record.is_some();
        let adds_nothing = matches!(shared.target, Target::Rows { overwrite: None, .. });
        if keeps_file || !adds_nothing {
            let result = shared.store.commit(shared.target.clone(), record);
            *shared.committed.lock() = keeps_file && (result.is_ok() || shared.store.is_unconfirmed());
            result?;
        }
        Ok(summary)
    }

    /// [`commit`](Self::commit) for blocking threads.
    pub fn commit_blocking(self) -> Result<CommitSummary> {
        block_on(self.commit())
    }

    /// Drops everything written. Dropping the writer does the same.
    pub fn abort(self) {}
}

impl Shared {
    /// Allots a stripe for `slots` pages.
    fn allot_stripe(&self, slots: u64) -> OpenStripe {
        let mut space = self.space.lock();
        let (first_page, offset) = (space.next_page, space.next_offset);
        space.next_page += slots;
        space.next_offset += slots * self.shape.page_bytes as u64;
        let entries = StripeIndexBuilder::new(self.shape.page_schema().columns());
        OpenStripe { first_page, offset, capacity: slots, used: 0, used_bytes: 0, entries }
    }

    /// Gives back what a stripe did not use, if nothing was allotted after it.
    fn give_back(&self, stripe: &OpenStripe) {
        let mut space = self.space.lock();
        if space.next_page == stripe.first_page + stripe.capacity
            && space.next_offset == stripe.offset + stripe.capacity * self.shape.page_bytes as u64
        {
            space.next_page = stripe.first_page + stripe.used;
            space.next_offset = stripe.offset + stripe.used_bytes;
        }
    }

    fn allot_bytes(&self, bytes: u64) -> u64 {
        let mut space = self.space.lock();
        let offset = space.next_offset;
        space.next_offset += bytes.next_multiple_of(BLOCK_BYTES);
        offset
    }

    fn aligned(&self, bytes: &[u8]) -> AlignedBuffer {
        let mut buffer = self.device.buffer(bytes.len().next_multiple_of(BLOCK_BYTES as usize));
        buffer.fill(0);
        buffer[..bytes.len()].copy_from_slice(bytes);
        buffer
    }

    /// Writes directory and header and makes the file durable. `None` if there are no rows.
    async fn finish_file(&self) -> Result<Option<SegmentRecord>> {
        let mut stripes = std::mem::take(&mut *self.stripes.lock());
        stripes.sort_unstable_by_key(|(stripe, _)| stripe.first_page);
        let rows = stripes.iter().map(|(stripe, _)| stripe.rows).sum();
        assert_eq!(self.rows.load(Ordering::Acquire), rows, "every row that was appended is in a stripe");
        if stripes.is_empty() {
            return Ok(None);
        }
        let directory = self.aligned(&encode_directory(&self.shape.layout, &stripes)?);
        let directory_bytes = directory.len() as u64;
        let directory_checksum = Some(PageMeta::checksum(&directory));
        let directory_offset = self.allot_bytes(directory_bytes);
        let database = self.store.database();
        let header =
            self.aligned(&encode_header(database, self.segment, self.shape.page_bytes, &self.schema_message));
        let requests = vec![
            (self.file.clone(), Request::write(directory_offset, directory)),
            (self.file.clone(), Request::write(0, header)),
        ];
        self.device.submit_many(requests, self.account.as_ref()).wait_async().await?;
        self.file.sync_async().await?;
        self.device.sync_directory()?;
        let space = self.space.lock();
        Ok(Some(SegmentRecord {
            id: self.segment,
            first_page: 0,
            page_numbers: space.next_page,
            pages: stripes.iter().map(|(stripe, _)| stripe.pages).sum(),
            rows,
            file_bytes: space.next_offset,
            header_bytes: self.header_bytes,
            directory_offset,
            directory_bytes,
            directory_checksum,
        }))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !*self.committed.get_mut()
            && let Err(error) = self.device.remove(&file_name(self.segment))
        {
            log::warn!("an aborted write leaves its file until the database is opened again: {error}");
        }
    }
}

/// One stream of rows into a [`TableWriter`].
#[derive(Debug)]
pub struct WriterLane {
    shared: Arc<Shared>,
    lane: Lane,
}

impl WriterLane {
    /// Appends all rows of a batch. Waits only when the lane's window of writes is full.
    pub async fn append(&mut self, batch: &RecordBatch) -> Result<()> {
        check_batch(&self.shared.shape, batch)?;
        self.lane.append(&self.shared, batch).await?;
        self.shared.rows.fetch_add(batch.num_rows() as u64, Ordering::AcqRel);
        Ok(())
    }

    /// [`append`](Self::append) for blocking threads.
    pub fn append_blocking(&mut self, batch: &RecordBatch) -> Result<()> {
        block_on(self.append(batch))
    }

    /// Ends the lane; its rows become part of the commit.
    pub async fn finish(self) -> Result<()> {
        let Self { shared, mut lane } = self;
        loop {
            // Two partly filled pages become one: a statement ends with one short page, however many lanes it had.
            let mut other = {
                let mut idle = shared.idle.lock();
                match idle.take() {
                    Some(other) => other,
                    None => {
                        *idle = Some(lane);
                        break;
                    }
                }
            };
            for rest in lane.filler.take_rest()? {
                other.append(&shared, &rest).await?;
            }
            lane.output.close_stripe(&shared).await?;
            lane.output.wait_until(0).await?;
            lane = other;
        }
        shared.open_lanes.fetch_sub(1, Ordering::AcqRel);
        Ok(())
    }

    /// [`finish`](Self::finish) for blocking threads.
    pub fn finish_blocking(self) -> Result<()> {
        block_on(self.finish())
    }
}

fn check_batch(shape: &TableShape, batch: &RecordBatch) -> Result<()> {
    let schema = shape.page_schema().arrow();
    if batch.num_columns() != schema.fields().len() {
        let reason = format!("{} columns given, {} expected", batch.num_columns(), schema.fields().len());
        return Err(StorageError::SchemaMismatch { table: shape.name.clone(), reason });
    }
    for (field, array) in schema.fields().iter().zip(batch.columns()) {
        if field.data_type() != array.data_type() {
            let (name, expected, found) = (field.name(), field.data_type(), array.data_type());
            let reason = format!("column {name:?} is {expected}, {found} was given");
            return Err(StorageError::SchemaMismatch { table: shape.name.clone(), reason });
        }
        if !field.is_nullable() && array.logical_null_count() > 0 {
            return Err(StorageError::NullValue { table: shape.name.clone(), column: field.name().clone() });
        }
    }
    Ok(())
}

#[derive(Debug)]
struct OpenStripe {
    first_page: u64,
    offset: u64,
    /// In page numbers, as is `used`.
    capacity: u64,
    used: u64,
    /// To the end of the last page, which may be short.
    used_bytes: u64,
    entries: StripeIndexBuilder,
}

/// Full pages that wait to become one write.
#[derive(Debug)]
struct WriteBlock {
    buffer: AlignedBuffer,
    offset: u64,
    /// Where the next page goes, and where the last one ends.
    filled_bytes: usize,
    used_bytes: usize,
}

/// Rows come in, pages go out.
#[derive(Debug)]
struct Lane {
    filler: PageFiller,
    output: LaneOutput,
}

/// Where a lane's pages go.
#[derive(Debug)]
struct LaneOutput {
    stripe: Option<OpenStripe>,
    block: Option<WriteBlock>,
    writes: Batch,
    /// Length of each write of `writes`, by its index.
    write_bytes: Vec<usize>,
    in_flight_bytes: usize,
}

impl Lane {
    fn new(shared: &Shared) -> Self {
        let filler = PageFiller::new(Arc::clone(shared.shape.page_schema()), shared.shape.page_bytes);
        let writes = shared.device.batch(shared.account.as_ref());
        let output =
            LaneOutput { stripe: None, block: None, writes, write_bytes: Vec::new(), in_flight_bytes: 0 };
        Self { filler, output }
    }

    async fn append(&mut self, shared: &Shared, batch: &RecordBatch) -> Result<()> {
        self.filler.push(batch);
        while let Some(page) = self.filler.full_page()? {
            self.output.write_page(shared, page).await?;
        }
        Ok(())
    }

    /// Writes the rows of the last page, however few.
    async fn flush(&mut self, shared: &Shared) -> Result<()> {
        while let Some(page) = self.filler.last_page()? {
            self.output.write_page(shared, page).await?;
        }
        self.output.close_stripe(shared).await?;
        self.output.wait_until(0).await
    }
}

impl LaneOutput {
    /// Gives a page its place, and submits it when enough have come together.
    async fn write_page(&mut self, shared: &Shared, filled: FilledPage<'_>) -> Result<()> {
        let page_bytes = shared.shape.page_bytes;
        let slots = filled.page.used_bytes().div_ceil(page_bytes) as u64;
        if self.stripe.as_ref().is_none_or(|stripe| stripe.used + slots > stripe.capacity) {
            self.close_stripe(shared).await?;
        }
        let default_slots = (STRIPE_BYTES / page_bytes).max(4) as u64;
        let stripe = self.stripe.get_or_insert_with(|| shared.allot_stripe(default_slots.max(slots)));
        let needed_bytes = slots as usize * page_bytes;
        let room = |block: &WriteBlock| block.buffer.len() - block.filled_bytes;
        if self.block.as_ref().is_some_and(|block| room(block) < needed_bytes) {
            let block = self.block.take();
            submit(&mut self.writes, &mut self.write_bytes, &mut self.in_flight_bytes, &shared.file, block);
        }
        let block = self.block.get_or_insert_with(|| {
            let left_in_stripe = (stripe.capacity - stripe.used) as usize * page_bytes;
            let buffer = shared.device.buffer(shared.write_bytes.max(needed_bytes).min(left_in_stripe));
            let offset = stripe.offset + stripe.used * page_bytes as u64;
            WriteBlock { buffer, offset, filled_bytes: 0, used_bytes: 0 }
        });
        let target = &mut block.buffer[block.filled_bytes..block.filled_bytes + needed_bytes];
        let identity = PageIdentity::new(stripe.first_page + stripe.used);
        let meta = filled.page.write(identity, target).map_err(StorageError::Encode)?;
        let used_bytes = meta.used_bytes.next_multiple_of(BLOCK_BYTES as usize);
        stripe.entries.push(stripe.used as u32, slots as u32, &meta, filled.bounds)?;
        stripe.used_bytes = stripe.used * page_bytes as u64 + used_bytes as u64;
        stripe.used += slots;
        block.used_bytes = block.filled_bytes + used_bytes;
        block.filled_bytes += needed_bytes;
        self.wait_until(shared.window_bytes).await
    }

    /// Writes the rest of the stripe, and its page index.
    async fn close_stripe(&mut self, shared: &Shared) -> Result<()> {
        let block = self.block.take();
        submit(&mut self.writes, &mut self.write_bytes, &mut self.in_flight_bytes, &shared.file, block);
        let Some(stripe) = self.stripe.take() else { return Ok(()) };
        shared.give_back(&stripe);
        let (pages, rows) = (stripe.entries.pages() as u64, stripe.entries.table_rows());
        let identity = PageIdentity::new(stripe.first_page);
        let (index, columns) = stripe.entries.finish(&shared.shape.layout, identity)?;
        let index = shared.aligned(&index);
        let index_checksum = Some(PageMeta::checksum(&index));
        let index_bytes = index.len() as u64;
        let index_offset = shared.allot_bytes(index_bytes);
        let written = index.len();
        let block =
            WriteBlock { buffer: index, offset: index_offset, filled_bytes: written, used_bytes: written };
        submit(&mut self.writes, &mut self.write_bytes, &mut self.in_flight_bytes, &shared.file, Some(block));
        let stripe = Stripe {
            first_page: stripe.first_page,
            offset: stripe.offset,
            pages,
            page_numbers: stripe.used,
            rows,
            index_offset,
            index_bytes,
            index_checksum,
        };
        shared.stripes.lock().push((stripe, columns));
        self.wait_until(shared.window_bytes).await
    }

    /// Waits until at most so many bytes are in flight.
    async fn wait_until(&mut self, bytes: usize) -> Result<()> {
        while self.in_flight_bytes > bytes {
            let next = std::future::poll_fn(|context| Pin::new(&mut self.writes).poll_next(context)).await;
            let Some(finished) = next else { unreachable!("a lane ends with the write that fails") };
            let (index, _) = finished?;
            self.in_flight_bytes -= self.write_bytes[index];
        }
        Ok(())
    }
}

fn submit(
    writes: &mut Batch,
    write_bytes: &mut Vec<usize>,
    in_flight_bytes: &mut usize,
    file: &File,
    block: Option<WriteBlock>,
) {
    let Some(mut block) = block else { return };
    block.buffer.truncate(block.used_bytes);
    write_bytes.push(block.used_bytes);
    *in_flight_bytes += block.used_bytes;
    writes.add(vec![(file.clone(), Request::write(block.offset, block.buffer))]);
}
