//! Casts that are functions: to `UUID` and `JSON`, which are texts of one form, to `HUGEINT` and `UHUGEINT`, which are decimals within
//! bounds, `TRY(CAST(x AS t))`, which is `TRY_CAST`, and `TRY` of other expressions, which is a function of a lambda.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, ExactNumberInfo, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
};

use crate::error::{Error, Result};
use crate::planning::syntax;
use crate::planning::trees::{call, take};
use crate::planning::walk::walk_expressions;

pub(super) fn write_out(expr: &mut Expr) -> Result<()> {
    if let Some(tried) = tried(expr)? {
        *expr = tried;
    }
    if let Expr::TypedString(typed) = expr {
        *expr = match function_of(&typed.data_type) {
            Some((name, _)) => call(name, [Expr::Value(typed.value.clone())]),
            None => return Ok(()),
        };
        return Ok(());
    }
    let Expr::Cast { kind, data_type, expr: value, .. } = expr else { return Ok(()) };
    let Some((name, of)) = function_of(data_type) else { return Ok(()) };
    let (name, kind) = match kind {
        CastKind::Cast | CastKind::DoubleColon => (name.to_owned(), CastKind::Cast),
        CastKind::TryCast | CastKind::SafeCast => (format!("try_{name}"), CastKind::TryCast),
    };
    // A UUID is a number of 128 bits between these two.
    if let Expr::Cast { data_type: inner, .. } = value.as_ref() {
        let function = match (inner, &*data_type) {
            (DataType::Uuid, DataType::UHugeInt | DataType::UInt128) => Some("uhugeint_of_uuid"),
            (DataType::UHugeInt | DataType::UInt128, DataType::Uuid) => Some("uuid_of_uhugeint"),
            _ => None,
        };
        if let Some(function) = function {
            *expr = call(function, [take(value)]);
            return Ok(());
        }
    }
    let value = Box::new(take(value));
    let Some(of) = of else {
        *expr = call(&name, [*value]);
        return Ok(());
    };
    *expr = call(&name, [Expr::Cast { kind, expr: value, data_type: of, array: false, format: None }]);
    Ok(())
}

/// The function that makes values of a type, and the type that it makes them of, if not of any.
fn function_of(data_type: &DataType) -> Option<(&'static str, Option<DataType>)> {
    let of_digits = DataType::Decimal(ExactNumberInfo::PrecisionAndScale(39, 0));
    match data_type {
        DataType::Uuid => Some(("uuid_of_text", Some(DataType::Text))),
        DataType::JSON => Some(("json_of", None)),
        DataType::HugeInt | DataType::Int128 => Some(("hugeint_of", Some(of_digits))),
        DataType::UHugeInt | DataType::UInt128 => Some(("uhugeint_of", Some(of_digits))),
        _ => None,
    }
}

/// What `TRY(…)` is.
fn tried(expr: &mut Expr) -> Result<Option<Expr>> {
    let Expr::Function(function) = expr else { return Ok(None) };
    if !function.name.to_string().eq_ignore_ascii_case("try") {
        return Ok(None);
    }
    let FunctionArguments::List(arguments) = &mut function.args else { return Ok(None) };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(tried))] = arguments.args.as_mut_slice() else {
        return Ok(None);
    };
    while let Expr::Nested(inner) = tried {
        *tried = take(inner);
    }
    if let Expr::Cast { kind, expr, .. } = tried
        && matches!(expr.as_ref(), Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_))
    {
        *kind = CastKind::TryCast;
        return Ok(Some(take(tried)));
    }
    let has_query = walk_expressions(tried, |expr: &Expr| match expr {
        Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    if has_query.is_break() {
        return Err(Error::unsupported("TRY tries no sub-query; write TRY inside of it"));
    }
    let lambda = syntax::lambda(vec![Ident::new("__tried")], take(tried));
    Ok(Some(call(nandina_functions::TRY_FUNCTION, [lambda])))
}
