//! Reading several runs at once: how many, in which units, and in which memory.

use datafusion::common::Result;

use super::chunk::Chunk;
use super::shared_prefix::SharedPrefix;
use super::state::SortState;
use super::stored_run::{RunPages, StoredRun, run_bytes};
use crate::memory::HeldMemory;

/// The share of memory that reading may take, and that it may take to read in larger units than pages. It is not given
/// back while runs are read, and operators above need memory, too.
const READING_SHARE: usize = 4;
const LARGE_READS_SHARE: usize = 16;
/// However little memory there is, so many runs are read at once.
pub const LEAST_RUNS: usize = 2;

/// How runs are read: in which units, and in which memory.
#[derive(Debug)]
pub struct Reading {
    pub unit_bytes: usize,
    /// Memory for one run.
    pub run_bytes: usize,
    memory: HeldMemory,
}

impl Reading {
    /// The least that reading a run takes, whose largest page is as large as this. Nothing is reserved.
    pub fn least(state: &SortState, largest_page_bytes: usize) -> Self {
        let unit_bytes = largest_page_bytes.max(state.run_options.page_bytes);
        Self { unit_bytes, run_bytes: run_bytes(unit_bytes, 0), memory: state.another_reservation() }
    }

    /// Memory to read as many of `runs` as possible at once, and how many those are.
    pub fn reserved(state: &SortState, runs: &[StoredRun]) -> (Self, usize) {
        let largest_page = runs.iter().map(StoredRun::largest_page_bytes).max().unwrap_or(0);
        let mut reading = Self::least(state, largest_page);
        let share = state.memory_limit.unwrap_or(usize::MAX) / READING_SHARE;
        let mut at_once = (share / reading.run_bytes).max(LEAST_RUNS).min(runs.len());
        while !reading.memory.try_grow(at_once * reading.run_bytes) {
            if at_once <= LEAST_RUNS {
                // Without it the sort could not go on. It is a few pages.
                reading.memory.grow(at_once * reading.run_bytes);
                break;
            }
            at_once = (at_once / 2).max(LEAST_RUNS);
        }
        reading.enlarge(state, at_once);
        (reading, at_once)
    }

    /// Larger reads are better up to a size that the device knows, but no operator is to spill for them.
    fn enlarge(&mut self, state: &SortState, at_once: usize) {
        let share = state.memory_limit.unwrap_or(usize::MAX) / LARGE_READS_SHARE;
        let most_bytes = (share / at_once.max(1)).min(run_bytes(state.space.device().sizes().read_bytes, 0));
        let unit_bytes = most_bytes / run_bytes(1, 0);
        let more = run_bytes(unit_bytes, 0).saturating_sub(self.run_bytes) * at_once;
        let limit = state.memory_limit.unwrap_or(usize::MAX);
        if more > 0 && state.pool.reserved().saturating_add(more) <= limit && self.memory.try_grow(more) {
            self.run_bytes = run_bytes(unit_bytes, 0);
            self.unit_bytes = unit_bytes;
        }
    }

    /// Takes the memory for one run out, or reserves as much again if there is none left.
    pub fn memory_of_one(&self) -> HeldMemory {
        let memory = self.memory.split(self.run_bytes);
        memory.resize(self.run_bytes);
        memory
    }
}

/// A run whose first page has been read.
pub struct OpenRun {
    pub pages: RunPages,
    pub first: Chunk,
    pub prefix: SharedPrefix,
    pub memory: HeldMemory,
}

/// Opens runs, all at once.
pub async fn open(state: &SortState, runs: Vec<StoredRun>, reading: &Reading) -> Result<Vec<OpenRun>> {
    let mut begun = Vec::with_capacity(runs.len());
    for run in runs {
        let prefix = run.prefix.clone();
        begun.push((run.read(&state.spec, reading.unit_bytes), prefix));
    }
    let mut open = Vec::with_capacity(begun.len());
    for (mut pages, prefix) in begun {
        let first = pages.next(&state.spec, &state.metrics).await?.unwrap_or_default();
        let memory = reading.memory_of_one();
        pages.hold(&first, &memory);
        open.push(OpenRun { pages, first, prefix, memory });
    }
    Ok(open)
}
