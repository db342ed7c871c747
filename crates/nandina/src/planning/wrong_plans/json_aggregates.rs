//! Aggregates to JSON are lists of the texts of which it consists: `json_group_array(x)` is
//! `json_list_of(array_agg(to_json(x)))`.

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName,
};

use crate::planning::trees::{call, take};

pub(super) fn write_out(expr: &mut Expr) {
    let Expr::Function(function) = expr else { return };
    let (made, element) = match function.name.to_string().to_lowercase().as_str() {
        "json_group_array" => ("json_list_of", "to_json"),
        "json_group_object" => ("json_object_of", "json_member"),
        _ => return,
    };
    let FunctionArguments::List(arguments) = &mut function.args else { return };
    let values = arguments.args.iter_mut().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(take(value)),
        _ => None,
    });
    let Some(values) = values.collect::<Option<Vec<_>>>() else { return };
    arguments.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(call(element, values)))];
    function.name = ObjectName::from(vec![Ident::new("array_agg")]);
    let texts = take(expr);
    *expr = call(made, [texts]);
}
