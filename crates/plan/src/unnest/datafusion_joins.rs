//! Which sub-queries DataFusion's own rules make joins of.

use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan, Subquery, check_subquery_expr};
use datafusion::optimizer::decorrelate::PullUpCorrelatedExpr;

/// Whether DataFusion joins a sub-query of an operator.
pub fn is_joined_by_datafusion(part: &Expr, node: &LogicalPlan) -> Result<bool> {
    let is_filter = matches!(node, LogicalPlan::Filter(_));
    match part {
        Expr::ScalarSubquery(subquery) if !names_outer_columns(&subquery.subquery)? => Ok(true),
        Expr::ScalarSubquery(subquery) => {
            let is_place = is_filter || matches!(node, LogicalPlan::Projection(_));
            Ok(is_place && !may_have_no_row(&subquery.subquery) && is_pulled_up(part, subquery, node, false)?)
        }
        Expr::Exists(exists) => Ok(is_filter && is_pulled_up(part, &exists.subquery, node, true)?),
        Expr::InSubquery(found) if !names_outer_columns(&found.subquery.subquery)? => Ok(is_filter),
        Expr::InSubquery(found) => Ok(is_filter && is_pulled_up(part, &found.subquery, node, false)?),
        _ => Ok(true),
    }
}

/// Whether all conditions on the outer query can be pulled up to a join.
fn is_pulled_up(part: &Expr, subquery: &Subquery, node: &LogicalPlan, is_exists: bool) -> Result<bool> {
    let plan = &subquery.subquery;
    if check_subquery_expr(node, plan, part).is_err() || names_further_out(subquery, node)? {
        return Ok(false);
    }
    if plan.exists(|part| Ok(stops_conditions(part) && names_outer_columns(part)?))? {
        return Ok(false);
    }
    let mut pulling =
        PullUpCorrelatedExpr::new().with_need_handle_count_bug(!is_exists).with_exists_sub_query(is_exists);
    let pulled = plan.as_ref().clone().rewrite(&mut pulling);
    Ok(pulled.is_ok() && pulling.can_pull_up)
}

/// Whether a condition means something else above an operator: which rows a limit or a window sees, what groups there are,
/// and what columns are called.
fn stops_conditions(part: &LogicalPlan) -> bool {
    match part {
        LogicalPlan::SubqueryAlias(_) | LogicalPlan::Limit(_) | LogicalPlan::Window(_) => true,
        LogicalPlan::Distinct(Distinct::On(_)) => true,
        LogicalPlan::Sort(sort) => sort.fetch.is_some(),
        LogicalPlan::Aggregate(aggregate) => {
            aggregate.group_expr.iter().any(|group| matches!(group, Expr::GroupingSet(_)))
        }
        _ => false,
    }
}

/// Whether a plan names columns of a query around it, its own sub-queries aside.
fn names_outer_columns(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|part| {
        let mut found = false;
        part.apply_expressions(|expression| {
            found |= expression.contains_outer();
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(found)
    })
}

/// Whether an aggregation may have no row: by groups, or with a condition on its results.
fn may_have_no_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => may_have_no_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => may_have_no_row(&alias.input),
        LogicalPlan::Aggregate(aggregate) => !aggregate.group_expr.is_empty(),
        LogicalPlan::Filter(filter) => is_aggregation(&filter.input) || may_have_no_row(&filter.input),
        _ => false,
    }
}

/// Whether a plan gives the results of an aggregation, perhaps under other names.
fn is_aggregation(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => is_aggregation(&projection.input),
        LogicalPlan::Aggregate(_) => true,
        _ => false,
    }
}

/// Whether a sub-query names columns that are not those of the query right outside.
fn names_further_out(subquery: &Subquery, node: &LogicalPlan) -> Result<bool> {
    let inputs = node.inputs();
    let mut found = false;
    subquery.subquery.apply_with_subqueries(|part| {
        part.apply_expressions(|expression| {
            found |= expression.exists(|part| {
                let is_known = |column| inputs.iter().any(|input| input.schema().has_column(column));
                Ok(matches!(part, Expr::OuterReferenceColumn(_, column) if !is_known(column)))
            })?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}
