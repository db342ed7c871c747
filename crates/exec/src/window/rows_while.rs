//! The rows before the first one for which a condition no longer holds, as a DataFusion plan node.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array as _, RecordBatch};
use datafusion::common::cast::as_boolean_array;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Distribution, PhysicalExpr};
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, InputDistributionRequirements, PlanProperties,
};
use futures::StreamExt as _;

/// Ends where a condition that holds for the first rows, and for none after them, no longer does.
///
/// A filter gives the same rows, but reads its input to the end: with `row_number() <= (SELECT …)`, all of it.
#[derive(Debug)]
pub struct RowsWhileExec {
    input: Arc<dyn ExecutionPlan>,
    condition: Arc<dyn PhysicalExpr>,
    metrics: ExecutionPlanMetricsSet,
}

impl RowsWhileExec {
    /// The rows of `input`, which come in one partition, as long as `condition` is true.
    pub fn new(input: Arc<dyn ExecutionPlan>, condition: Arc<dyn PhysicalExpr>) -> Self {
        Self { input, condition, metrics: ExecutionPlanMetricsSet::new() }
    }

    /// How many rows at the beginning of a batch are wanted.
    fn wanted(condition: &dyn PhysicalExpr, rows: &RecordBatch) -> Result<usize> {
        let holds = condition.evaluate(rows)?.into_array(rows.num_rows())?;
        let holds = as_boolean_array(&holds)?;
        let first_false = (0..holds.len()).find(|&row| holds.is_null(row) || !holds.value(row));
        Ok(first_false.unwrap_or(rows.num_rows()))
    }
}

impl DisplayAs for RowsWhileExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        match format {
            DisplayFormatType::TreeRender => writeln!(f, "while={}", self.condition),
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "RowsWhileExec: {}", self.condition)
            }
        }
    }
}

impl ExecutionPlan for RowsWhileExec {
    fn name(&self) -> &'static str {
        "RowsWhileExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        f(&self.condition)
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::SinglePartition])
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match <[_; 1]>::try_from(children) {
            Ok([input]) => Ok(Arc::new(Self::new(input, Arc::clone(&self.condition)))),
            Err(_) => internal_err!("RowsWhileExec has one input"),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let condition = Arc::clone(&self.condition);
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let mut input = self.input.execute(partition, context)?;
        let stream = async_stream::try_stream! {
            while let Some(rows) = input.next().await.transpose()? {
                let timer = baseline.elapsed_compute().timer();
                let wanted = Self::wanted(condition.as_ref(), &rows)?;
                drop(timer);
                baseline.record_output(wanted);
                let is_last = wanted < rows.num_rows();
                if wanted > 0 {
                    yield rows.slice(0, wanted);
                }
                if is_last {
                    break;
                }
            }
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        input_stats: &[Arc<Statistics>],
        _args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let input = input_stats.first().map(|input| input.as_ref().clone().to_inexact());
        Ok(Arc::new(input.unwrap_or_else(|| Statistics::new_unknown(&self.schema()))))
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::LowerEqual
    }
}
