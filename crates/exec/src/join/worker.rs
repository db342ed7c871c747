//! One output partition of a join: probes its own input, then helps with what was spilled.
//!
//! ```text
//!   wait for the build side ─► probe own input ─► all outputs done? ─► take spilled pairs, one at a time
//!                                   │                                      (shared by all workers)
//!                                   └─► rows of spilled partitions ─► shared probe files
//! ```
//!
//! A consumer may poll the output partitions one after the other. A worker therefore waits for the others only
//! if every one of them has been polled at least once, and as long as any of them gets on; otherwise it leaves,
//! and whoever is last does the rest.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use async_stream::try_stream;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use futures::future::{BoxFuture, Shared};
use futures::{Stream, StreamExt};
use nandina_spill::{Partitioner, Scatter};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::build_side::BuildSide;
use super::kind::SideRows;
use super::metrics::JoinMetrics;
use super::pair::{Opened, PairJoin, produces_rows};
use super::prober::{BuildRows, Prober};
use super::state::{JoinState, SpilledPair, table_bytes};
use crate::error::spill_error;
use crate::execution::Progress;
use crate::memory::portion_rows;
use crate::spill::HashFilter;

/// Completion of the build side, which every worker awaits and any of them drives.
pub type BuildDone = Shared<BoxFuture<'static, std::result::Result<(), Arc<DataFusionError>>>>;

/// A piece of what remains when every probe row has been seen.
enum Work {
    /// The build rows of a resident partition.
    Rows(Arc<BuildSide>, usize),
    Pair(SpilledPair),
}

/// The meeting point of a join's workers.
pub struct Workers {
    outputs: usize,
    started: AtomicUsize,
    finished: AtomicUsize,
    /// An output was dropped before its end: which build rows stayed unmatched will never be known.
    abandoned: AtomicBool,
    closing: AtomicBool,
    queue: Mutex<Queue>,
    changed: Notify,
}

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    /// Workers whose work may still add pairs to the queue.
    busy: usize,
    open: bool,
    failed: bool,
}

impl Workers {
    /// For a join of `outputs` output partitions.
    pub fn new(outputs: usize) -> Arc<Self> {
        Arc::new(Self {
            outputs,
            started: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
            abandoned: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            queue: Mutex::new(Queue::default()),
            changed: Notify::new(),
        })
    }

    /// Waits until all outputs have been probed and the remaining work is known. False if this worker has
    /// nothing more to do.
    async fn all_probed(&self, state: &Arc<JoinState>) -> Result<bool> {
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
                    self.open_queue(state).await?;
                    return Ok(true);
                }
            } else if self.started.load(Ordering::Acquire) < self.outputs {
                return Ok(false);
            }
            if !state.progress.wait_for(changed).await {
                // Whoever is last does the rest.
                return Ok(false);
            }
        }
    }

    async fn open_queue(&self, state: &Arc<JoinState>) -> Result<()> {
        let _failed_unless_open = OpenOrFail(self);
        let mut work = VecDeque::new();
        if let Some(remainder) = state.finish_probing().await? {
            let gives_build_rows = state.spec.kind.build_rows != SideRows::Dropped;
            // Without all probe rows nobody knows which build rows are unmatched, in memory or on the device. Who
            // drops an output has enough rows, so what cannot be known is left out.
            if !gives_build_rows {
                work.extend(remainder.pairs.into_iter().map(Work::Pair));
            } else if !self.abandoned.load(Ordering::Acquire) {
                for partition in 0..remainder.build.tables().len() {
                    work.push_back(Work::Rows(Arc::clone(&remainder.build), partition));
                }
                work.extend(remainder.pairs.into_iter().map(Work::Pair));
            }
        }
        let mut queue = self.queue.lock();
        queue.work = work;
        queue.open = true;
        Ok(())
    }

    /// The next piece of work; waits while another worker may still split a pair into several.
    async fn take(self: &Arc<Self>, progress: &Progress) -> Option<(Work, BusyGuard)> {
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

    fn add(&self, pairs: Vec<SpilledPair>) {
        // In front: deeper pairs are smaller, and their parent's files are gone already.
        let mut queue = self.queue.lock();
        for pair in pairs {
            queue.work.push_front(Work::Pair(pair));
        }
        drop(queue);
        self.changed.notify_waiters();
    }
}

/// Marks the queue failed if it was not opened: a worker that gives up must not leave others waiting.
struct OpenOrFail<'a>(&'a Workers);

impl Drop for OpenOrFail<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.failed = !queue.open;
        drop(queue);
        self.0.changed.notify_waiters();
    }
}

struct BusyGuard(Arc<Workers>);

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.queue.lock().busy -= 1;
        self.0.changed.notify_waiters();
    }
}

/// Counts an output as started, and as finished however it ends.
struct OutputGuard {
    workers: Arc<Workers>,
    complete: bool,
}

impl OutputGuard {
    fn new(workers: &Arc<Workers>) -> Self {
        workers.started.fetch_add(1, Ordering::AcqRel);
        Self { workers: Arc::clone(workers), complete: false }
    }

    fn complete(mut self) {
        self.complete = true;
    }
}

impl Drop for OutputGuard {
    fn drop(&mut self) {
        if !self.complete {
            self.workers.abandoned.store(true, Ordering::Release);
        }
        self.workers.finished.fetch_add(1, Ordering::AcqRel);
        self.workers.changed.notify_waiters();
    }
}

/// The stream of one output partition.
pub fn output(
    state: Arc<JoinState>,
    workers: Arc<Workers>,
    build_done: BuildDone,
    mut input: SendableRecordBatchStream,
    metrics: JoinMetrics,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    try_stream! {
        let guard = OutputGuard::new(&workers);
        build_done.await.map_err(DataFusionError::Shared)?;
        let mut prober = Prober::new(Arc::clone(&state.spec));
        let mut scratch = ProbeScratch::default();
        while let Some(batch) = input.next().await {
            let batch = batch?;
            if batch.num_rows() == 0 {
                continue;
            }
            let timer = metrics.probe_time.timer();
            metrics.probe_input_rows.add(batch.num_rows());
            state.spill_cost.saw_probe_rows(batch.num_rows());
            let spilling = scratch.start(&state, &mut prober, &batch)?;
            drop(batch);
            drop(timer);
            state.note_step();
            if let Some(spilling) = spilling {
                scratch.spill(&state, spilling, &metrics).await?;
            }
            loop {
                let timer = metrics.probe_time.timer();
                let Some(output) = prober.next()? else { break };
                drop(timer);
                yield output;
            }
        }
        drop(input);
        drop(prober);
        guard.complete();
        if workers.all_probed(&state).await? {
            while let Some((work, _busy)) = workers.take(&state.progress).await {
                match work {
                    Work::Rows(build, partition) => {
                        let bytes = build.tables().get(partition).and_then(Option::as_deref).map_or(0, table_bytes);
                        let mut rows = BuildRows::new(Arc::clone(&state.spec), build, partition, state.inner());
                        while let Some(output) = rows.next()? {
                            yield output;
                        }
                        drop(rows);
                        state.release_table(bytes);
                    }
                    Work::Pair(pair) => {
                        if !produces_rows(&state.spec, &pair) {
                            continue;
                        }
                        match PairJoin::open(&state, pair).await? {
                            Opened::Split(pairs) => workers.add(pairs),
                            Opened::Join(mut join) => {
                                while let Some(output) = join.next().await? {
                                    yield output;
                                }
                            }
                        }
                    }
                }
                state.report_io();
            }
        }
        state.report_io();
    }
}

/// A probe batch some of whose rows go to the device, and what takes them there.
struct Spilling {
    rows: RecordBatch,
    partitioner: Arc<Partitioner>,
}

/// Buffers that probing a batch needs, kept from batch to batch.
#[derive(Default)]
struct ProbeScratch {
    hashes: Vec<u64>,
    spilled: Vec<u32>,
    scatter: Scatter,
}

impl ProbeScratch {
    /// Starts a probe batch: its rows of resident partitions go to `prober`. Returns what has to be spilled.
    fn start(
        &mut self,
        state: &Arc<JoinState>,
        prober: &mut Prober,
        batch: &RecordBatch,
    ) -> Result<Option<Spilling>> {
        let Some((build, partitioner)) = state.probing() else {
            return Err(DataFusionError::Internal("a join was probed before it was built".to_owned()));
        };
        let stored = state.spec.probe.store(batch)?;
        let keys = state.spec.probe.key_arrays(&stored);
        if state.spec.null_aware {
            state.note_inner(true, keys.iter().any(|key| key.logical_null_count() > 0));
        }
        state.hasher().hash(&keys, stored.num_rows(), &mut self.hashes)?;
        let held = if build.any_spilled() { state.on_build_side(&keys)? } else { None };
        let (rows, hashes) = (stored.clone(), &self.hashes);
        let filtered = prober.start(Arc::clone(&build), rows, keys, hashes, held.as_ref(), &mut self.spilled);
        state.metrics.filtered_rows.add(filtered);
        if build.spilled_keys().is_some_and(HashFilter::passes_nearly_all) {
            state.give_up_spilled_keys();
        }
        Ok((!self.spilled.is_empty()).then_some(Spilling { rows: stored, partitioner }))
    }

    /// Adds the spilled rows of a batch to their partitions' files, a portion at a time.
    async fn spill(&mut self, state: &JoinState, spilling: Spilling, metrics: &JoinMetrics) -> Result<()> {
        let Spilling { rows, partitioner } = spilling;
        for portion in self.spilled.chunks(portion_rows(&rows, state.memory_limit)) {
            let timer = metrics.probe_time.timer();
            self.scatter.by_hash_of(portion, &self.hashes, state.partition_bits());
            partitioner.push(&rows, &self.scatter).map_err(spill_error)?;
            drop(timer);
            let _waiting = metrics.spill.time.timer();
            partitioner.throttle().await.map_err(spill_error)?;
        }
        Ok(())
    }
}
