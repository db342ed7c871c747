//! Writing rows into a table: one statement, atomic and durable.
//!
//! ```text
//!   INSERT of few rows     wait until all are there ─► heap of the table: no file, one write of the log
//!          of more         ─► a segment of their own, or the heap if the table has got an index
//!   OVERWRITE              ─► a segment in place of all others
//! ```
//!
//! `nandina` puts rows of the heap into segments in the background.

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
use futures::{Stream, StreamExt as _, stream};
use nandina_device::{IoAccount, Priority};
use nandina_storage::{Durability, Mode, StorageError, Table, TableWriter, WriteMode, WriteOptions};

use crate::batch::compact;
use crate::execution::query_flow;
use crate::rows::{Transactions, blocking};

use super::storage_error;

/// Bytes in flight at small memory limits; enough for two writes.
const MIN_WINDOW_BYTES: usize = 2 << 20;

/// More rows than this become a segment, and more bytes: then a file of their own costs less than reading them row by row would.
const FEW_ROWS: usize = 10_000;
const FEW_BYTES: usize = 4 << 20;

/// How often few rows are added anew, as those of the table have been put elsewhere meanwhile: nothing does that often.
const MOST_TRIES: usize = 100;

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

    /// Whether few rows go into the heap: where a file for each statement would be costly, or rows are there already.
    fn has_heap_for_few(&self) -> bool {
        let store = self.table.store();
        let is_changeable = || store.table(self.table.name()).is_ok_and(|table| table.has_changeable_rows());
        self.mode == WriteMode::Append && (store.mode() == Mode::Write || is_changeable())
    }

    /// Whether keys lead to its rows by now, which they do not to those of segments that are added.
    fn has_indexes(&self) -> bool {
        self.table.store().table(self.table.name()).is_ok_and(|table| table.has_indexes())
    }

    async fn append(&self, mut rows: SendableRecordBatchStream, context: &Arc<TaskContext>) -> Result<u64> {
        let memory = MemoryConsumer::new("TableSink").register(context.memory_pool());
        let (mut waiting, mut count) = (Vec::new(), 0);
        while let Some(batch) = rows.next().await {
            let (batch, bytes) = compact(batch?)?;
            count += batch.num_rows();
            waiting.push(batch);
            let fits = memory.try_grow(bytes).is_ok();
            if count > FEW_ROWS || memory.size() > FEW_BYTES || !fits {
                let waiting = waiting.into_iter().map(move |batch| {
                    // It is given back when all of them have been written.
                    let _held = &memory;
                    Ok(batch)
                });
                let rows = stream::iter(waiting).chain(rows);
                return match self.has_indexes() {
                    true => add_many(&self.table, rows, context).await,
                    false => write_rows(&self.table, self.mode, rows, context, &self.metrics).await,
                };
            }
        }
        let conformed = |batch: &RecordBatch| conform(batch.columns(), self.table.schema());
        let few = waiting.iter().map(conformed).collect::<Result<Vec<_>>>()?;
        if count > 0 {
            let durability = Transactions::of_config(context.session_config()).durability();
            blocking(|| add_few(&self.table, &few, durability)).map_err(storage_error)?;
        }
        Ok(count as u64)
    }
}

/// Adds rows to the heap of a table, which has one from now on.
pub(crate) fn add_few(
    table: &Table,
    rows: &[RecordBatch],
    durability: Durability,
) -> Result<(), StorageError> {
    let store = table.store();
    for _ in 0..MOST_TRIES {
        store.make_changeable(table)?;
        let mut transaction = store.begin()?;
        let seen = transaction.table(table.name())?;
        if seen.id() != table.id() {
            return Err(StorageError::TableGone { name: table.name().to_owned() });
        }
        // It may have been put into segments, before the transaction has begun or since.
        let added = match seen.has_changeable_rows() {
            true => rows.iter().try_for_each(|rows| transaction.insert(&seen, rows)),
            false => Err(StorageError::conflict()),
        };
        match added {
            Err(error) if error.is_conflict() && seen.is_replaced()? => {}
            Err(error) => return Err(error),
            Ok(()) => return transaction.commit_as(durability),
        }
    }
    Err(StorageError::conflict())
}

/// Adds rows to the heap of a table as they come.
async fn add_many(
    table: &Table,
    mut rows: impl Stream<Item = Result<RecordBatch>> + Send + Unpin,
    context: &Arc<TaskContext>,
) -> Result<u64> {
    let durability = Transactions::of_config(context.session_config()).durability();
    let mut transaction = blocking(|| table.store().begin()).map_err(storage_error)?;
    let seen = transaction.table(table.name()).map_err(storage_error)?;
    if seen.id() != table.id() {
        return Err(storage_error(StorageError::TableGone { name: table.name().to_owned() }));
    }
    if !seen.has_changeable_rows() {
        // The index was dropped again, and the rows were put elsewhere.
        return Err(storage_error(StorageError::conflict()));
    }
    let mut count = 0;
    while let Some(batch) = rows.next().await {
        let batch = conform(batch?.columns(), table.schema())?;
        blocking(|| transaction.insert(&seen, &batch)).map_err(storage_error)?;
        count += batch.num_rows() as u64;
    }
    blocking(|| transaction.commit_as(durability)).map_err(storage_error)?;
    Ok(count)
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
        if self.has_heap_for_few() {
            return self.append(data, context).await;
        }
        // Rows that go elsewhere would have been changed by others.
        let _kept = (self.mode == WriteMode::Overwrite).then(|| self.table.store().keep_rows());
        write_rows(&self.table, self.mode, data, context, &self.metrics).await
    }
}

/// Writes rows to a segment of a table, and says how many.
async fn write_rows(
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
