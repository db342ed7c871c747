//! Native tables: the tables in a database's directory, for SQL.
//!
//! ```text
//!   CREATE TABLE t AS query:   partition 0 ─► lane 0 ─┐
//!                              partition 1 ─► lane 1 ─┼─► TableWriter ── commit: all rows, or none
//!                              partition 2 ─► lane 2 ─┘
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::common::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties as _};
use futures::StreamExt as _;
use nandina_device::{FlowId, IoAccount, Priority};
use nandina_exec::execution::meter::inherited;
use nandina_exec::execution::query_flow;
use nandina_exec::rows::blocking;
use nandina_storage::{IfExists, StorageError, Store, TableDefinition, TableWriter, WriteOptions};
use tokio::task::JoinSet;

use crate::error::Result;

/// Bytes in flight per lane that still make large writes.
const SMALLEST_WINDOW_BYTES: usize = 1 << 20;

/// How long VACUUM waits for transactions that are changing something, and looks again.
const MOST_WAIT: Duration = Duration::from_secs(5);
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

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

/// Puts changed rows of a table back into segments, as soon as others are not changing something.
pub(crate) async fn vacuum(store: &Store, name: &str, memory: &MemoryReservation) -> Result<()> {
    // Not the one in the background meanwhile.
    let _kept = blocking(|| store.keep_rows());
    let begin = Instant::now();
    loop {
        let staging_bytes = TableWriter::lane_bytes(store.table(name)?.page_bytes());
        let mut window_bytes = store.device().sizes().write_window_bytes();
        while memory.try_resize(2 * window_bytes + staging_bytes).is_err()
            && window_bytes > SMALLEST_WINDOW_BYTES
        {
            window_bytes /= 2;
        }
        let account = IoAccount::of_flow(FlowId::unique(), Priority::Background);
        let options = WriteOptions { window_bytes: Some(window_bytes), account: Some(account) };
        match store.vacuum(name, options).await {
            Err(StorageError::TableChanging { .. }) if begin.elapsed() < MOST_WAIT => {
                tokio::time::sleep(BETWEEN_TRIES).await;
            }
            vacuumed => return Ok(vacuumed.map(drop)?),
        }
    }
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
