//! Orders of aggregates name every value once.
//!
//! DataFusion keeps the values that an order compares in the states of groups, one for each of its parts, but an order of
//! its own holds equal parts once: `first(a ORDER BY b, b)` has one value too many, and its accumulator panics. A part that
//! is equal to an earlier one orders nothing. Casts to the type that a value has already are no difference: they are left
//! out of the operators.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
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
        let schema = Arc::clone(aggregate.input.schema());
        if !aggregate.aggr_expr.iter().any(|expr| repeats_parts(expr, &schema)) {
            return Ok(Transformed::no(plan));
        }
        // The functions' names say what they were ordered by, and are what operators above call them.
        plan.map_expressions(|expr| {
            let name = expr.qualified_name();
            let short = expr.transform(|part| Ok(without_repeats(part, &schema)))?;
            Ok(short.update_data(|expr| match expr.qualified_name() == name {
                true => expr,
                false => expr.alias_qualified(name.0, name.1),
            }))
        })
    }
}

fn repeats_parts(expr: &Expr, schema: &DFSchema) -> bool {
    let Expr::AggregateFunction(call) = functions_call(expr) else { return false };
    let mut known = HashSet::new();
    call.params.order_by.iter().any(|part| !known.insert(without_casts(&part.expr, schema)))
}

/// A value without the casts around it that do nothing.
fn without_casts<'e>(expr: &'e Expr, schema: &DFSchema) -> &'e Expr {
    match expr {
        Expr::Cast(cast) if cast.expr.get_type(schema).is_ok_and(|is| is == *cast.field.data_type()) => {
            without_casts(&cast.expr, schema)
        }
        Expr::Alias(alias) => without_casts(&alias.expr, schema),
        other => other,
    }
}

/// A function of an aggregation below its names.
fn functions_call(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => functions_call(&alias.expr),
        other => other,
    }
}

fn without_repeats(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr {
        Expr::AggregateFunction(mut call) => {
            let parts = call.params.order_by.len();
            let mut known = HashSet::new();
            call.params.order_by.retain(|part| known.insert(without_casts(&part.expr, schema).clone()));
            let is_shorter = call.params.order_by.len() < parts;
            Transformed::new_transformed(Expr::AggregateFunction(call), is_shorter)
        }
        other => Transformed::no(other),
    }
}
