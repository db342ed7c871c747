//! DataFusion's planner with spools.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::Result;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{LogicalPlan, UserDefinedLogicalNode};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use nandina_exec::spool::SpoolExec;

use super::common::spool_common_parts;
use super::node::Spool;
use super::volatile;
use crate::changed_rows::ChangedRowsPlanner;
use crate::late::{LateFetchPlanner, planned_late};

/// Makes physical plans of optimised logical ones, in which equal parts are [spooled](super).
#[derive(Debug)]
pub struct Planner;

#[async_trait]
impl QueryPlanner for Planner {
    async fn create_physical_plan(
        &self,
        logical_plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let extensions: Vec<Arc<dyn ExtensionPlanner + Send + Sync>> =
            vec![Arc::new(SpoolPlanner), Arc::new(LateFetchPlanner), Arc::new(ChangedRowsPlanner)];
        let planner = DefaultPhysicalPlanner::with_extension_planners(extensions);
        planned_late(spool_common_parts(logical_plan)?, &planner, session).await
    }
}

struct SpoolPlanner;

#[async_trait]
impl ExtensionPlanner for SpoolPlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        _session: &dyn Session,
        _context: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let (Some(spool), [input]) = (node.as_any().downcast_ref::<Spool>(), physical_inputs) else {
            return Ok(None);
        };
        if spool.number >= volatile::FIRST_NUMBER {
            return Ok(Some(Arc::new(SpoolExec::try_new(spool.number, Arc::clone(input))?)));
        }
        // An ordered input is computed as often as it is read, as the order would be lost; so is one with columns that
        // cannot be spilled.
        let spool = SpoolExec::try_new(spool.number, Arc::clone(input)).ok();
        let spool = spool.filter(|_| input.output_ordering().is_none());
        Ok(Some(spool.map_or_else(|| Arc::clone(input), |spool| Arc::new(spool) as _)))
    }
}
