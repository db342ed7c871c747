//! Which parts of a query have to be computed once: common table expressions that are named several times and would not have
//! the same rows each time.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNodeRecursion};
use datafusion::logical_expr::{Extension, LogicalPlan, SubqueryAlias};

use super::node::Spool;

/// The numbers of these spools begin here; those of parts that only need not be computed twice lie below.
pub const FIRST_NUMBER: usize = 1 << 32;

/// A number of its own for every part of every statement, as views bring theirs along.
static NEXT_NUMBER: AtomicUsize = AtomicUsize::new(FIRST_NUMBER);

/// The number of a part that has to be computed once.
pub(crate) fn next_spool_number() -> usize {
    NEXT_NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// Puts [`Spool`] nodes into those common table expressions of a statement that it names more than once, and that are made
/// with functions like `random()` or with `LIMIT`.
///
/// The plan is the one that DataFusion has made of the statement, with an equal copy for each time that an expression is
/// named; `names` are those of all its expressions.
pub fn spool_volatile_expressions(plan: LogicalPlan, names: &HashSet<String>) -> Result<LogicalPlan> {
    if names.is_empty() {
        return Ok(plan);
    }
    let is_expression = |alias: &SubqueryAlias| names.contains(alias.alias.table());
    let mut named: Vec<(Arc<LogicalPlan>, usize)> = Vec::new();
    plan.apply_with_subqueries(|part| {
        if let LogicalPlan::SubqueryAlias(alias) = part
            && is_expression(alias)
            && is_volatile(&alias.input)?
        {
            match named.iter_mut().find(|(known, _)| *known == alias.input) {
                Some((_, times)) => *times += 1,
                None => named.push((Arc::clone(&alias.input), 1)),
            }
        }
        Ok(without_recursion(part))
    })?;
    named.retain(|(_, times)| *times > 1);
    if named.is_empty() {
        return Ok(plan);
    }
    let first = NEXT_NUMBER.fetch_add(named.len(), Ordering::Relaxed);
    let spooled = plan.transform_down_with_subqueries(|part| {
        let LogicalPlan::SubqueryAlias(alias) = part else {
            let recursion = without_recursion(&part);
            return Ok(Transformed::new(part, false, recursion));
        };
        let found = named.iter().position(|(known, _)| is_expression(&alias) && *known == alias.input);
        let Some(position) = found else { return Ok(Transformed::no(LogicalPlan::SubqueryAlias(alias))) };
        let input = alias.input.as_ref().clone();
        let spool =
            LogicalPlan::Extension(Extension { node: Arc::new(Spool { number: first + position, input }) });
        let spooled = SubqueryAlias::try_new(Arc::new(spool), alias.alias)?;
        Ok(Transformed::yes(LogicalPlan::SubqueryAlias(spooled)))
    });
    spooled.data()
}

/// What a recursion computes in each of its steps is left as it is.
fn without_recursion(part: &LogicalPlan) -> TreeNodeRecursion {
    match part {
        LogicalPlan::RecursiveQuery(_) => TreeNodeRecursion::Jump,
        _ => TreeNodeRecursion::Continue,
    }
}

/// Whether a plan may have other rows when it is computed again.
pub(crate) fn is_volatile(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|part| {
        found |= matches!(part, LogicalPlan::Limit(_));
        part.apply_expressions(|expression| {
            found |= expression.is_volatile();
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}
