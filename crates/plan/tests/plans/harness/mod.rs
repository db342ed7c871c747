//! What the tests of joins and aggregations share: the engine under test beside plain DataFusion, random tables, and
//! rows in a form in which two results can be compared.
//!
//! ```text
//!   tables ──┬─► DataFusion's operators, unlimited ───────► rows ─┐
//!            └─► our operators, limit, temp space ────────► rows ─┴─► equal as multisets
//! ```

pub mod aggregates;
pub mod files;
pub mod input;
pub mod joins;
pub mod loops;
pub mod pressure;
pub mod rows;
pub mod sorts;
pub mod streams;
pub mod tables;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::datasource::MemTable;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use nandina_device::{Device, DeviceOptions};
use nandina_exec::memory::MemoryGovernor;
use nandina_exec::spill::SessionTempSpace;
use nandina_simulation::{FaultPlan, Simulation};
use nandina_spill::{Compression, Discard, TempOptions, TempSpace};
use tables::Table;
use tempfile::TempDir;

pub const KIB: usize = 1 << 10;
pub const MIB: usize = 1 << 20;

/// Rows per batch: small, so that a few thousand rows make many batches.
pub const BATCH_ROWS: usize = 512;

/// No test of this size takes this long unless it hangs.
const HANG: Duration = Duration::from_secs(120);

/// Plain DataFusion without a limit: what is right.
pub fn plain() -> SessionContext {
    SessionContext::new_with_config(configuration(2))
}

fn configuration(partitions: usize) -> SessionConfig {
    let mut config = SessionConfig::new().with_batch_size(BATCH_ROWS).with_target_partitions(partitions);
    // So that small tables are spread over all partitions, too.
    config.options_mut().optimizer.repartition_file_min_size = 1;
    config
}

/// Our operators under a limit, with a temporary space of their own. What they spill is compressed if they have an even
/// number of partitions.
pub struct Engine {
    pub context: SessionContext,
    pub governor: Arc<MemoryGovernor>,
    pub space: Arc<TempSpace>,
    _folder: Option<TempDir>,
}

impl Engine {
    /// On disk, in a folder of its own; `None` is no limit.
    pub fn new(limit_bytes: Option<usize>, partitions: usize) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let device = Device::open(folder.path(), DeviceOptions::default()).expect("a device");
        Self::assemble(device, limit_bytes, partitions, Some(folder))
    }

    /// On a simulated device that has no faults yet.
    pub fn simulated(limit_bytes: Option<usize>, partitions: usize) -> (Self, Simulation) {
        let (device, faults) = nandina_simulation::in_memory(FaultPlan::none());
        (Self::assemble(device, limit_bytes, partitions, None), faults)
    }

    fn assemble(
        device: Device,
        limit_bytes: Option<usize>,
        partitions: usize,
        folder: Option<TempDir>,
    ) -> Self {
        // Whatever spills does so both ways: nearly all tests run with several numbers of partitions.
        let compression = if partitions.is_multiple_of(2) { Compression::On } else { Compression::Off };
        // Given back at once, so that it shows when something is left of a query.
        let options = TempOptions { discard: Discard::Immediate, compression, ..TempOptions::default() };
        let space = TempSpace::open(device, options).expect("temporary space");
        let governor = Arc::new(MemoryGovernor::new(limit_bytes));
        let pool = Arc::clone(&governor) as Arc<dyn MemoryPool>;
        let environment =
            RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc().expect("an environment");
        let config = configuration(partitions).with_extension(Arc::new(SessionTempSpace(Arc::clone(&space))));
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(environment)
            .with_default_features()
            .with_optimizer_rules(nandina_plan::optimizer_rules())
            .with_physical_optimizer_rules(nandina_plan::physical_optimizer_rules())
            .with_query_planner(Arc::new(nandina_plan::Planner))
            .build();
        let context = SessionContext::new_with_state(state);
        Self { context, governor, space, _folder: folder }
    }

    pub fn task(&self) -> Arc<TaskContext> {
        self.context.task_ctx()
    }

    /// The pool that operators of this engine draw from.
    pub fn pool(&self) -> Arc<dyn MemoryPool> {
        Arc::clone(&self.governor) as Arc<dyn MemoryPool>
    }

    /// Makes `table` known to SQL, dealt to `partitions`.
    pub fn register(&self, name: &str, table: &Table, partitions: usize) {
        register(&self.context, name, table, partitions);
    }

    /// All rows of a plan, its output partitions read at once.
    pub async fn collect(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<Vec<RecordBatch>> {
        collect(Arc::clone(plan), self.task()).await
    }

    /// Bytes that the files of the temporary space have at the moment.
    pub fn file_bytes(&self) -> u64 {
        let folder = self.space.device();
        let mut bytes = 0;
        for name in folder.list().expect("a folder").iter().filter(|name| name.starts_with("extents-")) {
            let mode = nandina_device::OpenMode::Read;
            let Ok(file) = folder.open_file(name, nandina_device::FileClass::Temp, mode) else {
                // Files that nothing is in are removed in the background.
                assert!(!folder.list().expect("a folder").contains(name), "{name} cannot be opened");
                continue;
            };
            bytes += file.len().expect("a length");
        }
        bytes
    }

    /// Nothing is left of a query: no memory, no temporary space, no bytes in its files. Tasks that were told
    /// to stop may take a moment to do so.
    pub async fn assert_clean(&self, of_what: &str) {
        let state = || (self.governor.used_bytes(), self.space.used_bytes(), self.file_bytes());
        for _ in 0..200 {
            if state() == (0, 0, 0) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(state(), (0, 0, 0), "memory, temporary space and file bytes left by {of_what}");
    }
}

/// Makes `table` known to SQL, dealt to `partitions`.
pub fn register(context: &SessionContext, name: &str, table: &Table, partitions: usize) {
    let source = MemTable::try_new(Arc::clone(&table.schema), table.deal(partitions)).expect("a table");
    context.register_table(name, Arc::new(source)).expect("a new name");
}

/// The plan of a query.
pub async fn planned(context: &SessionContext, sql: &str) -> Result<Arc<dyn ExecutionPlan>> {
    context.sql(sql).await?.create_physical_plan().await
}

/// Runs a test on two threads; a test that hangs fails.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let outcome = runtime.block_on(async { tokio::time::timeout(HANG, test).await });
    // Tasks that hang would otherwise keep the runtime from ending.
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome.expect("the test hangs")
}

/// The sum of a metric over all nodes of a plan.
pub fn metric(plan: &Arc<dyn ExecutionPlan>, name: &str) -> usize {
    let own = plan.metrics().and_then(|metrics| metrics.sum_by_name(name)).map_or(0, |sum| sum.as_usize());
    own + plan.children().into_iter().map(|child| metric(child, name)).sum::<usize>()
}

/// How many nodes of this name a plan has.
pub fn count_nodes(plan: &Arc<dyn ExecutionPlan>, name: &str) -> usize {
    usize::from(plan.name() == name)
        + plan.children().into_iter().map(|child| count_nodes(child, name)).sum::<usize>()
}
