//! Computes columns of texts and lists a few rows at a time where they are long.
//!
//! DataFusion's projection evaluates its expressions over a whole batch: `repeat(x, 1000000)` makes gigabytes of 8192 rows,
//! more than the memory limit, and more than the offsets of an array reach. Here rows are taken as many at a time as make a
//! batch of the usual bytes, judged by the rows before.

use std::fmt::{self, Formatter};
use std::sync::Arc;

use async_stream::try_stream;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::StreamExt as _;
use nandina_pages::ColumnLayout;

use crate::batch::row_width::value_bytes;
use crate::memory::{output_bytes, pool_limit};

/// Rows that are computed before anything is known of how long they get.
const FIRST_ROWS: usize = 8;
/// How many times as many rows may follow, as those before may have been shorter.
const GROWTH: usize = 16;

/// Constants of fewer bytes make no large batches.
const SHORT_BYTES: usize = 1 << 10;

/// A projection whose batches are small, however long the texts are that it computes.
#[derive(Debug)]
pub struct BoundedProjectionExec {
    planned: ProjectionExec,
    metrics: ExecutionPlanMetricsSet,
}

impl BoundedProjectionExec {
    /// In place of `planned`, if that computes something of unknown length.
    pub fn over(planned: &ProjectionExec) -> Option<Self> {
        let schema = planned.schema();
        let is_long = planned.expr().iter().zip(schema.fields()).any(|(computed, field)| {
            let layout = ColumnLayout::of(field.data_type());
            let has_length = matches!(layout, ColumnLayout::Variable | ColumnLayout::Nested);
            let is_short_literal = |literal: &Literal| literal.value().size() < SHORT_BYTES;
            let is_short = computed.expr.downcast_ref::<Literal>().is_some_and(is_short_literal);
            has_length && !computed.expr.is::<Column>() && !is_short
        });
        is_long.then(|| Self { planned: planned.clone(), metrics: ExecutionPlanMetricsSet::new() })
    }
}

impl DisplayAs for BoundedProjectionExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut Formatter<'_>) -> fmt::Result {
        self.planned.fmt_as(format, f)
    }
}

impl ExecutionPlan for BoundedProjectionExec {
    fn name(&self) -> &'static str {
        "BoundedProjectionExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.planned.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![self.planned.input()]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        self.planned.benefits_from_input_partitioning()
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.planned.apply_expressions(visit)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        let planned = Arc::new(self.planned.clone()).replace_children(children, options)?;
        let Some(planned) = planned.downcast_ref::<ProjectionExec>() else {
            return internal_err!("a projection with another input is a projection");
        };
        Ok(Arc::new(Self { planned: planned.clone(), metrics: ExecutionPlanMetricsSet::new() }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (input, schema) = (self.planned.input(), self.planned.schema());
        let projector =
            self.planned.projection_expr().make_projector_with_schema_metadata(&input.schema(), &schema)?;
        let most_bytes = output_bytes(pool_limit(context.memory_pool().as_ref()));
        let mut input = input.execute(partition, context)?;
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let rows = try_stream! {
            let mut at_once = FIRST_ROWS;
            while let Some(batch) = input.next().await.transpose()? {
                let mut from = 0;
                // A batch without rows tells of its columns.
                while from < batch.num_rows().max(1) {
                    let rows = at_once.min(batch.num_rows() - from);
                    let timer = metrics.elapsed_compute().timer();
                    let computed = projector.project_batch(&batch.slice(from, rows))?;
                    let bytes: usize = computed.columns().iter().map(value_bytes).sum();
                    timer.done();
                    from += rows.max(1);
                    if let Some(row_bytes) = bytes.checked_div(rows) {
                        let fitting = most_bytes / (row_bytes + 1);
                        at_once = fitting.clamp(1, rows.saturating_mul(GROWTH));
                    }
                    metrics.record_output(computed.num_rows());
                    yield computed;
                }
            }
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.planned.child_stats_requests(partition)
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.planned.statistics_from_inputs(inputs, arguments)
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }
}
