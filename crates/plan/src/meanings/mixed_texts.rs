//! Texts, truth values and values of an `ENUM` that meet something else.
//!
//! A text that is compared with another type is cast to it, as in Postgres and DuckDB: `true = 'yes'`, `[1] = '[1]'`. A truth
//! value that is compared with a number is one: `2 = true` is false. An `ENUM` is a text wherever it does not meet its own
//! kind. Anything that meets a `VARIANT`, or a value of a `UNION`, becomes one.

use std::collections::HashSet;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, ExprSchemable, Operator, cast};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use nandina_functions::{enum_texts, is_union, is_variant};

use super::variants::settle_marked;
use crate::typed_operators::compares;

/// Functions that take values of an `ENUM` as what they are.
const OF_ANY_TYPE: [&str; 12] = [
    "typeof",
    "arrow_typeof",
    "make_array",
    "named_struct",
    "struct",
    "coalesce",
    "cast",
    "try_cast",
    "enum_first",
    "enum_last",
    "enum_range",
    "enum_range_boundary",
];

/// Those that compare values of one type.
const COMPARING: [&str; 3] = ["greatest", "least", "nullif"];

/// Functions whose arguments are all of one type.
const OF_ONE_TYPE: [&str; 2] = ["make_array", "coalesce"];

#[derive(Debug)]
pub(super) struct MixedTexts;

impl FunctionRewrite for MixedTexts {
    fn name(&self) -> &str {
        "mixed_texts"
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema, _: &ConfigOptions) -> Result<Transformed<Expr>> {
        let settle = |operands: Vec<&mut Expr>| settle(operands, schema);
        Ok(match expr {
            Expr::BinaryExpr(BinaryExpr { mut left, op, mut right }) if compares(op) => {
                let is_new = settle(vec![left.as_mut(), right.as_mut()]);
                Transformed::new_transformed(Expr::BinaryExpr(BinaryExpr { left, op, right }), is_new)
            }
            Expr::Between(mut between) => {
                let Between { expr, low, high, .. } = &mut between;
                let is_new = settle(vec![expr.as_mut(), low.as_mut(), high.as_mut()]);
                Transformed::new_transformed(Expr::Between(between), is_new)
            }
            Expr::InList(mut list) => {
                let InList { expr, list: values, .. } = &mut list;
                let operands = std::iter::once(expr.as_mut()).chain(values);
                let is_new = settle(operands.collect());
                Transformed::new_transformed(Expr::InList(list), is_new)
            }
            Expr::ScalarFunction(mut function) if OF_ONE_TYPE.contains(&function.func.name()) => {
                let is_new = settle_marked(function.args.iter_mut().collect(), schema);
                Transformed::new_transformed(Expr::ScalarFunction(function), is_new)
            }
            Expr::Case(mut case) => {
                let results = case.when_then_expr.iter_mut().map(|(_, then)| then.as_mut());
                let is_new = settle_marked(results.chain(case.else_expr.as_deref_mut()).collect(), schema);
                Transformed::new_transformed(Expr::Case(case), is_new)
            }
            Expr::ScalarFunction(mut function) if !OF_ANY_TYPE.contains(&function.func.name()) => {
                let types = function.args.iter().map(|argument| argument.get_type(schema).ok());
                if COMPARING.contains(&function.func.name())
                    && types.clone().all(|of| of.is_some())
                    && types.collect::<HashSet<_>>().len() == 1
                {
                    return Ok(Transformed::no(Expr::ScalarFunction(function)));
                }
                let mut is_new = false;
                for argument in &mut function.args {
                    is_new |= as_text(argument, schema);
                }
                Transformed::new_transformed(Expr::ScalarFunction(function), is_new)
            }
            other => Transformed::no(other),
        })
    }
}

/// A comparison of values of two types, or a text put together of some; none if that is for others to plan.
pub(super) fn operation(
    operator: &BinaryOperator,
    left: &Expr,
    right: &Expr,
    schema: &DFSchema,
) -> Option<Expr> {
    let operator = match operator {
        BinaryOperator::Eq => Operator::Eq,
        BinaryOperator::NotEq => Operator::NotEq,
        BinaryOperator::Lt => Operator::Lt,
        BinaryOperator::LtEq => Operator::LtEq,
        BinaryOperator::Gt => Operator::Gt,
        BinaryOperator::GtEq => Operator::GtEq,
        BinaryOperator::Spaceship => Operator::IsNotDistinctFrom,
        BinaryOperator::StringConcat => Operator::StringConcat,
        _ => return None,
    };
    let (mut left, mut right) = (left.clone(), right.clone());
    let is_new = match operator {
        Operator::StringConcat => as_text(&mut left, schema) | as_text(&mut right, schema),
        _ => settle(vec![&mut left, &mut right], schema),
    };
    is_new.then(|| Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right))))
}

/// Casts a value of an `ENUM` to its text. True if it is one.
fn as_text(value: &mut Expr, schema: &DFSchema) -> bool {
    let is_enum = value.get_type(schema).is_ok_and(|of| enum_texts(&of).is_some());
    if is_enum {
        *value = cast(std::mem::take(value), DataType::Utf8View);
    }
    is_enum
}

/// Casts texts, truth values or dates to the one type that others have. True if there are any.
pub(super) fn settle(operands: Vec<&mut Expr>, schema: &DFSchema) -> bool {
    let types: Vec<DataType> =
        operands.iter().map(|operand| operand.get_type(schema).unwrap_or(DataType::Null)).collect();
    let mut others = types.iter().filter(|of| !of.is_null() && !of.is_string());
    let Some(first) = others.next() else { return false };
    if let Some(all) = types.iter().find(|of| takes_all(of)) {
        let mut operands = operands;
        if is_variant(all) {
            operands.iter_mut().for_each(|operand| super::variants::say_decimals(operand));
        }
        return cast_those(operands, &types, |of| !of.is_null() && of != all, all);
    }
    let is_enum = |of: &DataType| enum_texts(of).is_some();
    if types.iter().any(is_enum) {
        let are_of_one = types.iter().all(|of| of.is_null() || of == first);
        return !are_of_one && cast_those(operands, &types, is_enum, &DataType::Utf8View);
    }
    let has_texts = types.iter().any(DataType::is_string);
    let is_boolean = |of: &DataType| *of == DataType::Boolean;
    if has_texts && others.all(|of| of == first) && takes_texts(first) {
        return cast_those(operands, &types, DataType::is_string, first);
    }
    // DataFusion would compare both in nanoseconds, which have fewer years.
    let is_date = |of: &DataType| *of == DataType::Date32;
    let mut points = types.iter().filter(|of| !of.is_null() && !is_date(of));
    if let Some(point @ DataType::Timestamp(_, None)) = points.next()
        && points.all(|of| of == point)
        && types.iter().any(is_date)
    {
        return cast_those(operands, &types, is_date, point);
    }
    let number = types.iter().find(|of| of.is_numeric());
    match number {
        Some(number) if types.iter().any(is_boolean) => {
            // A decimal may have no digit before the point.
            let to = if number.is_decimal() { &DataType::Int64 } else { number };
            cast_those(operands, &types, is_boolean, to)
        }
        _ => false,
    }
}

/// Whether values of any other type become those of a type that they meet.
pub(crate) fn takes_all(of: &DataType) -> bool {
    is_variant(of) || is_union(of)
}

/// Whether texts are cast to a type here. Those that are compared with numbers and dates DataFusion casts by itself; a
/// timestamp it would make one of nanoseconds.
fn takes_texts(of: &DataType) -> bool {
    use DataType::{Boolean, Interval, Time64, Timestamp};
    of.is_nested() || matches!(of, Boolean | Interval(_) | Time64(_) | Timestamp(..))
}

fn cast_those(
    operands: Vec<&mut Expr>,
    types: &[DataType],
    is_cast: impl Fn(&DataType) -> bool,
    to: &DataType,
) -> bool {
    let mut is_new = false;
    for (operand, of) in operands.into_iter().zip(types) {
        if is_cast(of) {
            *operand = cast(std::mem::take(operand), to.clone());
            is_new = true;
        }
    }
    is_new
}
