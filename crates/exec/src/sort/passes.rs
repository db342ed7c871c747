//! Fewer runs out of many: as long as there are more than can be read at once, the smallest are merged into one.
//!
//! ```text
//!   20 runs, 8 at once:  5 ─► 1,  8 ─► 1,  which leaves 9: 2 ─► 1 and 8 for the last merge
//! ```
//!
//! Every merge of runs writes its rows once more, so that it takes the smallest runs, and no more of them than needed.

use std::sync::Arc;

use datafusion::common::Result;

use super::chunk::Chunk;
use super::merge::Merge;
use super::merger::Outgoing;
use super::shared_prefix::SharedPrefix;
use super::state::SortState;
use super::stored_run::{RunPages, RunSink, StoredRun};
use crate::memory::HeldMemory;

/// Units of a run that are in memory while it is read: two are on their way, and the pages of a third are used.
const UNITS_OF_ROWS: usize = 3;
/// Room for the keys of the third, in units. Those that are longer take more when they are made.
const UNITS_OF_KEYS: usize = 2;
/// The share of memory that reading may take, and that it may take to read in larger units than pages. It is not given
/// back while runs are read, and who stands above needs memory, too.
const READING_SHARE: usize = 4;
const LARGE_READS_SHARE: usize = 16;
/// However little memory there is, so many runs are read at once.
const LEAST_RUNS: usize = 2;

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
    fn reserved(state: &SortState, runs: &[StoredRun]) -> (Self, usize) {
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

    /// Larger reads are better up to a size that the device knows, but nobody is to spill for them.
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

/// Bytes that reading a run takes, in units of so many, while the keys of the rows at hand are of so many.
pub fn run_bytes(unit_bytes: usize, key_bytes: usize) -> usize {
    UNITS_OF_ROWS * unit_bytes + key_bytes.max(UNITS_OF_KEYS * unit_bytes)
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
        begun.push((run.read(state, reading.unit_bytes), prefix));
    }
    let mut open = Vec::with_capacity(begun.len());
    for (mut pages, prefix) in begun {
        let first = pages.next(state).await?.unwrap_or_default();
        let memory = reading.memory_of_one();
        pages.hold(&first, &memory);
        open.push(OpenRun { pages, first, prefix, memory });
    }
    Ok(open)
}

/// Merges runs until all that are left can be read at once, and reserves the memory for that.
pub async fn few_enough(state: &Arc<SortState>) -> Result<Reading> {
    loop {
        // Lanes that have to give memory back meanwhile add runs.
        let mut runs = std::mem::take(&mut *state.runs.lock());
        let (reading, at_once) = Reading::reserved(state, &runs);
        let too_many = runs.len().saturating_sub(at_once);
        if too_many == 0 {
            state.runs.lock().append(&mut runs);
            return Ok(reading);
        }
        runs.sort_by_key(StoredRun::bytes);
        let rest = runs.split_off(at_once.min(too_many + 1).max(LEAST_RUNS));
        state.runs.lock().extend(rest);
        let merged = merged(state, runs, &reading).await?;
        state.keep_run(merged);
    }
}

/// One run of the rows of several.
async fn merged(
    state: &Arc<SortState>,
    runs: Vec<StoredRun>,
    reading: &Reading,
) -> Result<Option<StoredRun>> {
    state.metrics.intermediate_merges.add(1);
    let mut prefix = SharedPrefix::default();
    runs.iter().for_each(|run| prefix.join(&run.prefix));
    let merge = Merge::new(state, Vec::new(), open(state, runs, reading).await?);
    let mut sink = RunSink::new(state)?;
    let mut rows = Outgoing::default();
    while let Some(batch) = merge.next(&mut rows).await? {
        sink.push(&batch.gather(&state.spec.schema)?).await?;
    }
    sink.finish(prefix).await
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::BinaryExpr;
    use futures::executor::block_on;

    use super::super::stored_run::write_run;
    use super::super::testing::{numbered, sort_by, state, text};
    use super::*;

    #[test]
    fn keys_that_are_longer_than_their_rows_are_reserved() {
        // Sixty-four times the text.
        let long = (0..6).fold(text(), |key, _| {
            Arc::new(BinaryExpr::new(Arc::clone(&key), Operator::StringConcat, key)) as _
        });
        let state = state(sort_by(long, 100), 64 << 20);
        let rows = 4000;
        let chunk = numbered(&state.spec, rows, 100);
        block_on(async {
            let run = write_run(&state, &[(chunk, 0)]).await.unwrap().unwrap();
            let runs = vec![run];
            let (reading, _) = Reading::reserved(&state, &runs);
            let open = open(&state, runs, &reading).await.unwrap();
            let first = &open[0].first;
            assert!(first.key_bytes() > 4 * reading.unit_bytes, "{} bytes of keys", first.key_bytes());
            let held = 3 * reading.unit_bytes + first.key_bytes();
            assert_eq!(open[0].memory.bytes(), held);
            // So it is with the pages that follow.
            let merge = Merge::new(&state, Vec::new(), open);
            let (mut given, mut outgoing, mut held_least) = (0, Outgoing::default(), usize::MAX);
            while let Some(batch) = merge.next(&mut outgoing).await.unwrap() {
                given += batch.gather(&state.spec.schema).unwrap().num_rows();
                if given < rows / 2 {
                    held_least = held_least.min(state.pool.reserved());
                }
            }
            assert_eq!(given, rows);
            assert!(held_least > held / 2 && held_least < usize::MAX, "{held_least} bytes while merging");
        });
    }
}
