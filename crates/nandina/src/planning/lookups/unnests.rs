//! `unnest(x)` as an output of a query: a column of elements, or one for each field of a struct.
//!
//! ```text
//!   unnest(l)                            of a list: as it is
//!   unnest(s)                            of a STRUCT(a, b): s['a'] AS a, s['b'] AS b
//!   unnest(l, recursive := true)         unnest(unnest(l))['a'] AS a, …: lists of lists, then structs of structs
//!   unnest(l, max_depth := 2)            so many levels of them
//!   …, keep_parent_names := true         s['a']['b'] AS "a.b"
//! ```
//!
//! An argument that has been looked at stands in two brackets, and is not asked about again.

use arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Query, Select, SelectItem, SetExpr, Value,
};

use super::Column;
use crate::error::{Error, Result};
use crate::planning::syntax;
use crate::planning::trees::call;

const UNNEST: &str = "unnest";

/// A call whose levels are not known yet.
struct Call<'a> {
    value: &'a Expr,
    most_levels: usize,
    keeps_names: bool,
}

/// Whether an expression is a call of `unnest` that makes one column for certain.
pub(crate) fn is_settled(expr: &Expr) -> bool {
    matches!(arguments(expr), Some([FunctionArg::Unnamed(FunctionArgExpr::Expr(value))]) if is_list(value))
}

/// Whether an argument is a list: written out, or looked at.
fn is_list(value: &Expr) -> bool {
    match value {
        Expr::Array(_) => true,
        Expr::Nested(inner) => matches!(inner.as_ref(), Expr::Nested(_)),
        _ => false,
    }
}

/// The call for the elements of an argument that has been looked at.
fn unnested(value: Expr) -> Expr {
    call(UNNEST, [Expr::Nested(Box::new(Expr::Nested(Box::new(value))))])
}

/// The query for the columns that calls among the outputs have as arguments, if there are any that are to be looked at.
pub(super) fn question(select: &Select) -> Result<Option<Query>> {
    let mut values = Vec::new();
    for item in &select.projection {
        if let Some(call) = asked(item)? {
            values.push(SelectItem::UnnamedExpr(call.value.clone()));
        }
    }
    if values.is_empty() {
        return Ok(None);
    }
    for (place, value) in values.iter_mut().enumerate() {
        if let SelectItem::UnnamedExpr(expr) = value {
            let alias = Ident::with_quote('"', format!("__unnested_{place}"));
            *value = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
    let mut query = syntax::query("SELECT 1")?;
    if let SetExpr::Select(asking) = query.body.as_mut() {
        asking.projection = values;
        asking.from = select.from.clone();
        asking.group_by = select.group_by.clone();
    }
    Ok(Some(query))
}

/// Writes the calls out whose arguments are these columns.
pub(super) fn write_out(select: &mut Select, columns: &[Column]) -> Result<()> {
    let mut columns = columns.iter();
    let mut projection = Vec::with_capacity(select.projection.len());
    for item in std::mem::take(&mut select.projection) {
        let (Some(call), Some(alias)) = (asked(&item)?, name_of(&item)) else {
            projection.push(item);
            continue;
        };
        let Some(column) = columns.next() else {
            return Err(Error::bug("an argument of unnest has no type"));
        };
        projection.extend(outputs(&call, &column.data_type, &alias));
    }
    select.projection = projection;
    Ok(())
}

/// The call that an output is, if its argument has to be looked at.
fn asked(item: &SelectItem) -> Result<Option<Call<'_>>> {
    let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else {
        return Ok(None);
    };
    let Some([FunctionArg::Unnamed(FunctionArgExpr::Expr(value)), named @ ..]) = arguments(expr) else {
        return Ok(None);
    };
    if named.is_empty() && is_list(value) {
        return Ok(None);
    }
    let mut call = Call { value, most_levels: 1, keeps_names: false };
    for argument in named {
        let (FunctionArg::Named { name, arg: FunctionArgExpr::Expr(Expr::Value(given)), .. }
        | FunctionArg::ExprNamed {
            name: Expr::Identifier(name),
            arg: FunctionArgExpr::Expr(Expr::Value(given)),
            ..
        }) = argument
        else {
            return Err(unknown(argument));
        };
        match (name.value.to_lowercase().as_str(), &given.value) {
            ("recursive", Value::Boolean(true)) => call.most_levels = usize::MAX,
            ("recursive", Value::Boolean(false)) => {}
            ("keep_parent_names", Value::Boolean(keeps)) => call.keeps_names = *keeps,
            ("max_depth", Value::Number(levels, _)) => match levels.parse() {
                Ok(levels @ 1..) => call.most_levels = levels,
                _ => return Err(unknown(argument)),
            },
            _ => return Err(unknown(argument)),
        }
    }
    Ok(Some(call))
}

fn unknown(argument: &FunctionArg) -> Error {
    Error::unsupported(format!(
        "unnest has no argument {argument}; there are recursive := true, max_depth := 2 and keep_parent_names := true"
    ))
}

fn arguments(expr: &Expr) -> Option<&[FunctionArg]> {
    match expr {
        Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case(UNNEST) => {
            match &function.args {
                FunctionArguments::List(list) if function.over.is_none() => Some(&list.args),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The name of an output: its alias, or that of a call with more than one argument, as it is written.
fn name_of(item: &SelectItem) -> Option<Option<Ident>> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(Some(alias.clone())),
        SelectItem::UnnamedExpr(expr) => {
            let has_names = arguments(expr).is_some_and(|arguments| arguments.len() > 1);
            Some(has_names.then(|| Ident::with_quote('"', expr.to_string())))
        }
        _ => None,
    }
}

/// The outputs that a call makes of a value of this type.
fn outputs(call: &Call<'_>, data_type: &DataType, alias: &Option<Ident>) -> Vec<SelectItem> {
    let mut value = call.value.clone();
    let (mut of, mut levels) = (data_type, 0);
    while let DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) = of
        && levels < call.most_levels
        && !nandina_functions::is_marked(of)
    {
        value = unnested(value);
        (of, levels) = (field.data_type(), levels + 1);
    }
    let mut columns = Vec::new();
    fields(value.clone(), of, call.most_levels - levels, None, call.keeps_names, &mut columns);
    match (columns.is_empty(), alias) {
        (false, _) => {
            let output = |(expr, name): (Expr, String)| SelectItem::ExprWithAlias {
                expr,
                alias: Ident::with_quote('"', name),
            };
            columns.into_iter().map(output).collect()
        }
        // What is neither a list nor a struct is refused where it is planned.
        (true, _) if levels == 0 => vec![SelectItem::UnnamedExpr(unnested(value))],
        (true, Some(alias)) => vec![SelectItem::ExprWithAlias { expr: value, alias: alias.clone() }],
        (true, None) => vec![SelectItem::UnnamedExpr(value)],
    }
}

/// The fields of a struct, and of those in it, so many levels deep.
fn fields(
    value: Expr,
    of: &DataType,
    levels: usize,
    parents: Option<&str>,
    keeps_names: bool,
    columns: &mut Vec<(Expr, String)>,
) {
    let DataType::Struct(of_struct) = of else { return };
    if levels == 0 {
        return;
    }
    for field in of_struct {
        let text = Value::SingleQuotedString(field.name().clone()).with_empty_span();
        let of_field = call("get_field", [value.clone(), Expr::Value(text)]);
        let name = match parents {
            Some(parents) if keeps_names => format!("{parents}.{}", field.name()),
            _ => field.name().clone(),
        };
        match field.data_type() {
            DataType::Struct(_) if levels > 1 => {
                fields(of_field, field.data_type(), levels - 1, Some(&name), keeps_names, columns);
            }
            _ => columns.push((of_field, name)),
        }
    }
}
