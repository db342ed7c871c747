//! What the lanes and the merge of one sort share, and how much memory they take for what.

use std::sync::Arc;

use datafusion::execution::memory_pool::MemoryPool;
use nandina_pages::PageSchema;
use nandina_spill::{PartitionerOptions, QuerySpace};
use parking_lot::Mutex;

use super::metrics::SortMetrics;
use super::spec::SortSpec;
use super::stored_run::StoredRun;
use super::threshold::Threshold;
use crate::memory::{HeldMemory, output_bytes, partitioner_options, pool_limit};

/// The share of memory that a page of a run may be as large as, and its bounds. A merge holds a few pages of every run:
/// small ones let it merge more of them at once.
const PAGE_SHARE: usize = 512;
const MIN_PAGE_BYTES: usize = 4 << 10;
const MAX_PAGE_BYTES: usize = 256 << 10;
/// Buffers of writes are shaped as if so many runs were written at once, as log2: every lane may write one.
const WRITERS_BITS: u32 = 4;

/// The shared state of one execution of a sort, of one output.
pub struct SortState {
    pub spec: Arc<SortSpec>,
    pub space: Arc<QuerySpace>,
    pub pool: Arc<dyn MemoryPool>,
    pub metrics: SortMetrics,
    /// The limit of the memory pool in bytes; `None` if it has none.
    pub memory_limit: Option<usize>,
    /// The shape of runs.
    pub run_options: PartitionerOptions,
    /// What a limit of rows lets drop.
    pub threshold: Option<Arc<Threshold>>,
    /// Runs that no merge has begun to read.
    pub runs: Mutex<Vec<StoredRun>>,
    memory: HeldMemory,
}

impl SortState {
    /// State for one execution, drawing memory from `pool` and spilling to `space`.
    pub fn new(
        spec: Arc<SortSpec>,
        pool: &Arc<dyn MemoryPool>,
        space: Arc<QuerySpace>,
        threshold: Option<Arc<Threshold>>,
        metrics: SortMetrics,
    ) -> Arc<Self> {
        let memory_limit = pool_limit(pool.as_ref());
        Arc::new(Self {
            spec,
            run_options: run_options(memory_limit, &space),
            memory_limit,
            threshold,
            runs: Mutex::default(),
            memory: HeldMemory::new(pool, "ExternalSort", metrics.peak_memory_bytes.clone()),
            pool: Arc::clone(pool),
            space,
            metrics,
        })
    }

    /// A further reservation of the same sort.
    pub fn another_reservation(&self) -> HeldMemory {
        self.memory.another()
    }

    /// The layout of the pages of runs.
    pub fn pages(&self) -> Arc<PageSchema> {
        Arc::clone(&self.spec.pages)
    }

    /// Bytes at which an output batch is full, however few its rows are.
    pub fn output_bytes(&self) -> usize {
        output_bytes(self.memory_limit)
    }

    /// Most rows that are wanted.
    pub fn wanted_rows(&self) -> usize {
        self.spec.fetch.unwrap_or(usize::MAX)
    }

    /// Adds a run that has been written.
    pub fn keep_run(&self, run: Option<StoredRun>) {
        self.runs.lock().extend(run);
    }

    /// Updates the metrics of spill traffic from the space's account.
    pub fn report_io(&self) {
        self.metrics.spill.update_from(&self.space);
    }
}

fn run_options(memory_limit: Option<usize>, space: &QuerySpace) -> PartitionerOptions {
    let options = partitioner_options(memory_limit, &space.device().sizes(), WRITERS_BITS);
    PartitionerOptions { partition_bits: 0, page_bytes: run_page_bytes(memory_limit), ..options }
}

/// Bytes of a page of a run, unless a row has more.
pub fn run_page_bytes(memory_limit: Option<usize>) -> usize {
    let share = (memory_limit.unwrap_or(usize::MAX) / PAGE_SHARE).clamp(MIN_PAGE_BYTES, MAX_PAGE_BYTES);
    1 << share.ilog2()
}
