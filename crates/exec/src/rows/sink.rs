//! Changing rows one by one: what a statement's rows do to those of a table.
//!
//! ```text
//!   INSERT   all columns         UPDATE   row id, all columns         DELETE   row id, or all columns, too, if they are returned
//!   MERGE    row id, what happens to it, all columns
//! ```
//!
//! A statement does not see what it changes itself: its rows wait until all are there. All of them are changed or none.
//!
//! Rows in segments stay where they are: they are deleted by a note, and what they are changed to is added to the heap.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::datasource::sink::DataSink;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, Gauge, MetricBuilder, MetricsSet};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};
use futures::StreamExt as _;
use nandina_pages::PageSchema;
use nandina_storage::Table;

use super::applying::{Applying, MergeAction, RowChange, rows_with};
use super::changed_rows::ReturnedRows;
use super::transactions::{SharedTransaction, Transactions};
use crate::error::pages_error;
use crate::execution::query_flow;
use crate::spill::{RowQueue, SpillContext, SpillMetrics, SpillShape, operator_space};

/// Changes the rows of a table.
#[derive(Debug)]
pub struct RowSink {
    table: Table,
    transactions: Arc<Transactions>,
    transaction: Arc<SharedTransaction>,
    change: RowChange,
    /// Where rows are put that have been changed, if they are wanted.
    returned: Option<Arc<ReturnedRows>>,
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
        returned: Option<Arc<ReturnedRows>>,
        input: &Arc<dyn ExecutionPlan>,
    ) -> Self {
        let (schema, metrics) = (input.schema(), ExecutionPlanMetricsSet::new());
        Self { table, transactions, transaction, change, returned, schema, metrics }
    }

    pub(super) fn returned(&self) -> Option<&Arc<ReturnedRows>> {
        self.returned.as_ref()
    }

    /// An empty queue of rows that wait.
    fn queue(&self, schema: &SchemaRef, context: &Arc<TaskContext>) -> Result<RowQueue> {
        let (pool, space) = (context.memory_pool(), operator_space(context, "changed rows")?);
        let metrics = SpillMetrics::new(&self.metrics, 0);
        let peak: Gauge = MetricBuilder::new(&self.metrics).gauge("peak_memory_bytes", 0);
        let pages = PageSchema::try_new(Arc::clone(schema)).map_err(pages_error)?;
        let (name, batch_rows) = ("RowSink", context.session_config().batch_size());
        let spill =
            SpillContext::new(SpillShape::SideBySide, &pages, &space, pool, name, batch_rows, &metrics);
        Ok(RowQueue::new(name, pool, spill, peak))
    }
}

impl DisplayAs for RowSink {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let change = match self.change {
            RowChange::Insert => "insert",
            RowChange::InsertAbsent { .. } => "insert of absent keys",
            RowChange::Update { .. } => "update",
            RowChange::Delete => "delete",
            RowChange::Merge => "merge",
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

    async fn write_all(
        &self,
        mut rows: SendableRecordBatchStream,
        context: &Arc<TaskContext>,
    ) -> Result<u64> {
        let statement = self.transactions.begin_change(query_flow(context))?;
        let batch_rows = context.session_config().batch_size();
        // All rows are taken before the first one is changed.
        let mut waiting = self.queue(&self.schema, context)?;
        while let Some(batch) = rows.next().await {
            waiting.push(batch?).await?;
        }
        waiting.seal().await?;
        let memory = MemoryConsumer::new("RowSink").register(context.memory_pool());
        let tells_rows = self.returned.is_some();
        let mut applying = Applying::new(&self.table, &self.transaction, &self.change, tells_rows, memory);
        let mut changed = match tells_rows {
            true => Some(self.queue(&self.change.returned_schema(self.table.schema()), context)?),
            false => None,
        };
        let mut inserted = waiting.another();
        while let Some(batch) = waiting.pop(batch_rows).await? {
            let now = applying.apply(&batch)?;
            if let Some(changed) = &mut changed {
                changed.push(now).await?;
            }
            if self.change == RowChange::Merge {
                inserted.push(rows_with(&batch, MergeAction::Insert)?).await?;
            }
            tokio::task::consume_budget().await;
        }
        inserted.seal().await?;
        while let Some(batch) = inserted.pop(batch_rows).await? {
            let now = applying.insert_of_merge(&batch)?;
            if let Some(changed) = &mut changed {
                changed.push(now).await?;
            }
            tokio::task::consume_budget().await;
        }
        let rows = applying.finish()?;
        if let (Some(mut changed), Some(returned)) = (changed, &self.returned) {
            changed.seal().await?;
            returned.put(changed);
        }
        statement.end()?;
        Ok(rows)
    }
}
