//! The rows queued between all inputs and the outputs.
//!
//! An output that gets few rows keeps the inputs going, whose rows for the others then take all memory there is. So
//! other operators may ask for it: the rows of the fullest queues move to temporary space.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::metrics::SharedMetrics;
use crate::batch::HeldBatch;
use crate::memory::{MemoryGovernor, Reclaim, ReclaimHandle, has_room};
use crate::spill::{SpillContext, SpillWriter};

/// The queues of all outputs.
pub struct Queues {
    queues: Vec<Queue>,
    /// Outputs that wait for rows or have not come to ask for any, while their queue is empty.
    hungry: AtomicUsize,
    /// An output has become hungry.
    wanted: Notify,
    /// Inputs that have not ended.
    producers: AtomicUsize,
    failure: Mutex<Option<Arc<DataFusionError>>>,
    pool: Arc<dyn MemoryPool>,
    spill: Arc<SpillContext>,
    metrics: SharedMetrics,
}

struct Queue {
    rows: Mutex<Rows>,
    /// Something has been put in, or nothing more will be.
    arrived: Notify,
    memory: MemoryReservation,
}

#[derive(Default)]
struct Rows {
    batches: VecDeque<HeldBatch>,
    /// Rows behind those in memory.
    writer: Option<SpillWriter>,
    /// The output was dropped: nothing is kept for it.
    is_closed: bool,
}

impl Rows {
    fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.writer.is_none()
    }

    /// The writer of rows that go to temporary space, perhaps a new one.
    fn writer(&mut self, spill: &Arc<SpillContext>) -> Result<&SpillWriter> {
        Ok(match &mut self.writer {
            Some(writer) => writer,
            none => none.insert(SpillWriter::new(spill)?),
        })
    }

    fn held_bytes(&self) -> usize {
        self.batches.iter().map(|held| held.bytes).sum()
    }
}

/// What an output finds in its queue.
pub enum Found {
    Batch(RecordBatch),
    Spilled(SpillWriter),
    /// Nothing yet.
    Nothing,
    /// Nothing, and nothing will come.
    End,
}

impl Queues {
    /// Empty queues for `outputs` outputs of the operator `name`, to be filled by `producers` inputs.
    pub fn new(
        name: &str,
        outputs: usize,
        producers: usize,
        pool: &Arc<dyn MemoryPool>,
        spill: Arc<SpillContext>,
        metrics: SharedMetrics,
    ) -> Arc<Self> {
        let queue = |number: usize| Queue {
            rows: Mutex::default(),
            arrived: Notify::new(),
            memory: MemoryConsumer::new(format!("{name}[{number}]")).register(pool),
        };
        Arc::new(Self {
            queues: (0..outputs).map(queue).collect(),
            hungry: AtomicUsize::new(outputs),
            wanted: Notify::new(),
            producers: AtomicUsize::new(producers),
            failure: Mutex::new(None),
            pool: Arc::clone(pool),
            spill,
            metrics,
        })
    }

    /// Lets others ask for the memory of rows that wait, for as long as the handle is kept.
    pub fn register(self: &Arc<Self>) -> Option<ReclaimHandle> {
        MemoryGovernor::register_reclaimer(&self.pool, Arc::<Self>::downgrade(self))
    }

    /// Puts rows into the queue of an output: in memory if there is some, else in temporary space.
    pub async fn push(&self, output: usize, batch: RecordBatch) -> Result<()> {
        let Some(queue) = self.queues.get(output).filter(|_| batch.num_rows() > 0) else { return Ok(()) };
        let HeldBatch { rows: batch, bytes } = HeldBatch::new(batch)?;
        // No operator is to spill for rows that wait. Should one have to after all, no lock may be held.
        let fits = has_room(self.pool.as_ref(), bytes) && queue.memory.try_grow(bytes).is_ok();
        let written = {
            let mut rows = queue.rows.lock();
            let was_empty = rows.is_empty() && !rows.is_closed;
            let written = match (rows.is_closed, fits) {
                (true, true) => {
                    queue.memory.shrink(bytes);
                    None
                }
                (true, false) => None,
                (false, true) => {
                    rows.batches.push_back(HeldBatch { rows: batch, bytes });
                    None
                }
                (false, false) => {
                    let writer = rows.writer(&self.spill)?;
                    writer.push(&batch)?;
                    Some(writer.throttle())
                }
            };
            if was_empty {
                self.hungry.fetch_sub(1, Ordering::AcqRel);
            }
            written
        };
        self.metrics.peak_memory_bytes.set_max(self.queues.iter().map(|queue| queue.memory.size()).sum());
        queue.arrived.notify_one();
        match written {
            Some(written) => written.await,
            None => Ok(()),
        }
    }

    /// Waits until some output wants rows.
    pub async fn wanted(&self) {
        loop {
            let mut wanted = std::pin::pin!(self.wanted.notified());
            wanted.as_mut().enable();
            if self.hungry.load(Ordering::Acquire) > 0 {
                return;
            }
            wanted.await;
        }
    }

    /// Takes rows from the queue of an output: first those in memory.
    pub fn take(&self, output: usize) -> Result<Found> {
        if let Some(failure) = &*self.failure.lock() {
            return Err(DataFusionError::Shared(Arc::clone(failure)));
        }
        // Read before looking: whatever was put in before the last input ended is seen.
        let is_over = self.producers.load(Ordering::Acquire) == 0;
        let Some(queue) = self.queues.get(output) else { return Ok(Found::End) };
        let found = {
            let mut rows = queue.rows.lock();
            let found = match (rows.batches.pop_front(), &mut rows.writer) {
                (Some(held), _) => {
                    queue.memory.shrink(held.bytes);
                    Some(Found::Batch(held.rows))
                }
                (None, writer) => writer.take().map(Found::Spilled),
            };
            if found.is_some() && rows.is_empty() {
                self.hungry.fetch_add(1, Ordering::AcqRel);
                self.wanted.notify_waiters();
            }
            found
        };
        Ok(match found {
            Some(found) => found,
            None if is_over => Found::End,
            None => Found::Nothing,
        })
    }

    /// Waits until there may be something for an output.
    pub async fn arrived(&self, output: usize) {
        if let Some(queue) = self.queues.get(output) {
            queue.arrived.notified().await;
        }
    }

    /// An output has no consumer any more.
    pub fn close(&self, output: usize) {
        let Some(queue) = self.queues.get(output) else { return };
        let rows = {
            let mut rows = queue.rows.lock();
            let left = std::mem::replace(&mut *rows, Rows { is_closed: true, ..Rows::default() });
            if left.is_empty() && !left.is_closed {
                self.hungry.fetch_sub(1, Ordering::AcqRel);
            }
            left
        };
        queue.memory.shrink(rows.held_bytes());
    }

    /// An input has ended, well or with an error.
    pub fn producer_done(&self, outcome: Result<()>) {
        if let Err(error) = outcome {
            self.failure.lock().get_or_insert(Arc::new(error));
        }
        self.producers.fetch_sub(1, Ordering::AcqRel);
        self.queues.iter().for_each(|queue| queue.arrived.notify_one());
    }

    /// What moving a queue's rows to temporary space would free, at least: a writer needs buffers, too, and few rows
    /// are not worth one.
    fn reclaimable(&self, rows: &Rows) -> usize {
        let (bytes, buffers) = (rows.held_bytes(), self.spill.write_buffer_bytes());
        match &rows.writer {
            Some(_) => bytes,
            None if bytes > 2 * buffers => bytes - buffers,
            None => 0,
        }
    }

    /// Moves the rows that a queue has in memory to temporary space, and returns the bytes that are free then.
    fn spill(&self, queue: &Queue, rows: &mut Rows) -> Result<usize> {
        let reclaimable = self.reclaimable(rows);
        if reclaimable == 0 {
            return Ok(0);
        }
        let freed = rows.held_bytes();
        let batches = std::mem::take(&mut rows.batches);
        let written = rows.writer(&self.spill).and_then(|writer| {
            batches.iter().try_for_each(|held| {
                writer.push(&held.rows)?;
                writer.throttle_blocking()
            })
        });
        drop(batches);
        queue.memory.shrink(freed);
        written.map(|()| reclaimable)
    }
}

impl Reclaim for Queues {
    fn reclaimable_bytes(&self) -> usize {
        let of_queue = |queue: &Queue| queue.rows.try_lock().map_or(0, |rows| self.reclaimable(&rows));
        self.queues.iter().map(of_queue).sum()
    }

    fn reclaim(&self, bytes: usize) -> usize {
        let mut queues: Vec<&Queue> = self.queues.iter().collect();
        queues.sort_by_key(|queue| std::cmp::Reverse(queue.memory.size()));
        let mut freed = 0;
        for queue in queues {
            if freed >= bytes {
                break;
            }
            let Some(mut rows) = queue.rows.try_lock() else { continue };
            match self.spill(queue, &mut rows) {
                Ok(of_queue) => freed += of_queue,
                Err(error) => {
                    // Which rows of the spill file are missing is not known: all ends with the error.
                    drop(rows);
                    self.failure.lock().get_or_insert(Arc::new(error));
                    self.queues.iter().for_each(|queue| queue.arrived.notify_one());
                    break;
                }
            }
        }
        freed
    }
}
