//! Keeps DataFusion from mistakes while it chooses where to sort.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use nandina_exec::sort::{FenceExec, Kept};
use nandina_exec::window::RowsWhileExec;

/// Puts a [`FenceExec`] above every limit below a sort, above every [`RowsWhileExec`], whose rows come in the order of their
/// numbers, and above every aggregation by keys, and takes all of them away again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fences {
    Up,
    Down,
}

impl PhysicalOptimizerRule for Fences {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match self {
            Fences::Up => plan.transform_up(|node| {
                if node.is::<SortExec>() {
                    return node.map_children(above_limits);
                }
                if node.is::<RowsWhileExec>() {
                    return Ok(Transformed::yes(Arc::new(FenceExec::keeping_sorts(node))));
                }
                Ok(match FenceExec::keeping_keys(&node)? {
                    Some(fence) => Transformed::yes(Arc::new(fence) as Arc<dyn ExecutionPlan>),
                    None => Transformed::no(node),
                })
            }),
            Fences::Down => plan.transform_up(|node| match node.downcast_ref::<FenceExec>() {
                Some(fence) => Ok(Transformed::yes(Arc::clone(fence.input()))),
                None => Ok(Transformed::no(node)),
            }),
        }
        .data()
    }

    fn name(&self) -> &str {
        match self {
            Fences::Up => "fences_up",
            Fences::Down => "fences_down",
        }
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The input of a sort, with a fence above the limit that a single way down leads to.
fn above_limits(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    if node.downcast_ref::<FenceExec>().is_some_and(|fence| fence.keeps() == Kept::Sorts) {
        return Ok(Transformed::no(node));
    }
    if node.downcast_ref::<GlobalLimitExec>().is_some_and(|limit| limit.fetch().is_some()) {
        return Ok(Transformed::yes(Arc::new(FenceExec::keeping_sorts(node))));
    }
    match node.children().len() {
        1 => node.map_children(above_limits),
        _ => Ok(Transformed::no(node)),
    }
}
