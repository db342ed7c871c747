//! The output partitions of a join: each probes its own input, then they share the work that remains.
//!
//! A consumer may poll the output partitions one after the other. A worker therefore waits for the others only
//! if every one of them has been polled at least once, and as long as any of them makes progress; otherwise it leaves,
//! and the last one does the rest.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::metrics::BaselineMetrics;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, Stream, StreamExt};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::execution::Progress;

/// Completion of the build side, which every worker awaits and any of them drives.
pub type BuildDone = Shared<BoxFuture<'static, std::result::Result<(), Arc<DataFusionError>>>>;

/// `build`, for all workers.
pub fn build_done(build: impl Future<Output = Result<()>> + Send + 'static) -> BuildDone {
    build.map(|done| done.map_err(Arc::new)).boxed().shared()
}

/// The rows of one output partition as a plan node's, counted.
pub fn output_stream(
    rows: impl Stream<Item = Result<RecordBatch>> + Send + 'static,
    schema: SchemaRef,
    baseline: BaselineMetrics,
) -> SendableRecordBatchStream {
    let counted = rows.inspect(move |batch| {
        if let Ok(batch) = batch {
            baseline.record_output(batch.num_rows());
        }
    });
    // One batch of the probe side may make many, between which its scan has no say.
    Box::pin(cooperative(RecordBatchStreamAdapter::new(schema, Box::pin(counted))))
}

/// The meeting point of a join's workers, one for each output partition, and the pieces of work `W` that remain when every
/// probe row has been seen.
pub struct Workers<W> {
    outputs: usize,
    started: AtomicUsize,
    finished: AtomicUsize,
    /// An output was dropped before its end: which build rows stayed unmatched will never be known.
    abandoned: AtomicBool,
    closing: AtomicBool,
    queue: Mutex<Queue<W>>,
    changed: Notify,
}

struct Queue<W> {
    work: VecDeque<W>,
    /// Workers whose work may still add to the queue.
    busy: usize,
    open: bool,
    failed: bool,
}

impl<W> Workers<W> {
    /// For a join of `outputs` output partitions.
    pub fn new(outputs: usize) -> Arc<Self> {
        Arc::new(Self {
            outputs,
            started: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
            abandoned: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            queue: Mutex::new(Queue { work: VecDeque::new(), busy: 0, open: false, failed: false }),
            changed: Notify::new(),
        })
    }

    /// One of the workers begins.
    pub fn start(self: &Arc<Self>) -> OutputGuard<W> {
        self.started.fetch_add(1, Ordering::AcqRel);
        OutputGuard { workers: Arc::clone(self), complete: false }
    }

    /// Whether an output was dropped before its end. Without all probe rows it is unknown which build rows are unmatched, in
    /// memory or on the device. The consumer of a dropped output has enough rows, so what cannot be known is left out.
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    /// Waits until all outputs have been probed and the `remaining` work is known, which the last of them finds out. False
    /// if this worker has nothing more to do.
    pub async fn all_probed(
        &self,
        progress: &Progress,
        remaining: impl Future<Output = Result<VecDeque<W>>>,
    ) -> Result<bool> {
        loop {
            let changed = self.changed.notified();
            {
                let queue = self.queue.lock();
                if queue.open || queue.failed {
                    return Ok(queue.open);
                }
            }
            if self.finished.load(Ordering::Acquire) == self.outputs {
                if !self.closing.swap(true, Ordering::AcqRel) {
                    let _failed_unless_open = OpenOrFail(self);
                    let work = remaining.await?;
                    let mut queue = self.queue.lock();
                    queue.work = work;
                    queue.open = true;
                    return Ok(true);
                }
            } else if self.started.load(Ordering::Acquire) < self.outputs {
                return Ok(false);
            }
            if !progress.wait_for(changed).await {
                // The last one does the rest.
                return Ok(false);
            }
        }
    }

    /// The next piece of work, where none makes more.
    pub fn take(&self) -> Option<W> {
        self.queue.lock().work.pop_front()
    }

    /// The next piece of work; waits while another worker may still split one into several.
    pub async fn take_or_wait(self: &Arc<Self>, progress: &Progress) -> Option<(W, BusyGuard<W>)> {
        loop {
            let changed = self.changed.notified();
            {
                let mut queue = self.queue.lock();
                if let Some(work) = queue.work.pop_front() {
                    queue.busy += 1;
                    return Some((work, BusyGuard(Arc::clone(self))));
                }
                if queue.busy == 0 || queue.failed {
                    return None;
                }
            }
            if !progress.wait_for(changed).await {
                // What the others split they join.
                return None;
            }
        }
    }

    /// Adds the pieces that one was split into, to be taken first: they are smaller, and its files are gone already.
    pub fn add(&self, pieces: impl IntoIterator<Item = W>) {
        let mut queue = self.queue.lock();
        for piece in pieces {
            queue.work.push_front(piece);
        }
        drop(queue);
        self.changed.notify_waiters();
    }
}

/// Marks the queue failed if it was not opened: a worker that gives up must not leave others waiting.
struct OpenOrFail<'a, W>(&'a Workers<W>);

impl<W> Drop for OpenOrFail<'_, W> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.failed = !queue.open;
        drop(queue);
        self.0.changed.notify_waiters();
    }
}

/// Marks a worker whose work may still add to the queue.
pub struct BusyGuard<W>(Arc<Workers<W>>);

impl<W> Drop for BusyGuard<W> {
    fn drop(&mut self) {
        self.0.queue.lock().busy -= 1;
        self.0.changed.notify_waiters();
    }
}

/// Counts an output as finished however it ends.
pub struct OutputGuard<W> {
    workers: Arc<Workers<W>>,
    complete: bool,
}

impl<W> OutputGuard<W> {
    /// All of the input has been seen. Whether that is so of all outputs now.
    pub fn complete(mut self) -> bool {
        self.complete = true;
        let workers = Arc::clone(&self.workers);
        drop(self);
        workers.finished.load(Ordering::Acquire) == workers.outputs
    }
}

impl<W> Drop for OutputGuard<W> {
    fn drop(&mut self) {
        if !self.complete {
            self.workers.abandoned.store(true, Ordering::Release);
        }
        self.workers.finished.fetch_add(1, Ordering::AcqRel);
        self.workers.changed.notify_waiters();
    }
}
