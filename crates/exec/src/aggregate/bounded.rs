//! A table of groups that stays within a share of memory, and what happens when it is full.

use arrow::array::RecordBatch;
use datafusion::common::Result;
use nandina_spill::Scatter;

use super::distinct_sketch::DistinctSketch;
use super::groups::Groups;
use super::reduction::{Reduction, Verdict};
use super::sink::Sink;
use super::state::AggregateState;
use crate::memory::HeldMemory;

/// Less than this a table always gets: it is what one batch of rows may take.
const MIN_TABLE_BYTES: usize = 64 << 10;

/// Where rows that are passed on have this many times as many rows as keys, a table of all their keys would have paid.
const WORTH_A_TABLE: f64 = 2.0;
/// For vectors that grow by doubling, and keys that have not come yet.
const SLACK: f64 = 1.5;

/// What stored groups count as, whose grouping sets are not told apart: one set.
pub const ALL_SETS: usize = 0;

/// Groups within a bound.
pub struct BoundedGroups {
    pub groups: Groups,
    memory: HeldMemory,
    /// Bytes at which the table is full, and the most that may become.
    capacity_bytes: usize,
    most_bytes: usize,
    /// The governor has refused memory since the table was last empty.
    refused: bool,
    /// Of all rows, and of those of every grouping set.
    reduction: Reduction,
    sets: Vec<SetRows>,
    /// Groups that have been counted for their sets.
    counted_groups: usize,
    /// Bytes per group, when the table was last full.
    group_bytes: f64,
    /// Whether rows may be passed on.
    can_pass: bool,
}

/// The rows of one grouping set.
#[derive(Clone, Default)]
struct SetRows {
    /// Its groups in the table.
    groups: usize,
    reduction: Reduction,
    /// Rows that are to be passed on before the table is used for this set again.
    passing_rows: usize,
    /// Keys of the rows that have been passed on. That keys come back may show only after many more rows than
    /// fill the table.
    passed: Option<DistinctSketch>,
}

impl BoundedGroups {
    /// No groups; full at `capacity_bytes`, which may grow to `most_bytes`. `can_pass` says whether rows may be passed on
    /// without being aggregated.
    pub fn try_new(
        state: &AggregateState,
        capacity_bytes: usize,
        most_bytes: usize,
        can_pass: bool,
    ) -> Result<Self> {
        Ok(Self {
            groups: Groups::try_new(&state.spec)?,
            memory: state.another_reservation(),
            capacity_bytes,
            most_bytes,
            refused: false,
            reduction: Reduction::default(),
            sets: vec![SetRows::default(); state.spec.grouping_sets().max(1)],
            counted_groups: 0,
            group_bytes: 0.0,
            can_pass,
        })
    }

    /// Whether the next rows of a set go to the partitions without being aggregated.
    pub fn is_passing(&self, set: usize) -> bool {
        self.sets.get(set).is_some_and(|rows| rows.passing_rows > 0)
    }

    /// Notes rows of a set, with these hashes, that have been passed on. When enough have been, the table is used for the
    /// set again: a larger one, if it can hold all keys that there were, and they keep coming back.
    pub fn note_passed(&mut self, set: usize, hashes: &[u64]) {
        let Some(of_set) = self.sets.get_mut(set) else { return };
        of_set.passing_rows = of_set.passing_rows.saturating_sub(hashes.len());
        if self.capacity_bytes >= self.most_bytes {
            return;
        }
        let passed = of_set.passed.get_or_insert_default();
        passed.note(hashes);
        if of_set.passing_rows > 0 {
            return;
        }
        let groups = passed.distinct();
        if passed.rows() as f64 >= WORTH_A_TABLE * groups {
            of_set.passed = None;
            let more = (groups * self.group_bytes * SLACK) as usize;
            let with_all = self.capacity_bytes.saturating_add(more);
            if with_all <= self.most_bytes {
                self.capacity_bytes = with_all;
            }
        }
    }

    /// Notes rows of a set that have been taken into the table; whether it is full.
    pub fn note_taken(&mut self, set: usize, rows: usize) -> bool {
        let (bytes, groups) = (self.groups.memory_bytes(), self.groups.len());
        let half_full = bytes * 2 >= self.capacity_bytes;
        self.reduction.note(rows, groups, half_full);
        if let Some(of_set) = self.sets.get_mut(set) {
            of_set.groups += groups - self.counted_groups;
            of_set.reduction.note(rows, of_set.groups, half_full);
        }
        self.counted_groups = groups;
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

    /// Makes room in a table that is full: lets it grow, or empties it into `sink`. Rows of grouping sets of which it makes
    /// hardly fewer groups are passed on from then on, and leave the table to the others.
    pub async fn relieve(&mut self, sink: &Sink, scatter: &mut Scatter) -> Result<()> {
        self.group_bytes = self.groups.memory_bytes() as f64 / self.groups.len().max(1) as f64;
        let growth = if self.refused { 1 } else { self.most_bytes / self.capacity_bytes };
        let mut any_passing = false;
        let sets = self.sets.iter_mut().filter(|set| set.groups > 0 && self.can_pass);
        for set in sets {
            if let Verdict::Pass(rows) = set.reduction.judge(set.groups, growth) {
                set.passing_rows = rows;
                any_passing = true;
            }
        }
        let verdict = self.reduction.judge(self.groups.len(), growth);
        if verdict == Verdict::Grow && growth >= 2 && !any_passing {
            self.capacity_bytes *= 2;
            return Ok(());
        }
        self.empty_into(sink, scatter).await
    }

    /// Moves all groups to partitions.
    pub async fn empty_into(&mut self, sink: &Sink, scatter: &mut Scatter) -> Result<()> {
        let stored = self.groups.take_stored()?;
        self.reduction = Reduction::default();
        for set in &mut self.sets {
            (set.groups, set.reduction) = Default::default();
        }
        self.counted_groups = 0;
        self.refused = false;
        sink.push(&stored, scatter).await?;
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
