//! Rows that wait for results: first in, first out, in memory while there is some, else in temporary space.
//!
//! ```text
//!   push ─► … [ chapter being written | batches ] … [ chapter | batches ] [ chapter being read ] ─► pop
//! ```

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::physical_plan::metrics::{Gauge, Time};
use parking_lot::Mutex;

use crate::batch_bytes::data_bytes;
use crate::chapter::{Chapter, Reading, Shelf};
use crate::memory::{MemoryGovernor, Reclaim, ReclaimHandle, has_room};

/// A queue of rows.
pub struct RowQueue {
    waiting: Arc<Waiting>,
    reading: Option<Reading>,
    /// What is left of the batch that was last taken.
    front: Option<RecordBatch>,
    /// Time spent on writing and reading.
    spill_time: Time,
    _reclaim: Option<ReclaimHandle>,
}

/// What others may ask to be spilled.
struct Waiting {
    sections: Mutex<VecDeque<Section>>,
    memory: MemoryReservation,
    pool: Arc<dyn MemoryPool>,
    shelf: Arc<Shelf>,
    peak_bytes: Gauge,
}

/// Rows that follow each other.
enum Section {
    Held(VecDeque<Held>),
    Written(Chapter),
}

/// A batch and the memory that is reserved for it.
struct Held {
    batch: RecordBatch,
    bytes: usize,
}

impl RowQueue {
    /// An empty queue.
    pub fn new(
        name: &str,
        pool: &Arc<dyn MemoryPool>,
        shelf: Arc<Shelf>,
        spill_time: Time,
        peak_bytes: Gauge,
    ) -> Self {
        let waiting = Arc::new(Waiting {
            sections: Mutex::default(),
            memory: MemoryConsumer::new(name).register(pool),
            pool: Arc::clone(pool),
            shelf,
            peak_bytes,
        });
        let weak: Weak<dyn Reclaim> = Arc::downgrade(&(Arc::clone(&waiting) as Arc<dyn Reclaim>));
        let reclaim = MemoryGovernor::register_reclaimer(pool, weak);
        Self { waiting, reading: None, front: None, spill_time, _reclaim: reclaim }
    }

    /// Adds rows at the end.
    pub async fn push(&mut self, batch: RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        // A single batch is passed on in memory whatever the limit: without it nothing would move.
        let is_next = self.front.is_none() && self.reading.is_none();
        match self.waiting.push(batch, is_next)? {
            Some(written) => {
                let _waiting = self.spill_time.timer();
                written.await
            }
            None => Ok(()),
        }
    }

    /// Up to `rows` of the first rows; `None` if there are none.
    pub async fn pop(&mut self, rows: usize) -> Result<Option<RecordBatch>> {
        let Some(batch) = self.take_front().await? else { return Ok(None) };
        if batch.num_rows() <= rows {
            return Ok(Some(batch));
        }
        self.front = Some(batch.slice(rows, batch.num_rows() - rows));
        Ok(Some(batch.slice(0, rows)))
    }

    async fn take_front(&mut self) -> Result<Option<RecordBatch>> {
        if let Some(batch) = self.front.take() {
            return Ok(Some(batch));
        }
        loop {
            if let Some(reading) = &mut self.reading {
                if let Some(batch) = reading.next().await? {
                    return Ok(Some(batch));
                }
                self.reading = None;
            }
            match self.waiting.take() {
                None => return Ok(None),
                Some(Taken::Batch(batch)) => return Ok(Some(batch)),
                Some(Taken::Chapter(chapter)) => self.reading = chapter.read(&self.spill_time).await?,
            }
        }
    }
}

/// What stood first.
enum Taken {
    Batch(RecordBatch),
    Chapter(Chapter),
}

impl Waiting {
    /// Adds rows; the future, if any, is to be awaited without a lock.
    fn push(
        &self,
        batch: RecordBatch,
        is_next: bool,
    ) -> Result<Option<impl Future<Output = Result<()>> + Send + use<>>> {
        let bytes = data_bytes(&batch);
        // Nobody is to spill for rows that wait. Should somebody have to after all, no lock may be held.
        let fits = has_room(self.pool.as_ref(), bytes) && self.memory.try_grow(bytes).is_ok();
        let mut sections = self.sections.lock();
        if fits || (is_next && sections.is_empty()) {
            if !fits {
                self.memory.grow(bytes);
            }
            self.peak_bytes.set_max(self.memory.size());
            match sections.back_mut() {
                Some(Section::Held(batches)) => batches.push_back(Held { batch, bytes }),
                _ => sections.push_back(Section::Held([Held { batch, bytes }].into())),
            }
            return Ok(None);
        }
        if !matches!(sections.back(), Some(Section::Written(_))) {
            sections.push_back(Section::Written(self.shelf.chapter(&self.memory)?));
        }
        let Some(Section::Written(chapter)) = sections.back() else { return Ok(None) };
        chapter.push(&batch)?;
        Ok(Some(chapter.throttle()))
    }

    fn take(&self) -> Option<Taken> {
        let mut sections = self.sections.lock();
        if let Some(Section::Held(batches)) = sections.front_mut() {
            let held = batches.pop_front();
            if batches.is_empty() {
                sections.pop_front();
            }
            let held = held?;
            self.memory.shrink(held.bytes);
            return Some(Taken::Batch(held.batch));
        }
        match sections.pop_front()? {
            Section::Written(chapter) => Some(Taken::Chapter(chapter)),
            Section::Held(_) => None,
        }
    }

    /// Writes the largest run of batches in memory, and returns the bytes that are free then.
    fn spill_largest(&self, sections: &mut VecDeque<Section>) -> Result<usize> {
        let largest = sections.iter_mut().max_by_key(|section| section.bytes());
        let Some(section) = largest.filter(|section| section.bytes() > 0) else { return Ok(0) };
        let Section::Held(batches) = section else { return Ok(0) };
        let chapter = self.shelf.chapter(&self.memory)?;
        for held in batches.iter() {
            chapter.push(&held.batch)?;
        }
        chapter.throttle_blocking()?;
        let freed = batches.iter().map(|held| held.bytes).sum();
        *section = Section::Written(chapter);
        self.memory.shrink(freed);
        Ok(freed)
    }
}

impl Section {
    /// Bytes in memory.
    fn bytes(&self) -> usize {
        match self {
            Self::Held(batches) => batches.iter().map(|held| held.bytes).sum(),
            Self::Written(_) => 0,
        }
    }
}

impl Reclaim for Waiting {
    fn reclaimable_bytes(&self) -> usize {
        let Some(sections) = self.sections.try_lock() else { return 0 };
        let bytes: usize = sections.iter().map(Section::bytes).sum();
        // A chapter needs buffers, too.
        if bytes > 2 * self.shelf.write_buffer_bytes() { bytes } else { 0 }
    }

    fn reclaim(&self, _bytes: usize) -> usize {
        let Some(mut sections) = self.sections.try_lock() else { return 0 };
        let before = self.memory.size();
        match self.spill_largest(&mut sections) {
            Ok(freed) => freed.saturating_sub(self.shelf.write_buffer_bytes()).min(before),
            Err(error) => {
                log::warn!("a window could not give memory back: {error}");
                0
            }
        }
    }
}
