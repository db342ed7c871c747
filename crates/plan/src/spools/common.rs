//! Which parts of a query are computed once: those that occur twice, reduce what they read, and are the same each time.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, Projection};

use super::fuse::fuse;
use super::node::Spool;

/// Puts [`Spool`] nodes above the largest parts of a plan that occur several times, subqueries included.
pub fn spool_common_parts(plan: &LogicalPlan) -> Result<LogicalPlan> {
    let common = CommonParts::of(plan)?;
    if common.0.is_empty() { Ok(plan.clone()) } else { Ok(common.spool(plan.clone())?.data) }
}

/// Parts that are computed more than once, with all columns that are wanted of any of them.
struct CommonParts(Vec<LogicalPlan>);

impl CommonParts {
    fn of(plan: &LogicalPlan) -> Result<Self> {
        let mut parts: Vec<LogicalPlan> = Vec::new();
        plan.apply_with_subqueries(|part| {
            if is_opaque(part) {
                return Ok(TreeNodeRecursion::Jump);
            }
            if may_be_shared(part)? {
                let fused = parts.iter_mut().find_map(|known| Some((fuse(known, part)?, known)));
                match fused {
                    Some((fused, known)) => *known = fused,
                    None => parts.push(part.clone()),
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        // Those within one that is computed once are computed less often than they occur.
        let mut common = Self(parts);
        loop {
            let mut computed = vec![0; common.0.len()];
            common.count(plan, &mut computed)?;
            let before = common.0.len();
            let mut computed = computed.into_iter();
            common.0.retain(|_| computed.next() > Some(1));
            if common.0.len() == before {
                return Ok(common);
            }
        }
    }

    /// Counts how often each part would be computed if the others were computed once.
    fn count(&self, plan: &LogicalPlan, computed: &mut [usize]) -> Result<()> {
        if is_opaque(plan) {
            return Ok(());
        }
        let mut inside = plan;
        if let Some((number, common)) = self.find(plan)? {
            inside = common;
            computed[number] += 1;
            if computed[number] > 1 {
                return Ok(());
            }
        }
        inside.apply_subqueries(|subquery| {
            self.count(subquery, computed)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        inside.inputs().into_iter().try_for_each(|input| self.count(input, computed))
    }

    /// The common part that has all that `part` has.
    fn find(&self, part: &LogicalPlan) -> Result<Option<(usize, &LogicalPlan)>> {
        if !may_be_shared(part)? {
            return Ok(None);
        }
        let has_all = |common: &LogicalPlan| fuse(common, part).is_some_and(|fused| fused == *common);
        Ok(self.0.iter().enumerate().find(|(_, common)| has_all(common)))
    }

    /// The plan with spools, those in spools included.
    fn spool(&self, part: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        if is_opaque(&part) {
            return Ok(Transformed::no(part));
        }
        let Some((number, common)) = self.find(&part)? else { return self.spool_inputs(part) };
        let input = self.spool_inputs(common.clone())?.data;
        let spool = LogicalPlan::Extension(Extension { node: Arc::new(Spool { number, input }) });
        if spool.schema() == part.schema() {
            return Ok(Transformed::yes(spool));
        }
        let own = part.schema().columns().into_iter().map(Expr::Column).collect();
        let projection = Projection::try_new_with_schema(own, Arc::new(spool), Arc::clone(part.schema()))?;
        Ok(Transformed::yes(LogicalPlan::Projection(projection)))
    }

    fn spool_inputs(&self, part: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        part.map_subqueries(|subquery| self.spool(subquery))?
            .transform_sibling(|part| part.map_children(|input| self.spool(input)))
    }
}

/// Whether a part emits fewer rows than it works on, and the same each time. Others pass their rows on, and would have
/// them written to be read again where memory is short; and what they are joined with may tell their scans which rows
/// are not needed.
fn may_be_shared(plan: &LogicalPlan) -> Result<bool> {
    Ok(matches!(plan, LogicalPlan::Aggregate(_) | LogicalPlan::Distinct(_)) && is_the_same_each_time(plan)?)
}

/// A part that is computed again and again while a query runs.
fn is_opaque(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::RecursiveQuery(_))
}

/// Whether a plan has the same rows whenever and wherever it is computed. Subqueries in its expressions are computed
/// elsewhere.
fn is_the_same_each_time(plan: &LogicalPlan) -> Result<bool> {
    let mut is_same = true;
    plan.apply(|part| {
        is_same &= !is_opaque(part);
        part.apply_expressions(|expression| {
            is_same &=
                !expression.is_volatile() && !expression.contains_outer() && !has_subquery(expression)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(if is_same { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(is_same)
}

fn has_subquery(expression: &Expr) -> Result<bool> {
    expression.exists(|part| {
        Ok(matches!(
            part,
            Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_)
        ))
    })
}
