//! What columns are called whose names are not written: as in DuckDB, by the expression.
//!
//! ```text
//!   SELECT sum(t.a), a + 1, count(*) FROM t        sum(t.a)   (a + 1)   count_star()
//!   SELECT a, a FROM t                             a   a
//!   CREATE TABLE u AS SELECT a, a FROM t           a   a_1
//! ```
//!
//! DataFusion wants all columns to have names of their own. Those of a result that have the name of one before them are
//! marked with characters that cannot be seen, which [`without_marks`] takes away again.

mod written;

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectNamePart, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr,
    Statement as SqlStatement, TableFactor, VisitorMut,
};

use crate::planning::lookups::unnests;
use crate::planning::wrong_plans::{normalized, visit_queries};

/// What is put behind the name of a column that another one of the result has: a space without a width.
const MARK: char = '\u{200b}';

/// Gives columns without names theirs, wherever they can be seen.
pub(crate) fn give(statement: &mut Statement) {
    if let Some(query) = result(statement) {
        name_columns(&mut query.body, true, &mut |name, times| {
            format!("{name}{}", MARK.to_string().repeat(times))
        });
    }
    if let Statement::CopyTo(copy) = statement
        && let CopyToSource::Query(query) = &mut copy.source
    {
        name_columns(&mut query.body, false, &mut numbered);
    }
    // It never breaks off.
    let _ = visit_queries(statement, &mut Tables);
}

/// The name of a column that is this expression.
pub(crate) fn of(expr: &Expr) -> String {
    match expr {
        Expr::CompoundIdentifier(path) => path.last().map(normalized).unwrap_or_default(),
        other => written::text(other),
    }
}

/// The columns of a result under the names that they are to have.
pub(crate) fn without_marks(schema: SchemaRef) -> SchemaRef {
    if !schema.fields().iter().any(|field| field.name().ends_with(MARK)) {
        return schema;
    }
    let fields =
        schema.fields().iter().map(|field| field.as_ref().clone().with_name(without_mark(field.name())));
    Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
}

/// The name of a column without a mark.
pub(crate) fn without_mark(name: &str) -> &str {
    name.trim_end_matches(MARK)
}

/// The query whose rows a statement answers with.
fn result(statement: &mut Statement) -> Option<&mut Query> {
    match statement {
        Statement::Statement(inner) => match inner.as_mut() {
            SqlStatement::Query(query) => Some(query),
            _ => None,
        },
        _ => None,
    }
}

/// Names the columns of tables that are made of queries.
struct Tables;

impl VisitorMut for Tables {
    type Break = ();

    fn pre_visit_statement(&mut self, statement: &mut SqlStatement) -> ControlFlow<()> {
        let query = match statement {
            SqlStatement::CreateTable(create) => create.query.as_mut(),
            SqlStatement::CreateView(create) => Some(&mut create.query),
            SqlStatement::Insert(insert) => insert.source.as_mut(),
            _ => None,
        };
        query.into_iter().for_each(|query| name_columns(&mut query.body, false, &mut numbered));
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let tables = query.with.iter_mut().flat_map(|with| &mut with.cte_tables);
        tables.for_each(|table| name_columns(&mut table.query.body, false, &mut numbered));
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { subquery, .. } = factor {
            name_columns(&mut subquery.body, false, &mut numbered);
        }
        ControlFlow::Continue(())
    }
}

fn numbered(name: &str, times: usize) -> String {
    match times {
        0 => name.to_owned(),
        times => format!("{name}_{times}"),
    }
}

/// Names the columns of all branches of a query; `named` is given how many columns before have the same name.
fn name_columns(body: &mut SetExpr, is_result: bool, named: &mut impl FnMut(&str, usize) -> String) {
    match body {
        SetExpr::Select(select) => name_outputs(select, is_result, named),
        SetExpr::Query(query) => name_columns(&mut query.body, is_result, named),
        SetExpr::SetOperation { left, right, .. } => {
            name_columns(left, is_result, named);
            name_columns(right, is_result, named);
        }
        _ => {}
    }
}

fn name_outputs(select: &mut Select, is_result: bool, named: &mut impl FnMut(&str, usize) -> String) {
    // Nothing if one of them has a name that is not known here.
    let tables: Option<Vec<String>> = select
        .from
        .iter()
        .flat_map(|from| std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation)))
        .map(name_of)
        .collect();
    let stars: Vec<Option<String>> = select.projection.iter().filter_map(star).collect();
    // Whether `*` brings a column along that is named beside it, too.
    let is_in_star = |expr: &Expr| match expr {
        Expr::Identifier(_) => stars.contains(&None),
        Expr::CompoundIdentifier(path) => {
            let table = path.iter().rev().nth(1).map(normalized);
            stars.contains(&None) || stars.contains(&table)
        }
        _ => false,
    };
    let mut seen: Vec<String> = Vec::new();
    for item in &mut select.projection {
        let (name, is_written) = match &*item {
            SelectItem::ExprWithAlias { alias, .. } => (normalized(alias), true),
            SelectItem::UnnamedExpr(expr) if makes_columns(expr) => continue,
            SelectItem::UnnamedExpr(Expr::Identifier(column)) => (normalized(column), true),
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(path)) => {
                let (Some(first), Some(last)) = (path.first(), path.last()) else { continue };
                let is_field = |tables: &Vec<String>| path.len() == 2 && !tables.contains(&normalized(first));
                let is_column = !tables.as_ref().is_some_and(is_field);
                (normalized(last), is_column)
            }
            SelectItem::UnnamedExpr(expr) => (written::text(expr), false),
            _ => continue,
        };
        let times = seen.iter().filter(|&other| *other == name).count();
        let is_again = matches!(item, SelectItem::UnnamedExpr(expr) if is_in_star(expr));
        let times = times + usize::from(is_again && is_result);
        if !is_written || times > 0 {
            let alias = Ident::with_quote('"', named(&name, times));
            let expr = match std::mem::replace(item, SelectItem::Wildcard(Default::default())) {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => expr,
                _ => unreachable!("only these have been given a name above"),
            };
            *item = SelectItem::ExprWithAlias { expr, alias };
        }
        seen.push(name);
    }
}

/// The table whose columns `*` stands for, or nothing for all tables; nothing at all for other outputs.
fn star(item: &SelectItem) -> Option<Option<String>> {
    match item {
        SelectItem::Wildcard(_) => Some(None),
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(table), _) => {
            Some(Some(normalized(table.0.last()?.as_ident()?)))
        }
        _ => None,
    }
}

/// What the columns of a table may be qualified with.
fn name_of(table: &TableFactor) -> Option<String> {
    match table {
        TableFactor::Table { alias: Some(alias), .. } | TableFactor::Derived { alias: Some(alias), .. } => {
            Some(normalized(&alias.name))
        }
        TableFactor::Table { name, .. } => match name.0.last()? {
            ObjectNamePart::Identifier(name) => Some(normalized(name)),
            ObjectNamePart::Function(_) => None,
        },
        _ => None,
    }
}

/// Whether an expression may be several columns, or none.
fn makes_columns(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(function)
        if ["unnest", "columns"].iter().any(|name| function.name.to_string().eq_ignore_ascii_case(name)))
        && !unnests::is_settled(expr)
}
