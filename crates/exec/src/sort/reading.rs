//! Reading several runs at once: how many, in which units, and in which memory.

use datafusion::common::Result;
use nandina_device::{BLOCK_BYTES, IoSizes};

use super::chunk::Chunk;
use super::shared_prefix::SharedPrefix;
use super::state::{SortState, run_page_bytes};
use super::stored_run::{RunPages, StoredRun, run_bytes};
use crate::memory::{HeldMemory, has_room};

/// The share of memory that reading may take. It is not given back while runs are read, and operators above need memory, too.
const READING_SHARE: usize = 4;
/// However little memory there is, so many runs are read at once.
pub const LEAST_RUNS: usize = 2;
/// Units that are read ahead, for each run; the forecast shares them out.
const AHEAD_PER_RUN: usize = 2;
/// The share of memory that rows have before they are written as a run, about.
const RUN_SHARE: f64 = 0.5;

/// How a sort beyond memory is expected to write and read its rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExpectedMerges {
    /// How often every row is written, and read again: not at all where all fit into memory, once to runs that are merged at
    /// once, and once more for every merge before.
    pub passes: f64,
    /// Bytes of one read.
    pub unit_bytes: usize,
    /// Rows of a page of a run.
    pub page_rows: f64,
    /// Bytes that such a page takes on the device, in whole blocks.
    pub page_bytes: f64,
}

impl ExpectedMerges {
    /// Those of so many bytes of rows. `overlap` is the share of all runs that a run has keys in common with: 1 of rows in
    /// no order.
    pub fn of(
        bytes: f64,
        row_bytes: f64,
        overlap: f64,
        memory_limit: Option<usize>,
        sizes: &IoSizes,
    ) -> Self {
        // A longer row has a page for itself.
        let page_bytes = run_page_bytes(memory_limit).max((row_bytes as usize).next_multiple_of(BLOCK_BYTES));
        let least = Units { bytes: page_bytes };
        let page_rows = (page_bytes as f64 / row_bytes.max(1.0)).floor().max(1.0);
        let page_bytes = ((page_rows * row_bytes) as usize).next_multiple_of(BLOCK_BYTES) as f64;
        let all_runs = memory_limit.map_or(0.0, |limit| bytes / (limit as f64 * RUN_SHARE).max(1.0));
        if all_runs <= 1.0 {
            return Self { passes: 0.0, unit_bytes: least.bytes, page_rows, page_bytes };
        }
        let runs = ((all_runs * overlap) as usize).max(LEAST_RUNS);
        let share = memory_limit.unwrap_or(usize::MAX) / READING_SHARE;
        let most_bytes = (bytes / all_runs) as usize;
        let units = least.better(share, runs, most_bytes, sizes).first().copied().unwrap_or(least);
        Self { passes: units.merges(share, runs), unit_bytes: units.bytes, page_rows, page_bytes }
    }
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

    /// How often every row is read until all are merged.
    fn merges(self, share: usize, runs: usize) -> f64 {
        let at_once = self.at_once(share, runs).max(LEAST_RUNS) as f64;
        (runs as f64).log(at_once).max(1.0)
    }

    /// What merging takes in these units, in multiples of moving all rows once: small units make the device seek, which
    /// takes it as long as `gap_bytes`, and large ones make more merges.
    fn cost(self, share: usize, runs: usize, gap_bytes: usize) -> f64 {
        let merges = self.merges(share, runs);
        let read = 1.0 + gap_bytes as f64 / self.bytes as f64;
        merges * read + (merges - 1.0)
    }

    /// Units that cost less than these, which are the least ones, the cheapest first, up to the longest of so many runs.
    fn better(self, share: usize, runs: usize, longest_bytes: usize, sizes: &IoSizes) -> Vec<Self> {
        let most_bytes = sizes.read_bytes.min(longest_bytes);
        let cost = |units: &Self| units.cost(share, runs, sizes.gap_bytes);
        let doubled = std::iter::successors(Some(self.bytes), |bytes| Some(2 * bytes));
        let larger = doubled.skip(1).take_while(|bytes| *bytes <= most_bytes);
        let mut better: Vec<Self> =
            larger.map(|bytes| Self { bytes }).filter(|units| cost(units) < cost(&self)).collect();
        better.sort_by(|one, other| cost(one).total_cmp(&cost(other)));
        better
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
        let longest_bytes = runs.iter().map(StoredRun::longest_part_bytes).max().unwrap_or(0) as usize;
        let sizes = state.space.device().sizes();
        for units in reading.units.better(share, runs.len(), longest_bytes, &sizes) {
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
            at_once = (at_once - at_once.div_ceil(4)).max(LEAST_RUNS);
        }
        (reading, at_once)
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
