//! The merge of inputs that are in order already: scans of sorted files, or what keeps the order of sorts below it.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, Statistics};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr_common::sort_expr::OrderingRequirements;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::common::spawn_buffered;
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::sorts::streaming_merge::StreamingMergeBuilder;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, InputDistributionRequirements,
    PlanProperties,
};

use crate::memory::Unrefused;

/// DataFusion's merge of sorted inputs, which does not fail where memory is short.
///
/// It holds the batches of every input that rows of the next output batch come from: as many as its inputs have
/// partitions, and a few. It asks for their memory like others, so that whatever can spill does, but beside row groups
/// of Parquet, which cannot, it takes what it is refused. Which of several equal rows comes first is as in DataFusion.
#[derive(Debug)]
pub struct OrderedMergeExec {
    /// The same merge as DataFusion would do it. It answers what planning asks.
    planned: Arc<SortPreservingMergeExec>,
    metrics: ExecutionPlanMetricsSet,
}

impl OrderedMergeExec {
    /// The merge that `planned` describes.
    pub fn replacing(planned: &SortPreservingMergeExec) -> Self {
        Self { planned: Arc::new(planned.clone()), metrics: ExecutionPlanMetricsSet::new() }
    }

    /// The same for a plan of DataFusion's that was made out of `planned`.
    fn like(plan: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let planned = plan
            .downcast_ref::<SortPreservingMergeExec>()
            .ok_or_else(|| DataFusionError::Internal("a merge with a new input is no merge".to_owned()))?;
        Ok(Arc::new(Self::replacing(planned)))
    }
}

impl DisplayAs for OrderedMergeExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        match format {
            DisplayFormatType::TreeRender => self.planned.fmt_as(format, f),
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "OrderedMergeExec: [{}]", self.planned.expr())?;
                self.planned.fetch().map_or(Ok(()), |fetch| write!(f, ", fetch={fetch}"))
            }
        }
    }
}

impl ExecutionPlan for OrderedMergeExec {
    fn name(&self) -> &'static str {
        "OrderedMergeExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.planned.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.planned.children()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        self.planned.input_distribution_requirements()
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        self.planned.required_input_ordering()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        self.planned.benefits_from_input_partitioning()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.planned.maintains_input_order()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.planned.apply_expressions(f)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Self::like(&Arc::clone(&self.planned).replace_children(children, options)?)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.planned.input();
        if input.output_partitioning().partition_count() == 1 {
            // Nothing is merged.
            return self.planned.execute(partition, context);
        }
        if self.schema().fields().is_empty() {
            // Such rows are all alike, and DataFusion's merge loses how many there are.
            let all = CoalescePartitionsExec::new(Arc::clone(input)).with_fetch(self.planned.fetch());
            return all.execute(partition, context);
        }
        let inputs = (0..input.output_partitioning().partition_count()).map(|partition| {
            let rows = input.execute(partition, Arc::clone(&context))?;
            Ok(spawn_buffered(rows, 1))
        });
        let pool: Arc<dyn MemoryPool> = Arc::new(Unrefused(Arc::clone(context.memory_pool())));
        StreamingMergeBuilder::new()
            .with_streams(inputs.collect::<Result<_>>()?)
            .with_schema(self.schema())
            .with_expressions(self.planned.expr())
            .with_metrics(BaselineMetrics::new(&self.metrics, partition))
            .with_batch_size(context.session_config().batch_size())
            .with_fetch(self.planned.fetch())
            .with_reservation(MemoryConsumer::new("ordered merge").register(&pool))
            .build()
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.planned.child_stats_requests(partition)
    }

    fn statistics_from_inputs(
        &self,
        input_stats: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.planned.statistics_from_inputs(input_stats, args)
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        Self::like(&ExecutionPlan::with_fetch(self.planned.as_ref(), limit)?).ok()
    }

    fn fetch(&self) -> Option<usize> {
        self.planned.fetch()
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        self.planned.cardinality_effect()
    }

    fn supports_limit_pushdown(&self) -> bool {
        self.planned.supports_limit_pushdown()
    }
}
