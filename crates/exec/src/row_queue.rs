//! Rows that wait: first in, first out, in memory while there is some, else in temporary space.
//!
//! ```text
//!   push ─► [ chapter being written ] ◄── no memory left, or others wait there already
//!       └─► [ batches in memory ] ──── others need memory ──► [ closed chapter, or the one being written ]
//!
//!   pop ◄── [ chapter being read ] ◄── [ closed chapter ] ◄── [ batches in memory ] ◄── [ chapter being written ]
//! ```
//!
//! Invariants
//! - Whatever waits in memory stands in front of the chapter that is being written. There is one at most, so that the
//!   buffers of a queue are bounded; it takes rows, whether there is memory again or not, until it is read.
//! - Batches are in memory only while no closed chapter waits in front of them: that was made of those before.
//! - Once a queue is sealed nothing comes behind the chapter that was being written; what others ask to be spilled
//!   stands in front of it.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::physical_plan::metrics::{Gauge, Time};
use parking_lot::Mutex;

use crate::chapter::{Chapter, ClosedChapter, Reading, Shelf};
use crate::held_batch::HeldBatch;
use crate::memory::{MemoryGovernor, Reclaim, ReclaimHandle, has_room};

/// A queue of rows.
pub struct RowQueue {
    waiting: Arc<Waiting>,
    reading: Option<Reading>,
    /// What is left of the batch that was last taken.
    front: Option<RecordBatch>,
    /// Rows that wait.
    rows: usize,
    /// Time spent on writing and reading.
    spill_time: Time,
    _reclaim: Option<ReclaimHandle>,
}

/// What others may ask to be spilled.
struct Waiting {
    rows: Mutex<Rows>,
    memory: MemoryReservation,
    pool: Arc<dyn MemoryPool>,
    shelf: Arc<Shelf>,
    peak_bytes: Gauge,
}

/// Rows in the order in which they stand.
#[derive(Default)]
struct Rows {
    closed: Option<ClosedChapter>,
    batches: VecDeque<HeldBatch>,
    chapter: Option<Chapter>,
    /// The chapter that was being written when the queue was sealed.
    last: Option<ClosedChapter>,
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
            rows: Mutex::default(),
            memory: MemoryConsumer::new(name).register(pool),
            pool: Arc::clone(pool),
            shelf,
            peak_bytes,
        });
        let weak: Weak<dyn Reclaim> = Arc::downgrade(&(Arc::clone(&waiting) as Arc<dyn Reclaim>));
        let reclaim = MemoryGovernor::register_reclaimer(pool, weak);
        Self { waiting, reading: None, front: None, rows: 0, spill_time, _reclaim: reclaim }
    }

    /// An empty queue of the same kind.
    pub fn another(&self) -> Self {
        let Waiting { memory, pool, shelf, peak_bytes, .. } = self.waiting.as_ref();
        let (shelf, spill_time) = (Arc::clone(shelf), self.spill_time.clone());
        Self::new(memory.consumer().name(), pool, shelf, spill_time, peak_bytes.clone())
    }

    /// Rows that wait.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Adds rows at the end.
    pub async fn push(&mut self, batch: RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.rows += batch.num_rows();
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

    /// Ends what is being written, so that it takes no memory: nothing will be pushed any more.
    pub async fn seal(&mut self) -> Result<()> {
        let chapter = self.waiting.rows.lock().chapter.take();
        if let Some(chapter) = chapter {
            let _waiting = self.spill_time.timer();
            let last = chapter.close().await?;
            self.waiting.rows.lock().last = Some(last);
        }
        Ok(())
    }

    /// Up to `rows` of the first rows; `None` if there are none.
    pub async fn pop(&mut self, rows: usize) -> Result<Option<RecordBatch>> {
        let Some(batch) = self.take_front().await? else { return Ok(None) };
        let taken = batch.num_rows().min(rows);
        self.rows -= taken;
        if taken == batch.num_rows() {
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
                Some(Taken::Closed(chapter)) => self.reading = chapter.read(&self.spill_time),
                Some(Taken::Chapter(chapter)) => self.reading = chapter.read(&self.spill_time).await?,
            }
        }
    }
}

/// What stood first.
enum Taken {
    Closed(ClosedChapter),
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
        if self.rows.lock().chapter.is_some() {
            return self.write(&batch).map(Some);
        }
        let held = HeldBatch::new(batch)?;
        // Nobody is to spill for rows that wait. Should somebody have to after all, no lock may be held.
        let fits = has_room(self.pool.as_ref(), held.bytes) && self.memory.try_grow(held.bytes).is_ok();
        let mut rows = self.rows.lock();
        // What others asked for meanwhile may have begun a chapter.
        if fits && rows.chapter.is_some() {
            self.memory.shrink(held.bytes);
        } else if fits || (is_next && rows.is_empty()) {
            if !fits {
                self.memory.grow(held.bytes);
            }
            self.peak_bytes.set_max(self.memory.size());
            rows.batches.push_back(held);
            return Ok(None);
        }
        drop(rows);
        self.write(&held.rows).map(Some)
    }

    /// Adds rows to the chapter that is being written.
    fn write(&self, batch: &RecordBatch) -> Result<impl Future<Output = Result<()>> + Send + use<>> {
        let mut rows = self.rows.lock();
        let chapter = match &mut rows.chapter {
            Some(chapter) => chapter,
            none => none.insert(self.shelf.chapter(&self.memory)?),
        };
        chapter.push(batch)?;
        Ok(chapter.throttle())
    }

    fn take(&self) -> Option<Taken> {
        let mut rows = self.rows.lock();
        if let Some(closed) = rows.closed.take() {
            return Some(Taken::Closed(closed));
        }
        if let Some(held) = rows.batches.pop_front() {
            self.memory.shrink(held.bytes);
            return Some(Taken::Batch(held.rows));
        }
        rows.chapter.take().map(Taken::Chapter).or_else(|| rows.last.take().map(Taken::Closed))
    }

    /// Writes all batches in memory, and returns the bytes that are free then.
    fn spill(&self, rows: &mut Rows) -> Result<usize> {
        let chapter = self.shelf.chapter(&self.memory)?;
        for held in &rows.batches {
            chapter.push(&held.rows)?;
            chapter.throttle_blocking()?;
        }
        if rows.chapter.is_none() {
            rows.chapter = Some(chapter);
        } else {
            rows.closed = Some(chapter.close_blocking()?);
        }
        let freed = rows.held_bytes();
        rows.batches.clear();
        self.memory.shrink(freed);
        Ok(freed)
    }

    /// What spilling would free, at least: a chapter needs buffers, too, and few rows are not worth one.
    fn reclaimable(&self, rows: &Rows) -> usize {
        let (bytes, buffers) = (rows.held_bytes(), self.shelf.write_buffer_bytes());
        if bytes > 2 * buffers { bytes - buffers } else { 0 }
    }
}

impl Rows {
    fn is_empty(&self) -> bool {
        self.closed.is_none() && self.batches.is_empty() && self.chapter.is_none() && self.last.is_none()
    }

    fn held_bytes(&self) -> usize {
        self.batches.iter().map(|held| held.bytes).sum()
    }
}

impl Reclaim for Waiting {
    fn reclaimable_bytes(&self) -> usize {
        self.rows.try_lock().map_or(0, |rows| self.reclaimable(&rows))
    }

    fn reclaim(&self, _bytes: usize) -> usize {
        let Some(mut rows) = self.rows.try_lock() else { return 0 };
        if self.reclaimable(&rows) == 0 {
            return 0;
        }
        match self.spill(&mut rows) {
            Ok(freed) => freed.saturating_sub(self.shelf.write_buffer_bytes()),
            Err(error) => {
                log::warn!("{} could not give memory back: {error}", self.memory.consumer().name());
                0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, AsArray, Int64Array};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
    use nandina_device::{Device, FaultPlan};
    use nandina_pages::PageSchema;
    use nandina_spill::{TempOptions, TempSpace};

    use super::*;
    use crate::chapter::ShelfMetrics;

    const LIMIT: usize = 1 << 20;
    const BATCH_ROWS: usize = 1000;

    /// A queue of batches of numbers, and a consumer that takes its memory.
    struct Stage {
        governor: Arc<MemoryGovernor>,
        shelf: Arc<Shelf>,
        queue: RowQueue,
        other: MemoryReservation,
        space: Arc<TempSpace>,
        pushed: i64,
        popped: i64,
    }

    impl Stage {
        fn new() -> Self {
            let governor = Arc::new(MemoryGovernor::new(Some(LIMIT)));
            let pool = Arc::clone(&governor) as Arc<dyn MemoryPool>;
            let (device, _) = Device::simulated(FaultPlan::none());
            let space = TempSpace::open(device, TempOptions::default()).unwrap();
            let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
            let pages = PageSchema::try_new(schema).unwrap();
            let metrics = ShelfMetrics::new(&ExecutionPlanMetricsSet::new(), 0);
            let shelf = Shelf::new(pages, space.query("test"), &pool, BATCH_ROWS, metrics);
            let queue = RowQueue::new("queue", &pool, Arc::clone(&shelf), Time::new(), Gauge::new());
            let other = MemoryConsumer::new("other").register(&pool);
            Self { governor, shelf, queue, other, space, pushed: 0, popped: 0 }
        }

        async fn push(&mut self) {
            let rows = self.pushed..self.pushed + BATCH_ROWS as i64;
            let numbers = Arc::new(Int64Array::from_iter_values(rows.clone()));
            self.queue.push(RecordBatch::try_from_iter([("n", numbers as _)]).unwrap()).await.unwrap();
            self.pushed = rows.end;
        }

        /// Takes rows and sees that they are the next ones.
        async fn pop(&mut self, rows: usize) {
            let batch = self.queue.pop(rows).await.unwrap().expect("rows");
            assert!(batch.num_rows() <= rows);
            for number in batch.column(0).as_primitive::<Int64Type>().values() {
                assert_eq!(*number, self.popped);
                self.popped += 1;
            }
        }

        async fn pop_all(&mut self) {
            while self.popped < self.pushed {
                self.pop(BATCH_ROWS).await;
            }
            assert!(self.queue.pop(1).await.unwrap().is_none());
        }

        /// Takes all memory that nobody has.
        fn take_the_rest(&mut self) {
            self.other.try_grow(LIMIT - self.governor.used_bytes()).unwrap();
        }

        /// What the queue takes, whoever has the rest.
        fn bytes(&self) -> usize {
            self.governor.used_bytes() - self.other.size()
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn memory_that_comes_and_goes_does_not_leave_buffers_behind() {
        let mut stage = Stage::new();
        for _ in 0..100 {
            for _ in 0..3 {
                stage.push().await;
            }
            stage.take_the_rest();
            for _ in 0..3 {
                stage.push().await;
            }
            stage.other.free();
        }
        // The batches that came before memory ran out, and the buffers of one chapter.
        let most = 4 * BATCH_ROWS * size_of::<i64>() + stage.shelf.write_buffer_bytes();
        assert!(stage.bytes() <= most, "{} of {most}", stage.bytes());
        stage.pop_all().await;
        assert_eq!(stage.popped, 600_000);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rows_that_wait_do_not_keep_what_they_were_cut_from() {
        let mut stage = Stage::new();
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1_000_000));
        let large = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
        stage.queue.push(large.slice(500, 100)).await.unwrap();
        assert!(stage.bytes() < 4096, "{}", stage.bytes());
        let rows = stage.queue.pop(100).await.unwrap().unwrap();
        assert_eq!(rows, large.slice(500, 100));
        assert!(rows.get_array_memory_size() < 4096, "{}", rows.get_array_memory_size());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rows_that_were_asked_for_take_no_memory_and_keep_their_place() {
        let mut stage = Stage::new();
        for round in 0..20 {
            // Enough to be worth a chapter, then others behind it that go to temporary space at once.
            while stage.bytes() < LIMIT / 2 {
                stage.push().await;
            }
            stage.take_the_rest();
            stage.push().await;
            let before = stage.bytes();
            stage.other.try_grow(LIMIT / 8).expect("what rows waited in");
            assert!(stage.bytes() < before, "round {round}");
            assert!(stage.bytes() <= stage.shelf.write_buffer_bytes(), "round {round}: {}", stage.bytes());
            assert!(stage.governor.used_bytes() <= LIMIT, "round {round}");
            stage.other.free();
            // The closed chapter is being read while more rows come, then the one behind it.
            stage.pop(BATCH_ROWS / 2).await;
            stage.push().await;
            while stage.pushed - stage.popped > BATCH_ROWS as i64 / 2 {
                stage.pop(BATCH_ROWS / 2).await;
            }
            stage.push().await;
            stage.pop_all().await;
        }
        drop(stage.queue);
        assert_eq!(stage.governor.used_bytes(), 0);
        assert_eq!(stage.space.used_bytes(), 0);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_sealed_queue_has_no_buffers_and_keeps_its_rows() {
        for batches in [0, 1, 200] {
            for is_asked in [false, true] {
                let mut stage = Stage::new();
                for _ in 0..3 {
                    stage.push().await;
                }
                stage.take_the_rest();
                for _ in 0..batches {
                    stage.push().await;
                }
                let before = stage.bytes();
                stage.queue.seal().await.unwrap();
                stage.queue.seal().await.unwrap();
                let in_memory = 4 * BATCH_ROWS * size_of::<i64>();
                assert!(stage.bytes() <= in_memory.min(before), "{} of {before}", stage.bytes());
                if is_asked {
                    stage.queue.waiting.reclaim(LIMIT);
                }
                assert_eq!(stage.queue.rows() as i64, stage.pushed);
                stage.pop_all().await;
                drop(stage.queue);
                assert_eq!(stage.governor.used_bytes(), stage.other.size());
                assert_eq!(stage.space.used_bytes(), 0);
            }
        }
    }
}
