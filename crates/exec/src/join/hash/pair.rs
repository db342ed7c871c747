//! One spilled partition: its build file against its probe file.
//!
//! ```text
//!   fits in memory   ─► table over the smaller side, the other side streamed through it
//!   does not fit     ─► both files scattered again by a fresh hash, into pairs of the next level
//!   cannot be split  ─► the smaller side in blocks, the other side streamed once per block
//! ```
//!
//! The side that was estimated to be smaller is not always the smaller one: by now both have been counted, so
//! every pair builds on what really is. Two kinds of pairs keep their sides: those of a `NOT IN`, whose rules for
//! nulls are not symmetric, and those whose build rows have matched before they were spilled. The latter are not
//! scattered again, either, since that would lose which rows matched; they fitted in memory once, or are joined in
//! blocks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::RecordBatch;
use datafusion::common::Result;
use nandina_pages::Page;
use nandina_spill::{Partition, PartitionFile, PartitionReader, Partitioner, Scatter};

use super::build_side::{BuildSide, EarlierVisits, visited_bytes};
use super::prober::Prober;
use super::side_rows::BuildSideRows;
use super::spilled_pair::SpilledPair;
use super::state::{JoinState, MOST_PARTITION_BITS};
use super::table::TABLE_BYTES_PER_ROW;
use crate::error::spill_error;
use crate::join::kind::{JoinKind, SideRows};
use crate::join::row_bits::RowBits;
use crate::join::spec::{JoinSpec, Side};
use crate::keys::KeyHasher;
use crate::memory::{HeldMemory, partitioner_options};
use crate::spill::BatchReader;

/// Deepest level at which scattering again is tried: 8 levels of 64 partitions divide anything that hashing
/// can divide.
const MAX_LEVEL: u32 = 8;
/// A partition that keeps more than this share of its rows when scattered again holds one hot key.
const UNSPLITTABLE_PERCENT: u64 = 90;
/// Smallest block of a build side that cannot be split.
const MIN_BLOCK_BYTES: usize = 256 << 10;

/// How a pair is to be joined.
pub enum Opened {
    /// By these steps.
    Join(Box<PairJoin>),
    /// As these pairs, one level deeper.
    Split(Vec<SpilledPair>),
}

/// Joins one pair whose build side is in memory, in one piece or block by block.
pub struct PairJoin {
    state: Arc<JoinState>,
    spec: Arc<JoinSpec>,
    hasher: KeyHasher,
    build_file: Arc<PartitionFile>,
    probe_file: Arc<PartitionFile>,
    memory: PairMemory,
    step: Step,
    /// Blocks: the rest of the build side, and the probe rows that have matched in some block.
    blocks: Option<Blocks>,
    earlier: Option<EarlierVisits>,
}

struct Blocks {
    reader: PartitionReader,
    block_bytes: usize,
    /// A page that the last block had no room for.
    held_page: Option<Page>,
    /// Pages of the blocks before the current one.
    pages_before: usize,
    /// Which probe rows have matched; empty if the join does not ask.
    matched: RowBits,
}

enum Step {
    /// Load the build side, or its next block.
    Load,
    /// Stream the probe side through it.
    Probe {
        build: Arc<BuildSide>,
        prober: Box<Prober>,
        batches: BatchReader,
        first_row: usize,
    },
    /// Emit the build rows that the join's kind asks for.
    BuildRows(BuildSideRows),
    /// After the last block: emit the probe rows.
    ProbeRows {
        prober: Box<Prober>,
        batches: BatchReader,
        first_row: usize,
    },
    Done,
}

/// Bytes of a build side made of this file: its pages, their table, and the bits of its rows.
fn build_bytes(file: &PartitionFile, kind: JoinKind) -> usize {
    file.bytes() as usize + file.rows() as usize * TABLE_BYTES_PER_ROW + visited_bytes(kind, file.pages())
}

impl PairJoin {
    /// Decides how to join `pair` and reserves the memory for it.
    pub async fn open(state: &Arc<JoinState>, pair: SpilledPair) -> Result<Opened> {
        let mut spec = Arc::clone(&state.spec);
        let (mut build_file, mut probe_file) = (pair.build, pair.probe);
        let smaller_probe = probe_file.bytes() < build_file.bytes();
        let exchanged = smaller_probe && !spec.null_aware && pair.earlier.is_none();
        if exchanged {
            std::mem::swap(&mut build_file, &mut probe_file);
            spec = Arc::new(spec.swapped());
            state.hash_metrics.role_reversals.add(1);
        }
        let window_bytes = state.read_window_bytes();
        let build_bytes = build_bytes(&build_file, spec.kind);
        let need = build_bytes + window_bytes;
        let mut memory = PairMemory::new(state);
        let mut blocks = None;
        if !memory.reserve(need).await {
            // Joining takes a block of memory in any case: splitting a smaller build side would save nothing.
            let splittable = !pair.unsplittable
                && pair.earlier.is_none()
                && pair.level < MAX_LEVEL
                && build_bytes > MIN_BLOCK_BYTES;
            if splittable {
                let pairs = split(state, &spec, &build_file, &probe_file, pair.level + 1, need).await?;
                let original = |pair: SpilledPair| if exchanged { pair.swapped() } else { pair };
                return Ok(Opened::Split(pairs.into_iter().map(original).collect()));
            }
            let tracks_probe_rows = spec.kind.probe_rows != SideRows::Dropped;
            let matched = RowBits::new(if tracks_probe_rows { probe_file.rows() as usize } else { 0 });
            // One window for the rest of the build side, one for the probe side.
            let block_bytes = memory.reserve_block(build_bytes, 2 * window_bytes + matched.memory_bytes());
            let reader = build_file.read(Arc::clone(&spec.build.pages), window_bytes);
            blocks = Some(Blocks { reader, block_bytes, held_page: None, pages_before: 0, matched });
        }
        Ok(Opened::Join(Box::new(Self {
            state: Arc::clone(state),
            hasher: KeyHasher::new(pair.level + 1),
            spec,
            build_file,
            probe_file,
            memory,
            step: Step::Load,
            blocks,
            earlier: pair.earlier,
        })))
    }

    /// The next output batch, or `None` when the pair is done.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            match std::mem::replace(&mut self.step, Step::Done) {
                Step::Load => self.load().await?,
                Step::Probe { build, mut prober, mut batches, mut first_row } => {
                    if let Some(output) = prober.next()? {
                        self.step = Step::Probe { build, prober, batches, first_row };
                        return Ok(Some(output));
                    }
                    first_row = self.note_matched(&prober, first_row);
                    if let Some(batch) = batches.next().await? {
                        let _timer = self.state.metrics.probe_time.timer();
                        self.state.note_step();
                        let keys = self.spec.probe.key_arrays(&batch);
                        let (mut hashes, mut spilled) = (Vec::new(), Vec::new());
                        self.hasher.hash(&keys, batch.num_rows(), &mut hashes)?;
                        prober.start(Arc::clone(&build), batch, keys, &hashes, None, &mut spilled);
                        self.step = Step::Probe { build, prober, batches, first_row };
                    } else {
                        let inner = self.state.inner();
                        self.step =
                            Step::BuildRows(BuildSideRows::new(Arc::clone(&self.spec), build, 0, inner));
                    }
                }
                Step::BuildRows(mut rows) => {
                    if let Some(output) = rows.next()? {
                        self.step = Step::BuildRows(rows);
                        return Ok(Some(output));
                    }
                    if self.blocks.is_some() {
                        self.step = Step::Load;
                    }
                }
                Step::ProbeRows { mut prober, mut batches, first_row } => {
                    let Some(batch) = batches.next().await? else { continue };
                    let until = first_row + batch.num_rows();
                    let Some(blocks) = &self.blocks else { unreachable!("only blocks defer probe rows") };
                    let output = prober.probe_rows(batch, blocks.matched.of_rows(first_row..until))?;
                    self.step = Step::ProbeRows { prober, batches, first_row: until };
                    if output.is_some() {
                        return Ok(output);
                    }
                }
                Step::Done => {
                    self.memory.release();
                    return Ok(None);
                }
            }
        }
    }

    /// Loads the build side or its next block, and sets the step that follows.
    async fn load(&mut self) -> Result<()> {
        let mut pages = Vec::new();
        let mut first_page = 0;
        let waiting = self.state.metrics.spill.time.timer();
        match &mut self.blocks {
            None => {
                let window_bytes = self.state.read_window_bytes();
                let mut reader = self.build_file.read(Arc::clone(&self.spec.build.pages), window_bytes);
                while let Some(page) = reader.next().await.map_err(spill_error)? {
                    pages.push(page);
                }
            }
            Some(blocks) => {
                let needed = blocks.memory_bytes() + 2 * self.state.read_window_bytes();
                assert!(
                    self.memory.memory.bytes() >= needed,
                    "a block, its bits of probe rows and its windows are reserved"
                );
                blocks.fill(&mut pages).await?;
                first_page = blocks.pages_before;
                blocks.pages_before += pages.len();
                self.state.metrics.build_blocks.add(usize::from(!pages.is_empty()));
            }
        }
        drop(waiting);
        if pages.is_empty() && self.blocks.is_some() {
            let prober = Box::new(Prober::new(Arc::clone(&self.spec)));
            if self.spec.kind.probe_rows != SideRows::Dropped {
                self.step = Step::ProbeRows { prober, batches: self.probe_batches(), first_row: 0 };
            }
            return Ok(());
        }
        // The probe side is being read while the table is built.
        let mut batches = self.probe_batches();
        batches.read_ahead();
        let timer = self.state.metrics.build_time.timer();
        let build = BuildSide::of_pages(&self.spec, &self.hasher, pages)?;
        let build = Arc::new(build.visited_earlier(self.earlier.as_ref(), first_page));
        drop(timer);
        let mut prober = Prober::new(Arc::clone(&self.spec));
        if self.blocks.is_some() {
            prober = prober.deferring_probe_rows();
        }
        self.step = Step::Probe { build, prober: Box::new(prober), batches, first_row: 0 };
        Ok(())
    }

    fn probe_batches(&self) -> BatchReader {
        read_batches(&self.state, &self.probe_file, &self.spec.probe, self.spec.batch_rows)
    }

    /// Blocks: remembers which rows of the probe batch just done have matched. Returns the first row behind it.
    fn note_matched(&self, prober: &Prober, first_row: usize) -> usize {
        let Some(blocks) = &self.blocks else { return first_row };
        let matched = prober.matched();
        if self.spec.kind.probe_rows != SideRows::Dropped {
            blocks.matched.set_matched(first_row, matched);
        }
        first_row + matched.len()
    }
}

impl Blocks {
    /// Most bytes that are held at a time, the pages being read aside.
    fn memory_bytes(&self) -> usize {
        self.block_bytes + self.matched.memory_bytes()
    }

    /// Reads pages until the block is full.
    async fn fill(&mut self, pages: &mut Vec<Page>) -> Result<()> {
        let mut bytes = 0;
        loop {
            let page = match self.held_page.take() {
                Some(page) => Some(page),
                None => self.reader.next().await.map_err(spill_error)?,
            };
            let Some(page) = page else { return Ok(()) };
            let page_bytes = page.memory_bytes() + page.rows() * TABLE_BYTES_PER_ROW;
            if bytes > 0 && bytes + page_bytes > self.block_bytes {
                self.held_page = Some(page);
                return Ok(());
            }
            bytes += page_bytes;
            pages.push(page);
        }
    }
}

/// The rows of a file of one side, as batches.
fn read_batches(state: &JoinState, file: &Arc<PartitionFile>, side: &Side, batch_rows: usize) -> BatchReader {
    let reader = file.read(Arc::clone(&side.pages), state.read_window_bytes());
    BatchReader::new(reader, Arc::clone(&side.pages), batch_rows, state.metrics.spill.time.clone())
}

/// The memory that one pair holds while it is joined.
struct PairMemory {
    state: Arc<JoinState>,
    memory: HeldMemory,
    holds: bool,
}

impl PairMemory {
    fn new(state: &Arc<JoinState>) -> Self {
        Self { state: Arc::clone(state), memory: state.another_reservation(), holds: false }
    }

    /// Reserves `need` bytes, waiting for other pairs of this join to be done if that may help. Whether it
    /// could be had.
    async fn reserve(&mut self, need: usize) -> bool {
        let state = Arc::clone(&self.state);
        loop {
            let released = state.pair_memory_released.notified();
            if self.memory.try_grow(need) {
                self.hold();
                return true;
            }
            let hopeless = self.state.memory_limit.is_some_and(|limit| need > limit);
            if hopeless || self.state.pairs_holding_memory.load(Ordering::Acquire) == 0 {
                return false;
            }
            if !self.state.progress.wait_for(released).await {
                return false;
            }
        }
    }

    /// Reserves as large a block of a build side of `build_bytes` as there is memory for, beside `fixed_bytes` of read
    /// windows and bits, and returns its size.
    fn reserve_block(&mut self, build_bytes: usize, fixed_bytes: usize) -> usize {
        let mut block_bytes = build_bytes / 2;
        self.hold();
        while block_bytes > MIN_BLOCK_BYTES {
            if self.memory.try_grow(block_bytes + fixed_bytes) {
                return block_bytes;
            }
            block_bytes /= 2;
        }
        // Below this nothing can be joined at all, and everything that can be spilled has been.
        let block_bytes = MIN_BLOCK_BYTES.min(build_bytes);
        self.memory.grow(block_bytes + fixed_bytes);
        block_bytes
    }

    fn hold(&mut self) {
        self.holds = true;
        self.state.pairs_holding_memory.fetch_add(1, Ordering::AcqRel);
    }

    fn release(&mut self) {
        self.memory.resize(0);
        if std::mem::take(&mut self.holds) {
            self.state.pairs_holding_memory.fetch_sub(1, Ordering::AcqRel);
            self.state.pair_memory_released.notify_waiters();
        }
    }
}

impl Drop for PairMemory {
    fn drop(&mut self) {
        self.release();
    }
}

/// Scatters both files of a pair by the hash of `level`.
async fn split(
    state: &Arc<JoinState>,
    spec: &JoinSpec,
    build: &Arc<PartitionFile>,
    probe: &Arc<PartitionFile>,
    level: u32,
    need: usize,
) -> Result<Vec<SpilledPair>> {
    let mut options =
        partitioner_options(state.memory_limit, &state.space.device().sizes(), MOST_PARTITION_BITS);
    let share = state.memory_limit.unwrap_or(usize::MAX) / 4;
    let wanted = need.div_ceil(share.max(1)).next_power_of_two().trailing_zeros().max(1);
    options.partition_bits = options.partition_bits.min(wanted + 1);
    let memory = state.another_reservation();
    // Bounded by the shape of the partitioner, and needed to make anything smaller.
    memory.grow(options.write_buffer_bytes() + state.read_window_bytes());
    state.hash_metrics.recursive_partitions.add(1);
    let scatter = async |file: &Arc<PartitionFile>, side: &Side| -> Result<Vec<Partition>> {
        let space = Arc::clone(&state.space);
        let partitioner = Partitioner::new(Arc::clone(&side.pages), options.clone(), space);
        for partition in 0..options.partitions() {
            partitioner.spill(partition).map_err(spill_error)?;
        }
        let hasher = KeyHasher::new(level);
        let (mut scatter, mut hashes) = (Scatter::default(), Vec::new());
        let mut batches = read_batches(state, file, side, spec.batch_rows);
        while let Some(batch) = batches.next().await? {
            state.note_step();
            hasher.hash(&side.key_arrays(&batch), batch.num_rows(), &mut hashes)?;
            scatter.by_hash(&hashes, options.partition_bits);
            partitioner.push(&batch, &scatter).map_err(spill_error)?;
            partitioner.throttle().await.map_err(spill_error)?;
        }
        let partitions = partitioner.finish().map_err(spill_error)?;
        partitioner.drain_to(0).await.map_err(spill_error)?;
        Ok(partitions)
    };
    let builds = scatter(build, &spec.build).await?;
    let probes = scatter(probe, &spec.probe).await?;
    let most = build.rows() * UNSPLITTABLE_PERCENT / 100;
    assert_eq!(builds.len(), probes.len(), "both sides are scattered alike");
    let pairs = builds.into_iter().zip(probes).map(|(build, probe)| {
        let unsplittable = build.rows > most;
        let (Some(build), Some(probe)) = (build.file, probe.file) else {
            unreachable!("all partitions were spilled from the beginning")
        };
        SpilledPair { build, probe, level, unsplittable, earlier: None }
    });
    Ok(pairs.collect())
}
