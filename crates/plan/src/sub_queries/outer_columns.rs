//! What a plan names of the queries around it.

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::{Expr, LogicalPlan, Subquery};

/// The columns of outer queries that a plan names, its own sub-queries included, as far as they name none of the plan's.
pub(crate) fn outer_columns(plan: &LogicalPlan) -> Result<Vec<(FieldRef, Column)>> {
    let mut outer = Vec::new();
    plan.apply(|node| {
        let is_own = |column: &Column| node.inputs().iter().any(|input| input.schema().has_column(column));
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                if let Expr::OuterReferenceColumn(field, column) = part {
                    outer.push((field.clone(), column.clone()));
                }
                if let Some(subquery) = sub_query(part) {
                    let inner = outer_columns(&subquery.subquery)?;
                    outer.extend(inner.into_iter().filter(|(_, column)| !is_own(column)));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(outer)
}

/// Whether a plan names columns of outer queries.
pub(crate) fn is_correlated(plan: &LogicalPlan) -> Result<bool> {
    Ok(!outer_columns(plan)?.is_empty())
}

fn sub_query(part: &Expr) -> Option<&Subquery> {
    match part {
        Expr::ScalarSubquery(subquery)
        | Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. }) => Some(subquery),
        _ => None,
    }
}
