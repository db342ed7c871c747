//! Rows that wait: first in, first out, in memory while there is some, else in temporary space.
//!
//! ```text
//!   push ─► [ open file ] ◄── no memory left, or others wait there already
//!       └─► [ batches in memory ] ──── others need memory ──► [ head file, or the open one ]
//!
//!   pop ◄── [ file being read ] ◄── [ head file ] ◄── [ batches in memory ] ◄── [ open file ]
//! ```
//!
//! Invariants
//! - Batches in memory stand in front of the open file. There is at most one, so that the buffers of a queue are bounded;
//!   it takes rows, whether there is memory again or not, until it is read.
//! - Batches are in memory only while there is no head file, which was made of those before.
//! - Once a queue is sealed nothing comes behind the open file, which is finished then; what others ask to be spilled
//!   stands in front of it.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::physical_plan::metrics::Gauge;
use futures::Stream;
use parking_lot::Mutex;

use super::context::SpillContext;
use super::file::{SpillFile, SpillReader};
use super::writer::SpillWriter;
use crate::batch::HeldBatch;
use crate::memory::{MemoryGovernor, Reclaim, ReclaimHandle, has_room};

/// A queue of rows.
pub struct RowQueue {
    waiting: Arc<Waiting>,
    reading: Option<SpillReader>,
    /// The rest of the batch that was last taken.
    front: Option<RecordBatch>,
    /// Rows that wait.
    rows: usize,
    _reclaim: Option<ReclaimHandle>,
}

/// What others may ask to be spilled.
struct Waiting {
    rows: Mutex<Rows>,
    memory: MemoryReservation,
    pool: Arc<dyn MemoryPool>,
    spill: Arc<SpillContext>,
    peak_bytes: Gauge,
}

/// Rows in the order in which they stand.
#[derive(Default)]
struct Rows {
    head: Option<SpillFile>,
    batches: VecDeque<HeldBatch>,
    open: Option<SpillWriter>,
    /// The file that was open when the queue was sealed.
    last: Option<SpillFile>,
}

impl RowQueue {
    /// An empty queue.
    pub fn new(name: &str, pool: &Arc<dyn MemoryPool>, spill: Arc<SpillContext>, peak_bytes: Gauge) -> Self {
        let waiting = Arc::new(Waiting {
            rows: Mutex::default(),
            memory: MemoryConsumer::new(name).register(pool),
            pool: Arc::clone(pool),
            spill,
            peak_bytes,
        });
        let reclaim = MemoryGovernor::register_reclaimer(pool, Arc::<Waiting>::downgrade(&waiting));
        Self { waiting, reading: None, front: None, rows: 0, _reclaim: reclaim }
    }

    /// An empty queue of the same kind.
    pub fn another(&self) -> Self {
        let Waiting { memory, pool, spill, peak_bytes, .. } = self.waiting.as_ref();
        Self::new(memory.consumer().name(), pool, Arc::clone(spill), peak_bytes.clone())
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
            Some(written) => written.await,
            None => Ok(()),
        }
    }

    /// Ends the open writer, so that it takes no memory: nothing will be pushed any more.
    pub async fn seal(&mut self) -> Result<()> {
        let open = self.waiting.rows.lock().open.take();
        if let Some(open) = open {
            let last = open.finish_one().await?;
            self.waiting.rows.lock().last = last;
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

    /// All rows, in batches of up to `rows`.
    pub fn pop_all(self, rows: usize) -> impl Stream<Item = Result<RecordBatch>> + Send {
        let next = move |mut queue: Self| async move {
            let batch = queue.pop(rows).await?;
            Ok(batch.map(|batch| (batch, queue)))
        };
        futures::stream::try_unfold(self, next)
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
                Some(Taken::File(file)) => self.reading = Some(file.read()),
                Some(Taken::Open(writer)) => {
                    self.reading = writer.finish_one().await?.map(|file| file.read());
                }
            }
        }
    }
}

/// What stood first.
enum Taken {
    File(SpillFile),
    Batch(RecordBatch),
    Open(SpillWriter),
}

impl Waiting {
    /// Adds rows; the future, if any, is to be awaited without a lock.
    fn push(
        &self,
        batch: RecordBatch,
        is_next: bool,
    ) -> Result<Option<impl Future<Output = Result<()>> + Send + use<>>> {
        if self.rows.lock().open.is_some() {
            return self.write(&batch).map(Some);
        }
        let held = HeldBatch::new(batch)?;
        // No operator is to spill for rows that wait. Should one have to after all, no lock may be held.
        let fits = has_room(self.pool.as_ref(), held.bytes) && self.memory.try_grow(held.bytes).is_ok();
        let mut rows = self.rows.lock();
        // What others asked for meanwhile may have opened a file.
        if fits && rows.open.is_some() {
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

    /// Adds rows to the open file.
    fn write(&self, batch: &RecordBatch) -> Result<impl Future<Output = Result<()>> + Send + use<>> {
        let mut rows = self.rows.lock();
        let open = match &mut rows.open {
            Some(open) => open,
            none => none.insert(SpillWriter::new(&self.spill)?),
        };
        open.push(batch)?;
        Ok(open.throttle())
    }

    fn take(&self) -> Option<Taken> {
        let mut rows = self.rows.lock();
        if let Some(head) = rows.head.take() {
            return Some(Taken::File(head));
        }
        if let Some(held) = rows.batches.pop_front() {
            self.memory.shrink(held.bytes);
            return Some(Taken::Batch(held.rows));
        }
        rows.open.take().map(Taken::Open).or_else(|| rows.last.take().map(Taken::File))
    }

    /// Writes all batches in memory, and returns the bytes that are free then.
    fn spill(&self, rows: &mut Rows) -> Result<usize> {
        let writer = SpillWriter::new(&self.spill)?;
        for held in &rows.batches {
            writer.push(&held.rows)?;
            writer.throttle_blocking()?;
        }
        if rows.open.is_none() {
            rows.open = Some(writer);
        } else {
            assert!(rows.head.is_none(), "batches are in memory only while there is no head file");
            rows.head = writer.finish_one_blocking()?;
        }
        let freed = rows.held_bytes();
        rows.batches.clear();
        self.memory.shrink(freed);
        Ok(freed)
    }

    /// What spilling would free, at least: a writer needs buffers, too, and few rows are not worth one.
    fn reclaimable(&self, rows: &Rows) -> usize {
        let (bytes, buffers) = (rows.held_bytes(), self.spill.write_buffer_bytes());
        if bytes > 2 * buffers { bytes - buffers } else { 0 }
    }
}

impl Rows {
    fn is_empty(&self) -> bool {
        self.head.is_none() && self.batches.is_empty() && self.open.is_none() && self.last.is_none()
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
            Ok(freed) => freed.saturating_sub(self.spill.write_buffer_bytes()),
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

    use nandina_pages::PageSchema;
    use nandina_simulation::FaultPlan;
    use nandina_spill::{TempOptions, TempSpace};

    use super::*;
    use crate::spill::{SpillMetrics, SpillShape};

    const LIMIT: usize = 1 << 20;
    const BATCH_ROWS: usize = 1000;

    /// A queue of batches of numbers, and a consumer that takes its memory.
    struct Stage {
        governor: Arc<MemoryGovernor>,
        spill: Arc<SpillContext>,
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
            let (device, _) = nandina_simulation::in_memory(FaultPlan::none());
            let space = TempSpace::open(device, TempOptions::default()).unwrap();
            let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
            let pages = PageSchema::try_new(schema).unwrap();
            let metrics = SpillMetrics::new(&ExecutionPlanMetricsSet::new(), 0);
            let (shape, of_query) = (SpillShape::SideBySide, space.query("test"));
            let spill = SpillContext::new(shape, &pages, &of_query, &pool, "queue", BATCH_ROWS, &metrics);
            let queue = RowQueue::new("queue", &pool, Arc::clone(&spill), Gauge::new());
            let other = MemoryConsumer::new("other").register(&pool);
            Self { governor, spill, queue, other, space, pushed: 0, popped: 0 }
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

        /// Takes all memory that is free.
        fn take_the_rest(&mut self) {
            self.other.try_grow(LIMIT - self.governor.used_bytes()).unwrap();
        }

        /// What the queue takes.
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
        // The batches that came before memory ran out, and the buffers of one writer.
        let most = 4 * BATCH_ROWS * size_of::<i64>() + stage.spill.write_buffer_bytes();
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
            // Enough to be worth a file, then others behind it that go to temporary space at once.
            while stage.bytes() < LIMIT / 2 {
                stage.push().await;
            }
            stage.take_the_rest();
            stage.push().await;
            let before = stage.bytes();
            stage.other.try_grow(LIMIT / 8).expect("what rows waited in");
            assert!(stage.bytes() < before, "round {round}");
            assert!(stage.bytes() <= stage.spill.write_buffer_bytes(), "round {round}: {}", stage.bytes());
            assert!(stage.governor.used_bytes() <= LIMIT, "round {round}");
            stage.other.free();
            // The head file is being read while more rows come, then the one behind it.
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
            for is_referenced in [false, true] {
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
                if is_referenced {
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
