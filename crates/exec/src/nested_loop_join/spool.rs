//! The probe side in temporary space, kept once and read as often as there are blocks.
//!
//! Where it has to be remembered which probe rows have matched, they are kept in *chapters*, files of so many rows that
//! the flags of one of them fit into a small share of memory.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use nandina_spill::{PartitionFile, Partitioner, Scatter};

use super::state::LoopState;
use crate::batch_reader::BatchReader;
use crate::error::spill_error;
use crate::join::kind::SideRows;
use crate::memory::portion_rows;

/// The share of memory that the flags of the chapters at hand may take, a byte for each row.
const FLAGS_SHARE: usize = 32;
/// Fewest rows of a chapter.
const MIN_CHAPTER_ROWS: usize = 8192;

/// Some probe rows on the device.
#[derive(Clone, Debug)]
pub struct Chapter(Arc<PartitionFile>);

impl Chapter {
    /// Number of rows.
    pub fn row_count(&self) -> usize {
        self.0.rows() as usize
    }

    /// The rows, from the first on.
    pub fn read(&self, state: &LoopState) -> BatchReader {
        let pages = &state.spec.probe.pages;
        let reader = self.0.read(Arc::clone(pages), state.read_window_bytes());
        let mut batches = BatchReader::new(
            reader,
            Arc::clone(pages),
            state.spec.batch_rows,
            state.metrics.spill.time.clone(),
        );
        batches.read_ahead();
        batches
    }
}

/// Keeps the probe rows of one output partition.
pub struct Spool {
    state: Arc<LoopState>,
    open: Option<OpenChapter>,
    chapters: Vec<Chapter>,
    scatter: Scatter,
}

/// A chapter that is being written.
struct OpenChapter {
    partitioner: Partitioner,
    rows: usize,
    _write_buffers: MemoryReservation,
}

impl Spool {
    /// An empty spool.
    pub fn new(state: &Arc<LoopState>) -> Self {
        Self { state: Arc::clone(state), open: None, chapters: Vec::new(), scatter: Scatter::default() }
    }

    /// Most rows of a chapter.
    fn chapter_rows(&self) -> usize {
        if self.state.spec.kind.probe_rows == SideRows::Dropped {
            return usize::MAX;
        }
        let share = self.state.memory_limit.map(|limit| limit / FLAGS_SHARE / self.state.outputs);
        share.map_or(usize::MAX, |rows| rows.max(MIN_CHAPTER_ROWS))
    }

    /// Adds rows in stored form.
    pub async fn push(&mut self, rows: &RecordBatch) -> Result<()> {
        let portion_rows = portion_rows(rows, self.state.memory_limit).min(self.chapter_rows());
        for first in (0..rows.num_rows()).step_by(portion_rows) {
            let portion = rows.slice(first, portion_rows.min(rows.num_rows() - first));
            self.push_portion(&portion).await?;
        }
        Ok(())
    }

    async fn push_portion(&mut self, rows: &RecordBatch) -> Result<()> {
        if self.open.as_ref().is_some_and(|open| open.rows + rows.num_rows() > self.chapter_rows()) {
            self.end_chapter().await?;
        }
        let state = Arc::clone(&self.state);
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(OpenChapter::new(&state)?),
        };
        open.rows += rows.num_rows();
        self.scatter.to_partition(0, rows.num_rows(), 0);
        open.partitioner.push(rows, &self.scatter).map_err(spill_error)?;
        let _waiting = state.metrics.spill.time.timer();
        open.partitioner.throttle().await.map_err(spill_error)
    }

    async fn end_chapter(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let finished = open.partitioner.finish().map_err(spill_error)?;
        let _waiting = self.state.metrics.spill.time.timer();
        open.partitioner.drain_to(0).await.map_err(spill_error)?;
        let files = finished.into_iter().filter_map(|partition| partition.file);
        self.chapters.extend(files.filter(|file| file.rows() > 0).map(Chapter));
        self.state.metrics.spilled_rows.add(open.rows);
        Ok(())
    }

    /// All that was kept.
    pub async fn finish(mut self) -> Result<Vec<Chapter>> {
        self.end_chapter().await?;
        Ok(self.chapters)
    }
}

impl OpenChapter {
    fn new(state: &LoopState) -> Result<Self> {
        let options = state.file_options();
        // Bounded by the partitioner's shape, and needed to keep anything.
        let write_buffers = state.reserve_more();
        write_buffers.grow(options.write_buffer_bytes());
        state.note_memory(write_buffers.size());
        let pages = Arc::clone(&state.spec.probe.pages);
        let partitioner = Partitioner::new(pages, options, Arc::clone(&state.space));
        partitioner.spill(0).map_err(spill_error)?;
        Ok(Self { partitioner, rows: 0, _write_buffers: write_buffers })
    }
}
