//! Evaluates long conditions in shallow trees.
//!
//! Rules that move conditions put them together one after the other, so that thousands of terms make a tree of as many
//! levels. Evaluating it recurses as deep, on the small stack of a worker.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion::physical_expr::split_conjunction;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use nandina_exec::scan::all_of;

/// Shorter conditions stay as they are.
const LONG_CONDITION: usize = 32;

/// Makes both sides of the `AND`s of long conditions equally deep.
#[derive(Debug)]
pub struct BalanceConditions;

impl PhysicalOptimizerRule for BalanceConditions {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let Some(filter) = node.downcast_ref::<FilterExec>() else { return Ok(Transformed::no(node)) };
            let terms = split_conjunction(filter.predicate());
            if terms.len() < LONG_CONDITION {
                return Ok(Transformed::no(node));
            }
            let condition = all_of(terms.into_iter().cloned());
            let balanced = FilterExecBuilder::from(filter).with_predicate(condition).build()?;
            Ok(Transformed::yes(Arc::new(balanced) as _))
        })
        .data()
    }

    fn name(&self) -> &str {
        "balance_conditions"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
