//! The rows that `MERGE` compares those of a table with.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::Field;
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, Merge, Statement as SqlStatement, TableFactor, TableWithJoins, With,
};

use super::Target;
use crate::error::{Error, Result};
use crate::planning::syntax::merges::{self, Form};
use crate::planning::walk::{walk_expressions, walk_expressions_mut};
use crate::planning::wrong_plans::{normalized, select_all_from};
use crate::planning::{logical_plan, output_names};
use crate::suggestion;

pub(super) struct Source {
    /// What the statement calls it.
    pub alias: Ident,
    /// The names of its columns, which only the planner knows: where nothing in the statement depends on them it is not asked.
    columns: Option<Vec<String>>,
    /// The columns of `USING (…)`.
    using: Vec<Ident>,
}

impl Source {
    pub async fn of(state: &SessionState, merge: &Merge, with: Option<&With>) -> Result<Self> {
        let alias = alias(&merge.source)?;
        let using = merges::using_columns(&merge.on)?;
        let columns = match !using.is_empty() || needs_columns(merge) {
            true => Some(columns(state, &merge.source, with).await?),
            false => None,
        };
        Ok(Self { alias, columns, using })
    }

    /// A column of it.
    pub fn own(&self, column: &str) -> Expr {
        Expr::CompoundIdentifier(vec![self.alias.clone(), Ident::with_quote('"', column)])
    }

    pub fn columns(&self) -> Result<&[String]> {
        self.columns.as_deref().ok_or_else(|| Error::bug("columns of MERGE are asked for that nothing needs"))
    }

    /// Whether a column is in `USING (…)`, so that its name stands for that of either table.
    pub fn is_in_using(&self, column: &Ident) -> bool {
        self.using.iter().any(|name| normalized(name) == normalized(column))
    }

    /// Where rows match.
    pub fn condition(&self, target: &Target, on: &Expr) -> Result<Expr> {
        let equal = |name: &Ident| -> Result<Expr> {
            let name = normalized(name);
            let own = target.own(target.name_of(target.column(&name)?));
            Ok(binary(own, BinaryOperator::Eq, self.own(self.column(&name)?)))
        };
        let equal = self.using.iter().map(equal).collect::<Result<Vec<_>>>()?;
        let all = equal.into_iter().reduce(|left, right| binary(left, BinaryOperator::And, right));
        match all {
            Some(all) => Ok(all),
            None => self.with_columns_compared(target, on.clone()),
        }
    }

    /// An expression in which comparisons of whole rows, `t IS DISTINCT FROM s`, are ones of their columns.
    pub fn with_columns_compared(&self, target: &Target, mut expr: Expr) -> Result<Expr> {
        let written = walk_expressions_mut(&mut expr, |part| {
            let Some((left, right, is_distinct)) = compared_names(part) else {
                return ControlFlow::Continue(());
            };
            if !self.are_rows(target, left, right) {
                return ControlFlow::Continue(());
            }
            match self.compared(target, is_distinct) {
                Ok(comparison) => {
                    *part = comparison;
                    ControlFlow::Continue(())
                }
                Err(error) => ControlFlow::Break(error),
            }
        });
        match written {
            ControlFlow::Continue(()) => Ok(expr),
            ControlFlow::Break(error) => Err(error),
        }
    }

    /// Whether these are the names of both tables, and of no columns.
    fn are_rows(&self, target: &Target, left: &Ident, right: &Ident) -> bool {
        let (left, right) = (normalized(left), normalized(right));
        let (ours, others) = (normalized(&target.alias), normalized(&self.alias));
        let is_column = |name: &str| target.column(name).is_ok() || self.column(name).is_ok();
        let are_tables = (left == ours && right == others) || (left == others && right == ours);
        are_tables && !is_column(&left) && !is_column(&right)
    }

    /// Whether any or no column of the target is another than that of the source with its name.
    fn compared(&self, target: &Target, is_distinct: bool) -> Result<Expr> {
        if self.columns()?.len() != target.fields().len() {
            return Err(Error::unsupported(format!(
                "MERGE: rows of '{}' and '{}' have other columns; compare those that both have one by one",
                target.alias.value, self.alias.value
            )));
        }
        let compared = |field: &Arc<Field>| -> Result<Expr> {
            let own = Box::new(target.own(field.name()));
            let other = Box::new(self.own(self.column(field.name())?));
            Ok(match is_distinct {
                true => Expr::IsDistinctFrom(own, other),
                false => Expr::IsNotDistinctFrom(own, other),
            })
        };
        let all = target.fields().iter().map(compared).collect::<Result<Vec<_>>>()?;
        let operator = if is_distinct { BinaryOperator::Or } else { BinaryOperator::And };
        let all = all.into_iter().reduce(|left, right| binary(left, operator.clone(), right));
        let all = all.ok_or_else(|| Error::bug("a table has no columns"))?;
        Ok(Expr::Nested(Box::new(all)))
    }

    /// The column of a name as the source writes it.
    fn column(&self, name: &str) -> Result<&str> {
        let columns = self.columns()?;
        let exact = columns.iter().find(|column| *column == name);
        let found = exact.or_else(|| columns.iter().find(|column| column.eq_ignore_ascii_case(name)));
        found.map(String::as_str).ok_or_else(|| {
            let hint = suggestion::phrase(name, columns.iter().map(String::as_str));
            Error::UnknownColumn { name: format!("{}.{name}", self.alias.value), hint }
        })
    }
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

/// The names that are compared by `IS [NOT] DISTINCT FROM`, and whether they have to be distinct.
fn compared_names(expr: &Expr) -> Option<(&Ident, &Ident, bool)> {
    let (left, right, is_distinct) = match expr {
        Expr::IsDistinctFrom(left, right) => (left, right, true),
        Expr::IsNotDistinctFrom(left, right) => (left, right, false),
        _ => return None,
    };
    match (left.as_ref(), right.as_ref()) {
        (Expr::Identifier(left), Expr::Identifier(right)) => Some((left, right, is_distinct)),
        _ => None,
    }
}

/// Whether a clause takes all columns of the source, or a condition may compare whole rows.
fn needs_columns(merge: &Merge) -> bool {
    let mut forms = merge.clauses.iter().filter_map(|clause| Form::of(&clause.action));
    let compared = walk_expressions(merge, |expr| match compared_names(expr) {
        Some(_) => ControlFlow::Break(()),
        None => ControlFlow::Continue(()),
    });
    compared.is_break() || forms.any(|(form, _)| matches!(form, Form::ByName | Form::ByPosition))
}

async fn columns(state: &SessionState, source: &TableFactor, with: Option<&With>) -> Result<Vec<String>> {
    let mut query = select_all_from(TableWithJoins { relation: source.clone(), joins: Vec::new() })?;
    query.with = with.cloned();
    let statement = Statement::Statement(Box::new(SqlStatement::Query(Box::new(query))));
    let plan = Box::pin(logical_plan(state, statement)).await?;
    let fields = plan.schema().fields().iter();
    Ok(fields.map(|field| output_names::without_mark(field.name()).to_owned()).collect())
}

/// The name by which the statement calls the source.
fn alias(source: &TableFactor) -> Result<Ident> {
    match source {
        TableFactor::Table { alias: Some(alias), .. } | TableFactor::Derived { alias: Some(alias), .. } => {
            Ok(alias.name.clone())
        }
        TableFactor::Table { name, .. } => {
            let name = name.0.last().and_then(|part| part.as_ident().cloned());
            name.ok_or_else(|| Error::unsupported("MERGE … USING: say AS name"))
        }
        _ => Err(Error::unsupported("MERGE … USING takes a table, or a query in brackets with AS name")),
    }
}
