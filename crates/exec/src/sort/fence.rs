//! What DataFusion must not know while it chooses orders.
//!
//! - It moves a sort below a limit, as the first rows in its order: what `(SELECT … LIMIT 10) ORDER BY x` asks for are
//!   the first ten rows, whatever their order, and those of an endless recursion can be had. So it does below what ends with
//!   the first row whose number is too high, as if that were a filter.
//! - It knows that the groups of an aggregation are unique, and takes other columns for those that they are in, if a
//!   projection puts columns in another order. What comes behind a unique key in an order is left out.
//! - It takes keys that are constant for constant in all rows, also in those of grouping sets without them.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Constraints, Result, internal_err};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, SendableRecordBatchStream,
};

use crate::plan_properties::without_missing_keys;

/// Stands above a node while orders are chosen, and is taken away then.
#[derive(Debug)]
pub struct FenceExec {
    input: Arc<dyn ExecutionPlan>,
    keeps: Kept,
    properties: Arc<PlanProperties>,
}

/// What does not pass a fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// Sorts do not go down.
    Sorts,
    /// Properties of an aggregation's keys do not go up.
    Keys,
}

impl FenceExec {
    /// A fence above a limit, or what ends as one does.
    pub fn keeping_sorts(limit: Arc<dyn ExecutionPlan>) -> Self {
        let properties = Arc::clone(limit.properties());
        Self { input: limit, keeps: Kept::Sorts, properties }
    }

    /// A fence above an aggregation by keys; none above another node.
    pub fn keeping_keys(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Self>> {
        let Some(aggregation) = node.downcast_ref::<AggregateExec>() else { return Ok(None) };
        let keys = aggregation.group_expr();
        if keys.is_empty() {
            return Ok(None);
        }
        let mut properties = node.properties().as_ref().clone();
        let known = without_missing_keys(&properties.eq_properties, keys)?;
        properties.eq_properties = known.with_constraints(Constraints::default());
        Ok(Some(Self { input: Arc::clone(node), keeps: Kept::Keys, properties: Arc::new(properties) }))
    }

    /// What does not pass it.
    pub fn keeps(&self) -> Kept {
        self.keeps
    }

    /// What it stands above.
    pub fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
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
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    /// It always does, but a plan that says so has sorts moved below it.
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![self.keeps != Kept::Sorts]
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
            (Some(limit), true) if self.keeps == Kept::Sorts => Ok(Arc::new(Self::keeping_sorts(limit))),
            (Some(node), true) => match Self::keeping_keys(&node)? {
                Some(fence) => Ok(Arc::new(fence)),
                None => Ok(node),
            },
            _ => internal_err!("a fence stands above one node"),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }
}
