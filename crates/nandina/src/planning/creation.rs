//! What `CREATE TABLE` and `CREATE VIEW` say that DataFusion's planner does not know.
//!
//! ```sql
//! CREATE TEMP TABLE t (a INTEGER DEFAULT 7, b INTEGER);   -- temp.main.t, and what a is by default
//! CREATE TABLE t AS SELECT x, x FROM s;                   -- columns x and x_1
//! CREATE TABLE t (a, b) AS SELECT x, y FROM s;
//! ```

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    ColumnOption, ColumnOptionDef, CreateTable, CreateTableOptions, Expr, Ident, ObjectName, Query,
    SelectItem, SetExpr, SqlOption, Statement as SqlStatement, TableConstraint, TableFactor, TableWithJoins,
    Visitor,
};
use nandina_storage::{ColumnDefault, MAIN, Sequence, TableRules};

use super::catalog_statement::{object_name, parts};
use super::wrong_plans::normalized;
use super::{checks, identities, index_statement};
use crate::catalog::TEMPORARY;
use crate::error::{Error, Result};
use crate::planning::walk::Walk as _;
use crate::statement_text;

/// What becomes of a table or view beside its plan.
#[derive(Debug, Default)]
pub(crate) struct Creation {
    pub rules: TableRules,
    /// Whether a table is made of the rows of a query: then its columns may hold nulls, whatever those rows are.
    pub is_query: bool,
    /// Whether a view that is there is kept.
    pub keeps_view: bool,
    /// Whether rows are changed one by one.
    pub has_rows: bool,
    pub keys: Vec<Key>,
    pub identities: Vec<Identity>,
}

/// A column whose rows are numbered: `GENERATED … AS IDENTITY`, or of a type like `SERIAL`.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub column: String,
    /// Without a name.
    pub sequence: Sequence,
}

/// `PRIMARY KEY` or `UNIQUE`
#[derive(Debug, Clone)]
pub(crate) struct Key {
    /// As `CONSTRAINT` gives it.
    pub name: Option<String>,
    pub columns: Vec<String>,
    pub is_primary: bool,
}

/// Takes what the planner does not know out of a statement.
pub(crate) fn settle(statement: &mut Statement) -> Result<Creation> {
    let mut creation = Creation::default();
    let inner = match statement {
        Statement::Statement(inner) => inner.as_mut(),
        Statement::Explain(explain) => return settle(&mut explain.statement),
        _ => return Ok(creation),
    };
    match inner {
        SqlStatement::CreateTable(create) => {
            if std::mem::take(&mut create.temporary) {
                create.name = in_temporary(&create.name)?;
            }
            for column in &mut create.columns {
                let name = normalized(&column.name);
                let mut refused = None;
                identities::take(column, &mut creation)?;
                column.options.retain(|option| match &option.option {
                    ColumnOption::Default(expression) => {
                        if has_columns(expression) {
                            refused = Some(expression.to_string());
                        }
                        let expression = expression.to_string();
                        creation.rules.defaults.push(ColumnDefault { column: name.clone(), expression });
                        false
                    }
                    _ => true,
                });
                for (name, check) in take_checks_of_column(&mut column.options) {
                    creation.rules.add_check(name, checks::kept(&check)?);
                }
                if let Some(expression) = refused {
                    return Err(Error::unsupported(format!(
                        "column '{name}': DEFAULT {expression} names a column, which a default cannot"
                    )));
                }
            }
            for (name, check) in take_checks(&mut create.constraints) {
                creation.rules.add_check(name, checks::kept(&check)?);
            }
            take_keys(create, &mut creation)?;
            creation.is_query = create.query.is_some() && create.columns.is_empty();
            if let Some(query) = &mut create.query {
                name_apart(query, |name, count| format!("{name}_{count}"));
            }
        }
        SqlStatement::CreateView(create) => {
            if create.temporary {
                create.name = in_temporary(&create.name)?;
            }
            creation.keeps_view = std::mem::take(&mut create.if_not_exists);
        }
        _ => {}
    }
    Ok(creation)
}

fn in_temporary(name: &ObjectName) -> Result<ObjectName> {
    let parts = parts(name);
    match parts.as_slice() {
        [table] | [_, table] if parts.len() == 1 || parts.first().is_some_and(|first| first == TEMPORARY) => {
            Ok(object_name(&[TEMPORARY.to_owned(), MAIN.to_owned(), table.clone()]))
        }
        [database, _, _] if database == TEMPORARY => Ok(name.clone()),
        _ => Err(Error::unsupported(format!(
            "'{name}': what is temporary is in no schema; write just its name"
        ))),
    }
}

/// Takes keys, and where rows are stored, out of a statement.
fn take_keys(create: &mut CreateTable, creation: &mut Creation) -> Result<()> {
    let name = |name: &Option<Ident>| name.as_ref().map(normalized);
    for column in &mut create.columns {
        let own = normalized(&column.name);
        column.options.retain(|option| {
            let key = match &option.option {
                ColumnOption::PrimaryKey(_) => true,
                ColumnOption::Unique(_) => false,
                _ => return true,
            };
            creation.keys.push(Key { name: name(&option.name), columns: vec![own.clone()], is_primary: key });
            false
        });
    }
    for constraint in std::mem::take(&mut create.constraints) {
        match constraint {
            TableConstraint::PrimaryKey(key) => {
                let columns = index_statement::columns(&key.columns)?;
                creation.keys.push(Key { name: name(&key.name), columns, is_primary: true });
            }
            TableConstraint::Unique(key) => {
                let columns = index_statement::columns(&key.columns)?;
                creation.keys.push(Key { name: name(&key.name), columns, is_primary: false });
            }
            other => create.constraints.push(other),
        }
    }
    creation.has_rows |= !creation.keys.is_empty();
    if let CreateTableOptions::With(options) = &mut create.table_options {
        for option in options.extract_if(
            ..,
            |option| matches!(option, SqlOption::KeyValue { key, .. } if normalized(key) == "storage"),
        ) {
            let SqlOption::KeyValue { value, .. } = option else { continue };
            match value.to_string().trim_matches('\'').to_ascii_lowercase().as_str() {
                "row" => creation.has_rows = true,
                "auto" => {}
                other => {
                    return Err(Error::unsupported(format!(
                        "storage = '{other}': 'row' is for rows that are changed one by one, 'auto' is what suits the table"
                    )));
                }
            }
        }
        if options.is_empty() {
            create.table_options = CreateTableOptions::None;
        }
    }
    Ok(())
}

/// A check, and its name if `CONSTRAINT` gives it one.
type NamedCheck = (Option<String>, Expr);

fn take_checks_of_column(options: &mut Vec<ColumnOptionDef>) -> Vec<NamedCheck> {
    let checks = options.extract_if(.., |option| matches!(option.option, ColumnOption::Check(_)));
    let check = |option: ColumnOptionDef| match option.option {
        ColumnOption::Check(check) => {
            Some((option.name.or(check.name).as_ref().map(normalized), *check.expr))
        }
        _ => None,
    };
    checks.filter_map(check).collect()
}

fn take_checks(constraints: &mut Vec<TableConstraint>) -> Vec<NamedCheck> {
    let checks = constraints.extract_if(.., |constraint| matches!(constraint, TableConstraint::Check(_)));
    let check = |constraint: TableConstraint| match constraint {
        TableConstraint::Check(check) => Some((check.name.as_ref().map(normalized), *check.expr)),
        _ => None,
    };
    checks.filter_map(check).collect()
}

/// A text in which names for the columns of `CREATE TABLE t (a, b) AS query` stand behind the query, where the parser can
/// read them: `CREATE TABLE t AS SELECT * FROM (query) AS columns (a, b)`.
pub(crate) fn with_columns_behind(text: &str) -> Option<String> {
    let mut tokens = statement_text::tokens(text).peekable();
    let is = |token: Option<&(usize, &str)>, word: &str| {
        token.is_some_and(|(_, token)| token.eq_ignore_ascii_case(word))
    };
    if !is(tokens.next().as_ref(), "create") {
        return None;
    }
    while ["or", "replace", "temp", "temporary"].iter().any(|word| is(tokens.peek(), word)) {
        tokens.next();
    }
    if !is(tokens.next().as_ref(), "table") {
        return None;
    }
    let (start, _) = tokens.find(|(_, token)| *token == "(" || token.eq_ignore_ascii_case("as"))?;
    if !text.get(start..)?.starts_with('(') {
        return None;
    }
    // Names and commas, and nothing else.
    loop {
        let (_, name) = tokens.next()?;
        let is_name =
            name.starts_with('"') || name.starts_with(|first: char| first.is_alphabetic() || first == '_');
        let (at, next) = tokens.next()?;
        match next {
            "," if is_name => {}
            ")" if is_name => {
                let (end, _) = tokens.next().filter(|token| is(Some(token), "as"))?;
                let (head, names) = (text.get(..start)?, text.get(start..=at)?);
                let query = text.get(end + "as".len()..)?.trim_end().trim_end_matches(';');
                return Some(format!("{head} AS SELECT * FROM ({query}\n) AS columns {names}"));
            }
            _ => return None,
        }
    }
}

fn has_columns(expression: &Expr) -> bool {
    struct Columns;
    impl Visitor for Columns {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    expression.walk(&mut Columns).is_break()
}

/// Gives outputs of a query names of their own where others have the same.
pub(crate) fn name_apart(query: &mut Query, name: impl Fn(&str, usize) -> String) {
    let select = match query.body.as_mut() {
        SetExpr::Select(select) => match select.from.as_mut_slice() {
            // Columns of a query in brackets that get their names behind it.
            [
                TableWithJoins { relation: TableFactor::Derived { subquery, alias: Some(alias), .. }, joins },
            ] if joins.is_empty() && !alias.columns.is_empty() => {
                return name_apart(subquery, name);
            }
            _ => select,
        },
        SetExpr::Query(inner) => return name_apart(inner, name),
        _ => return,
    };
    let mut taken = HashSet::new();
    for item in &mut select.projection {
        let own = match &*item {
            SelectItem::ExprWithAlias { alias, .. } => normalized(alias),
            SelectItem::UnnamedExpr(Expr::Identifier(column)) => normalized(column),
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(path)) => {
                path.last().map(normalized).unwrap_or_default()
            }
            SelectItem::UnnamedExpr(other) => other.to_string(),
            _ => continue,
        };
        if taken.insert(own.clone()) {
            continue;
        }
        let free = (1..).map(|count| name(&own, count)).find(|name| taken.insert(name.clone()));
        let alias = Ident::with_quote('"', free.unwrap_or_default());
        if let SelectItem::ExprWithAlias { expr, .. } | SelectItem::UnnamedExpr(expr) = item {
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_columns_go_behind_the_query() {
        let text = |text: &str| with_columns_behind(text);
        assert_eq!(
            text("CREATE OR REPLACE TABLE s.t (a, \"b c\") AS VALUES (1, 2);").as_deref(),
            Some("CREATE OR REPLACE TABLE s.t  AS SELECT * FROM ( VALUES (1, 2)\n) AS columns (a, \"b c\")")
        );
        assert_eq!(text("CREATE TABLE t (a INTEGER, b INTEGER)"), None);
        assert_eq!(text("CREATE TABLE t AS SELECT f(a, b) AS c"), None);
        assert_eq!(text("CREATE VIEW v (a, b) AS SELECT 1, 2"), None);
    }
}
