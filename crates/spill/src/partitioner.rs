//! Hash partitioning of batches into PAX pages, in memory and on the device.
//!
//! Every partition has one page being filled (a [`PageBuilder`]) and a ring of full ones, its *sub-buffers*.
//! A partition is *resident* (full pages pile up in memory) until [`Partitioner::spill`] makes it *spilled*;
//! from then on its full pages go to the device by overlapped N-Hash:
//!
//! ```text
//!   partition 0   [page being filled]  ring: [full][full][full]   ← this ring is full
//!   partition 1   [page being filled]  ring: [full]
//!   partition 2   [page being filled]  ring: [full][full]
//!   partition 3   [page being filled]  ring:
//!
//!   writes rings 0, 1, 2 as three requests, in groups, and goes on filling while they are in flight
//! ```
//!
//! N-Hash: Shin et al., *Optimizing Hash Partitioning for Solid State Drives*, SAC 2016, section 3 and
//! Algorithm 1. The rule: when a row does not fit into its ring, collect the full sub-buffers of *all* rings;
//! those of one ring form one batch entry; submit everything together. Rings with no full sub-buffer are left
//! alone, so a hot partition never forces near-empty pages of others to the device. The paper's algorithm waits for
//! the batch; here filling goes on (`docs/benchmarks/partitioning.md` compares both, and writing rings alone).
//!
//! Pages that are compressed are packed when they become full. A ring then holds as many bytes, and more pages.
//!
//! Several workers may push at once: partitions are locked one at a time, and a flush skips rings that
//! another worker is filling at that moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::RecordBatch;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use nandina_device::{File, Request, block_on};
use nandina_pages::{PageBuilder, PageIdentity, PageSchema, Rows};
use parking_lot::Mutex;

use crate::compression::Outgoing;
use crate::error::{Result, SpillError};
use crate::partition_file::PartitionFile;
use crate::scatter::Scatter;
use crate::sealed_page::SealedPage;
use crate::temp_space::QuerySpace;

/// Shape of a [`Partitioner`].
#[derive(Clone, Debug)]
pub struct PartitionerOptions {
    /// log2 of the number of partitions.
    pub partition_bits: u32,
    /// Size of a sub-buffer, which is one PAX page.
    pub page_bytes: usize,
    /// Most rows in a page.
    pub max_page_rows: usize,
    /// Sub-buffers per ring.
    pub ring_pages: usize,
    /// Unit in which a spilled partition takes temporary space.
    pub extent_bytes: usize,
}

impl PartitionerOptions {
    /// Number of partitions.
    pub fn partitions(&self) -> usize {
        1 << self.partition_bits
    }

    /// The most memory that filling, full and in-flight pages of spilled partitions take, but for the bytes by which
    /// single rows are longer than a page.
    pub fn write_buffer_bytes(&self) -> usize {
        let rings = self.partitions() * self.page_bytes * (1 + self.ring_pages);
        // While rings fill, half of what they held may still be in flight.
        rings + rings / 2
    }
}

/// One partition while it is being filled.
struct Filling {
    builder: PageBuilder,
    /// Full sub-buffers waiting to be written (spilled partitions only).
    ring: Vec<Outgoing>,
    /// How much of the ring is taken: a sub-buffer for each page, more for one of a row that is longer, and of packed
    /// ones only their bytes.
    ring_taken_bytes: usize,
    /// Full pages kept in memory (resident partitions only).
    resident: Vec<SealedPage>,
    file: Option<PartitionFile>,
    rows: u64,
    /// Bytes of `resident` and of `ring`.
    resident_bytes: usize,
    ring_bytes: usize,
    /// What `memory_bytes` of the partitioner counts for this partition, and its `ring_bytes`.
    counted_bytes: usize,
    counted_ring_bytes: usize,
}

/// One partition when all input has been pushed: pages in memory, pages on the device, or none.
#[derive(Debug)]
pub struct Partition {
    /// Pages in memory, in order.
    pub resident: Vec<SealedPage>,
    /// Pages on the device; `None` if the partition never spilled.
    pub file: Option<Arc<PartitionFile>>,
    /// Rows in both.
    pub rows: u64,
}

impl Partition {
    /// Bytes of all pages.
    pub fn bytes(&self) -> u64 {
        let resident: usize = self.resident.iter().map(SealedPage::len_bytes).sum();
        resident as u64 + self.file.as_ref().map_or(0, |file| file.bytes())
    }
}

/// A group of writes in flight. A thread that needs it done may wait; giving up waiting loses nothing.
#[derive(Clone)]
struct InFlight {
    done: Shared<BoxFuture<'static, std::result::Result<(), Arc<SpillError>>>>,
    bytes: usize,
}

/// Is shown every page that goes to the device, before it is submitted.
pub type SpillObserver = Box<dyn Fn(&SealedPage) + Send + Sync>;

/// Scatters batches into partitions of PAX pages.
pub struct Partitioner {
    schema: Arc<PageSchema>,
    options: PartitionerOptions,
    space: Arc<QuerySpace>,
    observer: Option<SpillObserver>,
    partitions: Vec<Mutex<Filling>>,
    /// Resident bytes and rows of each partition, readable without its lock.
    resident_bytes: Vec<AtomicUsize>,
    resident_rows: Vec<AtomicUsize>,
    memory_bytes: AtomicUsize,
    ring_bytes: AtomicUsize,
    in_flight: Mutex<Vec<InFlight>>,
    in_flight_bytes: AtomicUsize,
    /// The first write that failed. Its pages are lost, so that every later waiter has to know, not only the one that
    /// happened to wait for that write.
    failure: Mutex<Option<Arc<SpillError>>>,
}

impl Partitioner {
    /// An empty partitioner whose partitions are all resident.
    pub fn new(schema: Arc<PageSchema>, options: PartitionerOptions, space: Arc<QuerySpace>) -> Self {
        let filling = || Filling {
            builder: PageBuilder::new(Arc::clone(&schema), options.page_bytes, options.max_page_rows),
            ring: Vec::new(),
            ring_taken_bytes: 0,
            resident: Vec::new(),
            file: None,
            rows: 0,
            resident_bytes: 0,
            ring_bytes: 0,
            counted_bytes: 0,
            counted_ring_bytes: 0,
        };
        let partitions = (0..options.partitions()).map(|_| Mutex::new(filling())).collect();
        let zeros = || (0..options.partitions()).map(|_| AtomicUsize::new(0)).collect();
        let (resident_bytes, resident_rows) = (zeros(), zeros());
        Self {
            schema,
            options,
            space,
            observer: None,
            partitions,
            resident_bytes,
            resident_rows,
            memory_bytes: AtomicUsize::new(0),
            ring_bytes: AtomicUsize::new(0),
            in_flight: Mutex::new(Vec::new()),
            in_flight_bytes: AtomicUsize::new(0),
            failure: Mutex::new(None),
        }
    }

    /// Shows `observer` every page that leaves memory for the device. It is called with the page's partition
    /// locked, so it must not push.
    pub fn observed_by(mut self, observer: SpillObserver) -> Self {
        self.observer = Some(observer);
        self
    }

    /// The layout of the partitions' pages.
    pub fn schema(&self) -> &Arc<PageSchema> {
        &self.schema
    }

    /// The shape this partitioner was made with.
    pub fn options(&self) -> &PartitionerOptions {
        &self.options
    }

    /// Bytes held in memory: pages being filled, full and in flight.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes.load(Ordering::Relaxed) + self.in_flight_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that spilling `partition` would free.
    pub fn resident_bytes(&self, partition: usize) -> usize {
        self.resident_bytes.get(partition).map_or(0, |bytes| bytes.load(Ordering::Relaxed))
    }

    /// Rows that are in memory for as long as `partition` is resident.
    pub fn resident_rows(&self, partition: usize) -> usize {
        self.resident_rows.get(partition).map_or(0, |rows| rows.load(Ordering::Relaxed))
    }

    /// Appends the rows of `batch` to the partitions that `scatter` chose for them.
    ///
    /// Nothing waits for writes here: call [`Partitioner::throttle`] between pushes.
    pub fn push(&self, batch: &RecordBatch, scatter: &Scatter) -> Result<()> {
        for (number, partition) in self.partitions.iter().enumerate() {
            let mut rows = scatter.rows_of(number);
            if rows.is_empty() {
                continue;
            }
            let mut filling = partition.lock();
            filling.rows += rows.len() as u64;
            loop {
                let taken = filling.builder.append(batch, Rows::Indices(rows))?;
                rows = &rows[taken..];
                if rows.is_empty() {
                    break;
                }
                self.seal(number, &mut filling)?;
            }
            self.recount(number, &mut filling);
        }
        Ok(())
    }

    /// Turns the page being filled into a full one, and writes rings if this one is now full.
    fn seal(&self, number: usize, filling: &mut Filling) -> Result<()> {
        let rows = filling.builder.rows();
        if rows == 0 {
            return Ok(());
        }
        let mut buffer = self.space.device().buffer(filling.builder.encoded_bytes().next_multiple_of(4096));
        filling.builder.encode(PageIdentity::default(), &mut buffer)?;
        self.keep(filling, SealedPage::new(buffer, rows as u32));
        let has_room = |filling: &Filling| {
            filling.ring_taken_bytes + self.options.page_bytes
                <= self.options.ring_pages * self.options.page_bytes
        };
        if filling.file.is_some() && !has_room(filling) {
            self.flush(number, filling)?;
        }
        Ok(())
    }

    /// Keeps a full page where it belongs until it is written or read.
    fn keep(&self, filling: &mut Filling, page: SealedPage) {
        if filling.file.is_some() {
            let page = self.outgoing(page);
            filling.ring_bytes += page.memory_bytes();
            filling.ring_taken_bytes += match &page {
                Outgoing::Plain(page) => page.len_bytes().max(self.options.page_bytes),
                Outgoing::Packed(page) => page.memory_bytes(),
            };
            filling.ring.push(page);
        } else {
            filling.resident_bytes += page.len_bytes();
            filling.resident.push(page);
        }
    }

    /// A page that leaves memory, as it will be on the device.
    fn outgoing(&self, page: SealedPage) -> Outgoing {
        if let Some(observer) = &self.observer {
            observer(&page);
        }
        self.space.outgoing(page)
    }

    /// Writes the full ring of partition `number`, and every other full sub-buffer with it.
    fn flush(&self, number: usize, filling: &mut Filling) -> Result<()> {
        let mut writes = Vec::new();
        collect(filling, &mut writes)?;
        for (other, partition) in self.partitions.iter().enumerate() {
            // A ring that another worker is filling is left to that worker's next flush.
            if let Some(mut other_filling) = (other != number).then(|| partition.try_lock()).flatten()
                && !other_filling.ring.is_empty()
            {
                collect(&mut other_filling, &mut writes)?;
                self.recount(other, &mut other_filling);
            }
        }
        self.submit(writes);
        Ok(())
    }

    /// Submits the writes of a flush, one group right after the other. Groups are waited for one by one: a thread that
    /// needs room goes on when enough of it is there, while the rest of the flush is still being written.
    fn submit(&self, mut writes: Vec<(File, Request)>) {
        let total: usize = writes.iter().map(|(_, request)| request.len_bytes()).sum();
        let group_bytes = self.space.device().sizes().write_group_bytes();
        // All of it from the beginning, so that no thread that looks in between misses a part.
        self.in_flight_bytes.fetch_add(total, Ordering::Relaxed);
        while !writes.is_empty() {
            let mut bytes = 0;
            let end = writes.iter().position(|(_, request)| {
                bytes += request.len_bytes();
                bytes >= group_bytes
            });
            let rest = writes.split_off(end.map_or(writes.len(), |last| last + 1));
            let batch = self.space.device().submit_many(writes, Some(self.space.io()));
            let done =
                async move { batch.wait_async().await.map(drop).map_err(|error| Arc::new(error.into())) };
            self.in_flight.lock().push(InFlight { done: done.boxed().shared(), bytes });
            writes = rest;
        }
    }

    /// Waits until full sub-buffers, in rings and in flight, fit into their share of
    /// [`PartitionerOptions::write_buffer_bytes`]. Right after a flush, when the rings are empty, all of it may be
    /// in flight: filling goes on without a pause as long as the device keeps up.
    pub async fn throttle(&self) -> Result<()> {
        let filling = self.options.partitions() * self.options.page_bytes;
        let full = self.options.write_buffer_bytes() - filling;
        self.drain_to(full.saturating_sub(self.ring_bytes.load(Ordering::Relaxed))).await
    }

    /// Waits until at most `bytes` are in flight. Fails if any write so far has failed.
    pub async fn drain_to(&self, bytes: usize) -> Result<()> {
        while let Some(oldest) = self.oldest_in_flight(bytes) {
            let outcome = oldest.done.clone().await;
            self.landed(&oldest, outcome);
        }
        self.all_landed_well()
    }

    /// Like [`Partitioner::drain_to`], blocking the thread.
    pub fn drain_to_blocking(&self, bytes: usize) -> Result<()> {
        while let Some(oldest) = self.oldest_in_flight(bytes) {
            let outcome = block_on(oldest.done.clone());
            self.landed(&oldest, outcome);
        }
        self.all_landed_well()
    }

    fn all_landed_well(&self) -> Result<()> {
        self.failure.lock().clone().map_or(Ok(()), |failure| Err(SpillError::Shared(failure)))
    }

    fn oldest_in_flight(&self, bytes: usize) -> Option<InFlight> {
        if self.in_flight_bytes.load(Ordering::Relaxed) <= bytes {
            return None;
        }
        self.in_flight.lock().first().cloned()
    }

    /// Several may have waited for the same batch: it leaves the list once.
    fn landed(&self, batch: &InFlight, outcome: std::result::Result<(), Arc<SpillError>>) {
        if let Err(failure) = outcome {
            self.failure.lock().get_or_insert(failure);
        }
        let mut in_flight = self.in_flight.lock();
        if let Some(at) = in_flight.iter().position(|other| other.done.ptr_eq(&batch.done)) {
            in_flight.remove(at);
            self.in_flight_bytes.fetch_sub(batch.bytes, Ordering::Relaxed);
        }
    }

    /// Makes a partition spilled: its full pages are submitted to the device, and so is every page it fills
    /// from now on. Returns the bytes that are free once the writes, which are in flight on return, complete.
    /// `None` if another worker is filling the partition at this moment.
    pub fn try_spill(&self, partition: usize) -> Result<Option<usize>> {
        let Some(mut filling) = self.partitions.get(partition).and_then(Mutex::try_lock) else {
            return Ok(None);
        };
        self.spill_locked(partition, &mut filling).map(Some)
    }

    /// As [`Partitioner::try_spill`], waiting for the partition if need be.
    pub fn spill(&self, partition: usize) -> Result<usize> {
        let Some(lock) = self.partitions.get(partition) else { return Ok(0) };
        self.spill_locked(partition, &mut lock.lock())
    }

    fn spill_locked(&self, number: usize, filling: &mut Filling) -> Result<usize> {
        if filling.file.is_some() {
            return Ok(0);
        }
        let mut file = PartitionFile::new(Arc::clone(&self.space), self.options.extent_bytes);
        // Each is packed in the place of the page that it was: there is no memory for both.
        let mut pages: Vec<Outgoing> = filling.resident.drain(..).map(|page| self.outgoing(page)).collect();
        let writes = match file.append_outgoing(&mut pages) {
            Ok(writes) => writes,
            Err(error) => {
                // The pages stay until there is room for all of them: without it nothing has changed.
                let sealed = pages.into_iter().map(|page| page.into_sealed(self.space.device()));
                match sealed.collect::<Result<_>>() {
                    Ok(pages) => filling.resident = pages,
                    // Rows are lost: every later operation fails, too.
                    Err(lost) => drop(self.failure.lock().get_or_insert(Arc::new(lost))),
                }
                return Err(error);
            }
        };
        filling.file = Some(file);
        let bytes = std::mem::take(&mut filling.resident_bytes);
        self.recount(number, filling);
        self.submit(writes);
        Ok(bytes)
    }

    /// Whether the partition has been spilled.
    pub fn is_spilled(&self, partition: usize) -> bool {
        self.partitions.get(partition).is_some_and(|filling| filling.lock().file.is_some())
    }

    /// Ends the input: seals every page being filled and submits what belongs on the device. The partitions
    /// may be read once [`Partitioner::drain_to`] zero has returned.
    pub fn finish(&self) -> Result<Vec<Partition>> {
        let mut writes = Vec::new();
        let mut finished = Vec::with_capacity(self.partitions.len());
        for (number, partition) in self.partitions.iter().enumerate() {
            let mut filling = partition.lock();
            if filling.builder.rows() > 0 {
                let mut buffer =
                    self.space.device().buffer(filling.builder.encoded_bytes().next_multiple_of(4096));
                let rows = filling.builder.rows() as u32;
                filling.builder.encode(PageIdentity::default(), &mut buffer)?;
                self.keep(&mut filling, SealedPage::new(buffer, rows));
            }
            collect(&mut filling, &mut writes)?;
            filling.builder = PageBuilder::new(Arc::clone(&self.schema), 0, 1);
            filling.resident_bytes = 0;
            finished.push(Partition {
                resident: std::mem::take(&mut filling.resident),
                file: filling.file.take().map(Arc::new),
                rows: std::mem::take(&mut filling.rows),
            });
            self.recount(number, &mut filling);
        }
        self.submit(writes);
        Ok(finished)
    }

    fn recount(&self, number: usize, filling: &mut Filling) {
        let now = filling.builder.memory_bytes() + filling.ring_bytes + filling.resident_bytes;
        count(&self.memory_bytes, &mut filling.counted_bytes, now);
        count(&self.ring_bytes, &mut filling.counted_ring_bytes, filling.ring_bytes);
        if let Some(bytes) = self.resident_bytes.get(number) {
            bytes.store(filling.resident_bytes, Ordering::Relaxed);
        }
        if let Some(rows) = self.resident_rows.get(number) {
            rows.store(if filling.file.is_some() { 0 } else { filling.rows as usize }, Ordering::Relaxed);
        }
    }
}

/// Moves the full sub-buffers of one ring into write requests.
fn collect(filling: &mut Filling, writes: &mut Vec<(File, Request)>) -> Result<()> {
    if let Some(file) = &mut filling.file {
        (filling.ring_bytes, filling.ring_taken_bytes) = (0, 0);
        writes.extend(file.append_outgoing(&mut std::mem::take(&mut filling.ring))?);
    }
    Ok(())
}

/// Makes `now` out of what `total` had `counted` so far.
fn count(total: &AtomicUsize, counted: &mut usize, now: usize) {
    let before = std::mem::replace(counted, now);
    if now >= before {
        total.fetch_add(now - before, Ordering::Relaxed);
    } else {
        total.fetch_sub(before - now, Ordering::Relaxed);
    }
}
