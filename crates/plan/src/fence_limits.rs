//! Keeps sorts above the limits that they stand above, while DataFusion chooses where to sort.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use nandina_exec::sort::FenceExec;

/// Puts a [`FenceExec`] above every limit below a sort, and takes all of them away again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FenceLimits {
    Before,
    After,
}

impl PhysicalOptimizerRule for FenceLimits {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match self {
            FenceLimits::Before => plan.transform_up(|node| match node.is::<SortExec>() {
                true => node.map_children(fenced),
                false => Ok(Transformed::no(node)),
            }),
            FenceLimits::After => plan.transform_up(|node| match node.downcast_ref::<FenceExec>() {
                Some(fence) => Ok(Transformed::yes(Arc::clone(fence.limit()))),
                None => Ok(Transformed::no(node)),
            }),
        }
        .data()
    }

    fn name(&self) -> &str {
        match self {
            FenceLimits::Before => "fence_limits",
            FenceLimits::After => "unfence_limits",
        }
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The input of a sort, with a fence above the limit that a single way down leads to.
fn fenced(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    if node.is::<FenceExec>() {
        return Ok(Transformed::no(node));
    }
    if node.downcast_ref::<GlobalLimitExec>().is_some_and(|limit| limit.fetch().is_some()) {
        let fence: Arc<dyn ExecutionPlan> = Arc::new(FenceExec::new(node));
        return Ok(Transformed::yes(fence));
    }
    match node.children().len() {
        1 => node.map_children(fenced),
        _ => Ok(Transformed::no(node)),
    }
}
