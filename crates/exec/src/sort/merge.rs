//! Merging chunks in memory and runs on the device.
//!
//! ```text
//!   chunk ───────────────────┐
//!   chunk ─► (reclaimed) run ┼─► Merger ─► rows of one output batch
//!   run ─► page by page ─────┘     ▲
//!                                  └ pages are read without the lock
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::common::Result;
use nandina_device::block_on;
use parking_lot::Mutex;

use super::chunk::Chunk;
use super::forecast::Forecast;
use super::merger::{Merger, Outgoing, Step};
use super::reading::{OpenRun, Reading};
use super::run_sink::write_run;
use super::shared_prefix::SharedPrefix;
use super::state::SortState;
use super::stored_run::RunPages;
use crate::memory::{HeldMemory, MemoryGovernor, Reclaim, ReclaimHandle};

/// A merge of everything there is.
pub struct Merge {
    state: Arc<SortState>,
    sources: Mutex<Sources>,
    /// Bytes that writing chunks would free, readable without the lock.
    reclaimable_bytes: AtomicUsize,
    reclaim: Mutex<Option<ReclaimHandle>>,
}

struct Sources {
    merger: Merger,
    kinds: Vec<Source>,
    forecast: Forecast,
    /// For what is read ahead.
    ahead: HeldMemory,
}

/// Where a source's rows behind the buffered ones are.
enum Source {
    /// A chunk, all of which is buffered, and the bytes that writing it would free.
    Chunk(HeldMemory, usize),
    Run(Box<RunPages>, HeldMemory),
    /// A run of which a page is being read, or a source that has ended.
    Away,
}

impl Merge {
    /// A merge of chunks and of runs that have been opened, which are read ahead in this memory.
    pub fn new(
        state: &Arc<SortState>,
        chunks: Vec<(Arc<Chunk>, HeldMemory)>,
        runs: Vec<OpenRun>,
        ahead: HeldMemory,
    ) -> Self {
        let mut prefix = SharedPrefix::default();
        chunks.iter().for_each(|(chunk, _)| prefix.join(chunk.prefix()));
        runs.iter().for_each(|run| prefix.join(&run.prefix));
        let (mut kinds, mut buffered) = (Vec::new(), Vec::new());
        let mut all_reclaimable = 0;
        for (chunk, memory) in chunks {
            let reclaimable = reclaimable_bytes(&chunk, state);
            all_reclaimable += reclaimable;
            buffered.push((chunk, 0));
            kinds.push(Source::Chunk(memory, reclaimable));
        }
        let mut forecast = Forecast::new(ahead.bytes());
        for mut run in runs {
            run.pages.compare_behind(&prefix);
            forecast.add(kinds.len(), &run.pages);
            buffered.push((Arc::new(run.first), 0));
            kinds.push(Source::Run(Box::new(run.pages), run.memory));
        }
        let merger = Merger::new(buffered, &prefix, state.wanted_rows());
        let mut sources = Sources { merger, kinds, forecast, ahead };
        sources.read_ahead();
        Self {
            state: Arc::clone(state),
            sources: Mutex::new(sources),
            reclaimable_bytes: AtomicUsize::new(all_reclaimable),
            reclaim: Mutex::new(None),
        }
    }

    /// Gives memory back from now on, when others ask for it.
    pub fn reclaimable(self) -> Arc<Self> {
        let merge = Arc::new(self);
        *merge.reclaim.lock() =
            MemoryGovernor::register_reclaimer(&merge.state.pool, Arc::<Self>::downgrade(&merge));
        merge
    }

    /// The rows of the next batch; none at the end.
    pub async fn next(&self, rows: &mut Outgoing) -> Result<Option<Outgoing>> {
        loop {
            let (source, mut pages, memory) = match self.fill(rows) {
                Filled::Batch => return Ok(Some(rows.take()).filter(|rows| !rows.is_empty())),
                Filled::Page(source, pages, memory) => (source, pages, memory),
            };
            let ahead = pages.units_ahead();
            let chunk = pages.next(&self.state.spec, &self.state.metrics).await?;
            if let Some(chunk) = &chunk {
                pages.hold(chunk, &memory);
            }
            let begun = ahead.saturating_sub(pages.units_ahead());
            let mut sources = self.sources.lock();
            sources.forecast.give(begun * pages.unit_bytes());
            if chunk.is_some() {
                sources.kinds[source] = Source::Run(pages, memory);
            }
            sources.merger.supply(source, chunk);
            sources.read_ahead();
        }
    }

    /// Goes on until a batch is full, or a page is needed.
    fn fill(&self, rows: &mut Outgoing) -> Filled {
        let _timer = self.state.metrics.baseline.elapsed_compute().timer();
        let mut sources = self.sources.lock();
        let Sources { merger, kinds, .. } = &mut *sources;
        loop {
            let step = merger.fill(rows, self.state.spec.batch_rows, self.state.output_bytes());
            let Step::Exhausted(source) = step else { return Filled::Batch };
            match std::mem::replace(&mut kinds[source], Source::Away) {
                Source::Run(pages, memory) => return Filled::Page(source, pages, memory),
                Source::Chunk(_, reclaimable) => {
                    self.reclaimable_bytes.fetch_sub(reclaimable, Ordering::Relaxed);
                    merger.supply(source, None);
                }
                Source::Away => unreachable!("a source that has ended is not exhausted again"),
            }
        }
    }
}

/// What a merge needs to go on.
enum Filled {
    /// A consumer of its rows.
    Batch,
    /// The next page of this source.
    Page(usize, Box<RunPages>, HeldMemory),
}

impl Sources {
    /// Asks for what the merge needs next of its runs.
    fn read_ahead(&mut self) {
        self.forecast.read_ahead(&mut self.kinds, |kind| match kind {
            Source::Run(pages, _) => Some(pages),
            Source::Chunk(..) | Source::Away => None,
        });
    }

    /// Takes out the bytes that writing a chunk would free, so that they are reported once.
    fn take_reclaimable(&mut self, source: usize) -> usize {
        match self.kinds.get_mut(source) {
            Some(Source::Chunk(_, reclaimable)) => std::mem::take(reclaimable),
            _ => 0,
        }
    }

    /// Writes the rest of a chunk to the device, but for the rows that come next. The bytes that frees; if it would
    /// free none, nothing is written.
    fn spill(&mut self, source: usize, state: &SortState) -> Result<usize> {
        let (chunk, at) = self.merger.buffered(source);
        let (kept_end, chunk) = (at + kept_rows(chunk, state), Arc::clone(chunk));
        let Source::Chunk(memory, _) = &self.kinds[source] else { return Ok(0) };
        if kept_end >= chunk.len() {
            return Ok(0);
        }
        let kept = chunk.copied(at, kept_end, &state.spec)?;
        if memory.bytes() <= kept.bytes() + Reading::least(state, 0).bytes_of_one() {
            return Ok(0);
        }
        let Some(run) = block_on(write_run(state, &[(Arc::clone(&chunk), kept_end)]))? else { return Ok(0) };
        let reading = Reading::least(state, run.largest_page_bytes());
        let now = kept.bytes() + reading.bytes_of_one();
        let freed = memory.bytes().saturating_sub(now + run.held_bytes());
        let ahead = reading.ahead_bytes(1);
        memory.resize(now - ahead);
        self.ahead.grow(ahead);
        let pages = run.read(&state.spec, reading.unit_bytes());
        // It is reading its first unit ahead already.
        self.forecast.give(ahead - reading.unit_bytes());
        self.forecast.add(source, &pages);
        if let Some(kind) = self.kinds.get_mut(source)
            && let Source::Chunk(memory, _) = std::mem::replace(kind, Source::Away)
        {
            *kind = Source::Run(Box::new(pages), memory);
        }
        self.merger.swap(source, kept);
        Ok(freed)
    }
}

/// Rows that come next: enough for the merge to go on while the others are on the device.
fn kept_rows(chunk: &Chunk, state: &SortState) -> usize {
    (state.output_bytes() / row_bytes(chunk)).clamp(1, state.spec.batch_rows)
}

fn row_bytes(chunk: &Chunk) -> usize {
    (chunk.bytes() / chunk.len().max(1)).max(1)
}

/// Bytes that writing a chunk frees: its next rows stay, and it takes memory to be read.
fn reclaimable_bytes(chunk: &Chunk, state: &SortState) -> usize {
    let kept_bytes = kept_rows(chunk, state) * row_bytes(chunk);
    chunk.bytes().saturating_sub(kept_bytes + Reading::least(state, 0).bytes_of_one())
}

impl Reclaim for Merge {
    fn reclaimable_bytes(&self) -> usize {
        self.reclaimable_bytes.load(Ordering::Relaxed)
    }

    fn reclaim(&self, bytes: usize) -> usize {
        let mut sources = self.sources.lock();
        let mut freed = 0;
        for source in 0..sources.kinds.len() {
            if freed >= bytes {
                break;
            }
            let reclaimable = sources.take_reclaimable(source);
            if reclaimable == 0 {
                continue;
            }
            match sources.spill(source, &self.state) {
                Ok(bytes) => {
                    freed += bytes;
                    self.reclaimable_bytes.fetch_sub(reclaimable, Ordering::Relaxed);
                }
                Err(error) => {
                    log::warn!("a sort could not give memory back: {error}");
                    // It is all still there, and may be asked for again.
                    if let Some(Source::Chunk(_, of_source)) = sources.kinds.get_mut(source) {
                        *of_source = reclaimable;
                    }
                    break;
                }
            }
        }
        freed
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{numbered, sort_by, state, text};
    use super::*;

    /// A merge of one chunk of so many rows, ten kilobytes each.
    fn merge_of(rows: usize) -> Merge {
        let state = state(sort_by(text(), 10), 64 << 20);
        let chunk = numbered(&state.spec, rows, 10_000);
        let memory = state.another_reservation();
        memory.grow(chunk.bytes());
        let ahead = state.another_reservation();
        Merge::new(&state, vec![(chunk, memory)], Vec::new(), ahead)
    }

    fn assert_gives(merge: &Merge, rows: usize) {
        let mut outgoing = Outgoing::default();
        let mut given = 0;
        while let Some(batch) = block_on(merge.next(&mut outgoing)).unwrap() {
            let batch = batch.gather(&merge.state.spec.schema).unwrap();
            let texts = arrow::array::AsArray::as_string::<i32>(batch.column(0)).iter().flatten();
            texts.for_each(|text| {
                assert_eq!(text.parse(), Ok(given));
                given += 1;
            });
        }
        assert_eq!(given, rows);
        assert_eq!(merge.reclaimable_bytes(), 0);
    }

    #[test]
    fn a_chunk_is_written_if_that_frees_memory() {
        let merge = merge_of(1000);
        let (before, promised) = (merge.state.pool.reserved(), merge.reclaimable_bytes());
        let freed = merge.reclaim(1);
        assert!(freed > before / 2 && freed.abs_diff(promised) < before / 10, "{freed} of {promised} bytes");
        assert_eq!(merge.state.pool.reserved(), before - freed);
        assert_eq!((merge.reclaimable_bytes(), merge.reclaim(1)), (0, 0));
        assert_gives(&merge, 1000);
    }

    #[test]
    fn a_chunk_that_would_take_more_memory_to_be_read_stays() {
        // Its next rows and the pages of a run would be 700 KB.
        let merge = merge_of(50);
        let before = merge.state.pool.reserved();
        assert!(before > 300 << 10, "{before} bytes");
        assert_eq!((merge.reclaimable_bytes(), merge.reclaim(1)), (0, 0));
        assert_eq!((merge.state.pool.reserved(), merge.state.space.used_bytes()), (before, 0));
        assert_gives(&merge, 50);
    }

    #[test]
    fn a_chunk_that_ends_is_not_promised_any_more() {
        let merge = merge_of(1000);
        assert!(merge.reclaimable_bytes() > 0);
        assert_gives(&merge, 1000);
        assert_eq!(merge.state.pool.reserved(), 0);
    }
}
