//! Filters of single keys: where a join on several keys sends more than one.
//!
//! A filter on all keys together stops at the first operator that does not have all of them: an aggregation by some, a
//! join that brings one of them in. Each key by itself goes further.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{DynamicFilterPhysicalExpr, lit};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExec;

/// The filters that `join` sends to each of its children, `own` of DataFusion's, and one for each of its keys behind that
/// for all of them. Nothing is added where it sends none, or has one key.
pub(super) fn with_filters_of_keys(
    join: &HashJoinExec,
    mut own: Vec<Vec<Arc<dyn PhysicalExpr>>>,
) -> Vec<Vec<Arc<dyn PhysicalExpr>>> {
    if let [_, to_probe_side] = own.as_mut_slice()
        && !to_probe_side.is_empty()
        && join.on.len() > 1
        && !join.null_aware
    {
        to_probe_side.extend(join.on.iter().map(|(_, key)| {
            Arc::new(DynamicFilterPhysicalExpr::new(vec![Arc::clone(key)], lit(true)))
                as Arc<dyn PhysicalExpr>
        }));
    }
    own
}

/// Whether an expression of `plan` asks `filter`.
pub(super) fn is_referenced(
    filter: &DynamicFilterPhysicalExpr,
    plan: &Arc<dyn ExecutionPlan>,
) -> Result<bool> {
    let wanted = filter.expression_id();
    plan.exists(|node| {
        let mut found = false;
        node.apply_expressions(&mut |expression| {
            found |= expression.exists(|part| Ok(part.expression_id() == wanted && wanted.is_some()))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(found)
    })
}
