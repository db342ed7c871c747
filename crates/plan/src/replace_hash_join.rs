//! Puts the spilling join where DataFusion planned its own.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExec;
use nandina_exec::join::{HybridHashJoinExec, replace_hash_join};

use crate::choose_build_side::with_better_build_side;

/// Replaces every `HashJoinExec` by a [`HybridHashJoinExec`], from the leaves up: its estimates, which are better than
/// those of the join it replaces, decide about the build sides of those above.
#[derive(Debug)]
pub struct ReplaceHashJoin;

impl PhysicalOptimizerRule for ReplaceHashJoin {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let replace = |node: Arc<dyn ExecutionPlan>| match node.downcast_ref::<HashJoinExec>() {
            Some(join) => match with_better_build_side(join)? {
                Some(swapped) => Ok(Transformed::yes(replace_hash_join(swapped)?)),
                None => Ok(Transformed::yes(Arc::new(HybridHashJoinExec::try_new(join)?) as _)),
            },
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
