//! The join as a node of a DataFusion plan.

use std::fmt;
use std::sync::Arc;

use datafusion::common::runtime::JoinSet;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, JoinType, NullEquality, Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::joins::utils::ColumnIndex;
use datafusion::physical_plan::joins::{CrossJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    execute_stream_partitioned,
};

use super::state::LoopState;
use super::worker::{Work, output};
use crate::execution::SharedExecution;
use crate::execution::meter::inherited;
use crate::join::metrics::JoinMetrics;
use crate::join::outputs::{BuildDone, Workers, build_done, output_stream};
use crate::join::spec::{JoinSpec, output_columns};
use crate::memory::{output_bytes, pool_limit};
use crate::plan_properties::without_padded_sides;
use crate::spill::operator_space;

/// A block nested loop join that spills.
///
/// Stands where DataFusion's `NestedLoopJoinExec` or `CrossJoinExec` stood. Its claims are theirs: no order, and the
/// partitioning of the probe side where only probe rows, alone or in pairs, are emitted.
pub struct BlockNestedLoopJoinExec {
    /// The node this one replaces. It answers what planning asks.
    planned: Arc<NestedLoopJoinExec>,
    /// As planned, but without what does not hold for rows without a match.
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    shared: SharedExecution<Execution>,
}

#[derive(Clone)]
struct Execution {
    state: Arc<LoopState>,
    workers: Arc<Workers<Work>>,
    build_done: BuildDone,
}

impl BlockNestedLoopJoinExec {
    /// Takes the place of `planned`. Fails if a column's type has no page layout.
    pub fn try_new(planned: &NestedLoopJoinExec) -> Result<Self> {
        // All partitions of the build side are consumed at once; there is no need to make one of them.
        let left = match planned.left().downcast_ref::<CoalescePartitionsExec>() {
            Some(coalesce) if coalesce.fetch().is_none() => Arc::clone(coalesce.input()),
            _ => Arc::clone(planned.left()),
        };
        Self::of_children(planned, left, Arc::clone(planned.right()))
    }

    /// Takes the place of a cross join.
    pub fn try_new_cross(planned: &CrossJoinExec) -> Result<Self> {
        let (left, right) = (Arc::clone(planned.left()), Arc::clone(planned.right()));
        Self::try_new(&NestedLoopJoinExec::try_new(left, right, None, &JoinType::Inner, None)?)
    }

    fn of_children(
        planned: &NestedLoopJoinExec,
        left: Arc<dyn ExecutionPlan>,
        right: Arc<dyn ExecutionPlan>,
    ) -> Result<Self> {
        let projection = planned.projection().as_ref().map(|projection| projection.to_vec());
        let filter = planned.filter().cloned();
        let planned = NestedLoopJoinExec::try_new(left, right, filter, planned.join_type(), projection)?;
        let known = planned.properties().equivalence_properties();
        let known = without_padded_sides(known, *planned.join_type(), &columns_of(&planned))?;
        let properties = planned.properties().as_ref().clone().with_eq_properties(known);
        let join = Self {
            planned: Arc::new(planned),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
            shared: SharedExecution::default(),
        };
        join.spec(1, 1)?;
        Ok(join)
    }

    /// Whether DataFusion knows something of `planned` that does not hold for rows without a match. Orders that are
    /// chosen by that are wrong.
    pub fn knows_better(planned: &NestedLoopJoinExec) -> Result<bool> {
        let known = planned.properties().equivalence_properties();
        let holds = without_padded_sides(known, *planned.join_type(), &columns_of(planned))?;
        let expressions =
            |of: &EquivalenceProperties| of.eq_group().iter().map(|equal| equal.len()).sum::<usize>();
        Ok(expressions(known) > expressions(&holds))
    }

    /// The join type, build side left.
    pub fn join_type(&self) -> JoinType {
        *self.planned.join_type()
    }

    fn spec(&self, batch_rows: usize, batch_bytes: usize) -> Result<JoinSpec> {
        let (left, right) = (self.planned.left().schema(), self.planned.right().schema());
        let columns = columns_of(&self.planned);
        JoinSpec::try_new(
            &left,
            &right,
            &Vec::new(),
            self.planned.filter(),
            self.join_type(),
            &columns,
            self.planned.schema(),
            NullEquality::NullEqualsNothing,
            false,
            batch_rows,
            batch_bytes,
        )
    }

    /// The execution that all output partitions share.
    fn execution(&self, context: &Arc<TaskContext>) -> Result<Execution> {
        self.shared.get(self.planned.right().output_partitioning().partition_count(), || self.start(context))
    }

    fn start(&self, context: &Arc<TaskContext>) -> Result<Execution> {
        let spec = Arc::new(self.spec(
            context.session_config().batch_size(),
            output_bytes(pool_limit(context.memory_pool().as_ref())),
        )?);
        let space = operator_space(context, "nested loop join")?;
        let inputs = self.planned.left().output_partitioning().partition_count();
        let outputs = self.planned.right().output_partitioning().partition_count();
        let metrics = JoinMetrics::new(&self.metrics, 0);
        let state = LoopState::new(spec, context.memory_pool(), space, metrics, inputs, outputs);
        let inputs = execute_stream_partitioned(Arc::clone(self.planned.left()), Arc::clone(context))?;
        let build = build(Arc::clone(&state), inputs);
        Ok(Execution { state, workers: Workers::new(outputs), build_done: build_done(build) })
    }
}

/// Where each column of the output comes from.
fn columns_of(planned: &NestedLoopJoinExec) -> Vec<ColumnIndex> {
    let (left, right) = (planned.left().schema(), planned.right().schema());
    output_columns(&left, &right, *planned.join_type(), planned.projection().as_deref())
}

/// Consumes the build side from all its streams at once.
async fn build(state: Arc<LoopState>, inputs: Vec<SendableRecordBatchStream>) -> Result<()> {
    let mut tasks = JoinSet::new();
    for (number, input) in inputs.into_iter().enumerate() {
        tasks.spawn(inherited(Arc::clone(&state).take_build_input(number, input)));
    }
    while let Some(done) = tasks.join_next().await {
        done.map_err(|error| DataFusionError::External(Box::new(error)))??;
    }
    state.finish_build().await
}

impl fmt::Debug for BlockNestedLoopJoinExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockNestedLoopJoinExec").field("planned", &self.planned).finish_non_exhaustive()
    }
}

impl DisplayAs for BlockNestedLoopJoinExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        match format {
            DisplayFormatType::TreeRender => writeln!(f, "join_type={:?}", self.join_type()),
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "BlockNestedLoopJoinExec: join_type={:?}", self.join_type())?;
                if let Some(filter) = self.planned.filter() {
                    write!(f, ", filter={}", filter.expression())?;
                }
                if self.planned.contains_projection() {
                    let schema = self.schema();
                    let names: Vec<&str> =
                        schema.fields().iter().map(|field| field.name().as_str()).collect();
                    write!(f, ", projection=[{}]", names.join(", "))?;
                }
                Ok(())
            }
        }
    }
}

impl ExecutionPlan for BlockNestedLoopJoinExec {
    fn name(&self) -> &'static str {
        "BlockNestedLoopJoinExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.planned.children()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false, false]
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
        let Ok([left, right]) = <[_; 2]>::try_from(children) else {
            return internal_err!("a nested loop join has two inputs");
        };
        Ok(Arc::new(Self::of_children(&self.planned, left, right)?))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let (left, right) = (Arc::clone(self.planned.left()), Arc::clone(self.planned.right()));
        Ok(Arc::new(Self::of_children(&self.planned, left, right)?))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let execution = self.execution(&context)?;
        let input = self.planned.right().execute(partition, context)?;
        let metrics = JoinMetrics::new(&self.metrics, partition);
        let baseline = metrics.baseline.clone();
        let stream = output(execution.state, execution.workers, execution.build_done, input, metrics);
        Ok(output_stream(stream, self.schema(), baseline))
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
}
