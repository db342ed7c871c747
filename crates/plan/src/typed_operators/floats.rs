//! Floating-point numbers that are compared by their bits: SQL has one zero and one NaN.
//!
//! `=`, `<` and the like know that already. `IN`, `CASE x WHEN …` and `nullif` do not, and neither do keys of windows and of
//! sorts by several columns.

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion::logical_expr::expr::{Cast, InList, ScalarFunction};
use datafusion::logical_expr::{BinaryExpr, Case, Expr, Operator};
use nandina_exec::keys::floats::{canonical, holds_floats};

use super::type_of;
use crate::meanings::{call, call_shown_as_argument};

/// A number, or a value that holds some, as it is compared with others, bit by bit.
pub(super) fn compared(number: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let is_done = matches!(&number, Expr::ScalarFunction(function) if function.func.name() == NAME);
    match holds_floats(&type_of(&number, schema)) && !is_done {
        true => Transformed::yes(call(NAME, canonical_floats, vec![number])),
        false => Transformed::no(number),
    }
}

const NAME: &str = "canonical_float";

fn canonical_floats(floats: &[ArrayRef]) -> Result<ArrayRef> {
    match floats {
        [floats] => canonical(floats),
        _ => internal_err!("{} keys in place of one", floats.len()),
    }
}

/// `/` and `%`: what 0.0 / 0.0 gives has its sign bit set on some processors, and would be less than any number.
pub(super) fn quotient(operation: &BinaryExpr, types: &[DataType; 2]) -> Option<Expr> {
    let is_quotient = matches!(operation.op, Operator::Divide | Operator::Modulo);
    let is_float = types.iter().any(DataType::is_floating);
    (is_quotient && is_float)
        .then(|| call_shown_as_argument(NAME, canonical_floats, Expr::BinaryExpr(operation.clone())))
}

/// `IN` with a list.
pub(super) fn in_list(list: InList, schema: &DFSchema) -> Transformed<Expr> {
    if !holds_floats(&type_of(&list.expr, schema)) || !list.list.iter().any(has_several_forms) {
        return Transformed::no(Expr::InList(list));
    }
    let expr = Box::new(compared(*list.expr, schema).data);
    let elements = list.list.into_iter().map(|element| compared(element, schema).data).collect();
    Transformed::yes(Expr::InList(InList { expr, list: elements, negated: list.negated }))
}

/// `CASE x WHEN …`.
pub(super) fn case(case: Case, schema: &DFSchema) -> Transformed<Expr> {
    let Case { expr: Some(operand), when_then_expr, else_expr } = case else {
        return Transformed::no(Expr::Case(case));
    };
    let has_floats = holds_floats(&type_of(&operand, schema));
    if !has_floats || !when_then_expr.iter().any(|(when, _)| has_several_forms(when)) {
        return Transformed::no(Expr::Case(Case { expr: Some(operand), when_then_expr, else_expr }));
    }
    let expr = Some(Box::new(compared(*operand, schema).data));
    let compared_when = |(when, then): (Box<Expr>, Box<Expr>)| (Box::new(compared(*when, schema).data), then);
    let when_then_expr = when_then_expr.into_iter().map(compared_when).collect();
    Transformed::yes(Expr::Case(Case { expr, when_then_expr, else_expr }))
}

/// `nullif`.
pub(super) fn function(function: ScalarFunction, schema: &DFSchema) -> Transformed<Expr> {
    let is_compared = function.func.name() == "nullif"
        && function.args.iter().all(|argument| holds_floats(&type_of(argument, schema)))
        && function.args.iter().all(has_several_forms);
    if !is_compared {
        return Transformed::no(Expr::ScalarFunction(function));
    }
    let args = function.args.into_iter().map(|argument| compared(argument, schema).data).collect();
    Transformed::yes(Expr::ScalarFunction(ScalarFunction { func: function.func, args }))
}

/// Whether a number may be zero or NaN, for all that its expression tells.
fn has_several_forms(number: &Expr) -> bool {
    let (value, target) = match number {
        Expr::Literal(value, _) => (value, DataType::Float64),
        Expr::Cast(Cast { expr, field }) => match expr.as_ref() {
            Expr::Literal(value, _) => (value, field.data_type().clone()),
            _ => return true,
        },
        _ => return true,
    };
    let number = value.cast_to(&target).and_then(|value| value.cast_to(&DataType::Float64));
    match number {
        Ok(ScalarValue::Float64(number)) => number.is_some_and(|number| number == 0.0 || number.is_nan()),
        _ => true,
    }
}
