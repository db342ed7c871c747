//! From a session's plan to one with fetches, and to their operators.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::Result;
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{LogicalPlan, UserDefinedLogicalNode};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};
use nandina_exec::fetch::{FetchExec, FetchedTable};

use super::algorithm::SortAlgorithm;
use super::node::LateFetch;
use super::sorts::{Circumstances, fetch_late};

/// The plan with columns that are read late, as the session's settings and memory have it.
pub(crate) fn with_late_columns(plan: LogicalPlan, session: &dyn Session) -> Result<LogicalPlan> {
    let sort_algorithm = session.config().get_extension::<SortAlgorithm>();
    let memory_bytes = match session.runtime_env().memory_pool.memory_limit() {
        MemoryLimit::Finite(bytes) => Some(bytes),
        MemoryLimit::Infinite | MemoryLimit::Unknown => None,
    };
    let sort_algorithm = sort_algorithm.map_or(SortAlgorithm::Auto, |chosen| *chosen);
    fetch_late(plan, Circumstances { sort_algorithm, memory_bytes })
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
        Ok(Some(Arc::new(FetchExec::try_new(Arc::clone(input), tables.into())?)))
    }
}
