//! Reading several runs at once: how many, in which units, and in which memory.

use datafusion::common::Result;

use super::chunk::Chunk;
use super::shared_prefix::SharedPrefix;
use super::state::SortState;
use super::stored_run::{RunPages, StoredRun, run_bytes};
use crate::memory::{HeldMemory, has_room};

/// The share of memory that reading may take. It is not given back while runs are read, and operators above need memory, too.
const READING_SHARE: usize = 4;
/// However little memory there is, so many runs are read at once.
pub const LEAST_RUNS: usize = 2;
/// Units that are read ahead, for each run; the forecast shares them out.
const AHEAD_PER_RUN: usize = 2;

/// How many runs a merge reads at once under a limit, in units of so many bytes, if each is read ahead.
pub fn runs_at_once(memory_limit: usize, unit_bytes: usize) -> usize {
    Units { bytes: unit_bytes }.at_once(memory_limit / READING_SHARE, usize::MAX)
}

/// In which units runs are read.
#[derive(Debug, Clone, Copy)]
struct Units {
    bytes: usize,
}

impl Units {
    /// Memory to read one run, beside what is read ahead.
    fn of_run(self) -> usize {
        run_bytes(self.bytes, 0)
    }

    /// Memory for what is read ahead of so many runs.
    fn ahead(self, at_once: usize) -> usize {
        AHEAD_PER_RUN * at_once * self.bytes
    }

    /// Memory to read so many runs at once.
    fn needed(self, at_once: usize) -> usize {
        at_once * self.of_run() + self.ahead(at_once)
    }

    /// How many of `runs` can be read at once in so much memory.
    fn at_once(self, share: usize, runs: usize) -> usize {
        (share / self.needed(1)).max(LEAST_RUNS).min(runs)
    }

    /// What merging takes in these units, in multiples of moving all rows once: small units make the device seek, which
    /// takes it as long as `gap_bytes`, and large ones make more merges.
    fn cost(self, share: usize, runs: usize, gap_bytes: usize) -> f64 {
        let at_once = self.at_once(share, runs).max(LEAST_RUNS) as f64;
        let merges = (runs as f64).log(at_once).max(1.0);
        let read = 1.0 + gap_bytes as f64 / self.bytes as f64;
        merges * read + (merges - 1.0)
    }
}

/// How runs are read: in which units, and in which memory.
#[derive(Debug)]
pub struct Reading {
    units: Units,
    memory: HeldMemory,
}

impl Reading {
    /// The least that reading a run takes, whose largest page is as large as this. Nothing is reserved.
    pub fn least(state: &SortState, largest_page_bytes: usize) -> Self {
        let bytes = largest_page_bytes.max(state.run_options.page_bytes);
        Self { units: Units { bytes }, memory: state.another_reservation() }
    }

    pub fn unit_bytes(&self) -> usize {
        self.units.bytes
    }

    /// Memory to read one run.
    pub fn bytes_of_one(&self) -> usize {
        self.units.needed(1)
    }

    /// What of the memory for so many runs is for units that are read ahead.
    pub fn ahead_bytes(&self, at_once: usize) -> usize {
        self.units.ahead(at_once)
    }

    /// Memory to read as many of `runs` at once as is best, and how many those are.
    pub fn reserved(state: &SortState, runs: &[StoredRun]) -> (Self, usize) {
        let largest_page = runs.iter().map(StoredRun::largest_page_bytes).max().unwrap_or(0);
        let mut reading = Self::least(state, largest_page);
        let share = state.memory_limit.unwrap_or(usize::MAX) / READING_SHARE;
        for units in reading.larger_units(state, share, runs) {
            let at_once = units.at_once(share, runs.len());
            let bytes = units.needed(at_once);
            // No operator is to spill for larger reads.
            if has_room(state.pool.as_ref(), bytes) && reading.memory.try_grow(bytes) {
                reading.units = units;
                return (reading, at_once);
            }
        }
        let mut at_once = reading.units.at_once(share, runs.len());
        while !reading.memory.try_grow(reading.units.needed(at_once)) {
            if at_once <= LEAST_RUNS {
                // Without it the sort could not go on. It is a few pages.
                reading.memory.grow(reading.units.needed(at_once));
                break;
            }
            at_once = (at_once / 2).max(LEAST_RUNS);
        }
        (reading, at_once)
    }

    /// Units that cost less than the least ones, the cheapest first.
    fn larger_units(&self, state: &SortState, share: usize, runs: &[StoredRun]) -> Vec<Units> {
        let sizes = state.space.device().sizes();
        let longest_bytes = runs.iter().map(StoredRun::bytes).max().unwrap_or(0) as usize;
        let most_bytes = sizes.read_bytes.min(longest_bytes);
        let cost = |units: &Units| units.cost(share, runs.len(), sizes.gap_bytes);
        let doubled = std::iter::successors(Some(self.units.bytes), |bytes| Some(2 * bytes));
        let larger = doubled.skip(1).take_while(|bytes| *bytes <= most_bytes);
        let larger = larger.map(|bytes| Units { bytes });
        let mut larger: Vec<Units> = larger.filter(|units| cost(units) < cost(&self.units)).collect();
        larger.sort_by(|one, other| cost(one).total_cmp(&cost(other)));
        larger
    }

    /// Takes the memory for what is read ahead out.
    pub fn memory_ahead(&self, at_once: usize) -> HeldMemory {
        self.memory.split(self.units.ahead(at_once))
    }

    /// Takes the memory for one run out, or reserves as much again if there is none left.
    pub fn memory_of_one(&self) -> HeldMemory {
        let memory = self.memory.split(self.units.of_run());
        memory.resize(self.units.of_run());
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
        begun.push((run.read(&state.spec, reading.unit_bytes()), prefix));
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
