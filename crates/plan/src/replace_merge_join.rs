//! Joins on equal keys are hash joins, whatever the settings prefer.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode, SortMergeJoinExec};

/// Replaces every `SortMergeJoinExec` by a `HashJoinExec`.
///
/// The planner chooses merge joins where `datafusion.optimizer.prefer_hash_join` is off, which is advice for engines
/// whose hash join fails beyond memory.
#[derive(Debug)]
pub struct ReplaceMergeJoin;

impl PhysicalOptimizerRule for ReplaceMergeJoin {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let replace = |node: Arc<dyn ExecutionPlan>| {
            let Some(join) = node.downcast_ref::<SortMergeJoinExec>() else {
                return Ok(Transformed::no(node));
            };
            let hash_join: Arc<dyn ExecutionPlan> = Arc::new(HashJoinExec::try_new(
                Arc::clone(join.left()),
                Arc::clone(join.right()),
                join.on().to_vec(),
                join.filter().clone(),
                &join.join_type(),
                None,
                PartitionMode::Auto,
                join.null_equality(),
                false,
            )?);
            Ok(Transformed::yes(hash_join))
        };
        plan.transform_up(replace).data()
    }

    fn name(&self) -> &str {
        "replace_merge_join"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
