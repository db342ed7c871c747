//! DataFusion's planner with spools.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::Result;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{LogicalPlan, UserDefinedLogicalNode};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use nandina_exec::spool::SpoolExec;

use super::common::spool_common_parts;
use super::node::Spool;

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
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(SpoolPlanner)]);
        planner.create_physical_plan(&spool_common_parts(logical_plan)?, session).await
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
        // Columns that cannot be spilled are computed as often as they are read.
        Ok(Some(match SpoolExec::try_new(spool.number, Arc::clone(input)) {
            Ok(spool) => Arc::new(spool),
            Err(_) => Arc::clone(input),
        }))
    }
}
