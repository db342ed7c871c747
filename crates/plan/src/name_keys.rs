//! Keys of groups that have the name of another key, as casts do not show in names.
//!
//! In `GROUP BY t.x, CAST(t.x AS INTEGER)` one key is the column `x` of `t`, the other one a column `t.x` of no table.
//! DataFusion's rules that compare names as texts take one for the other: conditions of `HAVING` are pushed down as those of
//! the other key, or a column is missing. So the cast gets a name of its own, up to the projection that gives it the name
//! that the user sees.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, internal_err};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Aggregate, Distinct, DistinctOn, Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

/// Names such keys after their expressions, with their casts.
#[derive(Debug)]
pub struct NameKeys;

impl AnalyzerRule for NameKeys {
    fn name(&self) -> &str {
        "name_keys"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            let input = match &node {
                LogicalPlan::Projection(projection) => &projection.input,
                LogicalPlan::Distinct(Distinct::On(first_rows)) => &first_rows.input,
                _ => return Ok(Transformed::no(node)),
            };
            let Some((input, names)) = renamed(input)? else { return Ok(Transformed::no(node)) };
            Ok(Transformed::yes(match node {
                LogicalPlan::Distinct(Distinct::On(first_rows)) => {
                    first_rows_above(first_rows, input, &names)?
                }
                node => above(&node, input, &names)?,
            }))
        })
        .data()
    }
}

/// The new columns of keys by what they were.
type Names = HashMap<Column, Column>;

/// An aggregation whose keys have names of their own, with the filters, windows and the like above it; none if its keys
/// had them.
fn renamed(plan: &LogicalPlan) -> Result<Option<(LogicalPlan, Names)>> {
    match plan {
        LogicalPlan::Aggregate(aggregate) => with_names(aggregate),
        LogicalPlan::Filter(_) | LogicalPlan::Sort(_) | LogicalPlan::Limit(_) | LogicalPlan::Window(_) => {
            let inputs = plan.inputs();
            let [input] = inputs.as_slice() else {
                return internal_err!("{} inputs of {}", inputs.len(), plan.display());
            };
            let Some((input, names)) = renamed(input)? else { return Ok(None) };
            Ok(Some((above(plan, input, &names)?, names)))
        }
        _ => Ok(None),
    }
}

fn with_names(aggregate: &Aggregate) -> Result<Option<(LogicalPlan, Names)>> {
    let mut named = HashMap::new();
    let mut taken: HashMap<String, &Expr> = HashMap::new();
    let keys = aggregate.group_expr.iter().flat_map(|key| match key {
        Expr::GroupingSet(sets) => sets.distinct_expr(),
        key => vec![key],
    });
    for key in keys {
        let other = *taken.entry(key.schema_name().to_string()).or_insert(key);
        // A column keeps its name, and may come behind an expression computed from it.
        for cast in [key, other].into_iter().filter(|&cast| key != other && !matches!(cast, Expr::Column(_)))
        {
            let name = cast.clone().unalias().to_string();
            named.insert(cast.clone(), cast.clone().unalias().alias(name));
        }
    }
    if named.is_empty() {
        return Ok(None);
    }
    let mut names = Names::new();
    let new_names = named.iter().map(|(was, now)| (column_of(was), column_of(now)));
    names.extend(new_names);
    let rename = |keys: &[Expr]| -> Result<Vec<Expr>> {
        let renamed = keys.iter().cloned().map(|key| {
            let renamed = key.transform_down(|part| {
                Ok(match (&part, named.get(&part)) {
                    (Expr::GroupingSet(_), _) => Transformed::no(part),
                    // Expressions inside a key have no name.
                    (_, Some(new)) => Transformed::new(new.clone(), true, TreeNodeRecursion::Jump),
                    (_, None) => Transformed::new(part, false, TreeNodeRecursion::Jump),
                })
            });
            renamed.data()
        });
        renamed.collect()
    };
    let mut aggregates = aggregate.aggr_expr.clone();
    for function in &mut aggregates {
        let was = column_of(function);
        if let Expr::AggregateFunction(call) = function
            && call.func.name() == "grouping"
        {
            // It takes keys, not values.
            call.params.args = rename(&call.params.args)?;
            names.insert(was, column_of(function));
        }
    }
    let keys = rename(&aggregate.group_expr)?;
    let aggregate = Aggregate::try_new(Arc::clone(&aggregate.input), keys, aggregates)?;
    Ok(Some((LogicalPlan::Aggregate(aggregate), names)))
}

/// The column that an expression is above its node.
fn column_of(expression: &Expr) -> Column {
    let (relation, name) = expression.qualified_name();
    Column::new(relation, name)
}

/// A node above an input whose columns have new names; its own have the old ones.
fn above(node: &LogicalPlan, input: LogicalPlan, names: &Names) -> Result<LogicalPlan> {
    let preserver = NamePreserver::new(node);
    let expressions = node.expressions().into_iter().map(|expression| {
        let saved = preserver.save(&expression);
        Ok(saved.restore(with_new_columns(expression, names)?))
    });
    node.with_new_exprs(expressions.collect::<Result<_>>()?, vec![input])
}

/// `DISTINCT ON` right above groups, which has its own columns.
fn first_rows_above(rows: DistinctOn, input: LogicalPlan, names: &Names) -> Result<LogicalPlan> {
    let preserver = NamePreserver::new_for_projection();
    let columns = rows.select_expr.into_iter().map(|expression| {
        let saved = preserver.save(&expression);
        Ok(saved.restore(with_new_columns(expression, names)?))
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let keys =
        rows.on_expr.into_iter().map(|key| with_new_columns(key, names)).collect::<Result<Vec<_>>>()?;
    let order = rows.sort_expr.map(|order| {
        let order = order.into_iter().map(|mut sort| {
            sort.expr = with_new_columns(sort.expr, names)?;
            Ok(sort)
        });
        order.collect::<Result<Vec<_>>>()
    });
    let rows = DistinctOn::try_new(keys, columns, order.transpose()?, Arc::new(input))?;
    Ok(LogicalPlan::Distinct(Distinct::On(rows)))
}

fn with_new_columns(expression: Expr, names: &Names) -> Result<Expr> {
    let renamed = expression.transform(|part| {
        Ok(match &part {
            Expr::Column(column) => match names.get(column) {
                Some(new) => Transformed::yes(Expr::Column(new.clone())),
                None => Transformed::no(part),
            },
            _ => Transformed::no(part),
        })
    });
    renamed.data()
}
