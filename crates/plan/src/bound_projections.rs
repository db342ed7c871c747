//! Puts [`BoundedProjectionExec`] in place of projections that may compute long texts.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use nandina_exec::projection::BoundedProjectionExec;

/// Stands behind all rules that look for projections.
#[derive(Debug)]
pub struct BoundProjections;

impl PhysicalOptimizerRule for BoundProjections {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let bounded = node.downcast_ref::<ProjectionExec>().and_then(BoundedProjectionExec::over);
            Ok(bounded
                .map_or_else(|| Transformed::no(node), |bounded| Transformed::yes(Arc::new(bounded) as _)))
        })
        .data()
    }

    fn name(&self) -> &str {
        "bound_projections"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
