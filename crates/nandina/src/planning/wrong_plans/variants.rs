//! What is there for values of a `VARIANT` or a `UNION`.
//!
//! | expression | written as |
//! |---|---|
//! | `variant_group_array(x)` | `CAST(array_agg(CAST(x AS VARIANT)) AS VARIANT)` |
//! | `variant_group_object(k, x)` | `variant_object_of(array_agg(k), array_agg(CAST(x AS VARIANT)))` |
//! | `union_value(a := 1)` | `union_of_struct(named_struct('a', 1))` |
//! | `x::VARIANT IS DISTINCT FROM y` | `NOT (x::VARIANT <=> y)`, which may be of another type |

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, Function, FunctionArguments, Ident, ObjectName, UnaryOperator,
    Value,
};

use super::other_functions::arguments;
use super::packed_structs::field;
use crate::planning::trees::{call, take};

pub(super) fn write_out(expr: &mut Expr) {
    let written = match expr {
        Expr::Function(function) => of_function(function),
        Expr::IsNotDistinctFrom(left, right) if has_mark(left) || has_mark(right) => Some(same(left, right)),
        Expr::IsDistinctFrom(left, right) if has_mark(left) || has_mark(right) => {
            Some(Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(same(left, right)) })
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

/// Whether a cast says that a value is a `VARIANT` or of a `UNION`.
fn has_mark(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => has_mark(inner),
        Expr::Cast { data_type: DataType::Union(_), .. } => true,
        Expr::Cast { data_type: DataType::Custom(name, _), .. } => {
            name.to_string().eq_ignore_ascii_case("variant")
        }
        _ => false,
    }
}

fn of_function(function: &mut Function) -> Option<Expr> {
    let name = function.name.to_string().to_lowercase();
    let list = |value: Expr| {
        let mut list = call("array_agg", [value]);
        if let Expr::Function(list) = &mut list {
            (list.filter, list.over) = (function.filter.clone(), function.over.clone());
        }
        list
    };
    match name.as_str() {
        "variant_group_array" => match arguments(function)?.as_mut_slice() {
            [value] => Some(variant(list(variant(take(value))))),
            _ => None,
        },
        "variant_group_object" => match arguments(function)?.as_mut_slice() {
            [name, value] => Some(call("variant_object_of", [list(take(name)), list(variant(take(value)))])),
            _ => None,
        },
        "union_value" => {
            let FunctionArguments::List(given) = &function.args else { return None };
            let [argument] = given.args.as_slice() else { return None };
            let (name, value) = field(argument)?;
            let name = Expr::Value(Value::SingleQuotedString(name).with_empty_span());
            Some(call("union_of_struct", [call("named_struct", [name, value])]))
        }
        _ => None,
    }
}

fn variant(value: Expr) -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(value),
        data_type: DataType::Custom(ObjectName::from(vec![Ident::new("variant")]), Vec::new()),
        array: false,
        format: None,
    }
}
