//! From a session's plan to one with fetches, and to their operators.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::Result;
use datafusion::common::format::ExplainFormat;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Explain, LogicalPlan, UserDefinedLogicalNode};
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::{OptimizerContext, OptimizerRule as _};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use nandina_exec::fetch::{FetchExec, FetchedTable, RowOrder};

use super::algorithm::{JoinAlgorithm, SortAlgorithm};
use super::choice::{Chosen, chosen};
use super::explained::{self, Weighed};
use super::joins::JoinFetches;
use super::node::LateFetch;
use super::row_ids::can_be_named;
use super::sorts::SortFetches;
use super::spooled;
use crate::ForgetKeys;

/// What the choice between early and late depends on, beside the plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances {
    pub sort_algorithm: SortAlgorithm,
    pub join_algorithm: JoinAlgorithm,
    /// The session's limit.
    pub memory_bytes: Option<usize>,
}

impl Circumstances {
    fn of(session: &dyn Session) -> Self {
        let config = session.config();
        let memory_bytes = match session.runtime_env().memory_pool.memory_limit() {
            MemoryLimit::Finite(bytes) => Some(bytes),
            MemoryLimit::Infinite | MemoryLimit::Unknown => None,
        };
        Self {
            sort_algorithm: config.get_extension::<SortAlgorithm>().map_or_else(Default::default, |it| *it),
            join_algorithm: config.get_extension::<JoinAlgorithm>().map_or_else(Default::default, |it| *it),
            memory_bytes,
        }
    }
}

/// Operators for a plan, in which columns are read late where that is cheaper, or asked for.
pub(crate) async fn planned_late(
    plan: LogicalPlan,
    planner: &DefaultPhysicalPlanner,
    session: &dyn Session,
) -> Result<Arc<dyn ExecutionPlan>> {
    match &plan {
        LogicalPlan::Explain(explain) => explained(explain, planner, session).await,
        _ => {
            let late = with_late_columns(plan.clone(), Circumstances::of(session), None)?;
            Ok(chosen_plan(plan, late, planner, session).await?.physical)
        }
    }
}

/// What EXPLAIN shows: texts of plans, with estimates where there was something to choose.
async fn explained(
    explain: &Explain,
    planner: &DefaultPhysicalPlanner,
    session: &dyn Session,
) -> Result<Arc<dyn ExecutionPlan>> {
    let explaining =
        |plan: LogicalPlan| LogicalPlan::Explain(Explain { plan: Arc::new(plan), ..explain.clone() });
    let asked = explain.plan.as_ref();
    let late = with_late_columns(asked.clone(), Circumstances::of(session), None)?;
    let as_it_is = explaining(late.plan.clone());
    if late.joins == 0 && late.early_sorts.is_empty() && !sorts_rows(asked)? {
        return planner.create_physical_plan(&as_it_is, session).await;
    }
    // EXPLAIN shows an error of planning in its own way.
    let Ok(chosen) = chosen_plan(asked.clone(), late, planner, session).await else {
        return planner.create_physical_plan(&as_it_is, session).await;
    };
    let texts = planner.create_physical_plan(&explaining(chosen.logical), session).await?;
    if explain.explain_format != ExplainFormat::Indent {
        return Ok(texts);
    }
    let mut options = session.config_options().explain.clone();
    options.show_statistics = explain.show_statistics.unwrap_or(options.show_statistics);
    Ok(explained::with_text_of(texts, &chosen.physical, &options))
}

/// Whether all rows of something are sorted, for `ORDER BY` or for a window.
fn sorts_rows(plan: &LogicalPlan) -> Result<bool> {
    let mut sorts = false;
    plan.apply_with_subqueries(|part| {
        sorts |= match part {
            LogicalPlan::Sort(sort) => sort.fetch.is_none(),
            LogicalPlan::Window(_) => true,
            _ => false,
        };
        Ok(if sorts { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(sorts)
}

/// A query as it is run.
struct ChosenPlan {
    logical: LogicalPlan,
    physical: Arc<dyn ExecutionPlan>,
}

/// `late` is the plan with all fetches that there could be.
async fn chosen_plan(
    plan: LogicalPlan,
    late: Late,
    planner: &DefaultPhysicalPlanner,
    session: &dyn Session,
) -> Result<ChosenPlan> {
    let circumstances = Circumstances::of(session);
    let physical = planner.create_physical_plan(&late.plan, session).await?;
    let (chosen, mut early) = chosen(&physical, circumstances.join_algorithm, circumstances.memory_bytes);
    let sorts = chosen.values().any(|fetch| fetch.order == RowOrder::OfTable);
    let (late, physical) = match chosen.len() == late.joins && !sorts {
        true => (late, physical),
        false => {
            let late = with_late_columns(plan, circumstances, Some(&chosen))?;
            let physical = planner.create_physical_plan(&late.plan, session).await?;
            (late, physical)
        }
    };
    early.extend(late.early_sorts);
    spooled::choose(&physical, circumstances, session);
    explained::note(&physical, &chosen, early);
    Ok(ChosenPlan { logical: late.plan, physical })
}

struct Late {
    plan: LogicalPlan,
    /// How many fetches above joins there could be.
    joins: usize,
    /// What was expected of sorts that nothing is fetched above.
    early_sorts: Vec<Weighed>,
}

/// The plan with fetches: of those above joins, with the wanted ones, or with all.
fn with_late_columns(
    plan: LogicalPlan,
    circumstances: Circumstances,
    wanted: Option<&Chosen>,
) -> Result<Late> {
    if !can_be_named(&plan)? {
        return Ok(Late { plan, joins: 0, early_sorts: Vec::new() });
    }
    let mut joins = JoinFetches::new(circumstances.join_algorithm, wanted);
    let mut sorts = SortFetches::new(circumstances);
    let late = sorts.above_sorts(plan)?;
    let late = late.transform_data(|plan| joins.above_joins(plan))?;
    let plan = if late.transformed {
        // Below the fetches there are columns now that nothing needs.
        let prune = ForgetKeys(Arc::new(OptimizeProjections::new()));
        prune.rewrite(late.data, &OptimizerContext::new())?.data
    } else {
        late.data
    };
    Ok(Late { plan, joins: joins.numbered(), early_sorts: sorts.early() })
}

pub(crate) struct LateFetchPlanner;

#[async_trait]
impl ExtensionPlanner for LateFetchPlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        _session: &dyn Session,
        _context: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let (Some(fetch), [input]) = (node.as_any().downcast_ref::<LateFetch>(), physical_inputs) else {
            return Ok(None);
        };
        let schema = fetch.input.schema();
        let tables = fetch.tables.iter().map(|late| {
            let columns = late.columns.iter().map(|column| (column.column, Arc::clone(&column.field)));
            Ok(FetchedTable {
                table: late.table.clone(),
                row_ids: schema.index_of_column(&late.row_ids)?,
                columns: columns.collect(),
            })
        });
        let tables: Vec<FetchedTable> = tables.collect::<Result<_>>()?;
        let executed = FetchExec::try_new(Arc::clone(input), tables.into(), fetch.order)?;
        fetch.estimate.iter().for_each(|estimate| executed.show_estimate(estimate.clone()));
        Ok(Some(Arc::new(executed.with_candidate(fetch.candidate))))
    }
}
