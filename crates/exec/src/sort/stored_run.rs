//! Sorted runs on the device, which are read page by page.
//!
//! ```text
//!   run of rows 1…4 ┐                                       ┌ rows 1…4 ─► rows 5…9
//!   run of rows 2…7 ├─► in sequence, where that is possible ┤
//!   run of rows 5…9 ┘                                       └ rows 2…7
//! ```
//!
//! A run that begins behind the end of another is appended to it, so that a merge has fewer sources: one for each processor
//! that wrote runs of an input which was in order already, however many those are.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use datafusion::common::Result;
use nandina_spill::{PartitionReader, Run};

use super::chunk::Chunk;
use super::forecast::{MARK_BYTES, Mark, Marks};
use super::metrics::SortMetrics;
use super::shared_prefix::SharedPrefix;
use super::spec::SortSpec;
use crate::batch::data_bytes;
use crate::error::{pages_error, spill_error};
use crate::memory::HeldMemory;

/// Room for the keys of a unit whose pages are used, in units. Those that are longer take more when they are made.
const UNITS_OF_KEYS: usize = 2;

/// A run that has been written.
#[derive(Debug)]
pub struct StoredRun {
    /// Each comes behind the one before.
    parts: Vec<Run>,
    /// What all of its keys begin with.
    pub prefix: SharedPrefix,
    marks: Marks,
    /// For the marks.
    memory: HeldMemory,
}

/// A run that is being read, a unit at a time unless more are asked for ahead.
pub struct RunPages {
    /// Those that have not been read to their end.
    parts: VecDeque<Part>,
    /// Of the others.
    rows_read: u64,
    unit_bytes: usize,
    marks: Marks,
    /// What the keys of all runs of a merge share.
    prefix: Option<SharedPrefix>,
    /// For the marks.
    _memory: HeldMemory,
}

struct Part {
    reader: PartitionReader,
    rows: u64,
}

impl StoredRun {
    /// A run of rows whose keys all begin with `prefix`.
    pub fn new(run: Run, prefix: SharedPrefix, marks: Marks, memory: HeldMemory) -> Self {
        memory.resize(marks.bytes());
        Self { parts: vec![run], prefix, marks, memory }
    }

    /// As few runs as can be made of these by appending them to each other.
    pub fn in_sequence(mut runs: Vec<Self>) -> Vec<Self> {
        runs.sort_by_key(|run| (run.marks.first(), run.marks.last()));
        // Each goes to the one that ends next before it.
        let mut by_end: BTreeMap<(Mark, usize), Self> = BTreeMap::new();
        for (number, run) in runs.into_iter().enumerate() {
            let mut before = by_end.range(..=(run.marks.first(), usize::MAX)).rev();
            let end = before.find(|(_, before)| run.is_behind(before)).map(|(end, _)| *end);
            let run = match end.and_then(|end| by_end.remove(&end)) {
                Some(mut before) => {
                    before.append(run);
                    before
                }
                None => run,
            };
            by_end.insert((run.marks.last(), number), run);
        }
        by_end.into_values().collect()
    }

    fn is_behind(&self, other: &Self) -> bool {
        let are_whole = |run: &Self| run.prefix.decide(MARK_BYTES);
        match other.marks.last().cmp(&self.marks.first()) {
            std::cmp::Ordering::Less => true,
            // What is not in the marks may be in any order.
            std::cmp::Ordering::Equal => are_whole(self) && are_whole(other),
            std::cmp::Ordering::Greater => false,
        }
    }

    fn append(&mut self, next: Self) {
        let rows = self.parts.iter().map(Run::rows).sum();
        self.parts.extend(next.parts);
        self.prefix.join(&next.prefix);
        self.marks.append(rows, next.marks);
        drop(next.memory);
        self.memory.resize(self.marks.bytes());
    }

    /// Bytes of all pages.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(Run::bytes).sum()
    }

    /// Bytes of the longest piece that is read without a break.
    pub fn longest_part_bytes(&self) -> u64 {
        self.parts.iter().map(Run::bytes).max().unwrap_or(0)
    }

    /// Memory that is held for it while it is on the device.
    pub fn held_bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Bytes of the largest page.
    pub fn largest_page_bytes(&self) -> usize {
        self.parts.iter().map(Run::largest_page_bytes).max().unwrap_or(0)
    }

    /// Begins to read, in units of about `unit_bytes`.
    pub fn read(self, spec: &SortSpec, unit_bytes: usize) -> RunPages {
        let Self { parts, marks, memory, .. } = self;
        let parts = parts.into_iter().filter_map(|run| {
            let rows = run.rows();
            Some(Part { reader: run.read(Arc::clone(&spec.pages), unit_bytes)?, rows })
        });
        let mut pages = RunPages {
            parts: parts.collect(),
            rows_read: 0,
            unit_bytes,
            marks,
            prefix: None,
            _memory: memory,
        };
        pages.read_next_unit();
        pages
    }
}

/// Bytes that reading a run takes beside what is read ahead, in units of so many, while the keys of the buffered rows are of
/// so many.
pub fn run_bytes(unit_bytes: usize, key_bytes: usize) -> usize {
    unit_bytes + key_bytes.max(UNITS_OF_KEYS * unit_bytes)
}

impl RunPages {
    pub fn unit_bytes(&self) -> usize {
        self.unit_bytes
    }

    /// Has the keys of the rows that come compared behind this.
    pub fn compare_behind(&mut self, prefix: &SharedPrefix) {
        self.prefix = Some(prefix.clone());
    }

    /// The last key of the rows that have been asked for, about; `None` if that are all.
    pub fn asked(&self) -> Option<Mark> {
        let mut rows = self.rows_read;
        for part in &self.parts {
            let asked = part.reader.share_asked();
            rows += (part.rows as f64 * asked) as u64;
            if asked < 1.0 {
                break;
            }
        }
        self.marks.of_row(rows)
    }

    /// Asks for the next unit ahead; whether there is one.
    pub fn read_next_unit(&mut self) -> bool {
        self.parts.iter_mut().any(|part| part.reader.read_next_unit())
    }

    /// Units that have been asked for ahead of the one whose pages are used.
    pub fn units_ahead(&self) -> usize {
        // The first may have none left, while the next one is read already.
        let mut ahead = self.parts.iter().map(|part| part.reader.units_ahead());
        ahead.next().unwrap_or(0) + ahead.take_while(|units| *units > 0).sum::<usize>()
    }

    /// Makes `memory` what the run takes while `page` is buffered. Keys may be far longer than the values that they are
    /// made of; what they take is asked for, and taken if it is not granted: without them nothing can leave memory.
    pub fn hold(&self, page: &Chunk, memory: &HeldMemory) {
        let bytes = run_bytes(self.unit_bytes, page.key_bytes());
        if !memory.try_resize(bytes) {
            memory.resize(bytes);
        }
    }

    /// The rows of the next page with their keys; `None` after the last.
    pub async fn next(&mut self, spec: &SortSpec, metrics: &SortMetrics) -> Result<Option<Chunk>> {
        let waiting = metrics.spill.time.timer();
        let page = loop {
            let Some(part) = self.parts.front_mut() else { return Ok(None) };
            if let Some(page) = part.reader.next().await.map_err(spill_error)? {
                break page;
            }
            self.rows_read += part.rows;
            self.parts.pop_front();
        };
        drop(waiting);
        let rows = page.batch(None).map_err(pages_error)?;
        let keys = spec.keys(&rows)?;
        let bytes = data_bytes(&rows);
        Ok(Some(Chunk::in_order(rows, bytes, keys, self.prefix.as_ref())))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use nandina_device::block_on;
    use proptest::prelude::*;

    use super::super::merge::Merge;
    use super::super::merger::Outgoing;
    use super::super::reading::{Reading, open};
    use super::super::run_sink::write_run;
    use super::super::state::SortState;
    use super::super::testing::{push_texts, sort_by, state, text};
    use super::*;

    /// Runs of the numbers in these ranges, as texts with something before and behind them.
    fn runs_of(state: &SortState, ranges: &[(u32, u32)], before: &str, behind: &str) -> Vec<StoredRun> {
        let run_of = |(first, last): &(u32, u32)| {
            let mut chunk = Chunk::default();
            let texts: Vec<_> =
                (*first..=*last).map(|number| Some(format!("{before}{number:04}{behind}"))).collect();
            texts.chunks(100).for_each(|texts| push_texts(&mut chunk, &state.spec, texts));
            chunk.sort(None);
            block_on(write_run(state, &[(Arc::new(chunk), 0)])).unwrap().unwrap()
        };
        ranges.iter().map(run_of).collect()
    }

    /// What a merge of runs gives, and how many there were to merge.
    fn merged(state: &Arc<SortState>, runs: Vec<StoredRun>) -> (Vec<String>, usize) {
        let runs = StoredRun::in_sequence(runs);
        let sources = runs.len();
        let (reading, _) = Reading::reserved(state, &runs);
        let ahead = reading.memory_ahead(sources);
        let merge = Merge::new(state, Vec::new(), block_on(open(state, runs, &reading)).unwrap(), ahead);
        let (mut texts, mut rows) = (Vec::new(), Outgoing::default());
        while let Some(batch) = block_on(merge.next(&mut rows)).unwrap() {
            let batch = batch.gather(&state.spec.schema).unwrap();
            texts.extend(batch.column(0).as_string::<i32>().iter().flatten().map(str::to_owned));
        }
        (texts, sources)
    }

    /// The most ranges that have a number in common.
    fn depth(ranges: &[(u32, u32)]) -> usize {
        let at =
            |number: u32| ranges.iter().filter(|(first, last)| (*first..=*last).contains(&number)).count();
        ranges.iter().map(|(first, _)| at(*first)).max().unwrap_or(0)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn runs_are_as_few_as_overlap_and_keep_their_rows(
            ranges in prop::collection::vec((0..3000u32, 0..600u32), 1..12),
        ) {
            let ranges: Vec<_> = ranges.into_iter().map(|(first, length)| (first, first + length)).collect();
            let state = state(sort_by(text(), 100), 64 << 20);
            let (texts, sources) = merged(&state, runs_of(&state, &ranges, "", ""));
            let mut right: Vec<_> =
                ranges.iter().flat_map(|(first, last)| *first..=*last).map(|number| format!("{number:04}")).collect();
            right.sort();
            prop_assert!(texts == right);
            // Ranges with one number in common at their ends can be read one after the other.
            prop_assert!(sources <= depth(&ranges), "{} runs of {:?}", sources, ranges);
            prop_assert_eq!((state.pool.reserved(), state.space.used_bytes()), (0, 0));
        }
    }

    #[test]
    fn runs_whose_ends_are_not_known_are_merged() {
        let state = state(sort_by(text(), 100), 64 << 20);
        // The numbers stand behind the bytes that are kept.
        let before = "x".repeat(MARK_BYTES);
        let (texts, sources) = merged(&state, runs_of(&state, &[(10, 19), (0, 9)], &before, ""));
        assert_eq!((texts.len(), sources, texts.is_sorted()), (20, 2, true));
        // Here only what is equal anyway does.
        let behind = "x".repeat(100);
        let (texts, sources) = merged(&state, runs_of(&state, &[(10, 19), (0, 9), (9, 10)], "", &behind));
        assert_eq!((texts.len(), sources, texts.is_sorted()), (22, 2, true));
    }

    #[test]
    fn a_run_of_many_parts_is_read_ahead_over_their_ends() {
        let state = state(sort_by(text(), 100), 64 << 20);
        let ranges: Vec<_> = (0..200).map(|part| (part * 20, part * 20 + 19)).collect();
        let mut runs = StoredRun::in_sequence(runs_of(&state, &ranges, "", ""));
        assert_eq!(runs.len(), 1);
        let mut pages = runs.pop().unwrap().read(&state.spec, 4096);
        assert_eq!(pages.units_ahead(), 1);
        (0..3).for_each(|_| assert!(pages.read_next_unit()));
        assert_eq!(pages.units_ahead(), 4);
        for left in (0..4).rev() {
            block_on(pages.next(&state.spec, &state.metrics)).unwrap().unwrap();
            assert_eq!(pages.units_ahead(), left);
        }
        let mut rows = 80;
        while let Some(chunk) = block_on(pages.next(&state.spec, &state.metrics)).unwrap() {
            rows += chunk.len();
        }
        assert_eq!((rows, pages.asked(), pages.read_next_unit()), (4000, None, false));
    }
}
