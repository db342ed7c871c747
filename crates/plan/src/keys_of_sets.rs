//! Keys of grouping sets that are computed become columns, computed below the aggregation.
//!
//! Rules that change an expression keep its name with an alias around it. Around a whole grouping set no rule knows the
//! alias, and the keys inside have new names: `GROUP BY CUBE(CAST(x AS INT))` finds no column, or loses the row of all rows.
//! In a projection each key has its own alias.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Projection};
use datafusion::optimizer::AnalyzerRule;

/// Computes the keys of grouping sets below their aggregation, and gives them their names back above it.
#[derive(Debug)]
pub struct KeysOfSets;

impl AnalyzerRule for KeysOfSets {
    fn name(&self) -> &str {
        "keys_of_sets"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Aggregate(aggregate) => keys_computed_below(aggregate),
            other => Ok(Transformed::no(other)),
        })
        .data()
    }
}

/// Keys that are computed, and the names of their columns.
type Names = Vec<(Expr, String)>;

fn keys_computed_below(aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let [Expr::GroupingSet(sets)] = aggregate.group_expr.as_slice() else {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    };
    // What a sub-query sees of the query around it is not moved.
    let computed = |key: &&Expr| !matches!(key, Expr::Column(_)) && !key.contains_outer();
    let taken = aggregate.input.schema();
    let free = (0..).map(|number| format!("__key_{number}"));
    let free = free.filter(|name| !taken.has_column_with_unqualified_name(name));
    let names: Names = sets.distinct_expr().into_iter().filter(computed).cloned().zip(free).collect();
    if names.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let columns = taken.columns().into_iter().map(Expr::Column);
    let keys = names.iter().map(|(key, name)| key.clone().unalias().alias(name));
    let below = Projection::try_new(columns.chain(keys).collect(), Arc::clone(&aggregate.input))?;

    let keys = aggregate.group_expr.iter().map(|sets| with_columns(sets.clone(), &names));
    let functions = aggregate.aggr_expr.iter().cloned().map(|function| {
        function.transform(|part| match part {
            // It takes keys, not values.
            Expr::AggregateFunction(mut call) if call.func.name() == "grouping" => {
                let args = std::mem::take(&mut call.params.args).into_iter();
                call.params.args = args.map(|key| with_columns(key, &names)).collect::<Result<_>>()?;
                Ok(Transformed::yes(Expr::AggregateFunction(call)))
            }
            other => Ok(Transformed::no(other)),
        })
    });
    let functions = functions.map(TransformedResult::data).collect::<Result<_>>()?;
    let above = Aggregate::try_new(
        Arc::new(LogicalPlan::Projection(below)),
        keys.collect::<Result<_>>()?,
        functions,
    )?;
    // The number of the set is for `grouping` alone, which another rule reads it for.
    let columns = above.schema.columns().into_iter().zip(aggregate.schema.columns());
    let named = columns.filter(|(now, _)| now.name != Aggregate::INTERNAL_GROUPING_ID).map(|(now, was)| {
        if now == was { Expr::Column(now) } else { Expr::Column(now).alias_qualified(was.relation, was.name) }
    });
    let named = Projection::try_new(named.collect(), Arc::new(LogicalPlan::Aggregate(above)))?;
    Ok(Transformed::yes(LogicalPlan::Projection(named)))
}

/// A key, or sets of keys, with columns in place of those that are computed.
fn with_columns(keys: Expr, names: &[(Expr, String)]) -> Result<Expr> {
    keys.transform_down(|part| {
        Ok(match (&part, names.iter().find(|(key, _)| *key == part)) {
            (Expr::GroupingSet(_), _) => Transformed::no(part),
            (_, Some((_, name))) => {
                let column = Expr::Column(Column::new_unqualified(name));
                Transformed::new(column, true, TreeNodeRecursion::Jump)
            }
            (_, None) => Transformed::new(part, false, TreeNodeRecursion::Jump),
        })
    })
    .data()
}
