//! `DISTINCT ON` whose order does not begin with its keys, which DataFusion refuses.
//!
//! ```text
//!   SELECT DISTINCT ON (a) a, b FROM t ORDER BY b DESC
//!     ─►  SELECT * FROM (SELECT DISTINCT ON (a) a, b FROM t ORDER BY a, b DESC) AS __distinct ORDER BY 2 DESC
//! ```
//!
//! The order says which row of a key is the first one, and in which order the rows come.

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, OrderBy, OrderByExpr, OrderByKind, OrderByOptions, Query, Select, SelectItem, SetExpr,
    TableFactor, Value,
};

use crate::error::Result;
use crate::planning::syntax;
use crate::planning::wrong_plans::normalized;

/// Writes it so that the order inside begins with the keys, where the order is by columns of the result.
pub(crate) fn write(query: &mut Query) -> Result<()> {
    let Some(OrderBy { kind: OrderByKind::Expressions(orders), .. }) = &mut query.order_by else {
        return Ok(());
    };
    let SetExpr::Select(select) = query.body.as_mut() else { return Ok(()) };
    let outputs: Vec<Expr> = select.projection.iter().filter_map(output).cloned().collect();
    let Some(Distinct::On(keys)) = &mut select.distinct else { return Ok(()) };
    for key in keys.iter_mut() {
        if let Some(output) = position(key).and_then(|at| outputs.get(at.checked_sub(1)?)) {
            *key = output.clone();
        }
    }
    let begins_with_keys =
        orders.len() >= keys.len() && orders.iter().take(keys.len()).all(|order| keys.contains(&order.expr));
    if begins_with_keys {
        return Ok(());
    }
    let keys: Vec<OrderByExpr> = keys
        .iter()
        .map(|key| OrderByExpr { expr: key.clone(), options: OrderByOptions::default(), with_fill: None })
        .collect();
    let places = orders.iter().map(|order| place(&order.expr, select));
    let Some(places) = places.collect::<Option<Vec<Expr>>>() else { return Ok(()) };
    let outside = orders.iter().zip(places).map(|(order, expr)| OrderByExpr { expr, ..order.clone() });
    let outside = OrderByKind::Expressions(outside.collect());
    orders.splice(0..0, keys);
    let mut outer = syntax::query("SELECT * FROM (SELECT 1) AS __distinct ORDER BY 1")?;
    if let Some(order) = &mut outer.order_by {
        order.kind = outside;
    }
    outer.with = query.with.take();
    outer.limit_clause = query.limit_clause.take();
    if let SetExpr::Select(select) = outer.body.as_mut()
        && let Some(TableFactor::Derived { subquery, .. }) =
            select.from.first_mut().map(|tables| &mut tables.relation)
    {
        std::mem::swap(subquery.as_mut(), query);
        *query = outer;
    }
    Ok(())
}

fn output(item: &SelectItem) -> Option<&Expr> {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
}

/// The place of an output that is written as one.
fn position(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(number, _) => number.parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

/// The output that an order is by, as the query around can name it.
fn place(expr: &Expr, select: &Select) -> Option<Expr> {
    let name = match expr {
        Expr::Identifier(name) => Some(normalized(name)),
        _ => None,
    };
    let has_star = select.projection.iter().any(|item| output(item).is_none());
    if has_star || position(expr).is_some() {
        return (name.is_some() || !has_star).then(|| expr.clone());
    }
    let found = select.projection.iter().position(|item| match item {
        SelectItem::ExprWithAlias { alias, .. } if name.is_some() => Some(normalized(alias)) == name,
        other => output(other) == Some(expr),
    })?;
    Some(Expr::Value(Value::Number((found + 1).to_string(), false).with_empty_span()))
}
