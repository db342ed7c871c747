//! By which of its columns a query orders its rows.

use datafusion::sql::sqlparser::ast::{Expr, OrderByKind, Query, SelectItem, SetExpr, Statement, Value};
use datafusion::sql::sqlparser::dialect::{DuckDbDialect, GenericDialect};
use datafusion::sql::sqlparser::parser::Parser;

/// The leading keys of a query's order that are columns of its answer, named so; none if it has no order. Keys
/// behind the first that is no such column are left out, because nobody could check them.
pub fn keys(sql: &str, names: &[String]) -> Option<Vec<usize>> {
    let parsed =
        Parser::parse_sql(&GenericDialect {}, sql).or_else(|_| Parser::parse_sql(&DuckDbDialect {}, sql));
    let Ok(statements) = parsed else {
        // What cannot be parsed here may have an order; then rows must at least be the same.
        return None;
    };
    let Some(Statement::Query(query)) = statements.last() else { return None };
    let order = query.order_by.as_ref()?;
    let expressions = match &order.kind {
        OrderByKind::Expressions(expressions) => expressions,
        OrderByKind::All(_) => return Some((0..names.len()).collect()),
    };
    let items = items(query);
    let mut keys = Vec::new();
    for expression in expressions {
        match column(&expression.expr, names, items) {
            Some(key) => keys.push(key),
            None => break,
        }
    }
    Some(keys)
}

fn items(query: &Query) -> &[SelectItem] {
    match query.body.as_ref() {
        SetExpr::Select(select) => &select.projection,
        _ => &[],
    }
}

fn column(key: &Expr, names: &[String], items: &[SelectItem]) -> Option<usize> {
    let named = |wanted: &str| {
        let mut found = names.iter().enumerate().filter(|(_, name)| name.eq_ignore_ascii_case(wanted));
        // A name that several columns have says nothing.
        found.next().map(|(index, _)| index).filter(|_| found.next().is_none())
    };
    match key {
        Expr::Value(value) => match &value.value {
            Value::Number(number, _) => {
                number.parse::<usize>().ok()?.checked_sub(1).filter(|index| *index < names.len())
            }
            _ => None,
        },
        Expr::Identifier(name) => named(&name.value).or_else(|| item(key, names, items)),
        Expr::CompoundIdentifier(parts) => item(key, names, items).or_else(|| named(&parts.last()?.value)),
        _ => item(key, names, items),
    }
}

/// The column whose expression is the key.
fn item(key: &Expr, names: &[String], items: &[SelectItem]) -> Option<usize> {
    // With a star among them, positions are no columns.
    let is_plain =
        |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
    if items.len() != names.len() || !items.iter().all(is_plain) {
        return None;
    }
    items.iter().position(|item| match item {
        SelectItem::UnnamedExpr(expression) | SelectItem::ExprWithAlias { expr: expression, .. } => {
            expression == key
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    fn keys(sql: &str, names: &[&str]) -> Option<Vec<usize>> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        super::keys(sql, &names)
    }

    #[test]
    fn positions_names_and_expressions() {
        assert_eq!(keys("SELECT a, b FROM t", &["a", "b"]), None);
        assert_eq!(keys("SELECT a, b FROM t ORDER BY 2, A", &["a", "b"]), Some(vec![1, 0]));
        assert_eq!(keys("SELECT a + 1, b FROM t ORDER BY a + 1 DESC, c, b", &["x", "b"]), Some(vec![0]));
        assert_eq!(keys("SELECT * FROM t ORDER BY c", &["a", "b"]), Some(vec![]));
        assert_eq!(keys("SELECT a FROM t UNION SELECT 1 ORDER BY a", &["a"]), Some(vec![0]));
        assert_eq!(keys("SELECT a, a FROM t ORDER BY a", &["a", "a"]), Some(vec![0]));
    }
}
