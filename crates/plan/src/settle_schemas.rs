//! Lets joins know of the columns that a rule has added below them.
//!
//! DataFusion's `push_down_leaf_projections` adds columns to a join's inputs, in front of others, and leaves the join with
//! the schema that it had: columns are found at other columns' places then. One is missing, or is another one.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Lets schemas say again what comes from below.
#[derive(Debug)]
pub struct SettleSchemas;

/// What the names of columns begin with that `extract_leaf_expressions` makes.
const EXTRACTED: &str = "__datafusion_extracted";

impl OptimizerRule for SettleSchemas {
    fn name(&self) -> &str {
        "settle_schemas"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let may_have_more = matches!(plan, LogicalPlan::Join(_) | LogicalPlan::SubqueryAlias(_));
        if !may_have_more || !has_extracted(&plan) {
            return Ok(Transformed::no(plan));
        }
        let before = Arc::clone(plan.schema());
        let settled = plan.recompute_schema()?;
        let has_changed = before.as_ref() != settled.schema().as_ref();
        Ok(Transformed::new_transformed(settled, has_changed))
    }
}

fn has_extracted(plan: &LogicalPlan) -> bool {
    let is_extracted = |input: &&LogicalPlan| {
        input.schema().fields().iter().any(|field| field.name().starts_with(EXTRACTED))
    };
    plan.inputs().iter().any(is_extracted)
}
