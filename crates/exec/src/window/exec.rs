//! Window functions as a DataFusion plan node.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, Statistics};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_expr::{OrderingRequirements, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, Gauge, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, InputDistributionRequirements, InputOrderMode,
    PlanProperties,
};
use futures::StreamExt;
use nandina_pages::PageSchema;

use super::expression::refuse_without_argument;
use super::function::Functions;
use super::pipeline::{Computed, Pipeline};
use super::running::Running;
use crate::spill::{RowQueue, SpillContext, SpillMetrics, SpillShape, operator_space};

/// Computes window functions while the rows wait in queues that spill. See the [module documentation](super).
pub struct SpillingWindowExec {
    /// The node whose place it takes: it knows all that matters for planning.
    planned: Arc<dyn ExecutionPlan>,
    expressions: Vec<Arc<dyn WindowExpr>>,
    functions: Arc<Functions>,
    /// Pages of rows, without and with the results of running functions.
    waiting: Arc<PageSchema>,
    computed: Arc<PageSchema>,
    metrics: ExecutionPlanMetricsSet,
}

impl SpillingWindowExec {
    /// Takes the place of `planned`. `None` if that is no window operator, one whose input is not sorted by partitions,
    /// which keeps a state for each of them, or one over columns that cannot be spilled. Fails for functions that
    /// cannot be computed.
    pub fn try_new(planned: Arc<dyn ExecutionPlan>) -> Result<Option<Self>> {
        let (expressions, input, is_sorted) = if let Some(window) = planned.downcast_ref::<WindowAggExec>() {
            (window.window_expr().to_vec(), window.input().schema(), true)
        } else if let Some(window) = planned.downcast_ref::<BoundedWindowAggExec>() {
            let is_sorted = window.input_order_mode == InputOrderMode::Sorted;
            (window.window_expr().to_vec(), window.input().schema(), is_sorted)
        } else {
            return Ok(None);
        };
        expressions.iter().try_for_each(|expression| refuse_without_argument(expression.as_ref()))?;
        if !is_sorted {
            return Ok(None);
        }
        let functions = Arc::new(Functions::new(&expressions, &input)?);
        let computed = computed_schema(&functions, &input)?;
        let (Ok(waiting), Ok(computed)) = (PageSchema::try_new(input), PageSchema::try_new(computed)) else {
            return Ok(None);
        };
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(Some(Self { planned, expressions, functions, waiting, computed, metrics }))
    }

    /// The same functions over another input.
    fn over(&self, inputs: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        let planned = Arc::clone(&self.planned).replace_children(inputs, options)?;
        Ok(match Self::try_new(Arc::clone(&planned))? {
            Some(window) => Arc::new(window),
            None => planned,
        })
    }

    fn input(&self) -> Result<Arc<dyn ExecutionPlan>> {
        let input = self.planned.children().first().map(|input| Arc::clone(input));
        input.ok_or_else(|| DataFusionError::Internal("a window has an input".to_owned()))
    }

    fn pipeline(&self, partition: usize, context: &Arc<TaskContext>) -> Result<Pipeline> {
        let (pool, batch_rows) = (context.memory_pool(), context.session_config().batch_size());
        let space = operator_space(context, "window")?;
        let metrics = SpillMetrics::new(&self.metrics, partition);
        let peak: Gauge = MetricBuilder::new(&self.metrics).gauge("peak_memory_bytes", partition);
        let name = format!("Window[{partition}]");
        let queue = |pages: &Arc<PageSchema>| {
            let shape = SpillShape::SideBySide;
            let spill = SpillContext::new(shape, pages, &space, pool, &name, batch_rows, &metrics);
            RowQueue::new(&name, pool, spill, peak.clone())
        };
        let waiting = (!self.functions.running.is_empty()).then(|| queue(&self.waiting));
        let computed = (!self.functions.at_end.is_empty())
            .then(|| Computed { rows: queue(&self.computed), schema: Arc::clone(self.computed.arrow()) });
        let partition_by = self.expressions.first().map(|expression| expression.partition_by().to_vec());
        Ok(Pipeline::new(
            Arc::clone(&self.functions),
            partition_by.unwrap_or_default(),
            (waiting, computed),
            MemoryConsumer::new(name).register(pool),
            self.schema(),
            batch_rows,
        ))
    }
}

/// The rows with the results of running functions behind them.
fn computed_schema(functions: &Functions, input: &SchemaRef) -> Result<SchemaRef> {
    let result = |(number, function): (usize, &Running)| -> Result<FieldRef> {
        Ok(Arc::new(Field::new(format!("result {number}"), function.data_type()?, true)))
    };
    let results = functions.running.iter().enumerate().map(result);
    let fields = input.fields().iter().cloned().map(Ok).chain(results).collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(Schema::new(fields)))
}

impl fmt::Debug for SpillingWindowExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpillingWindowExec").field("planned", &self.planned).finish_non_exhaustive()
    }
}

impl DisplayAs for SpillingWindowExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        match format {
            DisplayFormatType::TreeRender => self.planned.fmt_as(format, f),
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "SpillingWindowExec: wdw=[")?;
                for (number, expression) in self.expressions.iter().enumerate() {
                    let separator = if number == 0 { "" } else { ", " };
                    let frame = expression.get_window_frame();
                    write!(f, "{separator}{}, frame: {frame}", expression.name())?;
                }
                write!(f, "]")
            }
        }
    }
}

impl ExecutionPlan for SpillingWindowExec {
    fn name(&self) -> &'static str {
        "SpillingWindowExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.planned.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.planned.children()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.planned.apply_expressions(f)
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        self.planned.required_input_ordering()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        self.planned.input_distribution_requirements()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.planned.maintains_input_order()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.over(children)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        self.over(self.planned.children().into_iter().cloned().collect())
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let mut pipeline = self.pipeline(partition, &context)?;
        let mut input = self.input()?.execute(partition, context)?;
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let time = baseline.elapsed_compute().clone();
        let stream = async_stream::try_stream! {
            loop {
                let rows = input.next().await.transpose()?;
                let is_over = rows.is_none();
                let timer = time.timer();
                match rows {
                    Some(rows) => pipeline.push(rows).await?,
                    None => pipeline.end()?,
                }
                drop(timer);
                loop {
                    let timer = time.timer();
                    let results = pipeline.next_batch().await?;
                    drop(timer);
                    let Some(results) = results else { break };
                    baseline.record_output(results.num_rows());
                    yield results;
                }
                if is_over {
                    break;
                }
            }
            pipeline.nothing_is_left().await?;
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), stream)))
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
}
