//! Native tables: the tables in a database's directory, for SQL.
//!
//! ```text
//!   CREATE TABLE t AS query:   partition 0 ─► lane 0 ─┐
//!                              partition 1 ─► lane 1 ─┼─► TableWriter ── commit: all rows, or none
//!                              partition 2 ─► lane 2 ─┘
//! ```
//!
//! A statement sees the tables as they were when it was planned: every look-up makes a provider of the newest
//! snapshot.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use datafusion::catalog::memory::MemorySchemaProvider;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::DataFusionError;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SessionState, TaskContext};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties as _};
use futures::StreamExt as _;
use nandina_device::{IoAccount, Priority};
use nandina_exec::execution::meter::inherited;
use nandina_exec::execution::query_flow;
use nandina_exec::scan::{NativeTableProvider, storage_error};
use nandina_storage::{IfExists, Store, TableDefinition, TableWriter, WriteOptions};
use parking_lot::RwLock;
use tokio::task::JoinSet;

use super::types::is_of_type;
use super::views;
use crate::error::{Error, Result};

/// Bytes in flight per lane that still make large writes.
const SMALLEST_WINDOW_BYTES: usize = 1 << 20;

/// The tables and views of a store as DataFusion looks them up.
#[derive(Debug)]
pub(crate) struct NativeSchema {
    store: Store,
    /// Tables over files, which are not stored, and views that have been planned.
    planned: MemorySchemaProvider,
    /// Plans the views that have not been: the newest session's.
    planner: RwLock<Weak<RwLock<SessionState>>>,
}

tokio::task_local! {
    /// The views that are being planned, each for the one before.
    static PLANNING: Vec<String>;
}

impl NativeSchema {
    pub(crate) fn new(store: Store) -> Self {
        NativeSchema { store, planned: MemorySchemaProvider::new(), planner: RwLock::default() }
    }

    /// Plans views with the state of a session from now on.
    pub(crate) fn plan_views_with(&self, planner: Weak<RwLock<SessionState>>) {
        *self.planner.write() = planner;
    }

    /// Plans a view by the statement that made it.
    async fn plan_view(&self, name: &str, statement: &str) -> Result<Arc<dyn TableProvider>> {
        let mut planning = PLANNING.try_with(Vec::clone).unwrap_or_default();
        if planning.iter().any(|other| other == name) {
            return Err(Error::Query {
                message: format!("view '{name}' is made of itself; DROP VIEW {name}"),
            });
        }
        planning.push(name.to_owned());
        let planner = self.planner.read().upgrade();
        let Some(state) = planner.map(|planner| planner.read().clone()) else {
            return Err(Error::Query {
                message: format!("view '{name}' cannot be planned without a session"),
            });
        };
        let view = PLANNING.scope(planning, views::view_of(&state, statement)).await;
        view.map_err(|error| Error::Query {
            message: format!("view '{name}' cannot be used any more: {error}; it was made by {statement}"),
        })
    }
}

#[async_trait]
impl SchemaProvider for NativeSchema {
    fn table_names(&self) -> Vec<String> {
        let mut names = self.store.table_names();
        names.extend(self.planned.table_names());
        let is_view = |name: &String| !is_of_type(name) && !self.planned.table_exist(name);
        names.extend(self.store.view_names().into_iter().filter(is_view));
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        if self.store.has_table(name) {
            let table = self.store.table(name).map_err(storage_error)?;
            return Ok(Some(Arc::new(NativeTableProvider::new(table))));
        }
        if let Some(planned) = self.planned.table(name).await? {
            return Ok(Some(planned));
        }
        let Some(statement) = self.store.view(name) else { return Ok(None) };
        let view = self.plan_view(name, &statement).await?;
        self.planned.register_table(name.to_owned(), Arc::clone(&view))?;
        Ok(Some(view))
    }

    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        if self.store.has_table(&name) {
            return Err(Error::Query { message: format!("there is a table '{name}' already") }.into());
        }
        self.planned.register_table(name, table)
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        self.planned.deregister_table(name)
    }

    fn table_exist(&self, name: &str) -> bool {
        self.store.has_table(name) || self.planned.table_exist(name) || self.store.view(name).is_some()
    }
}

/// Creates a table with the rows of a plan, all partitions at once, and returns their number.
pub(crate) async fn create_with_rows(
    store: &Store,
    definition: TableDefinition,
    if_exists: IfExists,
    plan: Arc<dyn ExecutionPlan>,
    task: Arc<TaskContext>,
) -> Result<u64> {
    let partitions = plan.output_partitioning().partition_count();
    let memory = MemoryConsumer::new(format!("table {}", definition.name)).register(task.memory_pool());
    let device = store.device();
    let staging_bytes = TableWriter::lane_bytes(definition.page_bytes_on(device));
    let mut window_bytes = device.sizes().write_window_bytes();
    while memory.try_grow(partitions * (window_bytes + staging_bytes)).is_err() {
        if window_bytes <= SMALLEST_WINDOW_BYTES {
            memory.grow(partitions * (window_bytes + staging_bytes));
            break;
        }
        window_bytes /= 2;
    }
    let account = IoAccount::of_flow(query_flow(&task), Priority::default());
    let options = WriteOptions { window_bytes: Some(window_bytes), account: Some(account) };
    let writer = store.create_table_with_rows(definition, if_exists, options)?;
    let mut lanes = JoinSet::new();
    for partition in 0..partitions {
        let rows = plan.execute(partition, Arc::clone(&task))?;
        lanes.spawn(inherited(fill(rows, &writer)));
    }
    while let Some(filled) = lanes.join_next().await {
        match filled {
            Ok(result) => result?,
            Err(error) => return Err(DataFusionError::ExecutionJoin(Box::new(error)).into()),
        }
    }
    Ok(writer.commit().await?.rows)
}

/// Writes the rows of one partition through a lane of its own.
fn fill(
    mut rows: datafusion::execution::SendableRecordBatchStream,
    writer: &TableWriter,
) -> impl Future<Output = Result<()>> + Send + 'static {
    let mut lane = writer.lane();
    async move {
        while let Some(batch) = rows.next().await {
            lane.append(&batch?).await?;
        }
        Ok(lane.finish().await?)
    }
}
