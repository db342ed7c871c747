//! Sorted runs on the device: writing them out of memory, and reading them page by page.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::Result;
use nandina_spill::{PartitionReader, Run, RunWriter};

use super::chunk::Chunk;
use super::merger::{Merger, Outgoing, Step};
use super::passes::run_bytes;
use super::shared_prefix::SharedPrefix;
use super::state::SortState;
use crate::batch::data_bytes;
use crate::error::{pages_error, spill_error};
use crate::memory::HeldMemory;

/// A run that has been written.
#[derive(Debug)]
pub struct StoredRun {
    run: Run,
    /// What all of its keys begin with.
    pub prefix: SharedPrefix,
}

/// A run that is being written.
pub struct RunSink<'a> {
    state: &'a SortState,
    writer: RunWriter,
    rows: usize,
    _buffers: HeldMemory,
}

/// A run that is being read.
pub struct RunPages {
    reader: Option<PartitionReader>,
    unit_bytes: usize,
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
        Ok(Some(StoredRun { run, prefix }))
    }
}

impl StoredRun {
    /// Bytes of all pages.
    pub fn bytes(&self) -> u64 {
        self.run.bytes()
    }

    /// Bytes of the largest page.
    pub fn largest_page_bytes(&self) -> usize {
        self.run.largest_page_bytes()
    }

    /// Begins to read, in units of about `unit_bytes`.
    pub fn read(self, state: &SortState, unit_bytes: usize) -> RunPages {
        let mut reader = self.run.read(state.pages(), unit_bytes);
        if let Some(reader) = &mut reader {
            reader.read_ahead();
        }
        RunPages { reader, unit_bytes }
    }
}

impl RunPages {
    /// Makes `memory` what the run takes while `page` is at hand. Keys may be far longer than the values that they are
    /// made of; what they take is asked for, and taken if it is not granted: without them nothing can leave memory.
    pub fn hold(&self, page: &Chunk, memory: &HeldMemory) {
        let bytes = run_bytes(self.unit_bytes, page.key_bytes());
        if !memory.try_resize(bytes) {
            memory.resize(bytes);
        }
    }

    /// The rows of the next page with their keys; `None` after the last.
    pub async fn next(&mut self, state: &SortState) -> Result<Option<Chunk>> {
        let Some(reader) = &mut self.reader else { return Ok(None) };
        let waiting = state.metrics.spill.time.timer();
        let page = reader.next().await.map_err(spill_error)?;
        drop(waiting);
        let Some(page) = page else {
            self.reader = None;
            return Ok(None);
        };
        let rows = page.batch(None).map_err(pages_error)?;
        let keys = state.spec.keys(&rows)?;
        let bytes = data_bytes(&rows);
        Ok(Some(Chunk::in_order(rows, bytes, keys)))
    }
}
