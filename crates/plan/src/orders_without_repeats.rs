//! Orders of aggregates name every value once.
//!
//! DataFusion keeps the values that an order compares in the states of groups, one for each of its parts, but an order of
//! its own holds equal parts once: `first(a ORDER BY b, b)` has one value too many, and its accumulator panics. A part that
//! is equal to an earlier one orders nothing.

use std::collections::HashSet;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// Leaves repeated parts out of the orders of aggregates.
///
/// It belongs behind the simplification of expressions, which makes parts equal.
#[derive(Debug)]
pub struct OrdersWithoutRepeats;

impl OptimizerRule for OrdersWithoutRepeats {
    fn name(&self) -> &'static str {
        "orders_without_repeats"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Aggregate(aggregate) = &plan else { return Ok(Transformed::no(plan)) };
        if !aggregate.aggr_expr.iter().any(repeats_parts) {
            return Ok(Transformed::no(plan));
        }
        // The functions' names say what they were ordered by, and are what operators above call them.
        plan.map_expressions(|expr| {
            let name = expr.qualified_name();
            let short = expr.transform(|part| Ok(without_repeats(part)))?;
            Ok(short.update_data(|expr| match expr.qualified_name() == name {
                true => expr,
                false => expr.alias_qualified(name.0, name.1),
            }))
        })
    }
}

fn repeats_parts(expr: &Expr) -> bool {
    let Expr::AggregateFunction(call) = functions_call(expr) else { return false };
    let mut known = HashSet::new();
    call.params.order_by.iter().any(|part| !known.insert(&part.expr))
}

/// A function of an aggregation below its names.
fn functions_call(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => functions_call(&alias.expr),
        other => other,
    }
}

fn without_repeats(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::AggregateFunction(mut call) => {
            let parts = call.params.order_by.len();
            let mut known = HashSet::new();
            call.params.order_by.retain(|part| known.insert(part.expr.clone()));
            let is_shorter = call.params.order_by.len() < parts;
            Transformed::new_transformed(Expr::AggregateFunction(call), is_shorter)
        }
        other => Transformed::no(other),
    }
}
