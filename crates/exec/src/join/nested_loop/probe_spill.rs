//! The probe side in temporary space, written once and read as often as there are blocks.
//!
//! Where it has to be remembered which probe rows have matched, a file has so few rows that the bits of all of them fit
//! into a small share of memory.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::Result;

use super::state::LoopState;
use crate::join::kind::SideRows;
use crate::spill::{SpillFile, SpillWriter};

/// The share of memory that the bits of the files being joined may take.
const BITS_SHARE: usize = 256;
/// Rows that a file may have in any case.
const LEAST_FILE_ROWS: usize = 8192;

/// Writes the probe rows of one output partition.
pub struct ProbeSpill {
    state: Arc<LoopState>,
    most_file_rows: usize,
    writer: Option<SpillWriter>,
    /// Rows that the writer has been given.
    rows: usize,
    files: Vec<SpillFile>,
}

impl ProbeSpill {
    /// No rows yet.
    pub fn new(state: &Arc<LoopState>) -> Self {
        let bits_rows = state.memory_limit.map(|limit| limit / BITS_SHARE / state.outputs * 8);
        let most_file_rows = match state.spec.kind.probe_rows {
            SideRows::Dropped => usize::MAX,
            _ => bits_rows.map_or(usize::MAX, |rows| rows.max(LEAST_FILE_ROWS)),
        };
        Self { state: Arc::clone(state), most_file_rows, writer: None, rows: 0, files: Vec::new() }
    }

    /// Adds rows in stored form.
    pub async fn push(&mut self, rows: &RecordBatch) -> Result<()> {
        let mut first = 0;
        while first < rows.num_rows() {
            if self.rows == self.most_file_rows {
                self.end_file().await?;
            }
            let taken = (rows.num_rows() - first).min(self.most_file_rows - self.rows);
            let writer = match &mut self.writer {
                Some(writer) => writer,
                none => none.insert(SpillWriter::new(&self.state.probe_spill)?),
            };
            writer.write(&rows.slice(first, taken)).await?;
            self.rows += taken;
            first += taken;
        }
        Ok(())
    }

    async fn end_file(&mut self) -> Result<()> {
        self.rows = 0;
        if let Some(writer) = self.writer.take() {
            self.files.extend(writer.finish_one().await?);
        }
        Ok(())
    }

    /// All that was written.
    pub async fn finish(mut self) -> Result<Vec<SpillFile>> {
        self.end_file().await?;
        Ok(self.files)
    }
}
