//! The rows on their way from all inputs to the outputs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::metrics::SharedMetrics;
use crate::batch_bytes::data_bytes;
use crate::chapter::{Chapter, Shelf};
use crate::memory::has_room;

/// The queues of all outputs.
pub struct Queues {
    queues: Vec<Queue>,
    /// Outputs that wait for rows or have not come to ask for any, while their queue is empty.
    hungry: AtomicUsize,
    /// An output has become hungry, or is gone.
    wanted: Notify,
    /// Inputs that have not ended.
    producers: AtomicUsize,
    failure: Mutex<Option<Arc<DataFusionError>>>,
    pool: Arc<dyn MemoryPool>,
    shelf: Arc<Shelf>,
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
    batches: VecDeque<Held>,
    chapter: Option<Chapter>,
    /// The output was dropped: nothing is kept for it.
    is_closed: bool,
}

/// A batch and the memory that is reserved for it.
struct Held {
    batch: RecordBatch,
    bytes: usize,
}

impl Rows {
    fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.chapter.is_none()
    }
}

/// What an output finds in its queue.
pub enum Found {
    Batch(RecordBatch),
    Chapter(Chapter),
    /// Nothing yet.
    Nothing,
    /// Nothing, and nothing will come.
    End,
}

impl Queues {
    /// Empty queues for `outputs` outputs, to be filled by `producers` inputs.
    pub fn new(
        outputs: usize,
        producers: usize,
        pool: &Arc<dyn MemoryPool>,
        shelf: Arc<Shelf>,
        metrics: SharedMetrics,
    ) -> Arc<Self> {
        let queue = |number: usize| Queue {
            rows: Mutex::default(),
            arrived: Notify::new(),
            memory: MemoryConsumer::new(format!("Exchange[{number}]")).register(pool),
        };
        Arc::new(Self {
            queues: (0..outputs).map(queue).collect(),
            hungry: AtomicUsize::new(outputs),
            wanted: Notify::new(),
            producers: AtomicUsize::new(producers),
            failure: Mutex::new(None),
            pool: Arc::clone(pool),
            shelf,
            metrics,
        })
    }

    /// Puts rows into the queue of an output: in memory if there is some, else in temporary space.
    pub async fn push(&self, output: usize, batch: RecordBatch) -> Result<()> {
        let Some(queue) = self.queues.get(output).filter(|_| batch.num_rows() > 0) else { return Ok(()) };
        let bytes = data_bytes(&batch);
        // Nobody is to spill for rows that wait. Should somebody have to after all, no lock may be held.
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
                    rows.batches.push_back(Held { batch, bytes });
                    None
                }
                (false, false) => {
                    let chapter = match &mut rows.chapter {
                        Some(chapter) => chapter,
                        none => none.insert(self.shelf.chapter(&queue.memory)?),
                    };
                    chapter.push(&batch)?;
                    Some(chapter.throttle())
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

    /// Takes what the queue of an output has: first what is in memory.
    pub fn take(&self, output: usize) -> Result<Found> {
        if let Some(failure) = &*self.failure.lock() {
            return Err(DataFusionError::Shared(Arc::clone(failure)));
        }
        // Read before looking: whatever was put in before the last input ended is seen.
        let is_over = self.producers.load(Ordering::Acquire) == 0;
        let Some(queue) = self.queues.get(output) else { return Ok(Found::End) };
        let found = {
            let mut rows = queue.rows.lock();
            let found = match (rows.batches.pop_front(), &mut rows.chapter) {
                (Some(held), _) => {
                    queue.memory.shrink(held.bytes);
                    Some(Found::Batch(held.batch))
                }
                (None, chapter) => chapter.take().map(Found::Chapter),
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

    /// Nobody reads an output any more.
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
        queue.memory.shrink(rows.batches.iter().map(|held| held.bytes).sum());
    }

    /// An input has ended, well or with an error.
    pub fn producer_done(&self, outcome: Result<()>) {
        if let Err(error) = outcome {
            self.failure.lock().get_or_insert(Arc::new(error));
        }
        self.producers.fetch_sub(1, Ordering::AcqRel);
        self.queues.iter().for_each(|queue| queue.arrived.notify_one());
    }
}
