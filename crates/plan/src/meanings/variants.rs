//! Parts of `VARIANT`s (`v.a`, `v['a'][1]`), and lists in which some elements are `VARIANT`s.

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::{Column, DFSchema, Result, ScalarValue, TableReference, plan_err};
use datafusion::functions::core::expr_fn::get_field;
use datafusion::functions_nested::make_array::make_array;
use datafusion::logical_expr::planner::{PlannerResult, RawFieldAccessExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, GetFieldAccess, cast, lit};
use nandina_functions::{enum_texts, is_variant, variant_extract};

use super::mixed_texts::{settle, takes_all};
use super::numbers::as_decimal;

/// A part of a `VARIANT`, or an element of a list whose number is one; none of other values.
pub(super) fn part(access: &RawFieldAccessExpr, schema: &DFSchema) -> Result<Option<Expr>> {
    let RawFieldAccessExpr { expr, field_access } = access;
    let is_variant = |expr: &Expr| expr.get_type(schema).is_ok_and(|of| is_variant(&of));
    Ok(match field_access {
        GetFieldAccess::NamedStructField { name } if is_variant(expr) => {
            Some(variant_extract(expr.clone(), lit(name.clone())))
        }
        GetFieldAccess::ListIndex { key } if is_variant(expr) => {
            Some(variant_extract(expr.clone(), key.as_ref().clone()))
        }
        GetFieldAccess::ListRange { .. } if is_variant(expr) => {
            return plan_err!("a VARIANT has no slices; cast it to the type of a list first");
        }
        _ => None,
    })
}

/// `v.a.b`, where `v` is a column that is a `VARIANT` or has one as a field; none for other columns.
pub(super) fn path(field: &Field, table: Option<&TableReference>, names: &[String]) -> Option<Expr> {
    let mut part = Expr::Column(Column::from((table, field)));
    let mut of = field.data_type();
    let mut has_variant = false;
    for name in names {
        has_variant |= is_variant(of);
        part = match has_variant {
            true => variant_extract(part, lit(name.as_str())),
            false => get_field(part, name.as_str()),
        };
        of = match of {
            DataType::Struct(fields) if !has_variant => {
                fields.iter().find(|field| field.name() == name)?.data_type()
            }
            of if has_variant => of,
            _ => return None,
        };
    }
    has_variant.then_some(part)
}

/// An element by a number that is a `VARIANT`.
pub(super) fn place(access: RawFieldAccessExpr, schema: &DFSchema) -> PlannerResult<RawFieldAccessExpr> {
    PlannerResult::Original(match access {
        RawFieldAccessExpr { expr, field_access: GetFieldAccess::ListIndex { key } }
            if key.get_type(schema).is_ok_and(|of| is_variant(&of)) =>
        {
            let key = Box::new(cast(*key, DataType::Int64));
            RawFieldAccessExpr { expr, field_access: GetFieldAccess::ListIndex { key } }
        }
        other => other,
    })
}

/// A list of values of which some are `VARIANT`s, or of a `UNION`: all of them are.
pub(super) fn list(mut elements: Vec<Expr>, schema: &DFSchema) -> PlannerResult<Vec<Expr>> {
    let are_new = settle_marked(elements.iter_mut().collect(), schema);
    match are_new {
        true => PlannerResult::Planned(make_array(elements)),
        false => PlannerResult::Original(elements),
    }
}

/// Makes values `VARIANT`s, or those of a `UNION`, where one of them is. True if some become it.
pub(super) fn settle_marked(values: Vec<&mut Expr>, schema: &DFSchema) -> bool {
    let is_marked = |value: &Expr| value.get_type(schema).is_ok_and(|of| takes_all(&of));
    values.iter().any(|value| is_marked(value)) && settle(values, schema)
}

/// Lets numbers with a point be the decimals as which they were written, which a `VARIANT` of them would be.
pub(super) fn say_decimals(value: &mut Expr) {
    match value {
        Expr::Literal(ScalarValue::Float64(_), _) => {
            if let Some(decimal) = as_decimal(value) {
                *value = decimal;
            }
        }
        Expr::Negative(negated) => say_decimals(negated),
        Expr::ScalarFunction(function)
            if matches!(function.func.name(), "make_array" | "named_struct" | "struct") =>
        {
            function.args.iter_mut().for_each(say_decimals);
        }
        _ => {}
    }
}

/// The same for columns of the branches of a union, of which different `ENUM`s become texts.
pub(crate) fn settle_branches(columns: &mut [&mut Expr], types: &[DataType]) -> bool {
    let mut given = types.iter().filter(|of| !of.is_null());
    let Some(first) = given.next() else { return false };
    if given.all(|of| of == first) {
        return false;
    }
    let to = match types.iter().find(|of| takes_all(of)) {
        Some(all) => all,
        None if types.iter().any(|of| enum_texts(of).is_some()) => &DataType::Utf8View,
        None => return false,
    };
    for (column, of) in columns.iter_mut().zip(types) {
        if !of.is_null() && of != to {
            **column = cast(std::mem::take(*column), to.clone());
        }
    }
    true
}
