//! Writing sorted runs to the device: out of memory, or of a merge.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::Result;
use nandina_spill::RunWriter;

use super::chunk::Chunk;
use super::merger::{Merger, Outgoing, Step};
use super::shared_prefix::SharedPrefix;
use super::state::SortState;
use super::stored_run::StoredRun;
use crate::error::spill_error;
use crate::memory::HeldMemory;

/// A run that is being written.
pub struct RunSink<'a> {
    state: &'a SortState,
    writer: RunWriter,
    rows: usize,
    _buffers: HeldMemory,
}

/// Writes the rows of sorted chunks, each from its row of this number on, into one run; `None` if there are no rows.
pub async fn write_run(state: &SortState, chunks: &[(Arc<Chunk>, usize)]) -> Result<Option<StoredRun>> {
    let mut prefix = SharedPrefix::default();
    chunks.iter().for_each(|(chunk, _)| prefix.join(chunk.prefix()));
    let mut merger = Merger::new(chunks.to_vec(), &prefix, state.wanted_rows());
    let mut sink = RunSink::new(state)?;
    let mut rows = Outgoing::default();
    loop {
        let step = merger.fill(&mut rows, state.spec.batch_rows, state.output_bytes());
        match step {
            Step::Exhausted(source) => merger.supply(source, None),
            Step::End if rows.is_empty() => {}
            Step::Full | Step::End => sink.push(&rows.take().gather(&state.spec.schema)?).await?,
        }
        if step == Step::End {
            return sink.finish(prefix).await;
        }
    }
}

impl<'a> RunSink<'a> {
    /// An empty run. Its buffers are counted, whether there is room for them or not: they are few, and without them
    /// nothing can leave memory.
    pub fn new(state: &'a SortState) -> Result<Self> {
        let buffers = state.another_reservation();
        buffers.grow(state.run_options.write_buffer_bytes() + state.output_bytes());
        let writer = RunWriter::new(state.pages(), &state.run_options, Arc::clone(&state.space));
        Ok(Self { state, writer: writer.map_err(spill_error)?, rows: 0, _buffers: buffers })
    }

    /// Adds rows behind those that are there.
    pub async fn push(&mut self, rows: &RecordBatch) -> Result<()> {
        self.rows += rows.num_rows();
        self.writer.push(rows).map_err(spill_error)?;
        let _waiting = self.state.metrics.spill.time.timer();
        self.writer.throttle().await.map_err(spill_error)
    }

    /// Ends the run.
    pub async fn finish(self, prefix: SharedPrefix) -> Result<Option<StoredRun>> {
        let metrics = &self.state.metrics;
        let waiting = metrics.spill.time.timer();
        let run = self.writer.finish().await.map_err(spill_error)?;
        drop(waiting);
        self.state.report_io();
        if self.rows == 0 {
            return Ok(None);
        }
        metrics.spill.spilled_rows.add(self.rows);
        metrics.spilled_runs.add(1);
        Ok(Some(StoredRun::new(run, prefix)))
    }
}
