//! `INSERT` with what a statement leaves out: defaults, names of columns, and names of outputs that are there twice.
//!
//! ```text
//!   CREATE TABLE t (a INTEGER DEFAULT 7, b INTEGER)
//!   INSERT INTO t DEFAULT VALUES                      VALUES (7, NULL)
//!   INSERT INTO t (b, a) VALUES (1, DEFAULT)          VALUES (1, 7)
//!   INSERT INTO t (b) SELECT x FROM s                 (b, a) SELECT *, 7 FROM (SELECT x FROM s)
//!   INSERT INTO t BY NAME SELECT x AS b FROM s        (b, a) …, as above
//! ```

use std::sync::Arc;

use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Insert, ObjectName, Query, SelectItem, SetExpr, Statement as SqlStatement, TableFactor,
    TableObject, Value, Values,
};
use nandina_functions::{sql_type, takes_all};
use nandina_storage::TableRules;

use super::creation::name_apart;
use super::{catalog_statement, logical_plan, new_parser};
use super::{identities, sequence_names, syntax};
use crate::catalog::names::{Names, Place};
use crate::error::{Error, Result};
use crate::{statement_text, suggestion};

/// What stands for the columns of an `INSERT … BY NAME` until they are known.
pub(super) const BY_NAME: &str = "by name";

/// A text in which `BY NAME` behind the table of an `INSERT` is a list of columns that the parser can read.
pub(crate) fn with_names_as_list(text: &str) -> Option<String> {
    let mut tokens = statement_text::tokens(text);
    let mut is_next = |word: &str| tokens.next().is_some_and(|(_, token)| token.eq_ignore_ascii_case(word));
    if !is_next("insert") || !is_next("into") {
        return None;
    }
    let mut start = None;
    for (at, token) in tokens.take(8) {
        match (start, token) {
            (None, by) if by.eq_ignore_ascii_case("by") => start = Some(at),
            (Some(start), name) if name.eq_ignore_ascii_case("name") => {
                let (head, tail) = (text.get(..start)?, text.get(at + token.len()..)?);
                return Some(format!("{head}(\"{BY_NAME}\") {tail}"));
            }
            (Some(start), position) if position.eq_ignore_ascii_case("position") => {
                return Some(format!("{}{}", text.get(..start)?, text.get(at + token.len()..)?));
            }
            (Some(_), _) => return None,
            // What is inserted begins, or a list of columns.
            (None, word)
                if ["(", "select", "values", "from", "with", "table"]
                    .iter()
                    .any(|begin| word.eq_ignore_ascii_case(begin)) =>
            {
                return None;
            }
            _ => {}
        }
    }
    None
}

/// Completes an `INSERT` into a table of ours.
pub(crate) async fn complete(state: &SessionState, statement: &mut Statement) -> Result<()> {
    let inner = match statement {
        Statement::Statement(inner) => inner.as_mut(),
        Statement::Explain(explain) => return Box::pin(complete(state, &mut explain.statement)).await,
        _ => return Ok(()),
    };
    let SqlStatement::Insert(insert) = inner else { return Ok(()) };
    // It is for ON CONFLICT and RETURNING.
    insert.table_alias = None;
    let Some(target) = Target::of(state, insert).await? else { return Ok(()) };
    let mut given: Vec<String> =
        insert.columns.iter().flat_map(|name| catalog_statement::parts(name).pop()).collect();
    let Some(source) = &mut insert.source else {
        let row = target.columns.iter().map(|column| target.default(state, column)).collect::<Result<_>>()?;
        let mut query = syntax::query("VALUES (1)")?;
        if let SetExpr::Values(values) = query.body.as_mut()
            && let Some(first) = values.rows.first_mut()
        {
            first.content = row;
        }
        insert.source = Some(Box::new(query));
        insert.columns = target.columns.iter().map(|name| column_name(name)).collect();
        return Ok(());
    };
    name_apart(source, |name, count| format!("{name}:{count}"));
    if given == [BY_NAME] {
        given = outputs(state, source).await?;
        for name in &given {
            if !target.columns.contains(name) {
                let hint = suggestion::phrase(name, target.columns.iter().map(String::as_str));
                return Err(Error::UnknownColumn { name: format!("{}.{name}", target.name), hint });
            }
        }
        insert.columns = given.iter().map(|name| column_name(name)).collect();
    }
    let columns = if given.is_empty() { target.columns.clone() } else { given };
    identities::check_insert(&target.rules, &columns, source)?;
    let missing: Vec<&String> = target
        .columns
        .iter()
        .filter(|name| !columns.contains(name) && target.rules.default_of(name).is_some())
        .collect();
    let defaults = missing.iter().map(|name| target.default(state, name)).collect::<Result<Vec<_>>>()?;
    match source.body.as_mut() {
        SetExpr::Values(values) => {
            fill_in(state, &target, values, &columns, &defaults)?;
            for row in &mut values.rows {
                for (value, column) in
                    row.content.iter_mut().zip(columns.iter().chain(missing.iter().copied()))
                {
                    target.cast(column, value)?;
                }
            }
        }
        _ if defaults.is_empty() && !target.has_any(&columns) => {}
        _ => **source = with_outputs(&target, source, &columns, defaults)?,
    }
    if !missing.is_empty() {
        let all = columns.iter().chain(missing);
        insert.columns = all.map(|name| column_name(name)).collect();
    }
    Ok(())
}

/// The table that rows go into.
struct Target {
    names: Arc<Names>,
    place: Place,
    name: String,
    columns: Vec<String>,
    /// The types that values of any other type become, of columns that have one.
    taking_all: Vec<(String, String)>,
    rules: TableRules,
}

impl Target {
    /// None if it is no table of ours, and there is nothing to complete.
    async fn of(state: &SessionState, insert: &Insert) -> Result<Option<Self>> {
        let TableObject::TableName(name) = &insert.table else { return Ok(None) };
        let Ok(reference) = catalog_statement::reference(name) else { return Ok(None) };
        let Some(names) = state.config().get_extension::<Names>() else { return Ok(None) };
        let Some(place) = names.find(&reference) else { return Ok(None) };
        let Some(table) = place.tables.table(&place, &names).await? else { return Ok(None) };
        let columns = table.schema().fields().iter().map(|field| field.name().clone()).collect();
        let types = table.schema();
        let marked = types.fields().iter().filter(|field| takes_all(field.data_type()));
        let taking_all = marked.map(|field| (field.name().clone(), sql_type(field.data_type()))).collect();
        let (name, rules) = (place.qualified(), place.tables.rules(&place));
        Ok(Some(Target { names, place, name, columns, taking_all, rules }))
    }

    fn default(&self, state: &SessionState, column: &str) -> Result<Expr> {
        match self.rules.default_of(column) {
            Some(expression) => {
                let mut default = new_parser(state, expression)?.parse_expr().map_err(Error::from_parser)?;
                sequence_names::complete_default(&self.names, &self.place, &mut default);
                Ok(default)
            }
            None => Ok(Expr::Value(Value::Null.with_empty_span())),
        }
    }

    fn has_any(&self, columns: &[String]) -> bool {
        self.taking_all.iter().any(|(name, _)| columns.contains(name))
    }

    /// Casts what goes into a column that takes values of any type: a plan would have to know how first.
    fn cast(&self, column: &str, value: &mut Expr) -> Result<()> {
        let Some((_, of)) = self.taking_all.iter().find(|(name, _)| name == column) else { return Ok(()) };
        // A type is read behind an expression.
        let mut written = syntax::expression(&format!("CAST(NULL AS {of})"))?;
        if let Expr::Cast { expr, .. } = &mut written {
            std::mem::swap(expr.as_mut(), value);
        }
        *value = written;
        Ok(())
    }
}

/// Writes out `DEFAULT` in rows, and puts the defaults of columns that are not listed behind them.
fn fill_in(
    state: &SessionState,
    target: &Target,
    values: &mut Values,
    columns: &[String],
    defaults: &[Expr],
) -> Result<()> {
    for row in &mut values.rows {
        for (value, column) in row.content.iter_mut().zip(columns) {
            if is_default(value) {
                *value = target.default(state, column)?;
            }
        }
        if row.content.len() == columns.len() {
            row.content.extend(defaults.iter().cloned());
        }
    }
    Ok(())
}

pub(super) fn is_default(value: &Expr) -> bool {
    matches!(value, Expr::Identifier(name) if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default"))
}

/// `SELECT columns, defaults FROM (query) AS t(columns)`
fn with_outputs(target: &Target, query: &Query, columns: &[String], defaults: Vec<Expr>) -> Result<Query> {
    let quoted: Vec<String> = columns.iter().map(|name| Ident::with_quote('"', name).to_string()).collect();
    let text = format!("SELECT * FROM (SELECT 1) AS inserted({})", quoted.join(", "));
    let mut outer = syntax::query(&text)?;
    if let SetExpr::Select(select) = outer.body.as_mut() {
        for table in &mut select.from {
            if let TableFactor::Derived { subquery, .. } = &mut table.relation {
                **subquery = query.clone();
            }
        }
        let alias = |(number, expr)| SelectItem::ExprWithAlias {
            expr,
            alias: Ident::with_quote('"', format!("default {number}")),
        };
        if target.has_any(columns) {
            select.projection.clear();
            for column in columns {
                let mut expr = Expr::Identifier(Ident::with_quote('"', column));
                target.cast(column, &mut expr)?;
                select
                    .projection
                    .push(SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', column) });
            }
        }
        select.projection.extend(defaults.into_iter().enumerate().map(alias));
    }
    Ok(outer)
}

/// The names of a query's outputs.
async fn outputs(state: &SessionState, query: &Query) -> Result<Vec<String>> {
    if let SetExpr::Values(_) = query.body.as_ref() {
        return Err(Error::unsupported("VALUES have no names for BY NAME; write SELECT … AS name"));
    }
    let statement = Statement::Statement(Box::new(SqlStatement::Query(Box::new(query.clone()))));
    let plan = Box::pin(logical_plan(state, statement)).await?;
    Ok(plan.schema().fields().iter().map(|field| field.name().clone()).collect())
}

fn column_name(name: &str) -> ObjectName {
    ObjectName::from(vec![Ident::with_quote('"', name)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_name_is_a_list() {
        let text = |text: &str| with_names_as_list(text);
        assert_eq!(
            text("INSERT INTO t BY NAME SELECT 1"),
            Some("INSERT INTO t (\"by name\")  SELECT 1".to_owned())
        );
        assert_eq!(
            text("insert into s.t by position select 1"),
            Some("insert into s.t  select 1".to_owned())
        );
        assert_eq!(text("INSERT INTO t (a) SELECT 1"), None);
        assert_eq!(text("INSERT INTO t SELECT a FROM x ORDER BY name"), None);
    }
}
