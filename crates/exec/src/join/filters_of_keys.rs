//! Filters of single keys: where a join on several keys sends more than one.
//!
//! A filter on all keys together stops at the first operator that does not have all of them: an aggregation by some, a
//! join that brings one of them in. Each key by itself goes further.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{DynamicFilterPhysicalExpr, lit};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter_pushdown::{ChildFilterDescription, FilterDescription, PushedDown};
use datafusion::physical_plan::joins::HashJoinExec;

/// What `join` sends to its children, and a filter for each of its keys behind that for all of them. Nothing is added
/// where it sends none, or has one key.
pub(super) fn with_filters_of_keys(
    join: &HashJoinExec,
    parent_filters: &[Arc<dyn PhysicalExpr>],
    sent: FilterDescription,
) -> Result<FilterDescription> {
    let own = sent.self_filters();
    let [_, to_probe_side] = own.as_slice() else { return Ok(sent) };
    if to_probe_side.is_empty() || join.on.len() < 2 || join.null_aware {
        return Ok(sent);
    }
    let filters = join.on.iter().map(|(_, key)| {
        Arc::new(DynamicFilterPhysicalExpr::new(vec![Arc::clone(key)], lit(true))) as Arc<dyn PhysicalExpr>
    });
    let filters: Vec<_> = to_probe_side.iter().cloned().chain(filters).collect();
    let mut again = FilterDescription::new();
    for ((child, parents), own) in
        [&join.left, &join.right].into_iter().zip(sent.parent_filters()).zip([vec![], filters])
    {
        // What came through is all on this child's columns, and of what did not some column is not.
        let came_through = parents.iter().zip(parent_filters);
        let came_through = came_through.filter(|(parent, _)| matches!(parent.discriminant, PushedDown::Yes));
        let mut reachable = came_through.map(|(_, filter)| collect_columns(filter)).peekable();
        let description = if reachable.peek().is_some() {
            let reachable: HashSet<usize> = reachable.flatten().map(|column| column.index()).collect();
            ChildFilterDescription::from_child_with_allowed_indices(parent_filters, reachable, child)?
        } else {
            ChildFilterDescription::all_unsupported(parent_filters)
        };
        again = again.with_child(description.with_self_filters(own));
    }
    Ok(again)
}

/// Whether an expression of `plan` asks `filter`.
pub(super) fn is_asked(filter: &DynamicFilterPhysicalExpr, plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
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
