//! Numbers of different types, and values that stand in for nulls.
//!
//! Where a floating-point number meets a decimal, both are taken for floating-point numbers, as in Postgres and DuckDB.
//! DataFusion takes them for decimals, which have no place for small numbers, and none for NaN and the infinities.
//!
//! A number that is written with a point is a decimal in Postgres and DuckDB, and one where it meets a decimal here, too:
//! `price < 0.06 + 0.01`. `ifnull(a, b)` is of a type that holds both, as `coalesce` is; DataFusion's is of the first
//! one's. The median of sums of integers, which are decimals without a fraction, may have one.

use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::functions::core::coalesce;
use datafusion::logical_expr::expr::{InList, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{Between, BinaryExpr, Case, Expr, ExprSchemable, Operator, cast};

use crate::typed_operators::compares;

/// Functions whose arguments are of one type.
const OF_ONE_TYPE: [&str; 6] = ["coalesce", "greatest", "least", "make_array", "nullif", "nvl"];

#[derive(Debug)]
pub(super) struct MixedTypes;

impl FunctionRewrite for MixedTypes {
    fn name(&self) -> &str {
        "mixed_types"
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema, _: &ConfigOptions) -> Result<Transformed<Expr>> {
        let settle = |operands: &mut [&mut Expr]| {
            let types: Vec<DataType> =
                operands.iter().map(|operand| operand.get_type(schema).unwrap_or(DataType::Null)).collect();
            settle(operands, &types)
        };
        Ok(match expr {
            Expr::BinaryExpr(BinaryExpr { mut left, op, mut right }) if compares(op) => {
                let is_new = settle(&mut [&mut left, &mut right]);
                Transformed::new_transformed(Expr::BinaryExpr(BinaryExpr { left, op, right }), is_new)
            }
            Expr::Between(mut between) => {
                let Between { expr, low, high, .. } = &mut between;
                let is_new = settle(&mut [expr, low, high]);
                Transformed::new_transformed(Expr::Between(between), is_new)
            }
            Expr::InList(mut list) => {
                let InList { expr, list: values, .. } = &mut list;
                let mut operands: Vec<&mut Expr> = vec![expr];
                operands.extend(values);
                let is_new = settle(&mut operands);
                Transformed::new_transformed(Expr::InList(list), is_new)
            }
            Expr::Case(mut case) => {
                let Case { expr, when_then_expr, else_expr } = &mut case;
                let (whens, thens): (Vec<&mut Box<Expr>>, Vec<&mut Box<Expr>>) =
                    when_then_expr.iter_mut().map(|(when, then)| (when, then)).unzip();
                let mut results: Vec<&mut Expr> =
                    thens.into_iter().chain(else_expr).map(Box::as_mut).collect();
                let mut is_new = settle(&mut results);
                if let Some(operand) = expr {
                    let operands = std::iter::once(operand).chain(whens);
                    is_new |= settle(&mut operands.map(Box::as_mut).collect::<Vec<_>>());
                }
                Transformed::new_transformed(Expr::Case(case), is_new)
            }
            Expr::ScalarFunction(mut function) if OF_ONE_TYPE.contains(&function.func.name()) => {
                let mut is_new = settle(&mut function.args.iter_mut().collect::<Vec<_>>());
                if function.func.name() == "nvl" {
                    function = ScalarFunction::new_udf(coalesce(), function.args);
                    is_new = true;
                }
                Transformed::new_transformed(Expr::ScalarFunction(function), is_new)
            }
            Expr::AggregateFunction(mut function) if function.func.name() == "median" => {
                let is_integer = |argument: &Expr| {
                    matches!(argument.get_type(schema), Ok(DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0)))
                };
                let is_new = function.params.args.iter().any(is_integer);
                if is_new {
                    let args = std::mem::take(&mut function.params.args);
                    let cast_to_float = |argument| cast(argument, DataType::Float64);
                    function.params.args = args.into_iter().map(cast_to_float).collect();
                }
                Transformed::new_transformed(Expr::AggregateFunction(function), is_new)
            }
            other => Transformed::no(other),
        })
    }
}

/// Gives operands one kind of numbers, if they are of two. True if that changes any.
pub(crate) fn settle(operands: &mut [&mut Expr], types: &[DataType]) -> bool {
    let has = |is_such: fn(&DataType) -> bool| types.iter().any(is_such);
    if !has(DataType::is_floating) || !has(DataType::is_decimal) {
        return false;
    }
    let as_written = operands.iter().zip(types).map(|(operand, data_type)| match data_type.is_floating() {
        true => as_decimal(operand),
        false => Some(Expr::clone(operand)),
    });
    if let Some(as_written) = as_written.collect::<Option<Vec<Expr>>>() {
        for (operand, decimal) in operands.iter_mut().zip(as_written) {
            **operand = decimal;
        }
        return true;
    }
    for (operand, data_type) in operands.iter_mut().zip(types) {
        if data_type.is_decimal() {
            let decimal = std::mem::take(*operand);
            **operand = cast(decimal, DataType::Float64);
        }
    }
    true
}

/// The decimal that a constant was written as, or a sum, difference or product of such.
pub(crate) fn as_decimal(constant: &Expr) -> Option<Expr> {
    match constant {
        Expr::Literal(ScalarValue::Float64(Some(number)), _) => {
            decimal(*number).map(|value| Expr::Literal(value, None))
        }
        Expr::Literal(ScalarValue::Int64(Some(number)), _) => {
            let digits = u8::try_from(number.unsigned_abs().to_string().len()).ok()?;
            Some(Expr::Literal(ScalarValue::Decimal128(Some((*number).into()), digits, 0), None))
        }
        Expr::Negative(negated) => Some(Expr::Negative(Box::new(as_decimal(negated)?))),
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply) =>
        {
            let sides = [left, right].map(|side| as_decimal(side).map(Box::new));
            let [Some(left), Some(right)] = sides else { return None };
            Some(Expr::BinaryExpr(BinaryExpr::new(left, *op, right)))
        }
        _ => None,
    }
}

/// Digits on either side of the point up to which a number is written without an exponent.
const MOST_DIGITS: usize = 15;

/// The decimal of fewest digits that reads as this number; `None` if it takes more than [`MOST_DIGITS`] on a side, or
/// is not finite.
fn decimal(number: f64) -> Option<ScalarValue> {
    let shortest = number.to_string();
    let (whole, fraction) = shortest.split_once('.').unwrap_or((&shortest, ""));
    let whole_digits = whole.trim_start_matches('-').len();
    if !number.is_finite() || whole_digits > MOST_DIGITS || fraction.len() > MOST_DIGITS {
        return None;
    }
    let unscaled = format!("{whole}{fraction}").parse().ok()?;
    let digits = u8::try_from(whole_digits + fraction.len()).ok()?;
    let scale = i8::try_from(fraction.len()).ok()?;
    Some(ScalarValue::Decimal128(Some(unscaled), digits, scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_as_they_were_written() {
        let of = |unscaled, digits, scale| Some(ScalarValue::Decimal128(Some(unscaled), digits, scale));
        assert_eq!(decimal(0.06), of(6, 3, 2));
        assert_eq!(decimal(-12.5), of(-125, 3, 1));
        assert_eq!(decimal(0.0), of(0, 1, 0));
        assert_eq!(decimal(3.0), of(3, 1, 0));
        for number in [1e30, 1e-20, f64::NAN, f64::INFINITY, 0.1 + 0.2] {
            assert_eq!(decimal(number), None, "{number}");
        }
    }
}
