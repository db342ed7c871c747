//! The exchange as a DataFusion plan node.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::config::ConfigOptions;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions,
};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterDescription, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::repartition::{BatchPartitioner, RepartitionExec};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use nandina_pages::PageSchema;
use tokio::task::JoinSet;

use super::metrics::SharedMetrics;
use super::output::{Begin, Output, Running};
use super::producer::produce;
use super::queue::Queues;
use crate::error::pages_error;
use crate::execution::SharedExecution;
use crate::execution::meter::inherited;
use crate::spill::{SpillContext, SpillShape, operator_space};

/// Hands rows of several inputs over to several outputs, in memory that is bounded. See the
/// [module documentation](super).
pub struct ExchangeExec {
    /// The node whose place it takes: it knows all that matters for planning.
    planned: Arc<RepartitionExec>,
    pages: Arc<PageSchema>,
    metrics: ExecutionPlanMetricsSet,
    shared: SharedExecution<Arc<Running>>,
}

impl ExchangeExec {
    /// Takes the place of `planned`, which must not promise any order. Fails for columns that cannot be spilled.
    pub fn try_new(planned: RepartitionExec) -> Result<Self> {
        let pages = PageSchema::try_new(planned.schema()).map_err(pages_error)?;
        Ok(Self {
            planned: Arc::new(planned),
            pages,
            metrics: ExecutionPlanMetricsSet::new(),
            shared: SharedExecution::default(),
        })
    }

    /// The node that this one replaces.
    pub fn planned(&self) -> &RepartitionExec {
        &self.planned
    }

    /// Whether an exchange emits rows in an order that others rely on, which this operator does not.
    pub fn keeps_order(planned: &RepartitionExec) -> bool {
        planned.preserve_order() || planned.properties().output_ordering().is_some()
    }

    /// The same exchange of other rows.
    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Result<Self> {
        Self::try_new(RepartitionExec::try_new(input, self.planned.partitioning().clone())?)
    }

    /// The execution that all outputs share.
    fn running(&self, context: &Arc<TaskContext>) -> Result<Arc<Running>> {
        self.shared.get(self.outputs(), || self.start(context))
    }

    fn outputs(&self) -> usize {
        self.planned.partitioning().partition_count()
    }

    fn start(&self, context: &Arc<TaskContext>) -> Result<Arc<Running>> {
        let metrics = SharedMetrics::new(&self.metrics);
        let (pool, batch_rows) = (context.memory_pool(), context.session_config().batch_size());
        let space = operator_space(context, "exchange")?;
        let shape = SpillShape::SideBySide;
        let spill =
            SpillContext::new(shape, &self.pages, &space, pool, "Exchange", batch_rows, &metrics.spill);
        let input = self.planned.input();
        let inputs = input.output_partitioning().partition_count();
        let queues = Queues::new("Exchange", self.outputs(), inputs, pool, spill, metrics.clone());
        let begin = Begin::new();
        let mut producers = JoinSet::new();
        for number in 0..inputs {
            let stream = input.execute(number, Arc::clone(context))?;
            let partitioner = BatchPartitioner::try_new(
                self.planned.partitioning().clone(),
                metrics.repartition_time.clone(),
                number,
                inputs,
            )?;
            let producer = produce(Arc::clone(&queues), stream, partitioner, self.outputs(), batch_rows);
            let begin = begin.clone();
            producers.spawn(inherited(async move {
                begin.wait().await;
                producer.await;
            }));
        }
        Ok(Running::new(queues, producers, begin))
    }
}

impl fmt::Debug for ExchangeExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExchangeExec").field("planned", &self.planned).finish_non_exhaustive()
    }
}

impl DisplayAs for ExchangeExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        match format {
            DisplayFormatType::TreeRender => self.planned.fmt_as(format, f),
            DisplayFormatType::Default | DisplayFormatType::Verbose => write!(
                f,
                "ExchangeExec: partitioning={}, input_partitions={}",
                self.planned.partitioning(),
                self.planned.input().output_partitioning().partition_count()
            ),
        }
    }
}

impl ExecutionPlan for ExchangeExec {
    fn name(&self) -> &'static str {
        "ExchangeExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.planned.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![self.planned.input()]
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
        if options.children_properties == ChildrenPropertiesMode::Keep {
            let planned = Arc::clone(&self.planned).replace_children(children, options)?;
            let Some(planned) = planned.downcast_ref::<RepartitionExec>() else {
                return internal_err!("an exchange with a new input is no exchange");
            };
            return Ok(Arc::new(Self {
                planned: Arc::new(planned.clone()),
                pages: Arc::clone(&self.pages),
                metrics: ExecutionPlanMetricsSet::new(),
                shared: SharedExecution::default(),
            }));
        }
        match <[_; 1]>::try_from(children) {
            Ok([input]) => Ok(Arc::new(self.over(input)?)),
            Err(_) => internal_err!("an exchange has one input"),
        }
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.over(Arc::clone(self.planned.input()))?))
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        self.planned.benefits_from_input_partitioning()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false]
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let output = Output::new(self.running(&context)?, partition, metrics);
        Ok(output.stream(self.schema()))
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

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }

    fn gather_filters_for_pushdown(
        &self,
        phase: FilterPushdownPhase,
        parent_filters: Vec<Arc<dyn PhysicalExpr>>,
        config: &ConfigOptions,
    ) -> Result<FilterDescription> {
        self.planned.gather_filters_for_pushdown(phase, parent_filters, config)
    }

    fn handle_child_pushdown_result(
        &self,
        _phase: FilterPushdownPhase,
        result: ChildPushdownResult,
        _config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        Ok(FilterPushdownPropagation::if_all(result))
    }
}
