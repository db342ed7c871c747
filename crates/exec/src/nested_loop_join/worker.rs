//! One output partition of a join: its own probe rows first, then its part of what remains.
//!
//! ```text
//!   wait for the build side ─► own input ─┬─► meets the block
//!                                         └─► kept, if the build side is on the device
//!                                                │
//!        no build rows to emit:      own files against all blocks
//!        otherwise:                  all outputs done? ─► shared: rows of the block, or blocks against all files
//! ```
//!
//! A consumer may poll the output partitions one after the other. A worker therefore waits for the others only
//! if every one of them has been polled at least once, and as long as any of them gets on; otherwise it leaves,
//! and whoever is last does the rest.

use std::collections::VecDeque;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use async_stream::try_stream;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use futures::future::{BoxFuture, Shared};
use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::assemble::BuildRowsOut;
use super::block::Block;
use super::metrics::LoopMetrics;
use super::probe_spill::ProbeSpill;
use super::prober::Prober;
use super::spilled::{Blocks, join_blocks, join_file};
use super::state::{LoopState, Remainder, SpilledBuild};
use crate::join::kind::SideRows;
use crate::spill::SpillFile;

/// Completion of the build side, which every worker awaits and any of them drives.
pub type BuildDone = Shared<BoxFuture<'static, std::result::Result<(), Arc<DataFusionError>>>>;

/// A piece of what remains when every probe row has been seen.
enum Work {
    /// The rows of some pages of a block in memory.
    Rows(Arc<Block>, Range<usize>),
    /// As many blocks as one worker can take before there are none.
    Blocks(Arc<Blocks>, Arc<Vec<SpillFile>>),
    /// The rows of a file, after all blocks.
    File(SpilledBuild, SpillFile),
}

/// The meeting point of a join's workers.
pub struct Workers {
    outputs: usize,
    started: AtomicUsize,
    finished: AtomicUsize,
    /// An output was dropped before its end: which build rows stayed unmatched will never be known.
    abandoned: AtomicBool,
    closing: AtomicBool,
    shared: Mutex<SharedWork>,
    changed: Notify,
}

#[derive(Default)]
struct SharedWork {
    /// What the outputs have kept of their inputs.
    probe_files: Vec<SpillFile>,
    work: VecDeque<Work>,
    open: bool,
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
            shared: Mutex::new(SharedWork::default()),
            changed: Notify::new(),
        })
    }

    /// Waits until all outputs have been probed and the remaining work is known. False if this worker has
    /// nothing more to do.
    async fn all_probed(&self, state: &Arc<LoopState>) -> bool {
        loop {
            let changed = self.changed.notified();
            if self.shared.lock().open {
                return true;
            }
            if self.finished.load(Ordering::Acquire) == self.outputs {
                if !self.closing.swap(true, Ordering::AcqRel) {
                    self.open(state);
                    return true;
                }
            } else if self.started.load(Ordering::Acquire) < self.outputs {
                return false;
            }
            if !state.progress.wait_for(changed).await {
                // Whoever is last does the rest.
                return false;
            }
        }
    }

    /// Makes the remaining work known.
    fn open(&self, state: &Arc<LoopState>) {
        let remainder = state.close();
        let mut shared = self.shared.lock();
        let files = std::mem::take(&mut shared.probe_files);
        // Without all probe rows nobody knows which build rows are unmatched. Who drops an output has enough rows, so
        // what cannot be known is left out.
        if !self.abandoned.load(Ordering::Acquire) {
            match remainder {
                Some(Remainder::InMemory(block)) => {
                    let pages = block.pages().len();
                    let part = pages.div_ceil(self.outputs).max(1);
                    shared.work.extend(
                        (0..pages)
                            .step_by(part)
                            .map(|first| Work::Rows(Arc::clone(&block), first..pages.min(first + part))),
                    );
                }
                Some(Remainder::Spilled(build)) => {
                    let blocks = Arc::new(Blocks::new(state, &build));
                    let all = Arc::new(files.clone());
                    shared.work.extend(
                        (0..self.outputs).map(|_| Work::Blocks(Arc::clone(&blocks), Arc::clone(&all))),
                    );
                    if state.spec.kind.probe_rows != SideRows::Dropped {
                        let own = files.into_iter().map(|file| Work::File(build.clone(), file));
                        shared.work.extend(own);
                    }
                }
                None => {}
            }
        }
        shared.open = true;
        drop(shared);
        self.changed.notify_waiters();
    }

    fn take(&self) -> Option<Work> {
        self.shared.lock().work.pop_front()
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

    /// All of the input has been seen. Whether that is so of all outputs now.
    fn complete(mut self) -> bool {
        self.complete = true;
        let workers = Arc::clone(&self.workers);
        drop(self);
        workers.finished.load(Ordering::Acquire) == workers.outputs
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
    state: Arc<LoopState>,
    workers: Arc<Workers>,
    build_done: BuildDone,
    mut input: SendableRecordBatchStream,
    metrics: LoopMetrics,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    try_stream! {
        let guard = OutputGuard::new(&workers);
        build_done.await.map_err(DataFusionError::Shared)?;
        let mut prober = Prober::new(&state.spec, state.spec.kind)?;
        let mut probe_spill = ProbeSpill::new(&state);
        while let Some(batch) = input.next().await {
            let stored = state.spec.probe.store(&batch?)?;
            let rows = stored.num_rows();
            metrics.probe_input_rows.add(rows);
            state.note_step();
            if rows == 0 {
                continue;
            }
            let Some(block) = state.block() else {
                probe_spill.push(&stored).await?;
                continue;
            };
            prober.start(block, stored, vec![false; rows])?;
            while let Some(output) = prober.next(&metrics.probe_time, &state.progress).await? {
                yield output;
            }
            let mut rows = prober.take_probe_rows();
            while let Some(output) = rows.next(&state.spec, state.spec.kind)? {
                yield output;
            }
        }
        drop((input, prober));
        let files = probe_spill.finish().await?;
        if state.gives_build_rows() {
            workers.shared.lock().probe_files.extend(files);
            guard.complete();
            if workers.all_probed(&state).await {
                while let Some(work) = workers.take() {
                    let mut rows = pin!(remaining(Arc::clone(&state), work));
                    while let Some(output) = rows.next().await {
                        yield output?;
                    }
                }
            }
        } else {
            let build = state.spilled();
            if guard.complete() {
                state.close();
            }
            for file in files {
                let Some(build) = build.clone() else { break };
                let mut rows = pin!(join_file(Arc::clone(&state), build, file));
                while let Some(output) = rows.next().await {
                    yield output?;
                }
            }
        }
        state.report_io();
    }
}

/// The output of a piece of remaining work.
fn remaining(state: Arc<LoopState>, work: Work) -> impl Stream<Item = Result<RecordBatch>> + Send {
    try_stream! {
        match work {
            Work::Rows(block, pages) => {
                let mut rows = BuildRowsOut::new(Arc::clone(&state.spec), block, pages);
                while let Some(output) = rows.next()? {
                    yield output;
                }
            }
            Work::Blocks(blocks, files) => {
                let mut rows = pin!(join_blocks(state, blocks, files));
                while let Some(output) = rows.next().await {
                    yield output?;
                }
            }
            Work::File(build, file) => {
                let mut rows = pin!(join_file(state, build, file));
                while let Some(output) = rows.next().await {
                    yield output?;
                }
            }
        }
    }
}
