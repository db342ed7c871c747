//! `RETURNING`: the rows that a statement has changed, as a part of a plan.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{DFSchemaRef, DataFusionError, Result};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};
use nandina_exec::rows::ChangedRowsExec;

/// Runs a statement that changes rows of a table which [returns](nandina_exec::rows::RowTableProvider::returning) them, and has
/// these rows as its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChangedRows {
    /// The columns of the rows that are returned; the last ones may be missing.
    pub schema: DFSchemaRef,
    pub change: LogicalPlan,
}

impl PartialOrd for ChangedRows {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.change.partial_cmp(&other.change).filter(|order| *order != Ordering::Equal || self == other)
    }
}

impl UserDefinedLogicalNodeCore for ChangedRows {
    fn name(&self) -> &str {
        "ChangedRows"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.change]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("ChangedRows")
    }

    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        match <[_; 1]>::try_from(inputs) {
            Ok([change]) => Ok(Self { schema: Arc::clone(&self.schema), change }),
            Err(_) => Err(DataFusionError::Internal("rows are returned of one statement".to_owned())),
        }
    }
}

pub(crate) struct ChangedRowsPlanner;

#[async_trait]
impl ExtensionPlanner for ChangedRowsPlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        _session: &dyn Session,
        _context: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let (Some(rows), [change]) = (node.as_any().downcast_ref::<ChangedRows>(), physical_inputs) else {
            return Ok(None);
        };
        let schema = Arc::clone(rows.schema.inner());
        Ok(Some(Arc::new(ChangedRowsExec::try_new(schema, Arc::clone(change))?)))
    }
}
