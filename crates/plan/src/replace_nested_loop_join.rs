//! Puts the block nested loop join where DataFusion planned joins without equality keys.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{CrossJoinExec, NestedLoopJoinExec};
use nandina_exec::nested_loop_join::BlockNestedLoopJoinExec;

/// Replaces every `NestedLoopJoinExec` and `CrossJoinExec` by a [`BlockNestedLoopJoinExec`] with the same build side.
#[derive(Debug)]
pub struct ReplaceNestedLoopJoin;

/// Does so before orders are chosen, where DataFusion takes for constant what is null in rows without a match.
#[derive(Debug)]
pub struct ReplaceMistakenLoopJoin;

impl PhysicalOptimizerRule for ReplaceMistakenLoopJoin {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let replace = |node: Arc<dyn ExecutionPlan>| match node.downcast_ref::<NestedLoopJoinExec>() {
            Some(join) if BlockNestedLoopJoinExec::knows_better(join)? => {
                let ours: Arc<dyn ExecutionPlan> = Arc::new(BlockNestedLoopJoinExec::try_new(join)?);
                Ok(Transformed::yes(ours))
            }
            _ => Ok(Transformed::no(node)),
        };
        plan.transform_up(replace).data()
    }

    fn name(&self) -> &str {
        "replace_mistaken_loop_join"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl PhysicalOptimizerRule for ReplaceNestedLoopJoin {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let replace = |node: Arc<dyn ExecutionPlan>| {
            let ours = if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
                BlockNestedLoopJoinExec::try_new(join)?
            } else if let Some(join) = node.downcast_ref::<CrossJoinExec>() {
                BlockNestedLoopJoinExec::try_new_cross(join)?
            } else {
                return Ok(Transformed::no(node));
            };
            let ours: Arc<dyn ExecutionPlan> = Arc::new(ours);
            Ok(Transformed::yes(ours))
        };
        plan.transform_up(replace).data()
    }

    fn name(&self) -> &str {
        "replace_nested_loop_join"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
