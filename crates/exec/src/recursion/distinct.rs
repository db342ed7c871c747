//! Keeping rows that were seen out of a recursion.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use datafusion::common::Result;
use datafusion::execution::memory_pool::MemoryPool;

use super::row_table::RowTable;
use super::seen::{FirstSeen, SeenRows, Verdict};
use crate::batch::HeldBatch;
use crate::memory::{HeldMemory, ReclaimHandle};
use crate::spill::{RowQueue, SpillFile, SpillReader, SpillWriter};

/// The share of memory that rows which are compared with a partition of those seen may take, and their least.
const BLOCK_SHARE: usize = 4;
const MIN_BLOCK_BYTES: usize = 64 << 10;

/// Lets every row pass once.
pub struct Distinct {
    seen: Arc<SeenRows>,
    /// Unchecked rows, in the order in which they came.
    unchecked: RowQueue,
    /// The same, and all rows of the step that follow them, when the table has no room for them.
    scattered: Option<SpillWriter>,
    checking: Option<Checking>,
    _reclaim: Option<ReclaimHandle>,
}

/// The check of unchecked rows at the end of a step.
enum Checking {
    /// Whether they are new is known: from this one on.
    Known {
        is_new: Vec<bool>,
        next: usize,
    },
    Partitions(Box<PartitionCheck>),
}

impl Distinct {
    /// `unchecked` is empty.
    pub fn new(seen: Arc<SeenRows>, unchecked: RowQueue, pool: &Arc<dyn MemoryPool>) -> Self {
        let reclaim = seen.offer_memory(pool);
        Self { seen, unchecked, scattered: None, checking: None, _reclaim: reclaim }
    }

    /// Consumes rows, and returns those that are known to be new. There may be more of them at the end of the step.
    pub async fn push(&mut self, batch: RecordBatch) -> Result<Option<RecordBatch>> {
        let keys = self.seen.keys.of(&batch)?;
        match self.seen.add(&keys)? {
            FirstSeen::Rows { new, unchecked } => {
                if unchecked.true_count() > 0 {
                    self.unchecked.push(filter_record_batch(&batch, &unchecked)?).await?;
                }
                Ok(Some(filter_record_batch(&batch, &new)?))
            }
            FirstSeen::Unknown => {
                self.scatter_unchecked().await?;
                let rows = self.seen.keys.stored_rows(&batch, keys.hashes)?;
                self.scattered()?.write(&rows).await?;
                Ok(None)
            }
        }
    }

    /// The next rows that turn out to be new at the end of a step; `None` if there are no more.
    pub async fn next_checked(&mut self) -> Result<Option<RecordBatch>> {
        let mut checking = match self.checking.take() {
            Some(checking) => checking,
            None => self.check().await?,
        };
        let rows = match &mut checking {
            Checking::Known { is_new, next } => next_known(&mut self.unchecked, is_new, next).await?,
            Checking::Partitions(check) => check.next(&self.seen).await?,
        };
        if rows.is_some() {
            self.checking = Some(checking);
        }
        Ok(rows)
    }

    async fn check(&mut self) -> Result<Checking> {
        Ok(match self.seen.check().await? {
            Verdict::New(is_new) => Checking::Known { is_new, next: 0 },
            Verdict::Unknown => {
                self.scatter_unchecked().await?;
                let files = match self.scattered.take() {
                    Some(scattered) => scattered.finish().await?,
                    None => Vec::new(),
                };
                Checking::Partitions(Box::new(PartitionCheck::new(files, &self.seen)))
            }
        })
    }

    async fn scatter_unchecked(&mut self) -> Result<()> {
        while let Some(batch) = self.unchecked.pop(usize::MAX).await? {
            let keys = self.seen.keys.of(&batch)?;
            let rows = self.seen.keys.stored_rows(&batch, keys.hashes)?;
            self.scattered()?.write(&rows).await?;
        }
        Ok(())
    }

    fn scattered(&mut self) -> Result<&SpillWriter> {
        Ok(match &mut self.scattered {
            Some(scattered) => scattered,
            none => none.insert(SpillWriter::new(&self.seen.row_spill)?),
        })
    }
}

/// The next of `rows` that are new.
async fn next_known(rows: &mut RowQueue, is_new: &[bool], next: &mut usize) -> Result<Option<RecordBatch>> {
    while let Some(batch) = rows.pop(usize::MAX).await? {
        let verdicts = &is_new[*next..*next + batch.num_rows()];
        *next += batch.num_rows();
        let new = filter_record_batch(&batch, &BooleanArray::from(verdicts.to_vec()))?;
        if new.num_rows() > 0 {
            return Ok(Some(new));
        }
    }
    Ok(None)
}

/// Comparing scattered rows with those seen, partition by partition, of each as many rows at a time as there is memory
/// for.
struct PartitionCheck {
    files: VecDeque<(usize, SpillFile)>,
    reading: Option<(usize, SpillReader)>,
    new: VecDeque<HeldBatch>,
    /// For the rows of a block and the table of them, then for those that are new.
    memory: HeldMemory,
    most_bytes: usize,
}

impl PartitionCheck {
    fn new(files: Vec<Option<SpillFile>>, seen: &SeenRows) -> Self {
        let numbered = files.into_iter().enumerate();
        let files = numbered.filter_map(|(number, file)| file.map(|file| (number, file))).collect();
        let share = seen.row_spill.memory_limit().map(|limit| limit / BLOCK_SHARE);
        let most_bytes = share.map_or(usize::MAX, |share| share.max(MIN_BLOCK_BYTES));
        Self { files, reading: None, new: VecDeque::new(), memory: seen.memory.another(), most_bytes }
    }

    async fn next(&mut self, seen: &SeenRows) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(held) = self.new.pop_front() {
                self.memory.shrink(held.bytes);
                return Ok(Some(held.rows));
            }
            if self.reading.is_none() {
                let Some((partition, file)) = self.files.pop_front() else { return Ok(None) };
                // The file is not shared: the part that has been read is freed.
                self.reading = Some((partition, file.read()));
            }
            self.check_block(seen).await?;
        }
    }

    /// Checks as many of the rows being read as there is memory for.
    async fn check_block(&mut self, seen: &SeenRows) -> Result<()> {
        let Some((partition, mut reading)) = self.reading.take() else { return Ok(()) };
        let mut table = RowTable::try_new(&seen.keys)?;
        let (mut rows, mut numbers, mut bytes) = (Vec::new(), Vec::new(), 0);
        loop {
            let Some(stored) = reading.next().await? else { break };
            let (batch, keys) = seen.keys.of_stored_rows(&stored)?;
            let mut is_first = vec![false; batch.num_rows()];
            table.add(&keys, |place, number| {
                is_first[place] = true;
                numbers.push(number);
            });
            let held = HeldBatch::new(filter_record_batch(&batch, &BooleanArray::from(is_first))?)?;
            bytes += held.bytes;
            rows.push(held.rows);
            if self.is_full(bytes + table.memory_bytes() + numbers.capacity() * size_of::<usize>()) {
                self.reading = Some((partition, reading));
                break;
            }
        }
        let is_new = seen.add_to_partition(partition, &mut table).await?;
        drop(table);
        let mut numbers = numbers.into_iter();
        for rows in rows {
            let of_rows = numbers.by_ref().take(rows.num_rows());
            let is_new: Vec<bool> = of_rows.map(|number| is_new[number]).collect();
            let new = filter_record_batch(&rows, &BooleanArray::from(is_new))?;
            if new.num_rows() > 0 {
                self.new.push_back(HeldBatch::new(new)?);
            }
        }
        self.memory.resize(self.new.iter().map(|held| held.bytes).sum());
        Ok(())
    }

    /// Reserves what a block takes, and half as much again for what the next rows add. Whether it is to have no more.
    fn is_full(&self, bytes: usize) -> bool {
        if bytes <= self.most_bytes && self.memory.try_resize(bytes + bytes / 2) {
            return false;
        }
        self.memory.resize(bytes);
        bytes > MIN_BLOCK_BYTES
    }
}
