//! Puts Nandina's window operator where DataFusion planned one.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use nandina_exec::window::SpillingWindowExec;

/// Replaces `WindowAggExec` and `BoundedWindowAggExec` by [`SpillingWindowExec`], unless their input is not sorted by
/// partitions or carries columns of a type that cannot be spilled. Refuses functions that nobody can compute.
#[derive(Debug)]
pub struct ReplaceWindow;

impl PhysicalOptimizerRule for ReplaceWindow {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let replace = |node: Arc<dyn ExecutionPlan>| {
            Ok(match SpillingWindowExec::try_new(Arc::clone(&node))? {
                Some(window) => {
                    let window: Arc<dyn ExecutionPlan> = Arc::new(window);
                    Transformed::yes(window)
                }
                None => Transformed::no(node),
            })
        };
        plan.transform_up(replace).data()
    }

    fn name(&self) -> &str {
        "replace_window"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
