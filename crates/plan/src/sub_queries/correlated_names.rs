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

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, not_impl_err};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::utils::{conjunction, split_conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, Filter, LogicalPlan, LogicalPlanBuilder, Subquery, SubqueryAlias,
};
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
    subquery.subquery.apply(|node| {
        for column in correlated_columns(node) {
            *uses.entry(column.name).or_default() += 1;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    if uses.is_empty() {
        return Ok(Transformed::no(subquery));
    }
    let mut conflicts = HashSet::new();
    add_conflicts(&subquery.subquery, &uses, &mut Vec::new(), &mut conflicts);
    let plan = LogicalPlan::clone(&subquery.subquery).transform_up(|node| {
        let mut columns = correlated_columns(&node);
        columns.retain(|column| conflicts.contains(column));
        let filter = match node {
            LogicalPlan::Filter(filter) if !columns.is_empty() => filter,
            LogicalPlan::SubqueryAlias(table) if !conflicts.is_empty() => {
                let input = with_new_names_in_output(Arc::unwrap_or_clone(table.input))?;
                let table = SubqueryAlias::try_new(Arc::new(input), table.alias)?;
                return Ok(Transformed::no(LogicalPlan::SubqueryAlias(table)));
            }
            join @ LogicalPlan::Join(_) if !conflicts.is_empty() => {
                return join.recompute_schema().map(Transformed::no);
            }
            other => return Ok(Transformed::no(other)),
        };
        let name = |column: Column| {
            *count += 1;
            (column, format!("{PREFIX}{count}"))
        };
        let names: Names = columns.into_iter().map(name).collect();
        Ok(Transformed::yes(with_names(filter, &names)?))
    })?;
    let transformed = plan.transformed;
    let plan = Arc::new(plan.data);
    Ok(Transformed::new_transformed(Subquery { subquery: plan, ..subquery }, transformed))
}

/// Finds the columns of correlated conditions that have the name of another column: in another correlated condition, or in
/// the schema of the filter or of one of its ancestors. `ancestors` holds the columns of those.
fn add_conflicts(
    node: &LogicalPlan,
    uses: &HashMap<String, usize>,
    ancestors: &mut Vec<Vec<Column>>,
    conflicts: &mut HashSet<Column>,
) {
    ancestors.push(node.schema().columns());
    for column in correlated_columns(node) {
        let is_other = |other: &Column| other.name == column.name && *other != column;
        if uses.get(&column.name).is_some_and(|&uses| uses > 1) || ancestors.iter().flatten().any(is_other) {
            conflicts.insert(column);
        }
    }
    for input in node.inputs() {
        add_conflicts(input, uses, ancestors, conflicts);
    }
    ancestors.pop();
}

/// The rows of a table in `FROM` with the columns that have new names, too: the condition ends up above it.
fn with_new_names_in_output(plan: LogicalPlan) -> Result<LogicalPlan> {
    let named = |input: &LogicalPlan, output: &LogicalPlan| {
        let mut named = input.schema().columns();
        named.retain(|column| column.name.starts_with(PREFIX) && !output.schema().has_column(column));
        named.into_iter().map(Expr::Column)
    };
    match &plan {
        LogicalPlan::Projection(projection) => {
            let input = with_new_names_in_output(LogicalPlan::clone(&projection.input))?;
            let columns = projection.expr.iter().cloned().chain(named(&input, &plan));
            LogicalPlanBuilder::new(input).project(columns.collect::<Vec<_>>())?.build()
        }
        // Without keys there is a row where there is none below, which the condition would take away.
        LogicalPlan::Aggregate(aggregate) if !aggregate.group_expr.is_empty() => {
            let input = with_new_names_in_output(LogicalPlan::clone(&aggregate.input))?;
            let keys: Vec<Expr> = aggregate.group_expr.iter().cloned().chain(named(&input, &plan)).collect();
            if let [Expr::GroupingSet(_), _, ..] = keys.as_slice() {
                return not_impl_err!(
                    "grouping sets of a sub-query's table that is compared with the query outside"
                );
            }
            let aggregate = Aggregate::try_new(Arc::new(input), keys, aggregate.aggr_expr.clone())?;
            Ok(LogicalPlan::Aggregate(aggregate))
        }
        LogicalPlan::Distinct(Distinct::All(_))
        | LogicalPlan::Filter(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Window(_) => {
            let inputs = plan.inputs().into_iter().cloned().map(with_new_names_in_output);
            let inputs = inputs.collect::<Result<Vec<_>>>()?;
            plan.with_new_exprs(plan.expressions(), inputs)
        }
        _ => Ok(plan),
    }
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
    let condition = conjunction(conditions.collect::<Result<Vec<_>>>()?)
        .unwrap_or_else(|| unreachable!("a filter has a condition"));
    input.filter(condition)?.build()
}
