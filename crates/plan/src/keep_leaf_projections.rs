//! Projections of parts of columns that stay where they are.
//!
//! DataFusion's `push_down_leaf_projections` moves the parts of structs and the like that a query wants towards the scan.
//! Where a column has two names, or a part has been moved before, it makes a projection of two columns of one name, and
//! fails. The plan is right without the move.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{DataFusionError, Result, SchemaError};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// A rule that moves projections, but for those.
#[derive(Debug)]
pub struct KeepLeafProjections(pub Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for KeepLeafProjections {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match self.0.rewrite(plan.clone(), config) {
            Err(error) if is_about_names(&error) => Ok(Transformed::no(plan)),
            moved => moved,
        }
    }
}

fn is_about_names(error: &DataFusionError) -> bool {
    match error {
        DataFusionError::SchemaError(error, _) => matches!(
            error.as_ref(),
            SchemaError::DuplicateUnqualifiedField { .. }
                | SchemaError::DuplicateQualifiedField { .. }
                | SchemaError::AmbiguousReference { .. }
        ),
        DataFusionError::Context(_, inner) => is_about_names(inner),
        _ => false,
    }
}
