//! Keys of groups that follow from others, and cannot be computed above the aggregation under a name of their own.
//!
//! `GROUP BY t, CAST(t AS DATE)` needs `t` alone as a key. DataFusion's rule computes the rest in a projection above, but a
//! cast bears the name of what it casts, so that the projection has two columns of one name and is refused, and the query
//! with it.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// A rule that leaves out keys, but for those.
#[derive(Debug)]
pub struct KeepGroupKeys(pub Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for KeepGroupKeys {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match &plan {
            LogicalPlan::Aggregate(aggregate) if !have_names_of_their_own(&aggregate.group_expr) => {
                Ok(Transformed::no(plan))
            }
            _ => self.0.rewrite(plan, config),
        }
    }
}

fn have_names_of_their_own(keys: &[Expr]) -> bool {
    let mut names = HashSet::new();
    keys.iter().all(|key| names.insert(key.schema_name().to_string()))
}
