//! The filter of first rows of partitions as a DataFusion plan node.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{PhysicalExpr, PhysicalExprRef, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, Gauge, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::StreamExt;

use super::partition_top_k::{PartitionTopK, RankedBy, TopK};
use crate::memory::pool_limit;

/// The share of the limit that the best keys of all inputs may take together.
const MEMORY_SHARE: usize = 4;
/// The most of one input: no more than is still looked up faster than rows are sorted.
const MOST_BYTES: usize = 64 << 20;

/// Drops rows that cannot be among the first `k` of their partition, since `k` others of the same input come before.
///
/// It gives all rows that are wanted and others, so that it may stand anywhere below the window function, as below
/// its sort and the exchange; a filter above picks those that are. For each partition it keeps `k` order keys, of so many
/// partitions as fit into a share of the memory; rows of all others pass. When nearly all do, or others need the memory, it is
/// given up.
pub struct PartitionedTopKFilterExec {
    input: Arc<dyn ExecutionPlan>,
    partition_by: Vec<PhysicalExprRef>,
    order_by: Vec<PhysicalSortExpr>,
    top: Arc<TopK>,
    metrics: ExecutionPlanMetricsSet,
}

impl PartitionedTopKFilterExec {
    /// A filter of the rows of `input` that may be wanted by a window of these partitions and this order. `None` for
    /// types of keys that it does not know how to tell apart, and if no row is wanted.
    pub fn try_new(
        input: Arc<dyn ExecutionPlan>,
        partition_by: Vec<PhysicalExprRef>,
        order_by: Vec<PhysicalSortExpr>,
        ranked_by: RankedBy,
        k: usize,
    ) -> Result<Option<Self>> {
        let top = TopK::try_new(partition_by.clone(), order_by.clone(), &input.schema(), ranked_by, k)?;
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(top.map(|top| Self { input, partition_by, order_by, top: Arc::new(top), metrics }))
    }

    fn top_k(&self, partition: usize, context: &TaskContext) -> Result<PartitionTopK> {
        let pool = context.memory_pool();
        let inputs = self.input.output_partitioning().partition_count();
        let share =
            pool_limit(pool.as_ref()).map_or(usize::MAX, |limit| limit / MEMORY_SHARE / inputs.max(1));
        PartitionTopK::try_new(Arc::clone(&self.top), share.min(MOST_BYTES), pool, partition)
    }
}

impl fmt::Debug for PartitionedTopKFilterExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionedTopKFilterExec").field("top", &self.top).finish_non_exhaustive()
    }
}

impl DisplayAs for PartitionedTopKFilterExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let (k, partitions) = (self.top.k, list(&self.partition_by));
        let order = list(&self.order_by);
        match format {
            DisplayFormatType::TreeRender => {
                writeln!(f, "k={k}\npartition_by={partitions}\norder_by={order}")
            }
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                let by = match self.top.ranked_by {
                    RankedBy::RowNumber => "row_number",
                    RankedBy::Rank => "rank",
                };
                write!(
                    f,
                    "PartitionedTopKFilterExec: {by}<={k}, partition_by=[{partitions}], order_by=[{order}]"
                )
            }
        }
    }
}

fn list(items: &[impl ToString]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl ExecutionPlan for PartitionedTopKFilterExec {
    fn name(&self) -> &'static str {
        "PartitionedTopKFilterExec"
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
        let order_by = self.order_by.iter().map(|by| &by.expr);
        for expression in self.partition_by.iter().chain(order_by) {
            if f(expression)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
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
        let [input] = <[_; 1]>::try_from(children)
            .map_err(|_| DataFusionError::Internal("a filter of first rows has one input".to_owned()))?;
        Ok(Arc::new(Self {
            input,
            partition_by: self.partition_by.clone(),
            order_by: self.order_by.clone(),
            top: Arc::clone(&self.top),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let mut top_k = self.top_k(partition, &context)?;
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let dropped: Count = MetricBuilder::new(&self.metrics).counter("dropped_rows", partition);
        let peak: Gauge = MetricBuilder::new(&self.metrics).gauge("peak_memory_bytes", partition);
        let mut input = self.input.execute(partition, context)?;
        let stream = async_stream::try_stream! {
            while let Some(rows) = input.next().await.transpose()? {
                let timer = baseline.elapsed_compute().timer();
                let before = rows.num_rows();
                let rows = top_k.candidates(rows)?;
                drop(timer);
                dropped.add(before - rows.num_rows());
                peak.set_max(top_k.memory_bytes());
                if rows.num_rows() > 0 {
                    baseline.record_output(rows.num_rows());
                    yield rows;
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
