//! Puts the external sort where DataFusion planned its own.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use nandina_exec::sort::{ExternalSortExec, OrderedMergeExec};

/// Replaces every `SortExec` by an [`ExternalSortExec`], and the `SortPreservingMergeExec` right above one by a sort of
/// all partitions at once. Above what something else has sorted, it becomes an [`OrderedMergeExec`].
///
/// What is left to DataFusion are sorts of columns that cannot be spilled.
#[derive(Debug)]
pub struct ReplaceSort;

impl PhysicalOptimizerRule for ReplaceSort {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let replace = |node: Arc<dyn ExecutionPlan>| {
            let ours = if let Some(sort) = node.downcast_ref::<SortExec>() {
                ExternalSortExec::replacing(sort)?.map(|sort| Arc::new(sort) as Arc<dyn ExecutionPlan>)
            } else if let Some(merge) = node.downcast_ref::<SortPreservingMergeExec>() {
                ExternalSortExec::merging(merge)?
                    .or_else(|| Some(Arc::new(OrderedMergeExec::replacing(merge))))
            } else {
                None
            };
            Ok(ours.map_or_else(|| Transformed::no(node), Transformed::yes))
        };
        plan.transform_up(replace).data()
    }

    fn name(&self) -> &str {
        "replace_sort"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
