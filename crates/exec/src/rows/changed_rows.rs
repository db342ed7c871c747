//! `RETURNING`: the rows that a statement has changed.
//!
//! ```text
//!   ChangedRowsExec ◄── rows, once all of them are changed ── ReturnedRows ◄── RowSink ◄── rows to be changed
//!          └──────────────── runs ───────────────────► DataSinkExec ────────────┘
//! ```

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Distribution, EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::{StreamExt as _, TryStreamExt as _};
use parking_lot::Mutex;

use super::sink::RowSink;
use crate::spill::RowQueue;

/// The rows that a statement has changed, for one that emits them.
#[derive(Default)]
pub struct ReturnedRows(Mutex<Option<RowQueue>>);

impl ReturnedRows {
    pub(super) fn put(&self, rows: RowQueue) {
        *self.0.lock() = Some(rows);
    }
}

impl fmt::Debug for ReturnedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReturnedRows")
    }
}

/// Runs a statement that changes rows, and emits these: as they are now, or were if they have been deleted.
#[derive(Debug)]
pub struct ChangedRowsExec {
    change: Arc<dyn ExecutionPlan>,
    returned: Arc<ReturnedRows>,
    properties: Arc<PlanProperties>,
}

impl ChangedRowsExec {
    /// `schema` has the columns of the rows that `change`, a sink, [returns](super::RowChange::returned_schema), with the names that they have
    /// above; the last ones may be missing.
    pub fn try_new(schema: SchemaRef, change: Arc<dyn ExecutionPlan>) -> Result<Self> {
        let sink = change.downcast_ref::<DataSinkExec>().map(DataSinkExec::sink);
        let sink = sink.and_then(|sink| (sink as &dyn Any).downcast_ref::<RowSink>());
        let Some(returned) = sink.and_then(RowSink::returned).map(Arc::clone) else {
            return internal_err!("a statement that returns rows is one that changes them");
        };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Ok(Self { change, returned, properties: Arc::new(properties) })
    }
}

impl DisplayAs for ChangedRowsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "ChangedRowsExec")
    }
}

impl ExecutionPlan for ChangedRowsExec {
    fn name(&self) -> &'static str {
        "ChangedRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.change]
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![Distribution::SinglePartition]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([change]) = <[_; 1]>::try_from(children) else {
            return internal_err!("there is one statement whose rows are returned");
        };
        let (returned, properties) = (Arc::clone(&self.returned), Arc::clone(&self.properties));
        Ok(Arc::new(Self { change, returned, properties }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let mut change = self.change.execute(partition, Arc::clone(&context))?;
        let (returned, schema) = (Arc::clone(&self.returned), self.schema());
        let rows = async move {
            while let Some(count) = change.next().await {
                count?;
            }
            let Some(rows) = returned.0.lock().take() else {
                return internal_err!("a statement has ended without the rows that it returns");
            };
            let rows = rows.pop_all(context.session_config().batch_size());
            Ok(rows.map(move |batch| {
                let columns = batch?.columns().iter().take(schema.fields().len()).cloned().collect();
                Ok(RecordBatch::try_new(Arc::clone(&schema), columns)?)
            }))
        };
        let rows = futures::stream::once(rows).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}
