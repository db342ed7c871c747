//! Puts the spilling join where DataFusion planned its own.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExec;
use nandina_exec::join::HybridHashJoinExec;

/// Replaces every `HashJoinExec` by a [`HybridHashJoinExec`] with the same build side.
#[derive(Debug)]
pub struct ReplaceHashJoin;

impl PhysicalOptimizerRule for ReplaceHashJoin {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let replace = |node: Arc<dyn ExecutionPlan>| match node.downcast_ref::<HashJoinExec>() {
            Some(join) => {
                let join: Arc<dyn ExecutionPlan> = Arc::new(HybridHashJoinExec::try_new(join)?);
                Ok(Transformed::yes(join))
            }
            None => Ok(Transformed::no(node)),
        };
        plan.transform_up(replace).data()
    }

    fn name(&self) -> &str {
        "replace_hash_join"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
