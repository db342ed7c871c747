//! The aggregation as a node of a DataFusion plan.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Constraints, DataFusionError, Result, Statistics};
use datafusion::config::ConfigOptions;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr_common::sort_expr::OrderingRequirements;
use datafusion::physical_plan::aggregates::{
    AggregateExec, AggregateMode, get_finer_aggregate_exprs_requirement,
};
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterDescription, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, InputOrderMode, Partitioning, PlanProperties,
};
use futures::FutureExt;

use super::lane::take_input;
use super::metrics::AggregateMetrics;
use super::output::{InputTaken, output};
use super::spec::AggregateSpec;
use super::state::AggregateState;
use crate::execution::SharedExecution;
use crate::plan_properties::{mixing_rows, without_missing_keys};
use crate::spill::operator_space;

/// A hash aggregation that spills.
///
/// Stands where DataFusion's partial and final `AggregateExec`s stood, or its single one. It needs no distribution
/// below it: all input partitions feed one set of partitions, which all output partitions, one per input partition,
/// share.
pub struct HashAggregateExec {
    /// The same aggregation in one stage, as DataFusion would do it. It answers what planning asks.
    planned: Arc<AggregateExec>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    shared: SharedExecution<(Arc<AggregateState>, InputTaken)>,
}

impl HashAggregateExec {
    /// The aggregation of `last`, which is a single stage, or the final one above a partial one. `None` if there are
    /// reasons to leave it to DataFusion: it has no keys, its input comes sorted by them, only the first few groups in
    /// some order are wanted, or pages cannot hold its keys or states.
    pub fn replacing(last: &AggregateExec) -> Result<Option<Self>> {
        let Some(first) = first_stage(last) else { return Ok(None) };
        let some_in_order = last.limit_options().is_some_and(|options| options.descending().is_some());
        // Sorted by all keys is not sorted by those of each set.
        let streams =
            first.input_order_mode() == &InputOrderMode::Sorted && first.group_expr().groups().len() == 1;
        if first.group_expr().is_true_no_grouping() || some_in_order || streams {
            return Ok(None);
        }
        let planned = AggregateExec::try_new(
            AggregateMode::Single,
            first.group_expr().clone(),
            first.aggr_expr().to_vec(),
            first.filter_expr().to_vec(),
            Arc::clone(first.input()),
            first.input_schema(),
        )?
        .with_limit_options(last.limit_options());
        match Self::try_new(planned, last.schema()) {
            Ok(aggregation) => Ok(Some(aggregation)),
            Err(reason) => {
                log::debug!("an aggregation is left to DataFusion: {reason}");
                Ok(None)
            }
        }
    }

    /// The node that this one replaces.
    pub fn planned(&self) -> &AggregateExec {
        &self.planned
    }

    fn try_new(planned: AggregateExec, schema: SchemaRef) -> Result<Self> {
        AggregateSpec::try_new(&planned, Arc::clone(&schema), 1)?;
        let outputs = planned.input().output_partitioning().partition_count();
        let known = planned.properties().equivalence_properties();
        let known = without_missing_keys(known, planned.group_expr())?;
        // Projections mistake other columns for those that are unique.
        let known = known.with_constraints(Constraints::default());
        let properties =
            mixing_rows(&planned.properties().as_ref().clone().with_eq_properties(known), outputs)
                .with_partitioning(Partitioning::UnknownPartitioning(outputs))
                .with_emission_type(EmissionType::Final);
        Ok(Self::of(planned, schema, Arc::new(properties)))
    }

    fn of(planned: AggregateExec, schema: SchemaRef, properties: Arc<PlanProperties>) -> Self {
        let (planned, metrics) = (Arc::new(planned), ExecutionPlanMetricsSet::new());
        Self { planned, schema, properties, metrics, shared: SharedExecution::default() }
    }

    /// The execution that all output partitions share; the first to ask starts it, and the last to ask takes it out of
    /// the node: when its streams are gone nothing of it is left, however long the plan lives.
    fn execution(&self, context: &Arc<TaskContext>) -> Result<(Arc<AggregateState>, InputTaken)> {
        self.shared.get(self.planned.input().output_partitioning().partition_count(), || self.start(context))
    }

    fn start(&self, context: &Arc<TaskContext>) -> Result<(Arc<AggregateState>, InputTaken)> {
        let batch_rows = context.session_config().batch_size();
        let spec = Arc::new(AggregateSpec::try_new(&self.planned, Arc::clone(&self.schema), batch_rows)?);
        let space = operator_space(context, "hash aggregation")?;
        let lanes = self.planned.input().output_partitioning().partition_count();
        let metrics = AggregateMetrics::new(&self.metrics, 0);
        let state = AggregateState::new(spec, context.memory_pool(), space, metrics, lanes);
        let inputs = (0..lanes)
            .map(|partition| {
                let input = self.planned.input().execute(partition, Arc::clone(context))?;
                Ok((input, AggregateMetrics::new(&self.metrics, partition)))
            })
            .collect::<Result<Vec<_>>>()?;
        let input_taken = take_input(Arc::clone(&state), inputs);
        let input_taken = input_taken.map(|taken| taken.map_err(Arc::new)).boxed().shared();
        Ok((state, input_taken))
    }
}

/// The node that consumes the input rows of the aggregation whose last stage is `last`.
fn first_stage(last: &AggregateExec) -> Option<&AggregateExec> {
    match last.mode() {
        AggregateMode::Single | AggregateMode::SinglePartitioned => Some(last),
        AggregateMode::Final | AggregateMode::FinalPartitioned => {
            let first = last.input().downcast_ref::<AggregateExec>()?;
            (first.mode() == &AggregateMode::Partial).then_some(first)
        }
        AggregateMode::Partial | AggregateMode::PartialReduce => None,
    }
}

impl fmt::Debug for HashAggregateExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashAggregateExec").field("planned", &self.planned).finish_non_exhaustive()
    }
}

impl DisplayAs for HashAggregateExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        struct Planned<'a>(&'a AggregateExec, DisplayFormatType);
        impl fmt::Display for Planned<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt_as(self.1, f)
            }
        }
        // How the node it replaces would show itself, but for the stage.
        let text = Planned(&self.planned, format).to_string();
        match format {
            DisplayFormatType::TreeRender => {
                let mut lines = text.lines().filter(|line| !line.starts_with("mode="));
                lines.try_for_each(|line| writeln!(f, "{line}"))
            }
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                let rest = text.strip_prefix("AggregateExec: mode=Single, ").unwrap_or(&text);
                write!(f, "HashAggregateExec: {rest}")
            }
        }
    }
}

impl ExecutionPlan for HashAggregateExec {
    fn name(&self) -> &'static str {
        "HashAggregateExec"
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.planned.children()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::UnspecifiedDistribution])
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        // DataFusion's node asks to keep an order of the keys, too, which is of no use here.
        let functions_ask = get_finer_aggregate_exprs_requirement(
            &mut self.planned.aggr_expr().to_vec(),
            self.planned.group_expr(),
            self.planned.input().equivalence_properties(),
            &AggregateMode::Single,
        );
        match functions_ask {
            Ok(requirement) if requirement.is_empty() => vec![None],
            Ok(_) | Err(_) => self.planned.required_input_ordering(),
        }
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![true]
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
        let children_properties = options.children_properties;
        let planned = Arc::clone(&self.planned).replace_children(children, options)?;
        let planned = planned.downcast_ref::<AggregateExec>().ok_or_else(|| {
            DataFusionError::Internal("an aggregation with a new input is no aggregation".to_owned())
        })?;
        let schema = Arc::clone(&self.schema);
        Ok(Arc::new(match children_properties {
            ChildrenPropertiesMode::Keep => Self::of(planned.clone(), schema, Arc::clone(&self.properties)),
            ChildrenPropertiesMode::Recompute => Self::try_new(planned.clone(), schema)?,
        }))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::try_new(AggregateExec::clone(&self.planned), Arc::clone(&self.schema))?))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (state, input_taken) = self.execution(&context)?;
        let metrics = AggregateMetrics::new(&self.metrics, partition);
        let stream = output(state, input_taken, metrics);
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, _partition: Option<usize>) -> Vec<ChildStats> {
        // Groups of any input partition may come out of any output.
        vec![ChildStats::At(None)]
    }

    fn statistics_from_inputs(
        &self,
        input_stats: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        if args.partition().is_some() {
            return Ok(Arc::new(Statistics::new_unknown(&self.schema)));
        }
        self.planned.statistics_from_inputs(input_stats, args)
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        self.planned.cardinality_effect()
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
        child_pushdown_result: ChildPushdownResult,
        _config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        Ok(FilterPushdownPropagation::if_any(child_pushdown_result))
    }
}
