//! The sort as a node of a DataFusion plan.

use std::fmt;
use std::sync::{Arc, OnceLock};

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result, Statistics};
use datafusion::config::ConfigOptions;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions,
};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterDescription, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, PlanProperties,
};

use super::metrics::SortMetrics;
use super::output::output;
use super::spec::SortSpec;
use super::spooled::{SpooledColumns, SpooledSort};
use super::state::SortState;
use super::threshold::Threshold;
use crate::execution::SharedExecution;
use crate::fetch::FetchEstimate;
use crate::plan_properties::{has_constants_of_partitions, mixing_partitions};
use crate::spill::operator_space;

/// A sort that spills, or the first rows of one.
///
/// Stands where DataFusion's `SortExec` stood: every input partition sorted by itself, or all of them to one output,
/// for which DataFusion needs a `SortPreservingMergeExec` above.
pub struct ExternalSortExec {
    /// The same sort as DataFusion would do it. It answers what planning asks.
    planned: Arc<SortExec>,
    properties: Arc<PlanProperties>,
    /// What the planner chose for this sort.
    chosen: Chosen,
    metrics: ExecutionPlanMetricsSet,
    shared: SharedExecution<Shared>,
}

/// What the planner decides when the plan is complete.
#[derive(Clone, Debug, Default)]
struct Chosen {
    /// What was expected of this sort, and of the way that was not chosen.
    estimate: OnceLock<FetchEstimate>,
    /// Whether columns that the sort does not look at are written once and fetched for the result.
    spools: OnceLock<()>,
}

/// What the outputs of an execution share: the first rows of all are wanted, not of each.
#[derive(Clone, Debug)]
struct Shared {
    spec: Arc<SortSpec>,
    threshold: Option<Arc<Threshold>>,
}

impl ExternalSortExec {
    /// The sort that `planned` describes. `None` if there are reasons to leave it to DataFusion: its input is in order
    /// already, or has columns that keys or pages cannot be made of.
    pub fn replacing(planned: &SortExec) -> Result<Option<Self>> {
        let input = planned.input();
        if input.equivalence_properties().ordering_satisfy(planned.expr().clone())? {
            return Ok(None);
        }
        if let Err(reason) = SortSpec::try_new(planned.expr().clone(), input.schema(), 1, None) {
            log::debug!("a sort is left to DataFusion: {reason}");
            return Ok(None);
        }
        Ok(Some(Self::of(planned.clone())))
    }

    /// What `merge` makes of the sorted partitions below it as one sort. `None` if that is not what it does.
    pub fn merging(merge: &SortPreservingMergeExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let (projection, sort) = match merge.input().downcast_ref::<ProjectionExec>() {
            // Columns in another order: the sort is below.
            Some(projection) if projection.expr().iter().all(|column| column.expr.is::<Column>()) => {
                (Some(projection), projection.input())
            }
            Some(_) => return Ok(None),
            None => (None, merge.input()),
        };
        let Some(of_all) = Self::of_all(sort, merge.fetch()) else { return Ok(None) };
        let projected = |sort: SortExec| -> Result<Arc<dyn ExecutionPlan>> {
            let sort = Arc::new(Self::of(sort));
            Ok(match projection {
                Some(projection) => Arc::new(ProjectionExec::try_new(projection.expr().to_vec(), sort)?),
                None => sort,
            })
        };
        let merged = projected(of_all.clone())?;
        if merged.equivalence_properties().ordering_satisfy(merge.expr().clone())? {
            return Ok(Some(merged));
        }
        // Partitions were not sorted by expressions that are constant within each, and not the same in all.
        let order = match projection {
            Some(projection) => below(projection, merge.expr())?,
            None => merge.expr().clone(),
        };
        let of_all = SortExec::new(order, Arc::clone(of_all.input())).with_fetch(of_all.fetch());
        projected(of_all).map(Some)
    }

    /// The sort of every partition as a sort of all of them, of whose rows the first `fetch` are wanted.
    fn of_all(sort: &Arc<dyn ExecutionPlan>, fetch: Option<usize>) -> Option<SortExec> {
        let planned = &sort.downcast_ref::<Self>()?.planned;
        let fetch = match (fetch, planned.fetch()) {
            (Some(of_all), Some(of_each)) if of_all > of_each => return None,
            (None, Some(_)) => return None,
            (of_all, _) => of_all,
        };
        let of_all = planned.with_fetch(fetch).with_preserve_partitioning(false);
        planned.preserve_partitioning().then_some(of_all)
    }

    /// Has it show what was expected of it, and of the way that was not chosen.
    pub fn show_estimate(&self, estimate: FetchEstimate) {
        self.chosen.estimate.get_or_init(|| estimate);
    }

    /// The columns that it could write once and fetch for the result. `None` if there are none, or only the first rows are
    /// wanted.
    pub fn spoolable(&self) -> Option<SpooledColumns> {
        let columns = SpooledColumns::of(self.planned.expr(), &self.schema());
        (self.planned.fetch().is_none() && !columns.spooled.is_empty()).then_some(columns)
    }

    /// Has it do so.
    pub fn spool(&self) {
        assert!(self.spoolable().is_some(), "a sort spools columns that it does not look at, for all rows");
        self.chosen.spools.get_or_init(|| ());
    }

    /// The node that this one replaces.
    pub fn planned(&self) -> &SortExec {
        &self.planned
    }

    fn of(planned: SortExec) -> Self {
        let inputs = planned.input().output_partitioning().partition_count();
        let properties = match planned.preserve_partitioning() || inputs == 1 {
            true => Arc::clone(planned.properties()),
            false => Arc::new(mixing_partitions(planned.properties())),
        };
        Self {
            planned: Arc::new(planned),
            properties,
            chosen: Chosen::default(),
            metrics: ExecutionPlanMetricsSet::new(),
            shared: SharedExecution::default(),
        }
    }

    /// The same for a plan of DataFusion's that was made out of `planned`.
    fn like(plan: &Arc<dyn ExecutionPlan>) -> Result<Self> {
        let planned = plan
            .downcast_ref::<SortExec>()
            .ok_or_else(|| DataFusionError::Internal("a sort with a new input is no sort".to_owned()))?;
        Ok(Self::of(planned.clone()))
    }

    fn outputs(&self) -> usize {
        self.planned.properties().output_partitioning().partition_count()
    }

    fn shared(&self, context: &TaskContext) -> Result<Shared> {
        self.shared.get(self.outputs(), || {
            let (ordering, fetch) = (self.planned.expr(), self.planned.fetch());
            let batch_rows = context.session_config().batch_size();
            let spec = Arc::new(SortSpec::try_new(ordering.clone(), self.schema(), batch_rows, fetch)?);
            let input = self.planned.input().equivalence_properties();
            // The first rows of one output may come after all of another where the order leaves out what differs
            // between them.
            let comparable = self.outputs() == 1 || !has_constants_of_partitions(input);
            let threshold = fetch.filter(|_| comparable).map(|_| {
                let (sorted_by, _) = input.extract_common_sort_prefix(ordering.clone())?;
                let filter = self.planned.dynamic_expressions_produced().pop();
                Threshold::try_new(Arc::clone(&spec), sorted_by, filter, self.outputs()).map(Arc::new)
            });
            Ok(Shared { threshold: threshold.transpose()?, spec })
        })
    }
}

/// `order`, which is of what `projection` makes of columns, as one of those columns.
fn below(projection: &ProjectionExec, order: &LexOrdering) -> Result<LexOrdering> {
    let columns = projection.expr();
    let sort_keys = order.iter().map(|key| {
        let below = Arc::clone(&key.expr).transform_up(|part| {
            let column = part.downcast_ref::<Column>().and_then(|column| columns.get(column.index()));
            let column = column.map(|column| Arc::clone(&column.expr));
            Ok(column.map_or_else(|| Transformed::no(part), Transformed::yes))
        });
        Ok(PhysicalSortExpr::new(below.data()?, key.options))
    });
    LexOrdering::new(sort_keys.collect::<Result<Vec<_>>>()?)
        .ok_or_else(|| DataFusionError::Internal("a merge by nothing".to_owned()))
}

impl fmt::Debug for ExternalSortExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalSortExec").field("planned", &self.planned).finish_non_exhaustive()
    }
}

impl DisplayAs for ExternalSortExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        struct Planned<'a>(&'a SortExec);
        impl fmt::Display for Planned<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt_as(DisplayFormatType::Default, f)
            }
        }
        match format {
            DisplayFormatType::TreeRender => self.planned.fmt_as(format, f),
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                let text = Planned(&self.planned).to_string();
                write!(f, "ExternalSortExec: {}", text.strip_prefix("SortExec: ").unwrap_or(&text))?;
                if self.chosen.spools.get().is_some() {
                    write!(f, ", columns=spooled")?;
                }
                let estimate = self.chosen.estimate.get();
                estimate.map_or(Ok(()), |estimate| write!(f, ", estimated=[{estimate}]"))
            }
        }
    }
}

impl ExecutionPlan for ExternalSortExec {
    fn name(&self) -> &'static str {
        "ExternalSortExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.planned.children()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        // DataFusion's node asks for a single partition where it is to give one.
        InputDistributionRequirements::new(vec![Distribution::UnspecifiedDistribution])
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        self.planned.benefits_from_input_partitioning()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.planned.apply_expressions(f)
    }

    fn dynamic_expressions_produced(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        self.planned.dynamic_expressions_produced()
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
        let mut sort = Self::like(&Arc::clone(&self.planned).replace_children(children, options)?)?;
        if options.children_properties == ChildrenPropertiesMode::Keep {
            sort.properties = Arc::clone(&self.properties);
        }
        sort.chosen = self.chosen.clone();
        Ok(Arc::new(sort))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let sort = Self::like(&Arc::clone(&self.planned).reset_state()?)?;
        Ok(Arc::new(Self { chosen: self.chosen.clone(), ..sort }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.planned.input();
        let inputs = match self.planned.preserve_partitioning() {
            true => partition..partition + 1,
            false => 0..input.output_partitioning().partition_count(),
        };
        let inputs = inputs.map(|input_partition| input.execute(input_partition, Arc::clone(&context)));
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        if self.chosen.spools.get().is_some() {
            let outputs = self.outputs().max(1);
            let tasks = context.session_config().target_partitions().div_ceil(outputs);
            let (ordering, schema) = (self.planned.expr(), self.schema());
            let sort = SpooledSort { ordering, schema, metrics: &self.metrics, partition, tasks, outputs };
            return sort.output(inputs, &context);
        }
        let Shared { spec, threshold } = self.shared(&context)?;
        let space = operator_space(&context, "sort")?;
        let metrics = SortMetrics::new(&self.metrics, partition);
        let state = SortState::new(spec, context.memory_pool(), space, threshold, metrics);
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), output(state, inputs))))
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
        Some(Arc::new(Self::of(self.planned.with_fetch(limit))))
    }

    fn fetch(&self) -> Option<usize> {
        self.planned.fetch()
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
        phase: FilterPushdownPhase,
        result: ChildPushdownResult,
        config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let mut propagation = self.planned.handle_child_pushdown_result(phase, result, config)?;
        if let Some(sort) = &propagation.updated_node {
            propagation.updated_node = Some(Arc::new(Self::like(sort)?));
        }
        Ok(propagation)
    }
}
