//! `struct_pack(a := 1, b)`: the names of fields as the texts that `named_struct` takes.

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName, Value,
};

/// Lets `named_struct` do it, where every argument has a name or is a column.
pub(super) fn name_fields(function: &mut Function) {
    if !function.name.to_string().eq_ignore_ascii_case("struct_pack") {
        return;
    }
    let FunctionArguments::List(arguments) = &mut function.args else { return };
    let fields: Option<Vec<_>> = arguments.args.iter().map(field).collect();
    let Some(fields) = fields.filter(|fields| !fields.is_empty()) else { return };
    let argument = |expr: Expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr));
    let text = |name: String| Expr::Value(Value::SingleQuotedString(name).with_empty_span());
    arguments.args =
        fields.into_iter().flat_map(|(name, value)| [argument(text(name)), argument(value)]).collect();
    function.name = ObjectName::from(vec![Ident::new("named_struct")]);
}

/// A field's name and value.
pub(super) fn field(argument: &FunctionArg) -> Option<(String, Expr)> {
    match argument {
        FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => {
            Some((name.value.clone(), value.clone()))
        }
        FunctionArg::ExprNamed {
            name: Expr::Identifier(name), arg: FunctionArgExpr::Expr(value), ..
        } => Some((name.value.clone(), value.clone())),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => match value {
            Expr::Identifier(name) => Some((name.value.clone(), value.clone())),
            Expr::CompoundIdentifier(names) => Some((names.last()?.value.clone(), value.clone())),
            _ => None,
        },
        _ => None,
    }
}
