//! What is there for values of a `VARIANT` or a `UNION`.
//!
//! | expression | written as |
//! |---|---|
//! | `variant_group_array(x)` | `CAST(array_agg(CAST(x AS VARIANT)) AS VARIANT)` |
//! | `variant_group_object(k, x)` | `variant_object_of(array_agg(row(k, CAST(x AS VARIANT))))` |
//! | `union_value(a := 1)` | `union_of_struct(named_struct('a', 1))` |
//! | `[x::VARIANT, 1]`, `coalesce`, `CASE` | `[x::VARIANT, 1::VARIANT]` |
//! | `x IS DISTINCT FROM y` | `NOT (x <=> y)`, an operator, whose operands a planner may make of one type |
//! | `1.50::VARIANT`, `[1]::VARIANT` | of `1.50::DECIMAL(3, 2)`, of `[1::INTEGER]`: it says the type of what is written |

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, ExactNumberInfo, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, Ident, ObjectName, UnaryOperator, Value,
};

use super::other_functions::arguments;
use super::packed_structs::field;
use crate::planning::trees::{call, take};

pub(super) fn write_out(expr: &mut Expr) {
    let written = match expr {
        Expr::Function(function) => of_function(function),
        Expr::IsNotDistinctFrom(left, right) => Some(same(left, right)),
        Expr::IsDistinctFrom(left, right) => {
            Some(Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(same(left, right)) })
        }
        Expr::Array(array) => {
            settle(array.elem.iter_mut().collect());
            None
        }
        Expr::Case { conditions, else_result, .. } => {
            let results = conditions.iter_mut().map(|condition| &mut condition.result);
            settle(results.chain(else_result.as_deref_mut()).collect());
            None
        }
        Expr::Cast { expr, data_type, .. } if is_variant(data_type) => {
            say_types(expr);
            None
        }
        _ => None,
    };
    if let Some(written) = written {
        *expr = written;
    }
}

fn same(left: &mut Expr, right: &mut Expr) -> Expr {
    let [left, right] = [left, right].map(|side| Box::new(Expr::Nested(Box::new(take(side)))));
    Expr::Nested(Box::new(Expr::BinaryOp { left, op: BinaryOperator::Spaceship, right }))
}

fn is_variant(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Custom(name, _) if name.to_string().eq_ignore_ascii_case("variant"))
}

/// The `VARIANT` or `UNION` that an expression says it is.
fn mark(expr: &Expr) -> Option<&DataType> {
    match expr {
        Expr::Nested(inner) => mark(inner),
        Expr::Cast { data_type: of @ DataType::Union(_), .. } => Some(of),
        Expr::Cast { data_type, .. } if is_variant(data_type) => Some(data_type),
        _ => None,
    }
}

/// Casts values to what one of them is.
fn settle(values: Vec<&mut Expr>) {
    let Some(of) = values.iter().find_map(|value| mark(value)).cloned() else { return };
    for value in values {
        let is_null = matches!(value, Expr::Value(null) if null.value == Value::Null);
        if !is_null && mark(value).is_none() {
            *value = cast(take(value), of.clone());
        }
    }
}

/// Casts numbers to the types that DuckDB reads them as.
fn say_types(expr: &mut Expr) {
    match expr {
        Expr::Nested(inner) | Expr::UnaryOp { op: UnaryOperator::Minus, expr: inner } => say_types(inner),
        Expr::Array(array) => array.elem.iter_mut().for_each(say_type_of_part),
        Expr::Dictionary(fields) => fields.iter_mut().for_each(|field| say_type_of_part(&mut field.value)),
        Expr::Value(value) => {
            let Value::Number(digits, _) = &value.value else { return };
            if let Some(of) = type_of(digits) {
                *expr = cast(take(expr), of);
            }
        }
        _ => {}
    }
}

/// The same of what stands in something else, of which JSON would be a text.
fn say_type_of_part(expr: &mut Expr) {
    match expr {
        Expr::Cast { data_type: DataType::JSON, .. } => *expr = variant(take(expr)),
        other => say_types(other),
    }
}

/// The type of a number of few digits, without an exponent.
fn type_of(digits: &str) -> Option<DataType> {
    const MOST_DIGITS: usize = 38;
    if digits.parse::<i32>().is_ok() {
        return Some(DataType::Integer(None));
    }
    let (whole, fraction) = digits.split_once('.')?;
    let are_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let count = whole.len() + fraction.len();
    (are_digits(whole) && are_digits(fraction) && (1..=MOST_DIGITS).contains(&count))
        .then_some(DataType::Decimal(ExactNumberInfo::PrecisionAndScale(count as u64, fraction.len() as i64)))
}

fn of_function(function: &mut Function) -> Option<Expr> {
    let list = |value: Expr| {
        let mut list = call("array_agg", [value]);
        if let Expr::Function(list) = &mut list {
            (list.filter, list.over) = (function.filter.clone(), function.over.clone());
        }
        list
    };
    match function.name.to_string().to_lowercase().as_str() {
        "variant_group_array" => match arguments(function)?.as_mut_slice() {
            [value] => Some(variant(list(variant(take(value))))),
            _ => None,
        },
        "variant_group_object" => match arguments(function)?.as_mut_slice() {
            [name, value] => {
                let member = call("struct", [take(name), variant(take(value))]);
                Some(call("variant_object_of", [list(member)]))
            }
            _ => None,
        },
        "union_value" => {
            let FunctionArguments::List(given) = &function.args else { return None };
            let [argument] = given.args.as_slice() else { return None };
            let (name, value) = field(argument)?;
            let name = Expr::Value(Value::SingleQuotedString(name).with_empty_span());
            Some(call("union_of_struct", [call("named_struct", [name, value])]))
        }
        "coalesce" | "ifnull" | "list_value" => {
            let FunctionArguments::List(given) = &mut function.args else { return None };
            let values = given.args.iter_mut().filter_map(|argument| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value),
                _ => None,
            });
            settle(values.collect());
            None
        }
        _ => None,
    }
}

fn variant(value: Expr) -> Expr {
    cast(value, DataType::Custom(ObjectName::from(vec![Ident::new("variant")]), Vec::new()))
}

fn cast(value: Expr, data_type: DataType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(value), data_type, array: false, format: None }
}
