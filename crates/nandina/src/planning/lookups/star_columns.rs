//! `COLUMNS(…)`: an expression for each of some columns.
//!
//! ```text
//!   COLUMNS(*), COLUMNS(t.*)        all of them                 SELECT max(COLUMNS(*)) FROM t
//!   COLUMNS(* EXCLUDE (a))          all but some                    ─►  SELECT max(t.a) AS a, max(t.b) AS b FROM t
//!   COLUMNS('a.*')                  those with such a name
//!   COLUMNS(['a', 'b'])             these
//! ```
//!
//! In `WHERE` the condition has to hold for each.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, ExcludeSelectItem, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    Ident, ObjectName, Select, SelectItem, SelectItemQualifiedWildcardKind, Value, Visitor, VisitorMut,
    WildcardAdditionalOptions,
};
use regex::Regex;

use super::Column;
use crate::error::{Error, Result};
use crate::planning::walk::{Walk, WalkMut as _};
use crate::planning::wrong_plans::normalized;

/// Whether an expression of a query is for several columns.
pub(super) fn has_some(select: &Select) -> bool {
    select.projection.iter().any(contains) || select.selection.as_ref().is_some_and(contains)
}

/// Writes the expressions for all columns of the tables out.
pub(super) fn write_out(select: &mut Select, columns: &[Column]) -> Result<()> {
    let mut projection = Vec::with_capacity(select.projection.len());
    for item in std::mem::take(&mut select.projection) {
        if !contains(&item) {
            projection.push(item);
            continue;
        }
        match item {
            SelectItem::UnnamedExpr(expr) => {
                for (written, column, _) in each(&expr, columns)? {
                    projection.push(SelectItem::ExprWithAlias { expr: written, alias: column.ident() });
                }
            }
            SelectItem::ExprWithAlias { expr, alias } => {
                for (written, column, pattern) in each(&expr, columns)? {
                    let alias = match pattern {
                        Some(pattern) if alias.value.contains('\\') => {
                            Ident::with_quote('"', with_groups(&pattern, &column.name, &alias.value))
                        }
                        _ => alias.clone(),
                    };
                    projection.push(SelectItem::ExprWithAlias { expr: written, alias });
                }
            }
            _ => {
                return Err(Error::unsupported(
                    "COLUMNS stands for columns in an expression, and not for a table",
                ));
            }
        }
    }
    select.projection = projection;
    if let Some(filter) = select.selection.take_if(|filter| contains(filter)) {
        let conditions =
            each(&filter, columns)?.into_iter().map(|(condition, ..)| Expr::Nested(Box::new(condition)));
        let and = |left, right| Expr::BinaryOp {
            left: Box::new(left),
            op: BinaryOperator::And,
            right: Box::new(right),
        };
        select.selection = conditions.reduce(and);
    }
    Ok(())
}

/// Whether a query selects `*`, or a table's, without more words.
pub(super) fn has_star(select: &Select) -> bool {
    select.projection.iter().any(|item| plain_star(item).is_some())
}

/// Writes the columns that `*` stands for.
pub(super) fn write_stars_out(select: &mut Select, columns: &[Column]) {
    let written =
        std::mem::take(&mut select.projection).into_iter().flat_map(|item| match plain_star(&item) {
            None => vec![item],
            Some(of_table) => {
                let chosen = columns.iter().filter(|column| match &of_table {
                    None => true,
                    Some(_) => column.table == of_table,
                });
                chosen.map(|column| SelectItem::UnnamedExpr(reference(column))).collect()
            }
        });
    select.projection = written.collect();
}

/// The table whose columns a star stands for, or none for all tables'.
fn plain_star(item: &SelectItem) -> Option<Option<String>> {
    match item {
        SelectItem::Wildcard(options) if *options == WildcardAdditionalOptions::default() => Some(None),
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options)
            if *options == WildcardAdditionalOptions::default() =>
        {
            last_part(name).map(Some)
        }
        _ => None,
    }
}

/// An expression for each column that it is for, with the column; nothing if it is for no several ones.
pub(super) fn all<'c>(expr: &Expr, columns: &'c [Column]) -> Result<Option<Vec<(Expr, &'c Column)>>> {
    if !contains(expr) {
        return Ok(None);
    }
    Ok(Some(each(expr, columns)?.into_iter().map(|(written, column, _)| (written, column)).collect()))
}

/// An expression for each column that it is for, and the pattern that names them.
fn each<'c>(expr: &Expr, columns: &'c [Column]) -> Result<Vec<(Expr, &'c Column, Option<Regex>)>> {
    let mut found = Found::default();
    let _ = expr.walk(&mut found);
    let Some(argument) = found.0 else { return Ok(Vec::new()) };
    let (chosen, pattern) = chosen(&argument, columns)?;
    if chosen.is_empty() {
        return Err(Error::Query { message: format!("COLUMNS({argument}): no column has such a name") });
    }
    let written = chosen.into_iter().map(|column| {
        let mut written = expr.clone();
        let _ = written.walk_mut(&mut Replace(column));
        (written, column, pattern.clone())
    });
    Ok(written.collect())
}

/// The columns that an argument of `COLUMNS` stands for.
fn chosen<'c>(argument: &FunctionArg, columns: &'c [Column]) -> Result<(Vec<&'c Column>, Option<Regex>)> {
    let refused = || {
        Error::unsupported(format!(
            "COLUMNS({argument}): write *, * EXCLUDE (…), a table's *, a pattern as a text, or a list of names"
        ))
    };
    let FunctionArg::Unnamed(argument) = argument else { return Err(refused()) };
    let chosen = match argument {
        FunctionArgExpr::Wildcard => columns.iter().collect(),
        FunctionArgExpr::QualifiedWildcard(table) => {
            let table = last_part(table).ok_or_else(refused)?;
            columns.iter().filter(|column| column.table.as_ref() == Some(&table)).collect()
        }
        FunctionArgExpr::WildcardWithOptions(options) => {
            let excluded: Vec<String> = match &options.opt_exclude {
                Some(ExcludeSelectItem::Single(name)) => last_part(name).into_iter().collect(),
                Some(ExcludeSelectItem::Multiple(names)) => names.iter().filter_map(last_part).collect(),
                None => return Err(refused()),
            };
            columns.iter().filter(|column| !excluded.contains(&column.name)).collect()
        }
        FunctionArgExpr::Expr(Expr::Value(text)) => {
            let Value::SingleQuotedString(pattern) = &text.value else { return Err(refused()) };
            let pattern = Regex::new(pattern)
                .map_err(|error| Error::Query { message: format!("COLUMNS('{pattern}'): {error}") })?;
            let chosen = columns.iter().filter(|column| pattern.is_match(&column.name)).collect();
            return Ok((chosen, Some(pattern)));
        }
        FunctionArgExpr::Expr(Expr::Array(list)) => {
            let name = |expr: &Expr| match expr {
                Expr::Value(value) => value.value.clone().into_string(),
                _ => None,
            };
            let names: Vec<String> = list.elem.iter().map(name).collect::<Option<_>>().ok_or_else(refused)?;
            if let Some(unknown) =
                names.iter().find(|name| !columns.iter().any(|column| column.name == **name))
            {
                return Err(Error::Query { message: format!("COLUMNS: there is no column '{unknown}'") });
            }
            columns.iter().filter(|column| names.contains(&column.name)).collect()
        }
        FunctionArgExpr::Expr(_) => return Err(refused()),
    };
    Ok((chosen, None))
}

fn last_part(name: &ObjectName) -> Option<String> {
    name.0.last()?.as_ident().map(normalized)
}

/// `\1` in a name as the group of the pattern, `\0` as all that it has found.
fn with_groups(pattern: &Regex, column: &str, name: &str) -> String {
    let Some(groups) = pattern.captures(column) else { return name.to_owned() };
    let mut written = String::new();
    let mut rest = name.chars().peekable();
    while let Some(c) = rest.next() {
        match (c, rest.peek().and_then(|digit| digit.to_digit(10))) {
            ('\\', Some(group)) => {
                rest.next();
                written.push_str(groups.get(group as usize).map_or("", |group| group.as_str()));
            }
            _ => written.push(c),
        }
    }
    written
}

fn contains(part: &impl Walk) -> bool {
    let mut found = Found::default();
    let _ = part.walk(&mut found);
    found.0.is_some()
}

/// The argument of a call of `COLUMNS`.
fn argument(expr: &Expr) -> Option<&FunctionArg> {
    let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = expr else {
        return None;
    };
    match list.args.as_slice() {
        [argument] if name.to_string().eq_ignore_ascii_case("columns") => Some(argument),
        _ => None,
    }
}

/// Finds the first one.
#[derive(Default)]
struct Found(Option<FunctionArg>);

impl Visitor for Found {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match argument(expr) {
            Some(argument) => {
                self.0 = Some(argument.clone());
                ControlFlow::Break(())
            }
            None => ControlFlow::Continue(()),
        }
    }
}

/// Puts a column in the place of each.
struct Replace<'a>(&'a Column);

fn reference(column: &Column) -> Expr {
    match &column.table {
        Some(table) => Expr::CompoundIdentifier(vec![Ident::with_quote('"', table), column.ident()]),
        None => Expr::Identifier(column.ident()),
    }
}

impl VisitorMut for Replace<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if argument(expr).is_some() {
            *expr = reference(self.0);
        }
        ControlFlow::Continue(())
    }
}
