//! Blocks of build rows and files of probe rows against each other, when neither side is in memory.
//!
//! ```text
//!   join_blocks   for each block { for each file  { compare }   emit rows of the block  }
//!   join_file     for one file   { for each block { compare } } emit rows of the file
//! ```
//!
//! Blocks need not be large: one of a thousand rows already takes longer to compare with a page than the page takes to
//! be read. So several workers take blocks of their own rather than wait for each other at a shared one.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::RecordBatch;
use async_stream::try_stream;
use datafusion::common::Result;
use futures::Stream;
use nandina_pages::Page;
use nandina_spill::PartitionReader;

use super::block::Block;
use super::prober::Prober;
use super::side_rows::{BuildSideRows, ProbeSideRows};
use super::state::{LoopState, SpilledBuild};
use crate::error::spill_error;
use crate::join::kind::{JoinKind, SideRows};
use crate::join::row_bits::RowBits;
use crate::memory::HeldMemory;
use crate::spill::SpillFile;

/// Smallest block.
const MIN_BLOCK_BYTES: usize = 64 << 10;
/// The share of memory that the blocks of all workers may take.
const BLOCKS_SHARE: usize = 2;

/// Cuts a build side on the device into blocks. Several workers may take turns.
pub struct Blocks {
    state: Arc<LoopState>,
    total_bytes: usize,
    earlier: Option<Arc<RowBits>>,
    reader: tokio::sync::Mutex<BlockReader>,
}

struct BlockReader {
    reading: Option<PartitionReader>,
    /// Readers of the files that come then.
    waiting: VecDeque<PartitionReader>,
    /// A page that the last block had no room for.
    held_page: Option<Page>,
    /// Rows of the blocks so far.
    rows_before: usize,
}

impl Blocks {
    /// All rows of `build`.
    pub fn new(state: &Arc<LoopState>, build: &SpilledBuild) -> Self {
        let window_bytes = state.read_window_bytes();
        let pages = &state.spec.build.pages;
        let readers = build.files.iter().map(|file| file.read(Arc::clone(pages), window_bytes));
        let reader =
            BlockReader { reading: None, waiting: readers.collect(), held_page: None, rows_before: 0 };
        Self {
            state: Arc::clone(state),
            total_bytes: build.files.iter().map(|file| file.bytes() as usize).sum(),
            earlier: build.earlier.clone(),
            reader: tokio::sync::Mutex::new(reader),
        }
    }

    /// The next block of about `bytes`, or `None` after the last.
    async fn next(&self, bytes: usize, tracks: bool) -> Result<Option<Arc<Block>>> {
        let mut pages = Vec::new();
        let waiting = self.state.metrics.spill.time.timer();
        let first_row = self.reader.lock().await.fill(bytes, &mut pages).await?;
        drop(waiting);
        if pages.is_empty() {
            return Ok(None);
        }
        self.state.metrics.build_blocks.add(1);
        let block = Block::new(&self.state.spec, pages, tracks)?;
        Ok(Some(Arc::new(block.matched_earlier(self.earlier.as_deref(), first_row))))
    }
}

impl BlockReader {
    /// Reads pages until they are about `bytes`. Returns the number of the first row.
    async fn fill(&mut self, bytes: usize, pages: &mut Vec<Page>) -> Result<usize> {
        let (mut filled, mut rows) = (0, 0);
        while let Some(page) = self.next_page().await? {
            let page_bytes = page.memory_bytes() + RowBits::bytes_for(page.rows());
            if filled > 0 && filled + page_bytes > bytes {
                self.held_page = Some(page);
                break;
            }
            filled += page_bytes;
            rows += page.rows();
            pages.push(page);
        }
        let first_row = self.rows_before;
        self.rows_before += rows;
        Ok(first_row)
    }

    async fn next_page(&mut self) -> Result<Option<Page>> {
        if let Some(page) = self.held_page.take() {
            return Ok(Some(page));
        }
        loop {
            if let Some(reader) = &mut self.reading
                && let Some(page) = reader.next().await.map_err(spill_error)?
            {
                return Ok(Some(page));
            }
            self.reading = self.waiting.pop_front();
            if self.reading.is_none() {
                return Ok(None);
            }
        }
    }
}

/// The memory that one worker holds for a block at a time, for reading, and for bits.
struct BlockMemory {
    block_bytes: usize,
    _memory: HeldMemory,
}

impl BlockMemory {
    /// As large a block as there is memory for, up to this worker's share, beside `fixed_bytes` and read windows.
    fn reserve(state: &LoopState, build_bytes: usize, fixed_bytes: usize) -> Self {
        // A window for the build side, and one for the probe side.
        let beside = fixed_bytes + state.read_window_bytes() + state.probe_spill.read_window_bytes();
        let share = state.memory_limit.map_or(build_bytes, |limit| limit / BLOCKS_SHARE / state.outputs);
        let mut block_bytes = build_bytes.min(share).max(MIN_BLOCK_BYTES);
        let memory = state.another_reservation();
        while !memory.try_grow(block_bytes + beside) {
            if block_bytes == MIN_BLOCK_BYTES {
                // Below this nothing can be joined at all, and everything that can be spilled has been.
                memory.grow(block_bytes + beside);
                break;
            }
            block_bytes = (block_bytes / 2).max(MIN_BLOCK_BYTES);
        }
        Self { block_bytes, _memory: memory }
    }
}

/// Joins block after block with all probe rows, then emits the rows of the block that are output by themselves.
pub fn join_blocks(
    state: Arc<LoopState>,
    blocks: Arc<Blocks>,
    files: Arc<Vec<SpillFile>>,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    try_stream! {
        let kind = JoinKind { probe_rows: SideRows::Dropped, ..state.spec.kind };
        let memory = BlockMemory::reserve(&state, blocks.total_bytes, 0);
        let mut prober = Prober::new(&state.spec, kind)?;
        while let Some(block) = blocks.next(memory.block_bytes, state.emits_build_rows()).await? {
            for file in files.iter() {
                let mut batches = file.read_reserved();
                while let Some(batch) = batches.next().await? {
                    state.note_step();
                    let unmatched = vec![false; batch.num_rows()];
                    prober.start(Arc::clone(&block), batch, unmatched)?;
                    while let Some(output) = prober.next(&state.metrics.probe_time, &state.progress).await? {
                        yield output;
                    }
                }
            }
            let pages = 0..block.pages().len();
            let mut rows = BuildSideRows::new(Arc::clone(&state.spec), block, pages);
            while let Some(output) = rows.next()? {
                yield output;
            }
        }
        state.report_io();
    }
}

/// Joins the probe rows of a file with all blocks, then emits those that are output by themselves.
pub fn join_file(
    state: Arc<LoopState>,
    build: SpilledBuild,
    file: SpillFile,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    try_stream! {
        let mut kind = state.spec.kind;
        if state.emits_build_rows() {
            // The second half of a full join: its pairs have been emitted with the blocks.
            kind = JoinKind { pairs: false, build_rows: SideRows::Dropped, ..kind };
        }
        let notes_matches = kind.probe_rows != SideRows::Dropped;
        let matched = RowBits::new(if notes_matches { file.row_count() } else { 0 });
        let blocks = Blocks::new(&state, &build);
        let memory = BlockMemory::reserve(&state, blocks.total_bytes, matched.memory_bytes());
        let mut prober = Prober::new(&state.spec, kind)?;
        while let Some(block) = blocks.next(memory.block_bytes, false).await? {
            let mut batches = file.read_reserved();
            let mut first_row = 0;
            while let Some(batch) = batches.next().await? {
                state.note_step();
                let rows = first_row..first_row + batch.num_rows();
                let known = match notes_matches {
                    true => matched.of_rows(rows.clone()),
                    false => vec![false; batch.num_rows()],
                };
                prober.start(Arc::clone(&block), batch, known)?;
                while let Some(output) = prober.next(&state.metrics.probe_time, &state.progress).await? {
                    yield output;
                }
                if notes_matches {
                    matched.set_matched(rows.start, prober.matched());
                }
                first_row = rows.end;
            }
            if notes_matches && !kind.pairs && matched.count() == file.row_count() {
                break;
            }
        }
        if notes_matches {
            let mut batches = file.read_reserved();
            let mut first_row = 0;
            while let Some(batch) = batches.next().await? {
                let until = first_row + batch.num_rows();
                let known = matched.of_rows(first_row..until);
                first_row = until;
                let mut rows = ProbeSideRows::new(batch, known);
                while let Some(output) = rows.next(&state.spec, kind)? {
                    yield output;
                }
            }
        }
        state.report_io();
    }
}
