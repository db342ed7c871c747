//! One output partition of a join: probes its own input, then helps with spilled pairs.
//!
//! ```text
//!   wait for the build side ─► probe own input ─► all outputs done? ─► take spilled pairs, one at a time
//!                                   │                                      (shared by all workers)
//!                                   └─► rows of spilled partitions ─► shared probe files
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::RecordBatch;
use async_stream::try_stream;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use futures::{Stream, StreamExt};
use nandina_spill::{Partitioner, Scatter};

use super::build_side::BuildSide;
use super::pair::{Opened, PairJoin};
use super::prober::Prober;
use super::side_rows::BuildSideRows;
use super::spilled_pair::SpilledPair;
use super::state::JoinState;
use super::table::PartitionTable;
use crate::error::spill_error;
use crate::join::kind::SideRows;
use crate::join::metrics::JoinMetrics;
use crate::join::outputs::{BuildDone, Workers};
use crate::memory::portion_rows;
use crate::spill::HashFilter;

/// A piece of the work that remains when every probe row has been seen.
pub enum Work {
    /// The build rows of a resident partition.
    Rows(Arc<BuildSide>, usize),
    Pair(SpilledPair),
}

/// The work that remains when every probe row has been seen.
async fn remaining(state: &JoinState, workers: &Workers<Work>) -> Result<VecDeque<Work>> {
    let mut work = VecDeque::new();
    let Some(remainder) = state.finish_probing().await? else { return Ok(work) };
    let emits_build_rows = state.spec.kind.build_rows != SideRows::Dropped;
    if emits_build_rows && workers.is_abandoned() {
        return Ok(work);
    }
    if emits_build_rows {
        let partitions = 0..remainder.build.tables().len();
        work.extend(partitions.map(|partition| Work::Rows(Arc::clone(&remainder.build), partition)));
    }
    work.extend(remainder.pairs.into_iter().map(Work::Pair));
    Ok(work)
}

/// The stream of one output partition.
pub fn output(
    state: Arc<JoinState>,
    workers: Arc<Workers<Work>>,
    build_done: BuildDone,
    mut input: SendableRecordBatchStream,
    metrics: JoinMetrics,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    try_stream! {
        let guard = workers.start();
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
            state.spill_cost.add_probe_rows(batch.num_rows());
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
        if workers.all_probed(&state.progress, remaining(&state, &workers)).await? {
            while let Some((work, _busy)) = workers.take_or_wait(&state.progress).await {
                match work {
                    Work::Rows(build, partition) => {
                        let bytes = build.tables().get(partition).and_then(Option::as_deref).map_or(0, PartitionTable::memory_bytes);
                        let mut rows = BuildSideRows::new(Arc::clone(&state.spec), build, partition, state.inner());
                        while let Some(output) = rows.next()? {
                            yield output;
                        }
                        drop(rows);
                        state.release_table(bytes);
                    }
                    Work::Pair(pair) => {
                        if !pair.produces_rows(&state.spec) {
                            continue;
                        }
                        match PairJoin::open(&state, pair).await? {
                            Opened::Split(pairs) => workers.add(pairs.into_iter().map(Work::Pair)),
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
        state.hash_metrics.filtered_rows.add(filtered);
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
