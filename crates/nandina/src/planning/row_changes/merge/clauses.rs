//! What the clauses of `MERGE` do with rows.
//!
//! | clause | tables that have a row | what may become of it |
//! |---|---|---|
//! | `WHEN MATCHED` | both | it is changed or deleted |
//! | `WHEN NOT MATCHED [BY TARGET]` | the source | it is inserted |
//! | `WHEN NOT MATCHED BY SOURCE` | the target | it is changed or deleted |
//!
//! An expression names columns of tables that have a row: those of the other one would be nulls that nobody has written.

use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, Assignment, AssignmentTarget, Expr, Ident, MergeAction as Action, MergeClause,
    MergeClauseKind, MergeInsertExpr, MergeInsertKind, MergeUpdateExpr, ObjectName, Query, Visitor,
};
use nandina_exec::rows::{MergeAction, ROW_ID};

use super::source::Source;
use super::{Branch, IN_SOURCE, Outcome, both};
use crate::error::{Error, Result};
use crate::planning::catalog_statement;
use crate::planning::insertion::is_default;
use crate::planning::row_changes::target::{Target, with_table};
use crate::planning::syntax::merges::Form;
use crate::planning::trees::null;
use crate::planning::walk::Walk as _;
use crate::planning::wrong_plans::normalized;

/// What becomes of rows by each of the clauses.
pub(super) fn branches(
    state: &SessionState,
    target: &Target,
    source: &Source,
    clauses: &[MergeClause],
) -> Result<Vec<Branch>> {
    check_reachable(clauses)?;
    let branch = |clause: &MergeClause| {
        let rows = Rows::of(clause.clause_kind);
        ClauseReader { state, target, source, rows }.branch(clause)
    };
    clauses.iter().map(branch).collect()
}

/// A clause without a condition takes all rows that are left for its kind.
fn check_reachable(clauses: &[MergeClause]) -> Result<()> {
    let mut taken = Vec::new();
    for clause in clauses {
        let rows = Rows::of(clause.clause_kind);
        if taken.contains(&rows) {
            return Err(Error::unsupported(format!(
                "MERGE: no row comes to {}, as a WHEN {} without a condition stands before it",
                head(clause),
                clause.clause_kind
            )));
        }
        if clause.predicate.is_none() {
            taken.push(rows);
        }
    }
    Ok(())
}

/// How a clause begins, for messages.
fn head(clause: &MergeClause) -> String {
    match &clause.predicate {
        Some(predicate) => format!("WHEN {} AND {predicate}", clause.clause_kind),
        None => format!("WHEN {}", clause.clause_kind),
    }
}

/// The tables that have a row where a clause counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rows {
    Both,
    Source,
    Target,
}

impl Rows {
    fn of(kind: MergeClauseKind) -> Self {
        match kind {
            MergeClauseKind::Matched => Rows::Both,
            MergeClauseKind::NotMatched | MergeClauseKind::NotMatchedByTarget => Rows::Source,
            MergeClauseKind::NotMatchedBySource => Rows::Target,
        }
    }
}

struct ClauseReader<'a> {
    state: &'a SessionState,
    target: &'a Target,
    source: &'a Source,
    rows: Rows,
}

impl ClauseReader<'_> {
    fn branch(&self, clause: &MergeClause) -> Result<Branch> {
        let row_id = Box::new(self.target.own(ROW_ID));
        let in_source = self.source.own(IN_SOURCE);
        let condition = match self.rows {
            Rows::Both => both(Expr::IsNotNull(row_id), Some(in_source)),
            Rows::Source => Expr::IsNull(row_id),
            Rows::Target => Expr::IsNull(Box::new(in_source)),
        };
        let predicate = clause.predicate.as_ref().map(|predicate| self.expression(predicate)).transpose()?;
        let outcome = match Form::of(&clause.action) {
            Some((form, expression)) => self.form(form, expression, clause)?,
            None => self.action(clause)?,
        };
        Ok(Branch { condition: both(condition, predicate), outcome })
    }

    /// An action that the parser knows.
    fn action(&self, clause: &MergeClause) -> Result<Outcome> {
        match (&clause.action, self.rows) {
            (Action::Insert(insert), Rows::Source) => self.insert_values(insert),
            (Action::Update(update), Rows::Both | Rows::Target) => self.update_columns(update),
            (Action::Delete { .. }, Rows::Both | Rows::Target) => {
                Ok(Outcome::Change(MergeAction::Delete, self.own_values().collect()))
            }
            (action, _) => Err(Error::unsupported(format!(
                "MERGE: WHEN {} THEN {action} is not possible: rows are inserted when they are not matched, and others changed",
                clause.clause_kind
            ))),
        }
    }

    /// An action that the parser does not know.
    fn form(&self, form: Form, expression: Option<&Expr>, clause: &MergeClause) -> Result<Outcome> {
        match form {
            Form::DoNothing => Ok(Outcome::Nothing),
            Form::Error => {
                let message = expression.map_or_else(|| Ok(null()), |message| self.expression(message))?;
                let otherwise = format!("MERGE: a row comes to {} THEN ERROR", head(clause));
                Ok(Outcome::Failure { message: Box::new(message), otherwise })
            }
            Form::Defaults => self.insert(Vec::new()),
            Form::ByName | Form::ByPosition => match self.rows {
                Rows::Source => self.insert(self.all_columns(form)?),
                Rows::Both => {
                    let given = self.all_columns(form)?.into_iter();
                    let assignments =
                        given.map(|(column, value)| assigned(self.target.name_of(column), value));
                    self.update(&assignments.collect::<Vec<_>>())
                }
                Rows::Target => Err(Error::unsupported(format!(
                    "MERGE: {} THEN UPDATE has no row of '{}' to take values from; write UPDATE SET column = value",
                    head(clause),
                    self.source.alias.value
                ))),
            },
        }
    }

    /// Columns of the target, each with that of the source whose value it takes.
    fn all_columns(&self, form: Form) -> Result<Vec<(usize, Expr)>> {
        let names = self.source.columns()?;
        let columns: Vec<usize> = match form {
            Form::ByName => names.iter().map(|name| self.target.column(name)).collect::<Result<_>>()?,
            _ => (0..self.target.fields().len()).collect(),
        };
        if columns.len() != names.len() {
            return Err(Error::unsupported(format!(
                "MERGE: '{}' has {} columns, but '{}' has {} for them; name columns, or write BY NAME",
                self.target.place.name,
                columns.len(),
                self.source.alias.value,
                names.len()
            )));
        }
        Ok(columns.into_iter().zip(names.iter().map(|name| self.source.own(name))).collect())
    }

    fn insert_values(&self, insert: &MergeInsertExpr) -> Result<Outcome> {
        if insert.insert_predicate.is_some() {
            return Err(Error::unsupported("MERGE: write WHEN NOT MATCHED AND condition instead of WHERE"));
        }
        let MergeInsertKind::Values(values) = &insert.kind else {
            return Err(Error::unsupported("MERGE … INSERT ROW is not supported; write INSERT *"));
        };
        let [row] = values.rows.as_slice() else {
            return Err(Error::unsupported("MERGE … INSERT takes one row of VALUES"));
        };
        let columns: Vec<usize> = match insert.columns.is_empty() {
            true => (0..self.target.fields().len()).collect(),
            false => {
                let names = insert.columns.iter().flat_map(|name| catalog_statement::parts(name).pop());
                names.map(|name| self.target.column(&name)).collect::<Result<_>>()?
            }
        };
        if columns.len() != row.content.len() {
            return Err(Error::unsupported(format!(
                "MERGE inserts {} values into {} columns",
                row.content.len(),
                columns.len()
            )));
        }
        let given = columns.into_iter().zip(&row.content);
        let given = given.map(|(column, value)| Ok((column, self.expression(value)?)));
        self.insert(given.collect::<Result<Vec<_>>>()?)
    }

    /// Inserts a row with values in some columns, and defaults in all others.
    fn insert(&self, given: Vec<(usize, Expr)>) -> Result<Outcome> {
        let mut values: Vec<Option<Expr>> = vec![None; self.target.fields().len()];
        for (column, value) in given {
            let value = match is_default(&value) {
                true => self.target.default(self.state, column)?,
                false => value,
            };
            let Some(place) = values.get_mut(column) else {
                return Err(Error::bug("a column that was found is not there"));
            };
            if place.replace(value).is_some() {
                let name = self.target.name_of(column);
                return Err(Error::unsupported(format!("MERGE inserts two values into column '{name}'")));
            }
        }
        let value = |(column, value): (usize, Option<Expr>)| match value {
            Some(value) => Ok(value),
            None => self.target.default(self.state, column),
        };
        let values = values.into_iter().enumerate().map(value).collect::<Result<Vec<_>>>()?;
        Ok(Outcome::Change(MergeAction::Insert, values))
    }

    fn update_columns(&self, update: &MergeUpdateExpr) -> Result<Outcome> {
        if update.update_predicate.is_some() || update.delete_predicate.is_some() {
            return Err(Error::unsupported("MERGE: write WHEN … AND condition instead of WHERE"));
        }
        let assignment = |assignment: &Assignment| -> Result<Assignment> {
            let value = self.expression(&assignment.value)?;
            Ok(Assignment { target: assignment.target.clone(), value })
        };
        self.update(&update.assignments.iter().map(assignment).collect::<Result<Vec<_>>>()?)
    }

    fn update(&self, assignments: &[Assignment]) -> Result<Outcome> {
        let assigned = self.target.assigned(self.state, assignments)?;
        let value = |(value, own): (Option<Expr>, Expr)| value.unwrap_or(own);
        let values = assigned.into_iter().zip(self.own_values()).map(value).collect();
        Ok(Outcome::Change(MergeAction::Update, values))
    }

    /// What the columns of the target hold.
    fn own_values(&self) -> impl Iterator<Item = Expr> {
        self.target.fields().iter().map(|field| self.target.own(field.name()))
    }

    /// Whether a path that begins so may be one into a column of the table that has no row: it would be a null that nobody has written.
    fn may_be_of_other(&self, first: &Ident) -> bool {
        let name = normalized(first);
        let place = &self.target.place;
        let is_known = [normalized(&self.target.alias), normalized(&self.source.alias)].contains(&name)
            || [&place.schema, &place.database].contains(&&name);
        let is_of_target = self.target.column(&name).is_ok();
        !is_known && is_of_target == (self.rows == Rows::Source)
    }

    /// An expression of the clause, in which columns without a table are those of the tables that have a row.
    fn expression(&self, expr: &Expr) -> Result<Expr> {
        let (ours, others) = (&self.target.alias, &self.source.alias);
        let (table, other) = match self.rows {
            Rows::Both => {
                let compared = self.source.with_columns_compared(self.target, expr.clone())?;
                return Ok(with_table(compared, others, |name| self.source.is_in_using(name)));
            }
            Rows::Source => (others, ours),
            Rows::Target => (ours, others),
        };
        if names_table(expr, |first| normalized(first) == normalized(other)) {
            return Err(Error::unsupported(format!(
                "MERGE: {expr} names '{}', which has no row that matches; take columns of '{}'",
                other.value, table.value
            )));
        }
        if names_table(expr, |first| self.may_be_of_other(first)) {
            return Err(Error::unsupported(format!(
                "MERGE: {expr} has a part of a column without its table; write '{}' before it",
                table.value
            )));
        }
        Ok(with_table(expr.clone(), table, |name| !is_default(&Expr::Identifier(name.clone()))))
    }
}

/// `column = value`
fn assigned(column: &str, value: Expr) -> Assignment {
    let name = ObjectName::from(vec![Ident::with_quote('"', column)]);
    Assignment { target: AssignmentTarget::ColumnName(name), value }
}

/// Whether an expression has a path that begins with such a name, outside of sub-queries, which may have a table of the name.
fn names_table(value: &Expr, is_such: impl Fn(&Ident) -> bool) -> bool {
    struct Names<F> {
        is_such: F,
        /// Queries that the visitor is inside of.
        queries: usize,
    }
    impl<F: Fn(&Ident) -> bool> Visitor for Names<F> {
        type Break = ();

        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.queries += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.queries -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            let begins_so =
                first_of_path(expr).is_some_and(|first| self.queries == 0 && (self.is_such)(first));
            match begins_so {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }
    value.walk(&mut Names { is_such, queries: 0 }).is_break()
}

/// What a path of several names begins with.
fn first_of_path(expr: &Expr) -> Option<&Ident> {
    match expr {
        Expr::CompoundIdentifier(path) => path.first(),
        Expr::CompoundFieldAccess { root, access_chain } => match (root.as_ref(), access_chain.first()) {
            (Expr::Identifier(first), Some(AccessExpr::Dot(_))) => Some(first),
            _ => None,
        },
        _ => None,
    }
}
