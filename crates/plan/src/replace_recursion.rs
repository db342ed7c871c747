//! Puts Nandina's recursion where DataFusion planned its own.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use nandina_exec::recursion::SpillingRecursiveQueryExec;

/// Replaces `RecursiveQueryExec`, and the scans of its rows, by [`SpillingRecursiveQueryExec`], unless its columns are
/// of types that cannot be spilled. Of nested ones the inner is replaced first: a name means the innermost recursion
/// that has it.
#[derive(Debug)]
pub struct ReplaceRecursion;

impl PhysicalOptimizerRule for ReplaceRecursion {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let replace = |node: Arc<dyn ExecutionPlan>| {
            let Some(planned) = node.downcast_ref::<RecursiveQueryExec>() else {
                return Ok(Transformed::no(node));
            };
            Ok(match SpillingRecursiveQueryExec::replacing(planned)? {
                Some(recursion) => Transformed::yes(Arc::new(recursion) as Arc<dyn ExecutionPlan>),
                None => Transformed::no(node),
            })
        };
        plan.transform_up(replace).data()
    }

    fn name(&self) -> &str {
        "replace_recursion"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
