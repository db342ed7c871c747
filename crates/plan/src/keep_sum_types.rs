//! Sums beside a single distinct aggregate, which keep their types.
//!
//! DataFusion's `single_distinct_aggregation_to_group_by` sums the groups of a distinct argument, and then these sums. The
//! sum of sums is of a wider type, if that of `INTEGER`s is a `BIGINT` and that of `BIGINT`s a decimal. Such aggregations
//! are left as they are: all but few have been planned by [`DistinctsToGroupingSets`](crate::DistinctsToGroupingSets).

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// A rule that plans distinct aggregates, but for those.
#[derive(Debug)]
pub struct KeepSumTypes(pub Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for KeepSumTypes {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if let LogicalPlan::Aggregate(aggregate) = &plan
            && has_sum_that_widens(aggregate)?
        {
            return Ok(Transformed::no(plan));
        }
        self.0.rewrite(plan, config)
    }
}

fn has_sum_that_widens(aggregate: &Aggregate) -> Result<bool> {
    for expr in &aggregate.aggr_expr {
        if let Expr::AggregateFunction(function) = expr
            && function.func.name() == "sum"
            && !function.params.distinct
        {
            let sum = expr.get_type(aggregate.input.schema())?;
            if function.func.return_type(std::slice::from_ref(&sum))? != sum {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
