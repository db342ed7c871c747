//! Which columns the checks of a table name, for statements that rename and drop columns.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Ident, VisitorMut};
use datafusion::sql::sqlparser::keywords::RESERVED_FOR_COLUMN_ALIAS;
use nandina_storage::TableRules;

use super::syntax;
use super::wrong_plans::normalized;
use crate::error::Result;
use crate::planning::walk::WalkMut as _;

/// Names in an expression, but for those of parameters of lambdas.
struct Columns<F> {
    parameters: Vec<Vec<String>>,
    visit: F,
}

impl<F: FnMut(&mut Ident)> VisitorMut for Columns<F> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Lambda(lambda) => {
                let names = lambda.params.iter().map(|parameter| normalized(&parameter.name));
                self.parameters.push(names.collect());
            }
            Expr::Identifier(name) => {
                let own = normalized(name);
                if !self.parameters.iter().any(|names| names.contains(&own)) {
                    (self.visit)(name);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Lambda(_) = expr {
            self.parameters.pop();
        }
        ControlFlow::Continue(())
    }
}

fn visited(check: &str, visit: impl FnMut(&mut Ident)) -> Result<Expr> {
    let mut expr = syntax::expression(check)?;
    let _ = expr.walk_mut(&mut Columns { parameters: Vec::new(), visit });
    Ok(expr)
}

/// The columns that a check names, each once.
pub(crate) fn of(check: &str) -> Result<Vec<String>> {
    let mut columns = Vec::new();
    visited(check, |name| {
        let name = normalized(name);
        if !columns.contains(&name) {
            columns.push(name);
        }
    })?;
    Ok(columns)
}

/// A check with another name for a column.
pub(crate) fn renamed(check: &str, column: &str, name: &str) -> Result<String> {
    let plain = Ident::new(name);
    let is_plain = normalized(&plain) == name
        && name.chars().all(|letter| letter.is_alphanumeric() || letter == '_')
        && !RESERVED_FOR_COLUMN_ALIAS.iter().any(|word| format!("{word:?}").eq_ignore_ascii_case(name))
        && syntax::expression(name).is_ok_and(|expr| expr == Expr::Identifier(plain.clone()));
    let new = if is_plain { plain } else { Ident::with_quote('"', name) };
    let expr = visited(check, |found| {
        if normalized(found) == column {
            *found = new.clone();
        }
    })?;
    Ok(expr.to_string())
}

/// The names of all checks: what they have been given, or what Postgres calls them.
pub(crate) fn names(table: &str, rules: &TableRules) -> Result<Vec<String>> {
    let mut taken: HashSet<String> =
        rules.named_checks().filter_map(|(name, _)| name.map(str::to_owned)).collect();
    let mut names = Vec::with_capacity(rules.checks.len());
    for (name, check) in rules.named_checks() {
        names.push(match name {
            Some(name) => name.to_owned(),
            None => free_name(&mut taken, table, check)?,
        });
    }
    Ok(names)
}

/// A name for a check that has none, which is taken from then on.
pub(crate) fn free_name(taken: &mut HashSet<String>, table: &str, check: &str) -> Result<String> {
    let base = match of(check)?.as_slice() {
        [column] => format!("{table}_{column}_check"),
        _ => format!("{table}_check"),
    };
    let numbered = (1_u64..).map(|number| format!("{base}{number}"));
    let free = std::iter::once(base.clone()).chain(numbered).find(|name| taken.insert(name.clone()));
    Ok(free.unwrap_or(base))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_and_renamed() {
        assert_eq!(of("a > 0 AND (B < a OR \"C\" = 'a')").unwrap(), ["a", "b", "C"]);
        assert_eq!(renamed("a > 0 AND b < A", "a", "x").unwrap(), "x > 0 AND b < x");
        assert_eq!(renamed("a > 0", "a", "x y").unwrap(), "\"x y\" > 0");
        assert_eq!(renamed("a > 0", "a", "order").unwrap(), "\"order\" > 0");
        assert_eq!(renamed("a IS NOT NULL", "b", "c").unwrap(), "a IS NOT NULL");
    }

    #[test]
    fn checks_have_names() {
        let mut rules = TableRules::default();
        rules.add_check(None, "a > 0".to_owned());
        rules.add_check(Some("t_check".to_owned()), "a < b".to_owned());
        rules.add_check(None, "a < b + 1".to_owned());
        rules.add_check(None, "a < 9".to_owned());
        assert_eq!(names("t", &rules).unwrap(), ["t_a_check", "t_check", "t_check1", "t_a_check1"]);
    }
}
