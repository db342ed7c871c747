//! What all output partitions of one join share: the build side being consumed, then in one place or the other.
//!
//! ```text
//!   Building ──finish──┬──► InMemory ──reclaim──► Spilled ──► Closed
//!      │               └────────────────────────────▲
//!      └── reclaim, or no room: spills pages ───────┘
//! ```
//!
//! *Reclaim.* The governor may ask until the last probe row has been seen, from any thread. While building, pages go to
//! the device. Afterwards the whole block goes at once: probe rows that have been joined by then are done with, later
//! ones are kept for the device's pages. Which build rows had matched stays in memory, a bit for each.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::physical_plan::metrics::Count;
use futures::StreamExt;
use nandina_pages::Page;
use nandina_spill::{PartitionFile, Partitioner, PartitionerOptions, QuerySpace, Scatter, SealedPage};
use parking_lot::{Mutex, RwLock};

use super::block::Block;
use crate::error::spill_error;
use crate::execution::Progress;
use crate::join::kind::SideRows;
use crate::join::metrics::JoinMetrics;
use crate::join::row_bits::RowBits;
use crate::join::spec::JoinSpec;
use crate::memory::{
    HeldMemory, MemoryGovernor, Reclaim, ReclaimHandle, partitioner_options, pool_limit, read_window_bytes,
};
use crate::spill::{Destination, PartitionsMetrics, ResidentPartitions, SpillContext, SpillFile, SpillShape};

/// The name that memory is reserved under.
const CONSUMER: &str = "NestedLoopJoin";
/// Most partitions that build rows are collected in, as log2. They only keep input streams out of each other's way.
const MAX_PARTITION_BITS: u32 = 3;
/// Files that may be written at once, as log2: each has as small buffers as one of so many partitions.
const FILES_BITS: u32 = 6;

/// Where the join stands.
enum Stage {
    Building(Arc<ResidentPartitions>),
    /// All build rows are in memory; `pages` are those of the block.
    InMemory {
        block: Arc<Block>,
        pages: Vec<SealedPage>,
    },
    /// All of them are on the device; probe rows from now on are kept beside them.
    Spilled(SpilledBuild),
    /// The last probe row has been seen; what remains has been taken over by a worker.
    Closed,
}

/// A build side on the device.
#[derive(Clone, Debug)]
pub struct SpilledBuild {
    pub files: Vec<Arc<PartitionFile>>,
    /// Which of its rows, in order, had matched before it was spilled.
    pub earlier: Option<Arc<RowBits>>,
}

/// The work that remains when every probe row has been seen.
pub enum Remainder {
    InMemory(Arc<Block>),
    Spilled(SpilledBuild),
}

/// The shared state of one execution of a join.
pub struct LoopState {
    pub spec: Arc<JoinSpec>,
    pub space: Arc<QuerySpace>,
    pub metrics: JoinMetrics,
    /// The limit of the memory pool in bytes; `None` if it has none.
    pub memory_limit: Option<usize>,
    /// Output partitions, which share the memory.
    pub outputs: usize,
    options: PartitionerOptions,
    /// How probe rows are spilled.
    pub probe_spill: Arc<SpillContext>,
    /// What the outputs have kept of their inputs, to be joined by all of them.
    pub probe_files: Mutex<Vec<SpillFile>>,
    /// What the outputs do, for those that wait.
    pub progress: Progress,
    memory: Arc<HeldMemory>,
    stage: RwLock<Stage>,
    _reclaim: Mutex<Option<ReclaimHandle>>,
}

impl LoopState {
    /// State for one execution with so many inputs of the build side and outputs.
    pub fn new(
        spec: Arc<JoinSpec>,
        pool: &Arc<dyn MemoryPool>,
        space: Arc<QuerySpace>,
        metrics: JoinMetrics,
        inputs: usize,
        outputs: usize,
    ) -> Arc<Self> {
        let memory_limit = pool_limit(pool.as_ref());
        let mut options = partitioner_options(memory_limit, &space.device().sizes(), FILES_BITS);
        options.partition_bits = inputs.next_power_of_two().trailing_zeros().min(MAX_PARTITION_BITS);
        let pages = Arc::clone(&spec.build.pages);
        let partitioner = Partitioner::new(pages, options.clone(), Arc::clone(&space));
        let memory = Arc::new(HeldMemory::new(pool, CONSUMER, metrics.peak_memory_bytes.clone()));
        let partitions_metrics = PartitionsMetrics {
            spill: metrics.spill.clone(),
            spilled_partitions: Count::new(),
            push_time: metrics.build_time.clone(),
        };
        let partitions =
            ResidentPartitions::new(partitioner, Arc::clone(&memory), memory_limit, partitions_metrics)
                .with_bytes_of_rows(RowBits::bytes_for);
        let (shape, pages) = (SpillShape::SideBySide, &spec.probe.pages);
        let probe_spill =
            SpillContext::new(shape, pages, &space, pool, CONSUMER, spec.batch_rows, &metrics.spill);
        let state = Arc::new(Self {
            spec,
            space,
            metrics,
            memory_limit,
            outputs,
            options,
            probe_spill,
            probe_files: Mutex::default(),
            progress: Progress::default(),
            memory,
            stage: RwLock::new(Stage::Building(Arc::new(partitions))),
            _reclaim: Mutex::new(None),
        });
        *state._reclaim.lock() = MemoryGovernor::register_reclaimer(pool, Arc::<Self>::downgrade(&state));
        state
    }

    /// A further reservation of the same join.
    pub fn another_reservation(&self) -> HeldMemory {
        self.memory.another()
    }

    /// Whether rows of the build side are emitted by themselves.
    pub fn emits_build_rows(&self) -> bool {
        self.spec.kind.build_rows != SideRows::Dropped
    }

    /// Memory for the reads in flight of one reader of spilled pages.
    pub fn read_window_bytes(&self) -> usize {
        read_window_bytes(self.memory_limit, &self.space.device().sizes())
    }

    fn building(&self) -> Option<Arc<ResidentPartitions>> {
        match &*self.stage.read() {
            Stage::Building(partitions) => Some(Arc::clone(partitions)),
            _ => None,
        }
    }

    /// Consumes stream `number` of the build side.
    pub async fn take_build_input(
        self: Arc<Self>,
        number: usize,
        mut input: SendableRecordBatchStream,
    ) -> Result<()> {
        let Some(partitions) = self.building() else { return Ok(()) };
        let destination = Destination::Partition(number % partitions.count());
        let mut scatter = Scatter::default();
        while let Some(batch) = input.next().await {
            let stored = self.spec.build.store(&batch?)?;
            self.metrics.build_input_rows.add(stored.num_rows());
            partitions.push(&stored, destination, &mut scatter, || self.note_step()).await?;
        }
        Ok(())
    }

    /// Ends the build side: a block if all of it is in memory, else files. All input has been consumed.
    pub async fn finish_build(&self) -> Result<()> {
        let Some(partitions) = self.building() else { return Ok(()) };
        let finished = partitions.finish().await?;
        let waiting = self.metrics.spill.time.timer();
        let stage = if finished.iter().any(|partition| partition.file.is_some()) {
            let mut files = Vec::with_capacity(finished.len());
            for partition in finished {
                if !partition.resident.is_empty() {
                    let mut file = PartitionFile::new(Arc::clone(&self.space), self.options.extent_bytes);
                    file.write(partition.resident).await.map_err(spill_error)?;
                    files.push(Arc::new(file));
                }
                files.extend(partition.file);
            }
            self.metrics.spill.spilled_rows.add(files.iter().map(|file| file.rows() as usize).sum());
            self.memory.resize(0);
            Stage::Spilled(SpilledBuild { files, earlier: None })
        } else {
            let pages: Vec<SealedPage> =
                finished.into_iter().flat_map(|partition| partition.resident).collect();
            let opened: nandina_spill::Result<Vec<Page>> =
                pages.iter().map(|page| page.open(&self.spec.build.pages)).collect();
            let block = Block::new(&self.spec, opened.map_err(spill_error)?, self.emits_build_rows())?;
            self.memory.resize(block.memory_bytes());
            Stage::InMemory { block: Arc::new(block), pages }
        };
        drop(waiting);
        *self.stage.write() = stage;
        Ok(())
    }

    /// The block that probe rows meet now; `None` if they are to be kept.
    pub fn block(&self) -> Option<Arc<Block>> {
        match &*self.stage.read() {
            Stage::InMemory { block, .. } => Some(Arc::clone(block)),
            _ => None,
        }
    }

    /// The build side on the device, if that is where it is.
    pub fn spilled(&self) -> Option<SpilledBuild> {
        match &*self.stage.read() {
            Stage::Spilled(build) => Some(build.clone()),
            _ => None,
        }
    }

    /// Ends probing: returns what remains to be done.
    pub fn close(&self) -> Option<Remainder> {
        let remainder = match std::mem::replace(&mut *self.stage.write(), Stage::Closed) {
            Stage::InMemory { block, .. } => Remainder::InMemory(block),
            Stage::Spilled(build) => Remainder::Spilled(build),
            Stage::Building(_) | Stage::Closed => return None,
        };
        if !self.emits_build_rows() {
            self.memory.resize(0);
        }
        Some(remainder)
    }

    /// Notes progress of an output: for others that wait, and for metrics that are shown while the query runs.
    pub fn note_step(&self) {
        self.progress.note();
        self.report_io();
    }

    /// Updates the metrics of spill traffic from the space's account.
    pub fn report_io(&self) {
        self.metrics.spill.update_from(&self.space);
    }

    /// Spills the whole block while it is probed.
    fn reclaim_block(&self) -> Result<usize> {
        let Some(mut stage) = self.stage.try_write() else { return Ok(0) };
        let Stage::InMemory { block, pages } = &*stage else { return Ok(0) };
        if pages.is_empty() {
            return Ok(0);
        }
        let mut file = PartitionFile::new(Arc::clone(&self.space), self.options.extent_bytes);
        file.write_blocking(pages.clone()).map_err(spill_error)?;
        self.metrics.spill.spilled_rows.add(block.row_count());
        let (kept, before) = (block.matched_bytes(), self.memory.bytes());
        let earlier = block.matched().cloned();
        // Batches that meet the block right now hold it, and finish.
        *stage = Stage::Spilled(SpilledBuild { files: vec![Arc::new(file)], earlier });
        self.memory.resize(kept);
        Ok(before.saturating_sub(kept))
    }
}

/// A build side that does not fit is written and read, and the probe side as well, some of it once for each block:
/// more expensive than rows that are written and read once, though how many blocks there will be is unknown.
const IO_PER_SPILLED_BYTE: f64 = 8.0;

impl Reclaim for LoopState {
    fn reclaimable_bytes(&self) -> usize {
        let Some(stage) = self.stage.try_read() else { return 0 };
        match &*stage {
            Stage::Building(partitions) => partitions.reclaimable_bytes(),
            Stage::InMemory { pages, .. } => pages.iter().map(SealedPage::len_bytes).sum(),
            Stage::Spilled(_) | Stage::Closed => 0,
        }
    }

    fn io_per_byte(&self) -> f64 {
        IO_PER_SPILLED_BYTE
    }

    fn reclaim(&self, bytes: usize) -> usize {
        let building = match self.stage.try_read().as_deref() {
            Some(Stage::Building(partitions)) => Some(Arc::clone(partitions)),
            _ => None,
        };
        let freed = match building {
            Some(partitions) => partitions.reclaim(bytes).map_err(spill_error),
            None => self.reclaim_block(),
        };
        freed.unwrap_or_else(|error| {
            log::warn!("a join could not give memory back: {error}");
            0
        })
    }
}
