//! Writing rows into a table: one statement, atomic and durable.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::datasource::sink::DataSink;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType};
use futures::{Stream, StreamExt as _};
use nandina_device::{IoAccount, Priority};
use nandina_storage::{Table, TableWriter, WriteMode, WriteOptions};

use crate::execution::query_flow;

use super::storage_error;

/// Bytes in flight at small memory limits; enough for two writes.
const MIN_WINDOW_BYTES: usize = 2 << 20;

/// Writes all rows it is given into a table and commits them.
#[derive(Debug)]
pub struct TableSink {
    table: Table,
    mode: WriteMode,
    metrics: ExecutionPlanMetricsSet,
}

impl TableSink {
    pub fn new(table: Table, mode: WriteMode) -> Self {
        Self { table, mode, metrics: ExecutionPlanMetricsSet::new() }
    }
}

impl DisplayAs for TableSink {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "TableSink: table={}, mode={:?}", self.table.name(), self.mode)
    }
}

#[async_trait]
impl DataSink for TableSink {
    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn schema(&self) -> &SchemaRef {
        self.table.schema()
    }

    async fn write_all(&self, data: SendableRecordBatchStream, context: &Arc<TaskContext>) -> Result<u64> {
        write_rows(&self.table, self.mode, data, context, &self.metrics).await
    }
}

/// Writes rows to a segment of a table, and says how many.
pub(crate) async fn write_rows(
    table: &Table,
    mode: WriteMode,
    mut rows: impl Stream<Item = Result<RecordBatch>> + Send + Unpin,
    context: &Arc<TaskContext>,
    metrics: &ExecutionPlanMetricsSet,
) -> Result<u64> {
    let mut window_bytes = table.store().device().sizes().write_window_bytes();
    let memory = MemoryConsumer::new("TableSink").register(context.memory_pool());
    let staging_bytes = TableWriter::lane_bytes(table.page_bytes());
    while window_bytes > MIN_WINDOW_BYTES && memory.try_grow(window_bytes + staging_bytes).is_err() {
        window_bytes /= 2;
    }
    if memory.size() == 0 {
        memory.grow(window_bytes + staging_bytes);
    }
    let account = IoAccount::of_flow(query_flow(context), Priority::default());
    let options = WriteOptions { window_bytes: Some(window_bytes), account: Some(account) };
    let writer = table.writer(mode, options).map_err(storage_error)?;
    let mut lane = writer.lane();
    while let Some(batch) = rows.next().await {
        let batch = conform(batch?.columns(), table.schema())?;
        lane.append(&batch).await.map_err(storage_error)?;
    }
    lane.finish().await.map_err(storage_error)?;
    let summary = writer.commit().await.map_err(storage_error)?;
    let count = |name: &'static str, value: u64| {
        MetricBuilder::new(metrics).global_counter(name).add(value as usize);
    };
    count("bytes_written", summary.file_bytes);
    count("pages_written", summary.pages);
    Ok(summary.rows)
}

/// Columns with the table's types: planning has made them agree but for the likes of `Utf8` and `Utf8View`.
pub(crate) fn conform(columns: &[ArrayRef], schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = columns
        .iter()
        .zip(schema.fields())
        .map(|(array, field)| match array.data_type() == field.data_type() {
            true => Ok(Arc::clone(array)),
            false => Ok(cast(array, field.data_type())?),
        })
        .collect::<Result<Vec<ArrayRef>>>()?;
    // Nullability is the writer's to check: its message names table and column.
    let nullable = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    let schema = Arc::new(datafusion::arrow::datatypes::Schema::new(nullable.collect::<Vec<_>>()));
    Ok(RecordBatch::try_new(schema, columns)?)
}
