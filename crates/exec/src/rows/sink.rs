//! Changing rows one by one: what a statement's rows do to those of a table.
//!
//! ```text
//!   INSERT   all columns                    UPDATE   row id, all columns         DELETE   row id
//! ```
//!
//! A statement does not see what it changes itself: its rows wait until all are there. All of them are changed or none.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{Array as _, ArrayRef, AsArray as _, BooleanArray, RecordBatch, UInt64Array};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::{SchemaRef, UInt64Type};
use datafusion::common::{Result, internal_err};
use datafusion::datasource::sink::DataSink;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, Gauge, MetricBuilder, MetricsSet};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};
use futures::StreamExt as _;
use nandina_pages::PageSchema;
use nandina_storage::{Deferred, Table};

use super::transactions::{SharedTransaction, Transactions};
use crate::error::pages_error;
use crate::scan::conform;
use crate::spill::{RowQueue, SpillContext, SpillMetrics, SpillShape, operator_space};

/// What happens to rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowChange {
    Insert,
    /// `has_each_once`: whether each row comes once at most.
    Update {
        has_each_once: bool,
    },
    Delete,
}

/// Changes the rows of a table.
#[derive(Debug)]
pub struct RowSink {
    table: Table,
    transactions: Arc<Transactions>,
    transaction: Arc<SharedTransaction>,
    change: RowChange,
    /// Of the rows that come.
    schema: SchemaRef,
    metrics: ExecutionPlanMetricsSet,
}

impl RowSink {
    pub(super) fn new(
        table: Table,
        transactions: Arc<Transactions>,
        transaction: Arc<SharedTransaction>,
        change: RowChange,
        input: &Arc<dyn ExecutionPlan>,
    ) -> Self {
        let (schema, metrics) = (input.schema(), ExecutionPlanMetricsSet::new());
        Self { table, transactions, transaction, change, schema, metrics }
    }

    /// Takes all rows before the first one is changed.
    async fn collected(
        &self,
        mut rows: SendableRecordBatchStream,
        context: &Arc<TaskContext>,
    ) -> Result<RowQueue> {
        let (pool, space) = (context.memory_pool(), operator_space(context, "changed rows")?);
        let metrics = SpillMetrics::new(&self.metrics, 0);
        let peak: Gauge = MetricBuilder::new(&self.metrics).gauge("peak_memory_bytes", 0);
        let pages = PageSchema::try_new(Arc::clone(&self.schema)).map_err(pages_error)?;
        let (name, batch_rows) = ("RowSink", context.session_config().batch_size());
        let spill =
            SpillContext::new(SpillShape::SideBySide, &pages, &space, pool, name, batch_rows, &metrics);
        let mut queue = RowQueue::new(name, pool, spill, peak);
        while let Some(batch) = rows.next().await {
            queue.push(batch?).await?;
        }
        queue.seal().await?;
        Ok(queue)
    }

    fn apply(&self, batch: &RecordBatch, state: &mut Applying) -> Result<()> {
        match self.change {
            RowChange::Insert => {
                let rows = conform(batch.columns(), self.table.schema())?;
                self.transaction.write(|transaction| transaction.insert(&self.table, &rows))?;
                state.rows += rows.num_rows() as u64;
            }
            RowChange::Update { has_each_once } => {
                let batch = if has_each_once { batch.clone() } else { state.without_repeated(batch)? };
                let (ids, columns) = ids_and_columns(&batch)?;
                let rows = conform(columns, self.table.schema())?;
                let deferred = &mut state.deferred;
                self.transaction
                    .write(|transaction| transaction.update(&self.table, ids, &rows, deferred))?;
                state.memory.try_resize(state.deferred.bytes() + state.seen_bytes())?;
                state.rows += rows.num_rows() as u64;
            }
            RowChange::Delete => {
                let (ids, _) = ids_and_columns(batch)?;
                state.rows += self.transaction.write(|transaction| transaction.delete(&self.table, ids))?;
            }
        }
        Ok(())
    }
}

/// What is known of a statement that changes rows.
struct Applying {
    rows: u64,
    deferred: Deferred,
    /// Ids of rows that were changed, where they may come again.
    seen: HashSet<u64>,
    memory: MemoryReservation,
}

impl Applying {
    fn seen_bytes(&self) -> usize {
        self.seen.capacity() * 2 * size_of::<u64>()
    }

    /// Rows that come for the first time: the first of several wins.
    fn without_repeated(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let (ids, _) = ids_and_columns(batch)?;
        let is_first: BooleanArray = ids.values().iter().map(|id| Some(self.seen.insert(*id))).collect();
        Ok(filter_record_batch(batch, &is_first)?)
    }
}

impl DisplayAs for RowSink {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let change = match self.change {
            RowChange::Insert => "insert",
            RowChange::Update { .. } => "update",
            RowChange::Delete => "delete",
        };
        write!(f, "RowSink: table={}, change={change}", self.table.name())
    }
}

#[async_trait]
impl DataSink for RowSink {
    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    async fn write_all(&self, rows: SendableRecordBatchStream, context: &Arc<TaskContext>) -> Result<u64> {
        let statement = self.transactions.begin_change()?;
        let mut state = Applying {
            rows: 0,
            deferred: Deferred::default(),
            seen: HashSet::new(),
            memory: MemoryConsumer::new("RowSink").register(context.memory_pool()),
        };
        let mut waiting = self.collected(rows, context).await?;
        while let Some(batch) = waiting.pop(context.session_config().batch_size()).await? {
            self.apply(&batch, &mut state)?;
            tokio::task::consume_budget().await;
        }
        let deferred = std::mem::take(&mut state.deferred);
        self.transaction.write(|transaction| transaction.add_deferred(&self.table, deferred))?;
        statement.end()?;
        Ok(state.rows)
    }
}

/// The row ids in front, and what follows them.
fn ids_and_columns(batch: &RecordBatch) -> Result<(&UInt64Array, &[ArrayRef])> {
    match batch.columns().split_first() {
        Some((ids, columns)) => match ids.as_primitive_opt::<UInt64Type>() {
            Some(ids) if ids.null_count() == 0 => Ok((ids, columns)),
            _ => internal_err!("rows to be changed begin with their ids"),
        },
        None => internal_err!("rows to be changed begin with their ids"),
    }
}
