//! Writing sorted runs to the device: out of memory, or of a merge.

use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use datafusion::common::Result;
use nandina_spill::RunWriter;

use super::chunk::Chunk;
use super::forecast::Marks;
use super::merger::{Merger, Outgoing, Step};
use super::shared_prefix::SharedPrefix;
use super::state::SortState;
use super::stored_run::StoredRun;
use crate::batch::data_bytes;
use crate::error::spill_error;
use crate::memory::HeldMemory;

/// Rows of so many bytes have no more than one key kept: of a terabyte, that takes a third of a gigabyte.
const LEAST_MARKED_BYTES: usize = 128 << 10;

/// A run that is being written.
pub struct RunSink<'a> {
    state: &'a SortState,
    writer: RunWriter,
    rows: usize,
    marks: Marks,
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
        let marks = Marks::default();
        Ok(Self { state, writer: writer.map_err(spill_error)?, rows: 0, marks, _buffers: buffers })
    }

    /// Adds rows behind those that are there.
    pub async fn push(&mut self, rows: &RecordBatch) -> Result<()> {
        self.mark(rows)?;
        self.rows += rows.num_rows();
        self.writer.push(rows).map_err(spill_error)?;
        let _waiting = self.state.metrics.spill.time.timer();
        self.writer.throttle().await.map_err(spill_error)
    }

    /// Keeps the keys of the last rows of pages, about, if they are not small.
    fn mark(&mut self, rows: &RecordBatch) -> Result<()> {
        let row_bytes = (data_bytes(rows) / rows.num_rows().max(1)).max(1);
        let page_rows = (self.state.run_options.page_bytes.max(LEAST_MARKED_BYTES) / row_bytes).max(1);
        let ends =
            (1..=rows.num_rows().div_ceil(page_rows)).map(|page| (page * page_rows).min(rows.num_rows()));
        let ends: Vec<u32> = ends.map(|end| end as u32).collect();
        let first = (self.rows == 0 && rows.num_rows() > 0).then_some(0);
        let marked = UInt32Array::from_iter_values(first.into_iter().chain(ends.iter().map(|end| end - 1)));
        let keys = self.state.spec.keys(&take_record_batch(rows, &marked)?)?;
        let mut keys = keys.iter();
        if let Some(key) = first.and_then(|_| keys.next()) {
            self.marks.begin(key);
        }
        for (end, key) in ends.into_iter().zip(keys) {
            self.marks.add((self.rows + end as usize) as u64, key);
        }
        Ok(())
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
        Ok(Some(StoredRun::new(run, prefix, self.marks, self.state.another_reservation())))
    }
}
