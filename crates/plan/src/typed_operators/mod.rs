//! Operators whose meaning depends on the types of their operands, which are resolved when DataFusion's analyzer has
//! run.
//!
//! | expression | DataFusion | here |
//! |---|---|---|
//! | `9223372036854775807 + 1` | wraps around | an error: [`integers`] |
//! | `x * 2` of decimals with 38 digits | shown without the last digit | an error: [`decimals`] |
//! | `CAST(5.3 AS DECIMAL(2, 0)) = 5` | `5.3 = 5.0` where the decimal is a column: false | true: [`casts`] |
//! | `INTERVAL '30 days' < INTERVAL '1 month'` | true: months first | false, they are equal: [`lengths`] |
//! | `[1] < [NULL]`, `max` of lists and structs | nulls inside come first | last, as in `ORDER BY`: [`nested`] |
//! | `PARTITION BY 0.0 * x`, `-0.0 IN (0.0, 1.0)`, `nullif(-0.0, 0.0)` | -0.0 and 0.0 apart | equal, as in `GROUP BY`: [`floats`] |
//! | `CAST('1e3' AS DECIMAL(5, 1))`, `CAST(6.67 AS INT)`, `CAST([1] AS TEXT)` | an error, 6, refused | 1000.0, 7, `[1]`: [`casts`] |
//! | `1::VARIANT = 1.0::VARIANT` | false: other bytes | true: [`variants`] |
//! | `date_trunc('hour', …)` of the first timestamp | one of 2262 | an error: [`truncation`] |
//!
//! The expressions become functions, since constants are folded before there is a physical plan.

mod casts;
pub(crate) mod decimals;
mod floats;
mod integers;
mod lengths;
mod nested;
mod truncation;
mod variants;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{AggregateFunction, WindowFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::optimizer::AnalyzerRule;
use nandina_functions::is_variant;

use crate::nodes::{has_only_columns, input_schema};

/// Gives operators the meaning that they have for people of DuckDB and Postgres.
#[derive(Debug)]
pub struct TypedOperators;

impl AnalyzerRule for TypedOperators {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            // Of columns alone, only how they are ordered may change.
            if !matches!(node, LogicalPlan::Sort(_)) && has_only_columns(&node)? {
                return Ok(Transformed::no(node));
            }
            let schema = input_schema(&node)?;
            let names = NamePreserver::new(&node);
            let keys = match &node {
                LogicalPlan::Sort(sort) => sort.expr.len(),
                _ => 0,
            };
            node.map_expressions(|expression| {
                let name = names.save(&expression);
                let settled = expression.transform_up(|part| {
                    casts::kept(part, &schema).transform_data(|part| settled(part, &schema))
                })?;
                let settled = settled.transform_data(|expression| match keys {
                    0 => Ok(Transformed::no(expression)),
                    // Both zeros are as good as each other, and statistics are for plain columns.
                    1 => lengths::key(expression, &schema),
                    _ => compared(expression, &schema),
                })?;
                Ok(settled.update_data(|expression| name.restore(expression)))
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        "typed_operators"
    }
}

fn settled(part: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match part {
        Expr::BinaryExpr(operation) => {
            let types = [&operation.left, &operation.right].map(|side| type_of(side, schema));
            let of_types = integers::operation(&operation, &types)
                .or_else(|| decimals::operation(&operation, &types, schema))
                .or_else(|| lengths::comparison(&operation, &types))
                .or_else(|| variants::comparison(&operation, &types))
                .or_else(|| nested::comparison(&operation, &types))
                .or_else(|| floats::quotient(&operation, &types));
            match of_types {
                Some(settled) => Transformed::yes(settled),
                None => Transformed::no(Expr::BinaryExpr(operation)),
            }
        }
        Expr::Negative(ref negated) => match integers::negation(negated, &type_of(negated, schema)) {
            Some(settled) => Transformed::yes(settled),
            None => Transformed::no(part),
        },
        Expr::Between(between) => {
            let compared = type_of(&between.expr, schema);
            lengths::between(between, &compared, |between| {
                variants::between(between, &compared, |between| nested::between(between, &compared))
            })
        }
        Expr::InList(list) => {
            let compared = type_of(&list.expr, schema);
            lengths::in_list(list, &compared).transform_data(|settled| {
                Ok(match settled {
                    Expr::InList(list) if is_variant(&compared) => variants::in_list(list, &compared),
                    Expr::InList(list) => floats::in_list(list, schema),
                    other => Transformed::no(other),
                })
            })?
        }
        Expr::Cast(_) | Expr::TryCast(_) => casts::own(part, schema),
        Expr::Case(case) => floats::case(case, schema),
        Expr::ScalarFunction(function) => floats::function(function, schema)
            .transform_data(|function| Ok(truncation::checked(function, schema)))?,
        Expr::AggregateFunction(function) => aggregate(function, schema)?,
        Expr::WindowFunction(window) => ordered_window(window, schema)?,
        other => Transformed::no(other),
    })
}

/// Distinct values and orders as they are compared; `min` and `max` of intervals as the first and last value of their order.
fn aggregate(function: AggregateFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let AggregateFunction { func, mut params } = function;
    let mut is_new = false;
    if params.distinct {
        // Values are ordered by themselves then.
        let keys = params.order_by.iter_mut().map(|sort| &mut sort.expr);
        is_new |= as_compared(params.args.iter_mut().chain(keys), schema);
    }
    for sort in &mut params.order_by {
        let key = lengths::key(sort.expr.clone(), schema)?;
        is_new |= key.transformed;
        sort.expr = key.data;
    }
    if let [value] = params.args.as_slice()
        && matches!(func.name(), "min" | "max")
        && matches!(type_of(value, schema), DataType::Interval(_))
    {
        let key = lengths::key(value.clone(), schema)?.data;
        let is_least = func.name() == "min";
        return Ok(Transformed::yes(lengths::extreme(is_least, value.clone(), key, params.filter)));
    }
    Ok(Transformed::new_transformed(Expr::AggregateFunction(AggregateFunction { func, params }), is_new))
}

/// Makes floating-point numbers what they are compared as, and says whether there were any.
fn as_compared<'a>(values: impl Iterator<Item = &'a mut Expr>, schema: &DFSchema) -> bool {
    let mut is_new = false;
    // An argument that is no value but says how to compute, as the fraction of a percentile, stays a constant.
    for value in values.filter(|value| !matches!(value, Expr::Literal(..))) {
        let as_compared = floats::compared(std::mem::take(value), schema);
        is_new |= as_compared.transformed;
        *value = as_compared.data;
    }
    is_new
}

/// A window function with its keys as they are compared.
fn ordered_window(mut window: Box<WindowFunction>, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let mut is_new = window.params.distinct && as_compared(window.params.args.iter_mut(), schema);
    // The bounds of a frame by values are told in the type of the key.
    if window.params.window_frame.can_accept_multi_orderby() {
        for sort in &mut window.params.order_by {
            let key = compared(sort.expr.clone(), schema)?;
            is_new |= key.transformed;
            sort.expr = key.data;
        }
    }
    for key in &mut window.params.partition_by {
        let as_compared = compared(key.clone(), schema)?;
        is_new |= as_compared.transformed;
        *key = as_compared.data;
    }
    Ok(Transformed::new_transformed(Expr::WindowFunction(window), is_new))
}

/// Whether an operator compares two values of one type.
pub(crate) fn compares(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
    )
}

/// A key of a window, or one of several of a sort, as it is compared with others, bit by bit.
fn compared(key: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let compared = floats::compared(key, schema);
    if compared.transformed { Ok(compared) } else { lengths::key(compared.data, schema) }
}

/// The type of an expression; `Null` for a parameter that has none yet, with which the rule runs again.
fn type_of(expression: &Expr, schema: &DFSchema) -> DataType {
    let links = std::iter::successors(Some(expression), |link| integers::operand(link));
    links.last().unwrap_or(expression).get_type(schema).unwrap_or(DataType::Null)
}
