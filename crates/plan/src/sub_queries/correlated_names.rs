//! Names for the columns that conditions compare with the query outside.
//!
//! When a sub-query becomes a join, DataFusion takes such conditions out of it and puts the name of the sub-query before
//! their columns. Those that only differ in the table become one: in `EXISTS (SELECT … FROM a JOIN b … WHERE a.id = o.x AND
//! b.id = o.y)` both conditions are about the first `id`. Columns of one name get other names right below the condition:
//!
//! ```text
//!   Filter: a.id = outer(o.x) AND b.id = outer(o.y)        Filter: __correlated_1 = outer(o.x) AND __correlated_2 = outer(o.y)
//!     Join                                            ─►     Projection: …, a.id AS __correlated_1, b.id AS __correlated_2
//!                                                              Join
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::utils::{conjunction, split_conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, Filter, LogicalPlan, LogicalPlanBuilder, Subquery, SubqueryAlias};
use datafusion::optimizer::AnalyzerRule;

/// Gives them names of their own, where there are several of one name.
#[derive(Debug)]
pub struct CorrelatedNames;

/// What new names begin with.
const PREFIX: &str = "__correlated_";

/// The columns that get names.
type Names = HashMap<Column, String>;

impl AnalyzerRule for CorrelatedNames {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut count = 0;
        plan.transform_up_with_subqueries(|node| {
            if let LogicalPlan::Subquery(lateral) = node {
                return Ok(named(lateral, &mut count)?.update_data(LogicalPlan::Subquery));
            }
            node.map_expressions(|expression| {
                expression.transform_up(|part| match part {
                    Expr::Exists(Exists { subquery, negated }) => Ok(named(subquery, &mut count)?
                        .update_data(|subquery| Expr::Exists(Exists { subquery, negated }))),
                    Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                        Ok(named(subquery, &mut count)?
                            .update_data(|subquery| Expr::InSubquery(InSubquery { expr, subquery, negated })))
                    }
                    Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }) => {
                        Ok(named(subquery, &mut count)?.update_data(|subquery| {
                            Expr::SetComparison(SetComparison { expr, subquery, op, quantifier })
                        }))
                    }
                    Expr::ScalarSubquery(subquery) => {
                        Ok(named(subquery, &mut count)?.update_data(Expr::ScalarSubquery))
                    }
                    other => Ok(Transformed::no(other)),
                })
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        "correlated_names"
    }
}

/// A sub-query in which no two columns of such conditions have one name.
fn named(subquery: Subquery, count: &mut usize) -> Result<Transformed<Subquery>> {
    if subquery.outer_ref_columns.is_empty() {
        return Ok(Transformed::no(subquery));
    }
    let mut uses: HashMap<String, usize> = HashMap::new();
    let mut filters = 0;
    subquery.subquery.apply(|node| {
        let columns = correlated_columns(node);
        filters += usize::from(!columns.is_empty());
        for column in columns {
            *uses.entry(column.name).or_default() += 1;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    // What the sub-query gives has its name put before it, too.
    let outputs = subquery.subquery.schema().columns();
    let has_conflict = |column: &Column| {
        let is_other = |output: &Column| output.name == column.name && output != column;
        uses.get(&column.name).is_some_and(|&uses| uses > 1) || outputs.iter().any(is_other)
    };
    let plan = Arc::clone(&subquery.subquery);
    let plan = LogicalPlan::clone(&plan).transform_up(|node| {
        let mut conflicts = correlated_columns(&node);
        conflicts.retain(has_conflict);
        let filter = match node {
            LogicalPlan::Filter(filter) if !conflicts.is_empty() => filter,
            LogicalPlan::SubqueryAlias(table) => return given_out(table),
            join @ LogicalPlan::Join(_) => return join.recompute_schema().map(Transformed::no),
            other => return Ok(Transformed::no(other)),
        };
        let name = |column: Column| {
            *count += 1;
            (column, format!("{PREFIX}{count}"))
        };
        let names: Names = conflicts.into_iter().map(name).collect();
        Ok(Transformed::yes(with_names(filter, &names)?))
    })?;
    let transformed = plan.transformed;
    let plan = Arc::new(plan.data);
    Ok(Transformed::new_transformed(Subquery { subquery: plan, ..subquery }, transformed))
}

/// The columns of its input that a filter compares with the query outside, in the order of their names.
fn correlated_columns(node: &LogicalPlan) -> Vec<Column> {
    let LogicalPlan::Filter(filter) = node else { return Vec::new() };
    let correlated = split_conjunction(&filter.predicate).into_iter().filter(|part| part.contains_outer());
    let mut columns: Vec<Column> = correlated.flat_map(Expr::column_refs).cloned().collect();
    columns.sort();
    columns.dedup();
    columns
}

/// A table in `FROM` that gives out the columns with new names, too: the condition ends up above it.
fn given_out(table: SubqueryAlias) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Projection(projection) = table.input.as_ref() else {
        return Ok(Transformed::no(LogicalPlan::SubqueryAlias(table)));
    };
    let mut named = projection.input.schema().columns();
    named.retain(|column| column.name.starts_with(PREFIX) && !projection.schema.has_column(column));
    if named.is_empty() {
        return Ok(Transformed::no(LogicalPlan::SubqueryAlias(table)));
    }
    let columns = projection.expr.iter().cloned().chain(named.into_iter().map(Expr::Column));
    let input = LogicalPlanBuilder::new_from_arc(Arc::clone(&projection.input)).project(columns)?.build()?;
    let table = SubqueryAlias::try_new(Arc::new(input), table.alias)?;
    Ok(Transformed::yes(LogicalPlan::SubqueryAlias(table)))
}

/// A filter whose correlated conditions know columns by these names.
fn with_names(filter: Filter, names: &Names) -> Result<LogicalPlan> {
    let columns = filter.input.schema().columns().into_iter().map(Expr::Column);
    let mut named: Vec<(&Column, &String)> = names.iter().collect();
    named.sort_by_key(|(_, name)| *name);
    let named = named.into_iter().map(|(column, name)| Expr::Column(column.clone()).alias(name));
    let input = LogicalPlanBuilder::new_from_arc(Arc::clone(&filter.input)).project(columns.chain(named))?;
    let renamed = |condition: Expr| {
        if !condition.contains_outer() {
            return Ok(condition);
        }
        let rename = |part: Expr| match part {
            Expr::Column(column) => Ok(match names.get(&column) {
                Some(name) => Transformed::yes(Expr::Column(Column::new_unqualified(name))),
                None => Transformed::no(Expr::Column(column)),
            }),
            other => Ok(Transformed::no(other)),
        };
        condition.transform(rename).data()
    };
    let conditions = split_conjunction_owned(filter.predicate).into_iter().map(renamed);
    let Some(condition) = conjunction(conditions.collect::<Result<Vec<_>>>()?) else {
        return input.build();
    };
    input.filter(condition)?.build()
}
