//! The rows so far: those in memory, and those that had to leave it.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, UInt64Array};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryPool, MemoryReservation};
use nandina_device::block_on;
use parking_lot::Mutex;

use super::keys::RowKeys;
use super::row_table::RowTable;
use crate::keys::KeyedRows;
use crate::memory::{HeldMemory, MemoryGovernor, Reclaim, ReclaimHandle};
use crate::spill::{HashFilter, SpillContext, SpillFile, SpillWriter, SpilledHashes};

/// The share of memory that the table keeps whatever other operators want, and its least: a smaller one would leave memory
/// with every few batches.
const KEPT_SHARE: usize = 16;
const MIN_TABLE_BYTES: usize = 64 << 10;

/// Bytes written and read for a byte of the table that leaves memory: every step may have to look at it again.
const IO_PER_BYTE: f64 = 8.0;

/// The rows so far, each once.
pub struct SeenRows {
    pub keys: Arc<RowKeys>,
    /// Rows of a step, scattered by hash.
    pub row_spill: Arc<SpillContext>,
    /// Keys of rows seen, scattered in the same way.
    key_spill: Arc<SpillContext>,
    pub memory: HeldMemory,
    seen: Mutex<Seen>,
}

struct Seen {
    table: RowTable,
    /// The place of each of the table's rows, by number.
    places: Vec<Place>,
    /// The numbers of unchecked rows, in the order in which they came.
    unchecked: Vec<usize>,
    /// The keys of rows in temporary space, by partition.
    files: Vec<Vec<SpillFile>>,
    /// Hashes of rows in temporary space.
    spilled: SpilledHashes,
    /// Of the filter over them: a fixed share, taken whether there is room for it or not.
    filter_memory: MemoryReservation,
    /// Whether unchecked rows had to leave the table.
    overflows: bool,
    /// What kept rows from getting to temporary space; they are gone.
    failure: Option<Arc<DataFusionError>>,
}

/// Where a row of the table is as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Nowhere,
    TemporarySpace,
    /// Whether in temporary space is not known yet.
    Unchecked,
}

/// Which rows of a batch are there for the first time.
pub enum FirstSeen {
    /// These are, and of others it is not known yet.
    Rows { new: BooleanArray, unchecked: BooleanArray },
    /// Nothing is known of any: the table has no room for rows of this step.
    Unknown,
}

/// The verdict on unchecked rows when their step has ended.
pub enum Verdict {
    /// Whether they are new, in the order in which they came.
    New(Vec<bool>),
    /// Nothing: the table had no room for all of them.
    Unknown,
}

impl SeenRows {
    pub fn try_new(
        keys: Arc<RowKeys>,
        key_spill: Arc<SpillContext>,
        memory: HeldMemory,
    ) -> Result<Arc<Self>> {
        let seen = Seen {
            table: RowTable::try_new(&keys)?,
            places: Vec::new(),
            unchecked: Vec::new(),
            files: vec![Vec::new(); key_spill.partitions()],
            spilled: SpilledHashes::default(),
            filter_memory: key_spill.reserve(0),
            overflows: false,
            failure: None,
        };
        let row_spill = key_spill.with_pages(&keys.row_pages);
        Ok(Arc::new(Self { keys, row_spill, key_spill, memory, seen: Mutex::new(seen) }))
    }

    /// Lets others ask for the table's memory.
    pub fn offer_memory(self: &Arc<Self>, pool: &Arc<dyn MemoryPool>) -> Option<ReclaimHandle> {
        MemoryGovernor::register_reclaimer(pool, Arc::<Self>::downgrade(self))
    }

    /// Adds rows.
    pub fn add(&self, rows: &KeyedRows) -> Result<FirstSeen> {
        let mut seen = self.seen.lock();
        seen.fail_if_lost()?;
        if seen.overflows {
            return Ok(FirstSeen::Unknown);
        }
        let first_seen = seen.add(rows);
        let bytes = seen.memory_bytes();
        drop(seen);
        self.make_room(bytes)?;
        Ok(first_seen)
    }

    /// Reserves the bytes that the table has, and half as much again for what the next rows add. If that is refused,
    /// the table is emptied.
    fn make_room(&self, bytes: usize) -> Result<()> {
        let granted = self.memory.bytes() >= bytes || self.memory.try_resize(bytes + bytes / 2);
        let mut seen = self.seen.lock();
        if !granted && seen.memory_bytes() > self.kept_bytes() {
            self.empty(&mut seen)?;
        }
        // It may have been emptied for another operator as well, or for itself, while it asked.
        let bytes = seen.memory_bytes();
        if !granted || self.memory.bytes() > 2 * bytes {
            self.memory.resize(bytes);
        }
        Ok(())
    }

    fn kept_bytes(&self) -> usize {
        self.key_spill.memory_limit().map_or(0, |limit| limit / KEPT_SHARE).max(MIN_TABLE_BYTES)
    }

    /// Moves the rows of the table to temporary space, blocking the thread. Unchecked ones are dropped: they wait
    /// elsewhere.
    fn empty(&self, seen: &mut Seen) -> Result<()> {
        seen.overflows |= !std::mem::take(&mut seen.unchecked).is_empty();
        let places = std::mem::take(&mut seen.places);
        let is_missing = |row: usize| places[row] == Place::Nowhere;
        let stored = seen.table.take(is_missing).and_then(|(hashes, keys)| {
            seen.note_spilled(hashes.values(), &self.key_spill);
            let writer = SpillWriter::new(&self.key_spill)?;
            block_on(self.write(writer, hashes, keys))
        });
        match stored {
            Ok(written) => {
                assert_eq!(
                    seen.files.len(),
                    written.len(),
                    "rows were scattered to the partitions that there are"
                );
                for (files, file) in seen.files.iter_mut().zip(written) {
                    files.extend(file);
                }
                Ok(())
            }
            Err(failure) => {
                seen.failure = Some(Arc::new(failure));
                seen.fail_if_lost()
            }
        }
    }

    async fn write(
        &self,
        writer: SpillWriter,
        hashes: UInt64Array,
        keys: Vec<ArrayRef>,
    ) -> Result<Vec<Option<SpillFile>>> {
        writer.write(&self.keys.stored(hashes, keys)?).await?;
        writer.finish().await
    }

    /// Finds out which of the unchecked rows are new. Afterwards none is unchecked.
    pub async fn check(&self) -> Result<Verdict> {
        let empty = RowTable::try_new(&self.keys)?;
        let (table, unchecked, files) = {
            let mut seen = self.seen.lock();
            seen.fail_if_lost()?;
            if std::mem::take(&mut seen.overflows) {
                return Ok(Verdict::Unknown);
            }
            let unchecked = std::mem::take(&mut seen.unchecked);
            if unchecked.is_empty() {
                return Ok(Verdict::New(Vec::new()));
            }
            // Out of reach of reclaims meanwhile.
            (std::mem::replace(&mut seen.table, empty), unchecked, seen.files.clone())
        };
        let mut is_wanted = vec![false; files.len()];
        for hash in unchecked.iter().map(|&row| table.hashes()[row]) {
            is_wanted[self.key_spill.partition_of(hash)] = true;
        }
        let mut is_known = vec![false; table.len()];
        for (files, _) in files.iter().zip(is_wanted).filter(|(_, is_wanted)| *is_wanted) {
            self.mark_known(files, &table, &mut is_known).await?;
        }
        let mut seen = self.seen.lock();
        seen.table = table;
        Ok(Verdict::New(seen.note_checked(&unchecked, &is_known)))
    }

    /// Marks those rows of `table` that are among `files`.
    async fn mark_known(&self, files: &[SpillFile], table: &RowTable, is_known: &mut [bool]) -> Result<()> {
        for file in files {
            let mut rows = file.read();
            while let Some(stored) = rows.next().await? {
                table.for_each_known(&self.keys.of_stored(&stored), |row| {
                    is_known[row] = true;
                });
            }
        }
        Ok(())
    }

    /// Empties `table`, all of whose rows belong to one partition, into temporary space. Whether they are new, by
    /// number.
    pub async fn add_to_partition(&self, partition: usize, table: &mut RowTable) -> Result<Vec<bool>> {
        let files = {
            let seen = self.seen.lock();
            let may_be_there = table.hashes().iter().any(|&hash| seen.spilled.may_hold(hash));
            if may_be_there { seen.files[partition].clone() } else { Vec::new() }
        };
        let mut is_known = vec![false; table.len()];
        self.mark_known(&files, table, &mut is_known).await?;
        let is_new: Vec<bool> = is_known.into_iter().map(|known| !known).collect();
        let (hashes, keys) = table.take(|row| is_new[row])?;
        if !hashes.is_empty() {
            self.seen.lock().note_spilled(hashes.values(), &self.key_spill);
            let writer = SpillWriter::new(&self.key_spill.unscattered())?;
            let written = self.write(writer, hashes, keys).await?;
            self.seen.lock().files[partition].extend(written.into_iter().flatten());
        }
        Ok(is_new)
    }
}

impl Seen {
    fn add(&mut self, rows: &KeyedRows) -> FirstSeen {
        let Self { table, places, unchecked: numbers, spilled, .. } = self;
        let (mut new, mut unchecked) = (vec![false; rows.hashes.len()], vec![false; rows.hashes.len()]);
        places.resize(table.len(), Place::Nowhere);
        table.add(rows, |place, number| {
            let is_unchecked = spilled.may_hold(rows.hashes[place]);
            let flags = if is_unchecked { &mut unchecked } else { &mut new };
            flags[place] = true;
            if is_unchecked {
                numbers.push(number);
            }
        });
        places.resize(table.len(), Place::Nowhere);
        for &number in numbers.iter() {
            places[number] = Place::Unchecked;
        }
        FirstSeen::Rows { new: BooleanArray::from(new), unchecked: BooleanArray::from(unchecked) }
    }

    /// Of rows that were unchecked: whether they are new.
    fn note_checked(&mut self, rows: &[usize], is_known: &[bool]) -> Vec<bool> {
        for &row in rows {
            self.places[row] = if is_known[row] { Place::TemporarySpace } else { Place::Nowhere };
        }
        rows.iter().map(|&row| !is_known[row]).collect()
    }

    /// Notes the hashes of rows that go to temporary space.
    fn note_spilled(&mut self, hashes: &[u64], spill: &SpillContext) {
        if let Some(filter) = self.spilled.filter_to_fill(HashFilter::share_of(spill.memory_limit())) {
            hashes.iter().for_each(|&hash| filter.insert(hash));
            self.spilled.review();
        }
        self.filter_memory.resize(self.spilled.memory_bytes());
    }

    fn memory_bytes(&self) -> usize {
        self.table.memory_bytes() + self.places.capacity() + self.unchecked.capacity() * size_of::<usize>()
    }

    fn fail_if_lost(&self) -> Result<()> {
        self.failure.as_ref().map_or(Ok(()), |failure| Err(DataFusionError::Shared(Arc::clone(failure))))
    }
}

impl SeenRows {
    /// What emptying the table would free. While it is written it needs buffers, too.
    fn reclaimable(&self, seen: &Seen) -> usize {
        let bytes = seen.memory_bytes();
        let is_worth_it = bytes > self.kept_bytes().max(self.key_spill.write_buffer_bytes());
        if is_worth_it && seen.table.len() > 0 { bytes } else { 0 }
    }
}

impl Reclaim for SeenRows {
    fn reclaimable_bytes(&self) -> usize {
        self.seen.try_lock().map_or(0, |seen| self.reclaimable(&seen))
    }

    fn io_per_byte(&self) -> f64 {
        IO_PER_BYTE
    }

    fn reclaim(&self, _bytes: usize) -> usize {
        let Some(mut seen) = self.seen.try_lock() else { return 0 };
        if self.reclaimable(&seen) == 0 {
            return 0;
        }
        if let Err(error) = self.empty(&mut seen) {
            log::warn!("a recursion could not give memory back: {error}");
        }
        let (held, left) = (self.memory.bytes(), seen.memory_bytes());
        self.memory.shrink(held.saturating_sub(left));
        held.saturating_sub(left)
    }
}
