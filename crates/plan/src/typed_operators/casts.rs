//! Casts of values that DataFusion takes for something else, or refuses, and casts that lose something, in comparisons.
//!
//! The first become functions: [`nandina_functions::cast_array`]. Of the others, DataFusion compares the argument of a cast in place of the cast, with a constant of its type: `x = 5.0` in place of
//! `CAST(x AS DECIMAL(5, 0)) = 5`, which also holds for 5.3, or `x > 3` in place of `TRY_CAST(x AS INTEGER) > 3`, which is null
//! for large numbers. Only a cast that keeps every value can be left out. The others become arguments of a function,
//! through which the rules do not look.

use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, internal_err};
use datafusion::logical_expr::expr::{Between, Cast, InList, TryCast};
use datafusion::logical_expr::{BinaryExpr, Expr, cast};
use nandina_functions::{CAST_FUNCTION, Failed, cast_call, is_cast_of_points, is_own_cast};

use super::{compares, type_of};
use crate::meanings::call;

/// A cast as the function that computes it, if it is one of ours.
pub(super) fn own(casted: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let (value, to, failed) = match &casted {
        Expr::Cast(Cast { expr, field }) => (expr, field.data_type(), Failed::IsError),
        Expr::TryCast(TryCast { expr, field }) => (expr, field.data_type(), Failed::IsNull),
        _ => return Transformed::no(casted),
    };
    match is_own_cast(&type_of(value, schema), to) {
        true => Transformed::yes(cast_call(value.as_ref().clone(), to, failed)),
        false => Transformed::no(casted),
    }
}

/// A comparison whose operands are not compared without their casts.
pub(super) fn kept(comparison: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let keep = |operand: Box<Expr>, has_any: &mut bool| {
        if let Some(left_to_arrow) = cast_of_points(&operand, schema) {
            *has_any = true;
            return Box::new(left_to_arrow);
        }
        if !loses_something(&operand, schema) {
            return operand;
        }
        *has_any = true;
        Box::new(call("kept_cast", as_it_is, vec![*operand]))
    };
    let mut has_any = false;
    let kept = match comparison {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(op) => {
            let (left, right) = (keep(left, &mut has_any), keep(right, &mut has_any));
            Expr::BinaryExpr(BinaryExpr { left, op, right })
        }
        Expr::Between(Between { expr, negated, low, high }) => {
            let (low, high) = (keep(low, &mut has_any), keep(high, &mut has_any));
            Expr::Between(Between { expr: keep(expr, &mut has_any), negated, low, high })
        }
        Expr::InList(InList { expr, list, negated }) => {
            Expr::InList(InList { expr: keep(expr, &mut has_any), list, negated })
        }
        other => other,
    };
    Transformed::new_transformed(kept, has_any)
}

/// The cast of a date or point in time to one that is finer, which rules look into to prune what they read. Infinite ones are
/// an error in it.
fn cast_of_points(operand: &Expr, schema: &DFSchema) -> Option<Expr> {
    let Expr::ScalarFunction(function) = operand else { return None };
    let ([value], CAST_FUNCTION) = (function.args.as_slice(), function.func.name()) else { return None };
    let to = type_of(operand, schema);
    let is_column = !value.column_refs().is_empty();
    (is_column && is_cast_of_points(&type_of(value, schema), &to)).then(|| cast(value.clone(), to))
}

fn as_it_is(values: &[ArrayRef]) -> Result<ArrayRef> {
    match values {
        [values] => Ok(Arc::clone(values)),
        _ => internal_err!("a cast of {} values", values.len()),
    }
}

/// Whether an expression is a cast, or several, of which one loses something.
fn loses_something(expression: &Expr, schema: &DFSchema) -> bool {
    match expression {
        Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
            let from = type_of(expr, schema);
            (is_left_out(&from, field.data_type()) && !keeps_all(&from, field.data_type()))
                || loses_something(expr, schema)
        }
        _ => false,
    }
}

/// Whether DataFusion may leave out a cast between two types.
fn is_left_out(from: &DataType, to: &DataType) -> bool {
    let is_number_or_time =
        |of: &DataType| of.is_integer() || of.is_decimal() || of.is_temporal() || of.is_string();
    is_number_or_time(from) && is_number_or_time(to)
}

/// Whether a cast keeps all values, each as one of its own, in their order.
fn keeps_all(from: &DataType, to: &DataType) -> bool {
    use DataType::{Date32, Date64, Timestamp};
    if from == to || (from.is_string() && to.is_string()) {
        return true;
    }
    match (from, to) {
        (Date32, Date64 | Timestamp(..)) | (Date64, Timestamp(..)) => true,
        (Timestamp(unit, zone), Timestamp(finer, other_zone)) => zone == other_zone && unit <= finer,
        // Rules look at the text of a number, whether it is one that the number has.
        (number, text) if number.is_integer() && text.is_string() => true,
        _ => match (digits_of(from), digits_of(to)) {
            (Some((digits, scale)), Some((more_digits, more_scale))) => {
                scale <= more_scale && digits - scale <= more_digits - more_scale && keeps_signs(from, to)
            }
            _ => false,
        },
    }
}

/// Decimal digits that every number of a type has at most, of which some are behind the point. An integer that is cast to
/// may have one digit less.
fn digits_of(data_type: &DataType) -> Option<(i16, i16)> {
    Some(match data_type {
        DataType::Int8 | DataType::UInt8 => (3, 0),
        DataType::Int16 | DataType::UInt16 => (5, 0),
        DataType::Int32 | DataType::UInt32 => (10, 0),
        DataType::Int64 => (19, 0),
        DataType::UInt64 => (20, 0),
        DataType::Decimal32(digits, scale)
        | DataType::Decimal64(digits, scale)
        | DataType::Decimal128(digits, scale)
        | DataType::Decimal256(digits, scale) => (i16::from(*digits), i16::from(*scale)),
        _ => return None,
    })
}

/// Whether signs, and what an integer lacks of its digits, are no matter.
fn keeps_signs(from: &DataType, to: &DataType) -> bool {
    let bits = |integer: &DataType| integer.primitive_width();
    match (from.is_integer(), to.is_integer()) {
        (_, false) => true,
        (true, true) if from.is_signed_integer() == to.is_signed_integer() => bits(from) <= bits(to),
        (true, true) => from.is_unsigned_integer() && bits(from) < bits(to),
        // A decimal of as many digits may be too large.
        (false, true) => {
            let digits = |of| digits_of(of).map(|(digits, _)| digits);
            to.is_signed_integer() && digits(from) < digits(to)
        }
    }
}
