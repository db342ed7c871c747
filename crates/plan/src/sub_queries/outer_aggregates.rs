//! `EXISTS` of an aggregation without groups, and aggregates of the query outside.
//!
//! An aggregation without groups has one row, whatever it aggregates: `EXISTS (SELECT count(x) FROM t WHERE …)` is true.
//! DataFusion makes it a semi join of the rows that are counted. An aggregate of the outer query's columns alone belongs
//! to the outer query (SQL:2016, 6.10), where `EXISTS (SELECT i + min(o.i) FROM t WHERE i = 5)` is no aggregation at all;
//! DataFusion aggregates in the inner one, so it is refused.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, not_impl_err};
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::{Expr, LogicalPlan, Subquery, lit};
use datafusion::optimizer::AnalyzerRule;

/// Makes `EXISTS` of an aggregation without groups what it is, and refuses aggregates of the query outside.
#[derive(Debug)]
pub struct ExistsOfAggregates;

impl AnalyzerRule for ExistsOfAggregates {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            node.map_expressions(|expression| expression.transform_up(resolved))
        })
        .data()
    }

    fn name(&self) -> &str {
        "exists_of_aggregates"
    }
}

fn resolved(expression: Expr) -> Result<Transformed<Expr>> {
    let subquery = match &expression {
        Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::ScalarSubquery(subquery) => subquery,
        _ => return Ok(Transformed::no(expression)),
    };
    refuse_outer_aggregates(subquery)?;
    match &expression {
        Expr::Exists(exists) if always_has_a_row(&exists.subquery.subquery) => {
            Ok(Transformed::yes(lit(!exists.negated)))
        }
        _ => Ok(Transformed::no(expression)),
    }
}

fn refuse_outer_aggregates(subquery: &Subquery) -> Result<()> {
    subquery.subquery.apply(|node| {
        if let LogicalPlan::Aggregate(aggregate) = node
            && let Some(outer) = aggregate.aggr_expr.iter().find(|function| is_of_outer_query(function))
        {
            return not_impl_err!(
                "{outer} aggregates rows of the query outside of the sub-query that it stands in; compute it in a \
                 query of its own in FROM"
            );
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Whether a function has columns, and all of them are the outer query's.
fn is_of_outer_query(function: &Expr) -> bool {
    function.contains_outer() && function.column_refs().is_empty()
}

/// Whether nothing stands above an aggregation without groups that could take its row away.
pub(crate) fn always_has_a_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::Projection(projection) => always_has_a_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => always_has_a_row(&alias.input),
        LogicalPlan::Sort(sort) => sort.fetch.is_none() && always_has_a_row(&sort.input),
        LogicalPlan::Window(window) => always_has_a_row(&window.input),
        _ => false,
    }
}
