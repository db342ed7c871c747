//! A table of groups that stays within a share of memory, and what happens when it is full.

use arrow::array::RecordBatch;
use datafusion::common::Result;

use super::groups::Groups;
use super::reduction::{Reduction, Verdict};
use super::sink::{PushScratch, Sink};
use super::state::AggregateState;
use crate::held_memory::HeldMemory;

/// Less than this a table always gets: it is what one batch of rows may take.
const MIN_TABLE_BYTES: usize = 64 << 10;

/// Groups within a bound.
pub struct BoundedGroups {
    pub groups: Groups,
    memory: HeldMemory,
    /// Bytes at which the table is full, and the most that may become.
    capacity_bytes: usize,
    most_bytes: usize,
    /// The governor has refused memory since the table was last empty.
    refused: bool,
    reduction: Reduction,
    /// Rows that are to be passed on before the table is used again.
    passing_rows: usize,
}

impl BoundedGroups {
    /// No groups; full at `capacity_bytes`, which may grow to `most_bytes`.
    pub fn try_new(state: &AggregateState, capacity_bytes: usize, most_bytes: usize) -> Result<Self> {
        Ok(Self {
            groups: Groups::try_new(&state.spec)?,
            memory: state.another_reservation(),
            capacity_bytes,
            most_bytes,
            refused: false,
            reduction: Reduction::default(),
            passing_rows: 0,
        })
    }

    /// Whether the next rows go to the partitions without being aggregated.
    pub fn is_passing(&self) -> bool {
        self.passing_rows > 0
    }

    /// Notes rows that have been passed on.
    pub fn note_passed(&mut self, rows: usize) {
        self.passing_rows = self.passing_rows.saturating_sub(rows);
    }

    /// Notes rows that have been taken into the table; whether it is full.
    pub fn note_taken(&mut self, rows: usize) -> bool {
        let bytes = self.groups.memory_bytes();
        self.reduction.note(rows, self.groups.len(), bytes * 2 >= self.capacity_bytes);
        // Half as much again for what the next batch adds.
        if !self.memory.try_resize(bytes + bytes / 2) {
            self.refused = true;
            self.memory.resize(bytes);
        }
        bytes >= self.capacity_bytes || (self.refused && bytes > MIN_TABLE_BYTES)
    }

    /// Whether the table could not become as large as it was meant to be.
    pub fn was_refused(&self) -> bool {
        self.refused
    }

    /// Lifts the bound: a single group cannot be split, its state is as large as it is.
    pub fn lift_bound(&mut self) {
        self.capacity_bytes = usize::MAX;
        self.refused = false;
    }

    /// Makes room in a table that is full: lets it grow, or empties it into `sink`.
    pub async fn relieve(&mut self, sink: &Sink, scratch: &mut PushScratch) -> Result<()> {
        let growth = if self.refused { 1 } else { self.most_bytes / self.capacity_bytes };
        let verdict = self.reduction.judge(self.groups.len(), growth);
        if verdict == Verdict::Grow && growth >= 2 {
            self.capacity_bytes *= 2;
            return Ok(());
        }
        self.empty_into(sink, scratch).await?;
        if let Verdict::Pass(rows) = verdict {
            self.passing_rows = rows;
        }
        Ok(())
    }

    /// Moves all groups to partitions.
    pub async fn empty_into(&mut self, sink: &Sink, scratch: &mut PushScratch) -> Result<()> {
        let stored = self.groups.take_stored()?;
        self.reduction = Reduction::default();
        self.refused = false;
        sink.push(&stored, scratch).await?;
        drop(stored);
        self.memory.resize(0);
        Ok(())
    }

    /// All groups in stored form.
    pub fn take_stored(&mut self) -> Result<RecordBatch> {
        self.groups.take_stored()
    }

    /// The groups, and the memory they hold.
    pub fn into_parts(self) -> (Groups, HeldMemory) {
        (self.groups, self.memory)
    }
}
