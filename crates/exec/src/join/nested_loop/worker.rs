//! One output partition of a join: its own probe rows first, then its part of the remaining work.
//!
//! ```text
//!   wait for the build side ─► own input ─┬─► meets the block
//!                                         └─► kept, if the build side is on the device
//!                                                │
//!        no build rows to emit:      own files against all blocks
//!        otherwise:                  all outputs done? ─► shared: rows of the block, or blocks against all files
//! ```

use std::collections::VecDeque;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;

use arrow::array::RecordBatch;
use async_stream::try_stream;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use futures::{Stream, StreamExt};

use super::block::Block;
use super::probe_spill::ProbeSpill;
use super::prober::Prober;
use super::side_rows::BuildSideRows;
use super::spilled::{Blocks, join_blocks, join_file};
use super::state::{LoopState, Remainder, SpilledBuild};
use crate::join::kind::SideRows;
use crate::join::metrics::JoinMetrics;
use crate::join::outputs::{BuildDone, Workers};
use crate::spill::SpillFile;

/// A piece of the work that remains when every probe row has been seen.
pub enum Work {
    /// The rows of some pages of a block in memory.
    Rows(Arc<Block>, Range<usize>),
    /// As many blocks as one worker can take before there are none.
    Blocks(Arc<Blocks>, Arc<Vec<SpillFile>>),
    /// The rows of a file, after all blocks.
    File(SpilledBuild, SpillFile),
}

/// What remains when every probe row has been seen.
fn all_remaining(state: &Arc<LoopState>, workers: &Workers<Work>) -> VecDeque<Work> {
    let (remainder, files) = (state.close(), std::mem::take(&mut *state.probe_files.lock()));
    let mut work = VecDeque::new();
    if workers.is_abandoned() {
        return work;
    }
    match remainder {
        Some(Remainder::InMemory(block)) => {
            let pages = block.pages().len();
            let part = pages.div_ceil(state.outputs).max(1);
            let parts = (0..pages).step_by(part).map(|first| first..pages.min(first + part));
            work.extend(parts.map(|part| Work::Rows(Arc::clone(&block), part)));
        }
        Some(Remainder::Spilled(build)) => {
            let blocks = Arc::new(Blocks::new(state, &build));
            let all = Arc::new(files.clone());
            work.extend((0..state.outputs).map(|_| Work::Blocks(Arc::clone(&blocks), Arc::clone(&all))));
            if state.spec.kind.probe_rows != SideRows::Dropped {
                work.extend(files.into_iter().map(|file| Work::File(build.clone(), file)));
            }
        }
        None => {}
    }
    work
}

/// The stream of one output partition.
pub fn output(
    state: Arc<LoopState>,
    workers: Arc<Workers<Work>>,
    build_done: BuildDone,
    mut input: SendableRecordBatchStream,
    metrics: JoinMetrics,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    try_stream! {
        let guard = workers.start();
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
        if state.emits_build_rows() {
            state.probe_files.lock().extend(files);
            guard.complete();
            let work = async { Ok(all_remaining(&state, &workers)) };
            if workers.all_probed(&state.progress, work).await? {
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
                let Some(build) = build.clone() else { unreachable!("a probe spill has a spilled build side") };
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
                let mut rows = BuildSideRows::new(Arc::clone(&state.spec), block, pages);
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
