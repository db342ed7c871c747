//! Keeps a sort above the limit that it stands above.
//!
//! DataFusion moves a sort below a limit, as the first rows in its order: what `(SELECT … LIMIT 10) ORDER BY x` asks for are
//! the first ten rows, whatever their order, and those of an endless recursion can be had.

use std::fmt;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, SendableRecordBatchStream,
};

/// Stands above a limit while orders are chosen, and is taken away then.
#[derive(Debug)]
pub struct FenceExec {
    limit: Arc<dyn ExecutionPlan>,
}

impl FenceExec {
    pub fn new(limit: Arc<dyn ExecutionPlan>) -> Self {
        Self { limit }
    }

    /// What it stands above.
    pub fn limit(&self) -> &Arc<dyn ExecutionPlan> {
        &self.limit
    }
}

impl DisplayAs for FenceExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("FenceExec")
    }
}

impl ExecutionPlan for FenceExec {
    fn name(&self) -> &'static str {
        "FenceExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.limit.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.limit]
    }

    /// It does keep the order, but a plan that says so has sorts moved below it.
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(limit), true) => Ok(Arc::new(Self { limit })),
            _ => datafusion::common::internal_err!("a fence stands above one limit"),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.limit.execute(partition, context)
    }
}
