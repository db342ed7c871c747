//! Merging chunks in memory and runs on the device.
//!
//! ```text
//!   chunk ───────────────────┐
//!   chunk ─► (reclaimed) run ┼─► Merger ─► rows of one output batch
//!   run ─► page by page ─────┘     ▲
//!                                  └ pages are read without the lock, while nobody needs it
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::common::Result;
use futures::executor::block_on;
use parking_lot::Mutex;

use super::chunk::Chunk;
use super::merger::{Merger, Outgoing, Step};
use super::passes::{OpenRun, Reading};
use super::shared_prefix::SharedPrefix;
use super::state::SortState;
use super::stored_run::{RunPages, write_run};
use crate::held_memory::HeldMemory;
use crate::memory::{MemoryGovernor, Reclaim, ReclaimHandle};

/// A merge of everything there is.
pub struct Merge {
    state: Arc<SortState>,
    sources: Mutex<Sources>,
    /// Bytes of chunks, readable without the lock.
    chunk_bytes: AtomicUsize,
    reclaim: Mutex<Option<ReclaimHandle>>,
}

struct Sources {
    merger: Merger,
    kinds: Vec<Source>,
}

/// What a source's rows are behind those at hand.
enum Source {
    /// A chunk, all of which is at hand.
    Chunk(HeldMemory),
    Run(RunPages, HeldMemory),
    /// A run of which a page is being read, or a source that has ended.
    Away,
}

impl Merge {
    /// A merge of chunks and of runs that have been opened.
    pub fn new(state: &Arc<SortState>, chunks: Vec<(Arc<Chunk>, HeldMemory)>, runs: Vec<OpenRun>) -> Self {
        let mut prefix = SharedPrefix::default();
        chunks.iter().for_each(|(chunk, _)| prefix.join(chunk.prefix()));
        runs.iter().for_each(|run| prefix.join(&run.prefix));
        let (mut kinds, mut at_hand) = (Vec::new(), Vec::new());
        let chunk_bytes = chunks.iter().map(|(chunk, _)| chunk.bytes()).sum();
        for (chunk, memory) in chunks {
            at_hand.push((chunk, 0));
            kinds.push(Source::Chunk(memory));
        }
        for run in runs {
            at_hand.push((Arc::new(run.first), 0));
            kinds.push(Source::Run(run.pages, run.memory));
        }
        let merger = Merger::new(at_hand, &prefix, state.wanted_rows());
        Self {
            state: Arc::clone(state),
            sources: Mutex::new(Sources { merger, kinds }),
            chunk_bytes: AtomicUsize::new(chunk_bytes),
            reclaim: Mutex::new(None),
        }
    }

    /// Gives memory back from now on, when others ask for it.
    pub fn reclaimable(self) -> Arc<Self> {
        let merge = Arc::new(self);
        let weak: std::sync::Weak<dyn Reclaim> = Arc::downgrade(&(Arc::clone(&merge) as Arc<dyn Reclaim>));
        *merge.reclaim.lock() = MemoryGovernor::register_reclaimer(&merge.state.pool, weak);
        merge
    }

    /// The rows of the next batch; none at the end.
    pub async fn next(&self, rows: &mut Outgoing) -> Result<Option<Outgoing>> {
        loop {
            let (source, mut pages, memory) = match self.fill(rows) {
                Filled::Batch => return Ok(Some(rows.take()).filter(|rows| !rows.is_empty())),
                Filled::Page(source, pages, memory) => (source, pages, memory),
            };
            let chunk = pages.next(&self.state).await?;
            let mut sources = self.sources.lock();
            if chunk.is_some()
                && let Some(kind) = sources.kinds.get_mut(source)
            {
                *kind = Source::Run(pages, memory);
            }
            sources.merger.supply(source, chunk);
        }
    }

    /// Goes on until a batch is full, or a page is needed.
    fn fill(&self, rows: &mut Outgoing) -> Filled {
        let _timer = self.state.metrics.baseline.elapsed_compute().timer();
        let mut sources = self.sources.lock();
        let Sources { merger, kinds } = &mut *sources;
        loop {
            let step = merger.fill(rows, self.state.spec.batch_rows, self.state.output_bytes());
            let Step::Exhausted(source) = step else { return Filled::Batch };
            let kind = kinds.get_mut(source).map(|kind| std::mem::replace(kind, Source::Away));
            match kind {
                Some(Source::Run(pages, memory)) => return Filled::Page(source, pages, memory),
                Some(Source::Chunk(_)) => {
                    let bytes = merger.at_hand(source).map_or(0, |(chunk, _)| chunk.bytes());
                    self.chunk_bytes.fetch_sub(bytes, Ordering::Relaxed);
                    merger.supply(source, None);
                }
                Some(Source::Away) | None => merger.supply(source, None),
            }
        }
    }
}

/// What a merge needs next.
enum Filled {
    /// Somebody who takes the rows.
    Batch,
    /// The next page of this source.
    Page(usize, RunPages, HeldMemory),
}

impl Sources {
    /// Writes what is left of a chunk to the device, but for the rows that come next. The bytes that frees.
    fn spill(&mut self, source: usize, state: &SortState) -> Result<usize> {
        let Some((chunk, at)) = self.merger.at_hand(source) else { return Ok(0) };
        let (kept_end, chunk) = (at + kept_rows(chunk, state), Arc::clone(chunk));
        let Some(Source::Chunk(memory)) = self.kinds.get(source) else { return Ok(0) };
        if kept_end >= chunk.len() {
            return Ok(0);
        }
        let kept = chunk.copied(at, kept_end, &state.spec)?;
        let Some(run) = block_on(write_run(state, &[(Arc::clone(&chunk), kept_end)]))? else { return Ok(0) };
        let reading = Reading::least(state, run.largest_page_bytes());
        let now = kept.bytes() + reading.run_bytes;
        let freed = memory.bytes().saturating_sub(now);
        memory.resize(now);
        let pages = run.read(state, reading.unit_bytes);
        if let Some(kind) = self.kinds.get_mut(source)
            && let Source::Chunk(memory) = std::mem::replace(kind, Source::Away)
        {
            *kind = Source::Run(pages, memory);
        }
        self.merger.swap(source, kept);
        Ok(freed)
    }
}

/// Rows that come next: enough for the merge to go on while the others are on the device.
fn kept_rows(chunk: &Chunk, state: &SortState) -> usize {
    let row_bytes = (chunk.bytes() / chunk.len().max(1)).max(1);
    (state.output_bytes() / row_bytes).clamp(1, state.spec.batch_rows)
}

impl Reclaim for Merge {
    fn reclaimable_bytes(&self) -> usize {
        self.chunk_bytes.load(Ordering::Relaxed)
    }

    fn reclaim(&self, bytes: usize) -> usize {
        let mut sources = self.sources.lock();
        let mut freed = 0;
        for source in 0..sources.kinds.len() {
            if freed >= bytes {
                break;
            }
            let chunk_bytes = sources.merger.at_hand(source).map_or(0, |(chunk, _)| chunk.bytes());
            match sources.spill(source, &self.state) {
                Ok(0) => {}
                Ok(bytes) => {
                    freed += bytes;
                    self.chunk_bytes.fetch_sub(chunk_bytes, Ordering::Relaxed);
                }
                Err(error) => {
                    log::warn!("a sort could not give memory back: {error}");
                    break;
                }
            }
        }
        freed
    }
}
