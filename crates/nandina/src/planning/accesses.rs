//! What stands behind a value: slices and calls of functions, as calls that have the value as their first argument.
//!
//! ```text
//!   l[2:]   l[5:1:-2]   l[-:3]        list_slice(l, 2, [])   list_slice(l, 5, 1, -2)   list_slice(l, [], 3)
//!   (x).f(y)   t.x.f(y).g()           f(x, y)                g(f(t.x, y))
//! ```
//!
//! A bound that is left out is `[]`: which end it is depends on the sign of the step.

use datafusion::sql::sqlparser::ast::{
    AccessExpr, Array, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName,
    ObjectNamePart, Subscript,
};

use crate::planning::trees::{call, take};
use crate::planning::wrong_plans::normalized;

/// Schemas that functions of the engine may be called with.
const SCHEMAS: [&str; 5] = ["main", "memory", "pg_catalog", "system", "temp"];

/// The expression for a value and a chain behind it, if there is a slice or a call in the chain.
pub(super) fn write(root: &mut Expr, chain: &mut Vec<AccessExpr>) -> Option<Expr> {
    let is_written = |access: &AccessExpr| {
        matches!(access, AccessExpr::Subscript(Subscript::Slice { .. }) | AccessExpr::Dot(Expr::Function(_)))
    };
    chain.iter().any(is_written).then_some(())?;
    let mut value = take(root);
    let mut before = Vec::new();
    for access in chain.drain(..) {
        match access {
            AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, stride }) => {
                let bound = |bound: Option<Expr>| {
                    bound.unwrap_or_else(|| Expr::Array(Array { elem: Vec::new(), named: false }))
                };
                let whole = accessed(value, &mut before);
                let arguments = [whole, bound(lower_bound), bound(upper_bound)];
                value = call("list_slice", arguments.into_iter().chain(stride));
            }
            AccessExpr::Dot(Expr::Function(function)) => {
                value = with_first_argument(function, accessed(value, &mut before));
            }
            other => before.push(other),
        }
    }
    Some(accessed(value, &mut before))
}

/// A value with the accesses so far behind it.
fn accessed(value: Expr, accesses: &mut Vec<AccessExpr>) -> Expr {
    let accesses = std::mem::take(accesses);
    if accesses.is_empty() {
        return value;
    }
    let name = |access: &AccessExpr| match access {
        AccessExpr::Dot(Expr::Identifier(name)) => Some(name.clone()),
        _ => None,
    };
    if let Expr::Identifier(first) = &value
        && let Some(path) = accesses.iter().map(name).collect::<Option<Vec<Ident>>>()
    {
        return Expr::CompoundIdentifier([first.clone()].into_iter().chain(path).collect());
    }
    Expr::CompoundFieldAccess { root: Box::new(value), access_chain: accesses }
}

fn with_first_argument(mut function: Function, value: Expr) -> Expr {
    if let FunctionArguments::List(list) = &mut function.args {
        list.args.insert(0, FunctionArg::Unnamed(FunctionArgExpr::Expr(value)));
    }
    Expr::Function(function)
}

/// `t.x.f(y)`, which the parser reads as a function of that name.
pub(super) fn of_column(function: &mut Function) -> Option<Expr> {
    let names: Vec<Ident> =
        function.name.0.iter().map(|part| part.as_ident().cloned()).collect::<Option<_>>()?;
    let (last, path) = names.split_last()?;
    let first = path.first()?;
    if SCHEMAS.contains(&normalized(first).as_str()) {
        return None;
    }
    let value = match path {
        [column] => Expr::Identifier(column.clone()),
        path => Expr::CompoundIdentifier(path.to_vec()),
    };
    let mut function = function.clone();
    function.name = ObjectName(vec![ObjectNamePart::Identifier(last.clone())]);
    Some(with_first_argument(function, value))
}
