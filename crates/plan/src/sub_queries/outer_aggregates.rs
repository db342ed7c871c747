//! `EXISTS` and `IN` of an aggregation without groups, and aggregates of the query outside.
//!
//! An aggregation without groups has one row, whatever it aggregates. DataFusion makes semi joins of the rows that are
//! aggregated, and none where there are no rows. It knows better in sub-queries that are values, so they are written as those:
//!
//! ```text
//!   EXISTS (SELECT count(b) FROM u WHERE …)                  ─►  true
//!   EXISTS (SELECT count(b) FROM u WHERE … HAVING p)         ─►  (SELECT p FROM u WHERE …) IS TRUE
//!   x IN (SELECT count(b) FROM u WHERE …)                    ─►  x = (SELECT count(b) FROM u WHERE …)
//!   x IN (SELECT count(b) FROM u WHERE … HAVING p)           ─►  both, joined by AND
//! ```
//!
//! An aggregate of the outer query's columns alone belongs
//! to the outer query (SQL:2016, 6.10), where `EXISTS (SELECT i + min(o.i) FROM t WHERE i = 5)` is no aggregation at all;
//! DataFusion aggregates in the inner one, so it is refused.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, not_impl_err};
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan, LogicalPlanBuilder, Sort, Subquery, lit, not};
use datafusion::optimizer::AnalyzerRule;

/// Makes `EXISTS` of an aggregation without groups what it is, and refuses aggregates of the query outside.
#[derive(Debug)]
pub struct ExistsOfAggregates;

impl AnalyzerRule for ExistsOfAggregates {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            let names = NamePreserver::new(&node);
            node.map_expressions(|expression| {
                let name = names.save(&expression);
                let resolved = expression.transform_up(resolved)?;
                Ok(resolved.update_data(|expression| name.restore(expression)))
            })
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
    let of =
        |plan: LogicalPlan| Expr::ScalarSubquery(Subquery { subquery: Arc::new(plan), ..subquery.clone() });
    let meaning = match &expression {
        Expr::Exists(_) => match one_row(&subquery.subquery)? {
            Some(OneRow { having: Some(having), .. }) => Some(of(having).is_true()),
            Some(OneRow { having: None, .. }) => Some(lit(true)),
            None => None,
        },
        Expr::InSubquery(found) => one_row(&subquery.subquery)?.map(|OneRow { row, having }| {
            let is_equal = found.expr.as_ref().clone().eq(of(row));
            match having {
                Some(having) => of(having).is_true().and(is_equal),
                None => is_equal,
            }
        }),
        _ => None,
    };
    Ok(match (meaning, &expression) {
        (
            Some(meaning),
            Expr::Exists(Exists { negated: true, .. }) | Expr::InSubquery(InSubquery { negated: true, .. }),
        ) => Transformed::yes(not(meaning)),
        (Some(meaning), _) => Transformed::yes(meaning),
        (None, _) => Transformed::no(expression),
    })
}

/// An aggregation without groups, which has one row unless a `HAVING` takes it away.
struct OneRow {
    /// With the row in any case.
    row: LogicalPlan,
    /// Whether it is there, as the row's only column.
    having: Option<LogicalPlan>,
}

/// A plan as [`OneRow`], if it is one.
fn one_row(plan: &LogicalPlan) -> Result<Option<OneRow>> {
    match plan {
        LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => {
            Ok(Some(OneRow { row: plan.clone(), having: None }))
        }
        LogicalPlan::Filter(filter) => {
            let Some(OneRow { row, having: None }) = one_row(&filter.input)? else { return Ok(None) };
            let condition = filter.predicate.clone().alias("having");
            let having = LogicalPlanBuilder::from(row.clone()).project([condition])?.build()?;
            Ok(Some(OneRow { row, having: Some(having) }))
        }
        LogicalPlan::Projection(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Distinct(Distinct::All(_))
        | LogicalPlan::Sort(Sort { fetch: None, .. }) => {
            let [input] = plan.inputs()[..] else { return Ok(None) };
            let Some(OneRow { row, having }) = one_row(input)? else { return Ok(None) };
            let row = plan.with_new_exprs(plan.expressions(), vec![row])?;
            Ok(Some(OneRow { row, having }))
        }
        _ => Ok(None),
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
