//! The join as a node of a DataFusion plan.

use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow::datatypes::SchemaRef;
use datafusion::common::runtime::JoinSet;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, JoinType, NullEquality, Result, Statistics};
use datafusion::config::ConfigOptions;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::{DynamicFilterPhysicalExpr, lit};
use datafusion::physical_expr::{PhysicalExpr, PhysicalExprRef};
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter_pushdown::{
    ChildFilterDescription, ChildPushdownResult, FilterDescription, FilterPushdownPhase,
    FilterPushdownPropagation, PushedDownPredicate,
};
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::joins::{HashJoinExec, JoinOn, PartitionMode};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    execute_stream_partitioned,
};

use super::dynamic_filter::BuildBounds;
use super::estimate::{BuildEstimate, key_ranges, most_inner_rows};
use super::key_bitmap::KeyRange;
use super::key_filter::KeyFilter;
use super::metrics::HashJoinMetrics;
use super::single_key_filters::{is_referenced, with_filters_of_keys};
use super::state::JoinState;
use super::worker::{Work, output};
use crate::execution::SharedExecution;
use crate::execution::meter::inherited;
use crate::fetch::FetchEstimate;
use crate::join::metrics::JoinMetrics;
use crate::join::outputs::{BuildDone, Workers, build_done, output_stream};
use crate::join::spec::{JoinSpec, output_columns};
use crate::memory::{output_bytes, pool_limit};
use crate::plan_properties::{mixing_rows, without_padded_sides};
use crate::spill::{DestagePolicy, operator_space};

/// A hybrid hash join that spills.
///
/// Stands where DataFusion's `HashJoinExec` stood, which fails when its build side does not fit. It needs no
/// distribution below it: all input partitions of the build side feed one set of partitions, which all output
/// partitions, one per input partition of the probe side, share.
pub struct HybridHashJoinExec {
    /// The node this one replaces. It answers what planning asks: schema, filters, projections, statistics.
    planned: Arc<HashJoinExec>,
    /// As planned, but without an order: rows of spilled partitions come after all others.
    properties: Arc<PlanProperties>,
    filter: Option<Arc<DynamicFilterPhysicalExpr>>,
    /// One for each of several keys, if scans may have them.
    filters_of_keys: Vec<Arc<DynamicFilterPhysicalExpr>>,
    columns: Vec<ColumnIndex>,
    /// Those of the plan that the build side was chosen in, whatever has become of it.
    estimate: BuildEstimate,
    key_ranges: Vec<Option<KeyRange>>,
    /// Of all its output, once they have been asked for: joins above ask again and again while a plan is made.
    statistics: OnceLock<Arc<Statistics>>,
    /// What the planner expected of this join and of columns fetched above it, where it chose this.
    late_estimate: OnceLock<FetchEstimate>,
    metrics: ExecutionPlanMetricsSet,
    shared: SharedExecution<Execution>,
}

#[derive(Clone)]
struct Execution {
    state: Arc<JoinState>,
    workers: Arc<Workers<Work>>,
    build_done: BuildDone,
}

impl HybridHashJoinExec {
    /// Takes the place of `planned`. Fails if a column's type has no page layout.
    pub fn try_new(planned: &HashJoinExec) -> Result<Self> {
        let statistics = StatisticsContext::new();
        let side =
            |side: &Arc<dyn ExecutionPlan>| statistics.compute(side.as_ref(), &StatisticsArgs::new()).ok();
        let rows = |side: &Option<Arc<Statistics>>| side.as_ref()?.num_rows.get_value().copied();
        let (build, probe) = (side(&planned.left), side(&planned.right));
        let estimate = BuildEstimate { build_rows: rows(&build), probe_rows: rows(&probe) };
        let key_ranges = key_ranges(planned, build.as_deref());
        let join = Self::assemble(planned, estimate, key_ranges, Vec::new())?;
        join.spec(1, 1)?;
        Ok(join)
    }

    fn assemble(
        planned: &HashJoinExec,
        estimate: BuildEstimate,
        key_ranges: Vec<Option<KeyRange>>,
        filters_of_keys: Vec<Arc<DynamicFilterPhysicalExpr>>,
    ) -> Result<Self> {
        // `Auto` asks for no distribution of either input: one set of partitions serves all workers.
        let planned = match planned.mode {
            PartitionMode::Auto => planned.builder(),
            _ => planned.builder().with_partition_mode(PartitionMode::Auto),
        };
        let planned = Arc::new(planned.build()?);
        let (left, right) = (planned.left.schema(), planned.right.schema());
        let columns = output_columns(&left, &right, planned.join_type, planned.projection.as_deref());
        let inputs = [&planned.left, &planned.right].map(|side| side.output_partitioning().partition_count());
        let known = planned.properties().equivalence_properties();
        let known = without_padded_sides(known, planned.join_type, &columns)?;
        let properties = planned.properties().as_ref().clone().with_eq_properties(known);
        let properties = Arc::new(mixing_rows(&properties, inputs.into_iter().max().unwrap_or(1)));
        let filter = planned
            .dynamic_expressions_produced()
            .into_iter()
            .find_map(|filter| Arc::downcast::<DynamicFilterPhysicalExpr>(filter).ok());
        Ok(Self {
            planned,
            properties,
            filter,
            filters_of_keys,
            columns,
            estimate,
            key_ranges,
            statistics: OnceLock::new(),
            late_estimate: OnceLock::new(),
            metrics: ExecutionPlanMetricsSet::new(),
            shared: SharedExecution::default(),
        })
    }

    /// The same join, not run yet, in place of `planned`.
    fn renewed(&self, planned: &HashJoinExec) -> Result<Self> {
        let (ranges, filters) = (self.key_ranges.clone(), self.filters_of_keys.clone());
        let renewed = Self::assemble(planned, self.estimate, ranges, filters)?;
        Ok(Self { late_estimate: self.late_estimate.clone(), ..renewed })
    }

    /// The same join, not run yet, over inputs with the same properties.
    fn over_alike(&self, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Self> {
        Ok(Self {
            planned: Arc::new(self.planned.builder().with_new_children(children)?.build()?),
            properties: Arc::clone(&self.properties),
            filter: self.filter.clone(),
            filters_of_keys: self.filters_of_keys.clone(),
            columns: self.columns.clone(),
            estimate: self.estimate,
            key_ranges: self.key_ranges.clone(),
            statistics: OnceLock::new(),
            late_estimate: self.late_estimate.clone(),
            metrics: ExecutionPlanMetricsSet::new(),
            shared: SharedExecution::default(),
        })
    }

    /// The node that this one replaces.
    pub fn planned(&self) -> &HashJoinExec {
        &self.planned
    }

    /// The join type, build side left.
    pub fn join_type(&self) -> JoinType {
        self.planned.join_type
    }

    /// Key expressions, pair by pair.
    pub fn on(&self) -> &JoinOn {
        &self.planned.on
    }

    /// The residual filter.
    pub fn filter(&self) -> Option<&JoinFilter> {
        self.planned.filter.as_ref()
    }

    /// Has it show what was expected of it, and of the ways that were not chosen.
    pub fn show_estimate(&self, estimate: FetchEstimate) {
        self.late_estimate.get_or_init(|| estimate);
    }

    /// What the planner believed when it chose the build side.
    pub fn estimate(&self) -> BuildEstimate {
        self.estimate
    }

    /// Statistics of the output from those of the inputs.
    fn own_statistics(
        &self,
        input_stats: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let statistics = self.planned.statistics_from_inputs(input_stats, args)?;
        let [build, probe] = input_stats else { return Ok(statistics) };
        let most = match self.planned.join_type {
            JoinType::Inner => most_inner_rows(build, probe, &self.planned.on),
            _ => None,
        };
        match (statistics.num_rows.get_value(), most) {
            (Some(&rows), Some(most)) if most < rows => {
                let mut statistics = Statistics::clone(&statistics).to_inexact();
                statistics.num_rows = Precision::Inexact(most);
                Ok(Arc::new(statistics))
            }
            _ => Ok(statistics),
        }
    }

    fn spec(&self, batch_rows: usize, batch_bytes: usize) -> Result<JoinSpec> {
        JoinSpec::try_new(
            &self.planned.left.schema(),
            &self.planned.right.schema(),
            &self.planned.on,
            self.planned.filter.as_ref(),
            self.planned.join_type,
            &self.columns,
            self.planned.schema(),
            self.planned.null_equality,
            self.planned.null_aware,
            batch_rows,
            batch_bytes,
        )
    }

    /// The execution that all output partitions share.
    fn execution(&self, context: &Arc<TaskContext>) -> Result<Execution> {
        self.shared.get(self.planned.right.output_partitioning().partition_count(), || self.start(context))
    }

    fn start(&self, context: &Arc<TaskContext>) -> Result<Execution> {
        let spec = Arc::new(self.spec(
            context.session_config().batch_size(),
            output_bytes(pool_limit(context.memory_pool().as_ref())),
        )?);
        for filter in self.filter.iter().chain(&self.filters_of_keys) {
            // What an earlier run has said is not true of this one.
            filter.update(lit(true))?;
        }
        let space = operator_space(context, "hash join")?;
        let outputs = self.planned.right.output_partitioning().partition_count();
        let metrics = JoinMetrics::new(&self.metrics, 0);
        let destage = context.session_config().get_extension::<DestagePolicy>();
        let destage = destage.map_or_else(DestagePolicy::default, |policy| *policy);
        let (estimate, ranges) = (self.estimate, self.requested_key_ranges()?);
        let metrics = (metrics, HashJoinMetrics::new(&self.metrics));
        let state = JoinState::new(spec, context.memory_pool(), space, metrics, destage, estimate, &ranges);
        let inputs = execute_stream_partitioned(Arc::clone(&self.planned.left), Arc::clone(context))?;
        let build = build(Arc::clone(&state), inputs, self.publication()?);
        Ok(Execution { state, workers: Workers::new(outputs), build_done: build_done(build) })
    }

    /// The ranges of keys whose values a filter on the probe side asks for.
    fn requested_key_ranges(&self) -> Result<Vec<Option<KeyRange>>> {
        if self.filter.is_none() {
            return Ok(Vec::new());
        }
        let mut ranges = self.key_ranges.clone();
        if let [_] = ranges.as_slice() {
            return Ok(ranges);
        }
        for (number, range) in ranges.iter_mut().enumerate().filter(|(_, range)| range.is_some()) {
            let asked = match self.filters_of_keys.get(number) {
                Some(filter) => is_referenced(filter, &self.planned.right)?,
                None => false,
            };
            *range = range.filter(|_| asked);
        }
        Ok(ranges)
    }

    fn publication(&self) -> Result<Option<Publication>> {
        let Some(filter) = &self.filter else { return Ok(None) };
        let build_schema = self.planned.left.schema();
        let types = self.planned.on.iter().map(|(build, _)| build.data_type(&build_schema));
        Ok(Some(Publication {
            filter: Arc::clone(filter),
            filters_of_keys: self.filters_of_keys.clone(),
            types: types.collect::<Result<_>>()?,
            keys: self.planned.on.iter().map(|(_, probe)| Arc::clone(probe)).collect(),
            null_equality: self.planned.null_equality,
            null_aware: self.planned.null_aware,
            probe_schema: self.planned.right.schema(),
        }))
    }
}

/// Puts this operator where the top of `plan`, or the join below the projection at its top, is DataFusion's.
pub fn replace_hash_join(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return Ok(Arc::new(HybridHashJoinExec::try_new(join)?));
    }
    if plan.is::<ProjectionExec>() {
        let children = plan.children().into_iter().cloned().map(replace_hash_join).collect::<Result<_>>()?;
        return plan
            .replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute));
    }
    Ok(plan)
}

/// What it takes to send a filter to the probe side.
struct Publication {
    filter: Arc<DynamicFilterPhysicalExpr>,
    filters_of_keys: Vec<Arc<DynamicFilterPhysicalExpr>>,
    types: Vec<arrow::datatypes::DataType>,
    keys: Vec<PhysicalExprRef>,
    null_equality: NullEquality,
    null_aware: bool,
    probe_schema: SchemaRef,
}

/// Consumes the build side from all its streams at once.
async fn build(
    state: Arc<JoinState>,
    inputs: Vec<SendableRecordBatchStream>,
    publication: Option<Publication>,
) -> Result<()> {
    let mut tasks = JoinSet::new();
    for input in inputs {
        let bounds = publication.as_ref().map(|publication| BuildBounds::new(&publication.types));
        tasks.spawn(inherited(Arc::clone(&state).take_build_input(input, bounds)));
    }
    let mut bounds: Option<BuildBounds> = None;
    while let Some(done) = tasks.join_next().await {
        let seen = done.map_err(|error| DataFusionError::External(Box::new(error)))??;
        match (&mut bounds, seen) {
            (Some(bounds), Some(seen)) => bounds.merge(seen)?,
            (bounds, seen) => *bounds = seen,
        }
    }
    state.finish_build().await?;
    if let (Some(mut bounds), Some(to)) = (bounds, publication) {
        let may_match = Arc::new(KeyFilter::new(to.keys.clone(), &state));
        let (equality, null_aware) = (to.null_equality, to.null_aware);
        for (number, (filter, key)) in to.filters_of_keys.iter().zip(&to.keys).enumerate() {
            let may_match = Arc::new(KeyFilter::of_one(Arc::clone(key), number, &state));
            filter.update(bounds.of_key(number, key, equality, may_match)?)?;
            filter.mark_complete();
        }
        bounds.publish(&to.filter, &to.keys, equality, null_aware, &to.probe_schema, may_match)?;
    }
    Ok(())
}

impl fmt::Debug for HybridHashJoinExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HybridHashJoinExec").field("planned", &self.planned).finish_non_exhaustive()
    }
}

impl DisplayAs for HybridHashJoinExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let planned = &self.planned;
        let rows = |rows: Option<usize>| rows.map_or_else(|| "?".to_owned(), |rows| rows.to_string());
        let on: Vec<String> = planned.on.iter().map(|(left, right)| format!("({left}, {right})")).collect();
        match format {
            DisplayFormatType::TreeRender => {
                writeln!(f, "join_type={:?}", planned.join_type)?;
                writeln!(f, "on={}", on.join(", "))?;
            }
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "HybridHashJoinExec: join_type={:?}, on=[{}]", planned.join_type, on.join(", "))?;
                if let Some(filter) = &planned.filter {
                    write!(f, ", filter={}", filter.expression())?;
                }
                if planned.projection.is_some() {
                    let names: Vec<String> =
                        self.schema().fields().iter().map(|field| field.name().clone()).collect();
                    write!(f, ", projection=[{}]", names.join(", "))?;
                }
                if planned.null_equality == NullEquality::NullEqualsNull {
                    write!(f, ", nulls_equal")?;
                }
                if planned.null_aware {
                    write!(f, ", null_aware")?;
                }
                let (build, probe) = (rows(self.estimate.build_rows), rows(self.estimate.probe_rows));
                write!(f, ", estimated_rows=[build {build}, probe {probe}]")?;
                if let Some(estimate) = self.late_estimate.get() {
                    write!(f, ", estimated=[{estimate}]")?;
                }
            }
        }
        Ok(())
    }
}

impl ExecutionPlan for HybridHashJoinExec {
    fn name(&self) -> &'static str {
        "HybridHashJoinExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.planned.children()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        // Rows of spilled partitions come after all others.
        vec![false, false]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![true, true]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.planned.apply_expressions(f)
    }

    fn dynamic_expressions_produced(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        let of_keys = self.filters_of_keys.iter().map(|filter| Arc::clone(filter) as Arc<dyn PhysicalExpr>);
        self.planned.dynamic_expressions_produced().into_iter().chain(of_keys).collect()
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
        Ok(Arc::new(match options.children_properties {
            ChildrenPropertiesMode::Keep => self.over_alike(children)?,
            ChildrenPropertiesMode::Recompute => {
                let planned = self.planned.builder().recompute_properties();
                self.renewed(&planned.with_new_children(children)?.build()?)?
            }
        }))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.renewed(&self.planned)?))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let execution = self.execution(&context)?;
        let input = self.planned.right.execute(partition, context)?;
        let metrics = JoinMetrics::new(&self.metrics, partition);
        let baseline = metrics.baseline.clone();
        let stream = output(execution.state, execution.workers, execution.build_done, input, metrics);
        Ok(output_stream(stream, self.schema(), baseline))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn try_swapping_with_projection(
        &self,
        projection: &ProjectionExec,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        self.planned.try_swapping_with_projection(projection)?.map(replace_hash_join).transpose()
    }

    fn gather_filters_for_pushdown(
        &self,
        phase: FilterPushdownPhase,
        parent_filters: Vec<Arc<dyn PhysicalExpr>>,
        config: &ConfigOptions,
    ) -> Result<FilterDescription> {
        // Which side a filter from above belongs to is not found by names, as this would do.
        let own = self.planned.gather_filters_for_pushdown(phase, Vec::new(), config)?.self_filters();
        Ok(with_filters_of_keys(&self.planned, own).into_iter().fold(
            FilterDescription::new(),
            |sent, own| {
                sent.with_child(
                    ChildFilterDescription::all_unsupported(&parent_filters).with_self_filters(own),
                )
            },
        ))
    }

    fn handle_child_pushdown_result(
        &self,
        phase: FilterPushdownPhase,
        child_pushdown_result: ChildPushdownResult,
        config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let own = child_pushdown_result.self_filters.get(1).into_iter().flatten().skip(1);
        let of_key = |sent: &PushedDownPredicate| {
            let predicate: Arc<dyn PhysicalExpr> = Arc::clone(&sent.predicate);
            Arc::downcast::<DynamicFilterPhysicalExpr>(predicate).ok()
        };
        let filters_of_keys: Vec<_> = own.filter_map(of_key).collect();
        let mut propagation =
            self.planned.handle_child_pushdown_result(phase, child_pushdown_result, config)?;
        if let Some(node) = propagation.updated_node.take() {
            let updated = match node.downcast_ref::<HashJoinExec>() {
                Some(join) => Arc::new(Self { filters_of_keys, ..self.renewed(join)? }),
                None => replace_hash_join(node)?,
            };
            propagation.updated_node = Some(updated);
        }
        Ok(propagation)
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        match (partition, self.statistics.get()) {
            (None, Some(_)) => vec![ChildStats::Skip; 2],
            _ => self.planned.child_stats_requests(partition),
        }
    }

    fn statistics_from_inputs(
        &self,
        input_stats: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        if args.partition().is_some() {
            return self.own_statistics(input_stats, args);
        }
        if let Some(known) = self.statistics.get() {
            return Ok(Arc::clone(known));
        }
        let statistics = self.own_statistics(input_stats, args)?;
        Ok(Arc::clone(self.statistics.get_or_init(|| statistics)))
    }
}
