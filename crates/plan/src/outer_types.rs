//! Types of columns that a sub-query sees of the queries around it.
//!
//! DataFusion gives such a column the type that it has while the text is planned. Types are resolved later: those of
//! unions, of `CASE`, and what meanings change. In the sub-query the column keeps its old type, is compared without a
//! cast, and as a key of a join finds nothing.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, plan_err};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::{Expr, LogicalPlan, Subquery};
use datafusion::optimizer::{Analyzer, AnalyzerRule};

use crate::nodes::input_schema;

/// Gives such columns the types that they have by now, and resolves the types that depend on them once more.
pub struct OuterTypes {
    /// The rules that have been over the plan.
    rules: Vec<Arc<dyn AnalyzerRule + Send + Sync>>,
}

impl OuterTypes {
    pub fn behind(rules: Vec<Arc<dyn AnalyzerRule + Send + Sync>>) -> Self {
        Self { rules }
    }
}

impl fmt::Debug for OuterTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OuterTypes")
    }
}

/// Levels of sub-queries, each of which may give the next one other types.
const MOST_LEVELS: usize = 32;

impl AnalyzerRule for OuterTypes {
    fn name(&self) -> &str {
        "outer_types"
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        let mut plan = plan;
        for _ in 0..MOST_LEVELS {
            let settled = settled(plan, &[])?;
            if !settled.transformed {
                return Ok(settled.data);
            }
            let analyzer = Analyzer::with_rules(self.rules.clone());
            plan = analyzer.execute_and_check(settled.data, config, |_, _| {})?;
        }
        plan_err!(
            "sub-queries are nested too deeply: the types of their outer columns change with every level"
        )
    }
}

/// A plan whose outer columns have the types that they have in the schemas around it, the innermost of which is the last.
fn settled(plan: LogicalPlan, around: &[Arc<DFSchema>]) -> Result<Transformed<LogicalPlan>> {
    let laterals = Cell::new(0_usize);
    let mut has_new_types = false;
    // Types in lateral queries are resolved with the join that they are a side of, which is the only one to know what
    // they see.
    plan.transform_down_up(
        |node| {
            laterals.update(|laterals| laterals + usize::from(matches!(node, LogicalPlan::Subquery(_))));
            Ok(Transformed::no(node))
        },
        |node| {
            let node = if has_new_types { node.recompute_schema()? } else { node };
            if laterals.get() > 0 {
                laterals.update(|laterals| laterals - usize::from(matches!(node, LogicalPlan::Subquery(_))));
                return Ok(Transformed::no(node));
            }
            let node = lateral_settled(node, around)?;
            let node = node.transform_data(|node| expressions_settled(node, around))?;
            has_new_types |= node.transformed;
            match node.transformed {
                true => Ok(Transformed::yes(node.data.recompute_schema()?)),
                false => Ok(node),
            }
        },
    )
}

/// The right side of a lateral join sees the left one.
fn lateral_settled(node: LogicalPlan, around: &[Arc<DFSchema>]) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Join(join) = node else { return Ok(Transformed::no(node)) };
    let mut join = join;
    let inside = with(around, Arc::clone(join.left.schema()));
    let right = Arc::unwrap_or_clone(join.right).transform_down(|part| match part {
        LogicalPlan::SubqueryAlias(_) => Ok(Transformed::no(part)),
        LogicalPlan::Subquery(query) => {
            let query = query_settled(query, &inside)?;
            Ok(Transformed::new(
                LogicalPlan::Subquery(query.data),
                query.transformed,
                TreeNodeRecursion::Stop,
            ))
        }
        other => Ok(Transformed::new(other, false, TreeNodeRecursion::Stop)),
    })?;
    join.right = Arc::new(match right.transformed {
        true => right.data.recompute_schema()?,
        false => right.data,
    });
    let join = LogicalPlan::Join(join);
    let join = if right.transformed { join.recompute_schema()? } else { join };
    Ok(Transformed::new_transformed(join, right.transformed))
}

fn expressions_settled(node: LogicalPlan, around: &[Arc<DFSchema>]) -> Result<Transformed<LogicalPlan>> {
    let inside = with(around, input_schema(&node)?);
    node.map_expressions(|expression| {
        expression.transform_up(|part| {
            Ok(match part {
                Expr::OuterReferenceColumn(..) => column_settled(part, around),
                Expr::Exists(Exists { subquery, negated }) => query_settled(subquery, &inside)?
                    .update_data(|subquery| Expr::Exists(Exists { subquery, negated })),
                Expr::ScalarSubquery(subquery) => {
                    query_settled(subquery, &inside)?.update_data(Expr::ScalarSubquery)
                }
                Expr::InSubquery(InSubquery { expr, subquery, negated }) => query_settled(subquery, &inside)?
                    .update_data(|subquery| Expr::InSubquery(InSubquery { expr, subquery, negated })),
                Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }) => {
                    query_settled(subquery, &inside)?.update_data(|subquery| {
                        Expr::SetComparison(SetComparison { expr, subquery, op, quantifier })
                    })
                }
                other => Transformed::no(other),
            })
        })
    })
}

fn with(around: &[Arc<DFSchema>], own: Arc<DFSchema>) -> Vec<Arc<DFSchema>> {
    around.iter().cloned().chain([own]).collect()
}

fn query_settled(query: Subquery, around: &[Arc<DFSchema>]) -> Result<Transformed<Subquery>> {
    let plan = settled(Arc::unwrap_or_clone(query.subquery), around)?;
    let columns = query.outer_ref_columns.into_iter().map(|column| column_settled(column, around).data);
    let query =
        Subquery { subquery: Arc::new(plan.data), outer_ref_columns: columns.collect(), spans: query.spans };
    Ok(Transformed::new_transformed(query, plan.transformed))
}

/// An outer column with the type that it has in the innermost query that has it.
fn column_settled(expression: Expr, around: &[Arc<DFSchema>]) -> Transformed<Expr> {
    let Expr::OuterReferenceColumn(field, column) = expression else { return Transformed::no(expression) };
    let now = around.iter().rev().find_map(|schema| {
        let at = schema.index_of_column_by_name(column.relation.as_ref(), &column.name)?;
        schema.fields().get(at)
    });
    match now {
        Some(now) if now.data_type() != field.data_type() => {
            Transformed::yes(Expr::OuterReferenceColumn(Arc::clone(now), column))
        }
        _ => Transformed::no(Expr::OuterReferenceColumn(field, column)),
    }
}
