//! `MERGE`: rows of one table decide what becomes of those of another.
//!
//! ```text
//!   MERGE INTO t USING s ON t.k = s.k WHEN MATCHED AND s.a > 0 THEN UPDATE SET a = s.a WHEN NOT MATCHED THEN INSERT …
//!   ─►  SELECT t."row id", CASE WHEN t."row id" IS NOT NULL AND (s.a > 0) THEN 2 WHEN … THEN 1 END AS action,
//!              CASE WHEN … THEN s.a WHEN … THEN … END, …
//!       FROM (SELECT *, true AS "in source" FROM s) AS s LEFT JOIN rows_to_change() AS t ON t.k = s.k
//!       WHERE action IS NOT NULL
//! ```

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, Merge, MergeAction as Action, MergeClause, MergeClauseKind, MergeInsertExpr,
    MergeInsertKind, OutputClause, Query, SelectItem, TableFactor, Visit as _, VisitMut, Visitor, VisitorMut,
};
use nandina_exec::rows::{MergeAction, ROW_ID, RowChange};
use nandina_functions::sql_type;

use super::target::{self, Target, value_name, with_table};
use super::{Changing, planned};
use crate::catalog::names::Names;
use crate::error::{Error, Result};
use crate::planning::insertion::is_default;
use crate::planning::wrong_plans::normalized;
use crate::planning::{catalog_statement, syntax};

const IN_SOURCE: &str = "in source";

pub(super) async fn plan(state: &SessionState, names: &Arc<Names>, merge: &Merge) -> Result<Changing> {
    let target = Target::of(state, names, &merge.table).await?;
    let returning = match &merge.output {
        None => None,
        Some(OutputClause::Returning { select_items, .. }) => Some(select_items.clone()),
        Some(OutputClause::Output { .. }) => {
            return Err(Error::unsupported("MERGE … OUTPUT is not supported"));
        }
    };
    let source = source_alias(&merge.source)?;
    let clauses = &merge.clauses;
    let branch = |clause: &MergeClause| branch(state, &target, clause, &source);
    let branches = clauses.iter().map(branch).collect::<Result<Vec<_>>>()?;
    let keeps_target = clauses.iter().any(|clause| clause.clause_kind == MergeClauseKind::NotMatchedBySource);
    let join = if keeps_target { "FULL" } else { "LEFT" };
    let text = format!(
        "(SELECT *, true AS {} FROM {SOURCE}) AS {source} {join} JOIN {} ON {ON}",
        Ident::with_quote('"', IN_SOURCE),
        target.rows_to_change(),
    );
    let from = From { text, source: Some(merge.source.clone()), on: merge.on.as_ref().clone() };
    merging(state, target, from, branches, returning).await
}

/// What becomes of rows for which a condition is true, and none of those before.
pub(super) struct Branch {
    pub condition: Expr,
    pub action: MergeAction,
    /// Of each column.
    pub values: Vec<Expr>,
}

/// The rows that decide, beside those of the target: a text in which [`ON`] and [`SOURCE`] stand for these.
pub(super) struct From {
    pub text: String,
    pub source: Option<TableFactor>,
    pub on: Expr,
}

/// Names in the texts of queries, in whose places parts of the statement are put: not every part could be read again as it is
/// written.
pub(super) const ON: &str = "\"join condition\"";
const SOURCE: &str = "\"merged rows\"";

/// The name that stands for a part of a branch: its condition (0), or the value of a column (from 1 on).
fn place_of(branch: usize, part: usize) -> String {
    format!("part {part} of branch {branch}")
}

struct Parts<'s> {
    from: &'s From,
    of_branches: &'s HashMap<String, Expr>,
}

impl VisitorMut for Parts<'_> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let (TableFactor::Table { name, .. }, Some(source)) = (&*factor, &self.from.source)
            && name.to_string() == SOURCE
        {
            *factor = source.clone();
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(name) = expr {
            if name.to_string() == ON {
                *expr = self.from.on.clone();
            } else if let Some(part) = self.of_branches.get(&name.value) {
                *expr = part.clone();
            }
        }
        ControlFlow::Continue(())
    }
}

/// The plan of rows that `from` has beside rows of the target.
pub(super) async fn merging(
    state: &SessionState,
    target: Target,
    from: From,
    branches: Vec<Branch>,
    returning: Option<Vec<SelectItem>>,
) -> Result<Changing> {
    if branches.is_empty() {
        return Err(Error::unsupported("MERGE without WHEN does nothing"));
    }
    let part = |branch: usize, part: usize| Ident::with_quote('"', place_of(branch, part)).to_string();
    // A value for each branch.
    let case = |values: &mut dyn Iterator<Item = String>| {
        let when = |(branch, value)| format!("WHEN ({}) THEN {value}", part(branch, 0));
        format!("CASE {} END", values.enumerate().map(when).collect::<Vec<_>>().join(" "))
    };
    let action = case(&mut branches.iter().map(|branch| format!("CAST({} AS TINYINT)", branch.action as i8)));
    let mut items = vec![
        format!("{}.{}", target.alias, Ident::with_quote('"', ROW_ID)),
        format!("{action} AS {}", Ident::with_quote('"', target::ACTION)),
    ];
    for (number, field) in target.fields().iter().enumerate() {
        let data_type = sql_type(field.data_type());
        let value = |branch| format!("CAST(({}) AS {data_type})", part(branch, number + 1));
        let value = case(&mut (0..branches.len()).map(value));
        items.push(format!("{value} AS {}", Ident::with_quote('"', value_name(number))));
    }
    let text = format!("SELECT {} FROM {} WHERE {action} IS NOT NULL", items.join(", "), from.text);
    let mut query = syntax::query(&text)?;
    let mut of_branches = HashMap::new();
    for (number, branch) in branches.into_iter().enumerate() {
        let parts = std::iter::once(branch.condition).chain(branch.values).enumerate();
        of_branches.extend(parts.map(|(part, expr)| (place_of(number, part), expr)));
    }
    let _ = VisitMut::visit(&mut query, &mut Parts { from: &from, of_branches: &of_branches });
    let rows = planned(state, &target, query).await?;
    let rows = target.columns(rows, vec![target::row_id(), target::action()])?;
    let rows = target.checked(state, rows)?;
    Ok(Changing { target, rows, change: RowChange::Merge, returning })
}

fn branch(state: &SessionState, target: &Target, clause: &MergeClause, source: &Ident) -> Result<Branch> {
    let row_id = Box::new(target.own(ROW_ID));
    let in_source = Expr::CompoundIdentifier(vec![source.clone(), Ident::with_quote('"', IN_SOURCE)]);
    let (condition, takes) = match clause.clause_kind {
        MergeClauseKind::Matched => (both(Expr::IsNotNull(row_id), Some(in_source)), Takes::Changes),
        MergeClauseKind::NotMatched | MergeClauseKind::NotMatchedByTarget => {
            (Expr::IsNull(row_id), Takes::Inserts)
        }
        MergeClauseKind::NotMatchedBySource => (Expr::IsNull(Box::new(in_source)), Takes::Changes),
    };
    let condition = both(condition, clause.predicate.clone());
    let own = || target.fields().iter().map(|field| target.own(field.name()));
    let (action, values) = match (&clause.action, takes) {
        (Action::Insert(insert), Takes::Inserts) => {
            (MergeAction::Insert, inserted(state, target, insert, source)?)
        }
        (Action::Update(update), Takes::Changes) => {
            if update.update_predicate.is_some() || update.delete_predicate.is_some() {
                return Err(Error::unsupported("MERGE: write WHEN … AND condition instead of WHERE"));
            }
            let assigned = target.assigned(state, &update.assignments)?;
            let value = |(value, own): (Option<Expr>, Expr)| value.unwrap_or(own);
            (MergeAction::Update, assigned.into_iter().zip(own()).map(value).collect())
        }
        (Action::Delete { .. }, Takes::Changes) => (MergeAction::Delete, own().collect()),
        (action, _) => {
            return Err(Error::unsupported(format!(
                "MERGE: WHEN {} THEN {action} is not possible: rows are inserted when they are not matched, and others changed",
                clause.clause_kind
            )));
        }
    };
    Ok(Branch { condition, action, values })
}

enum Takes {
    Inserts,
    Changes,
}

/// A condition, and another one if there is one.
pub(super) fn both(condition: Expr, other: Option<Expr>) -> Expr {
    match other {
        Some(other) => Expr::BinaryOp {
            left: Box::new(condition),
            op: BinaryOperator::And,
            right: Box::new(Expr::Nested(Box::new(other))),
        },
        None => condition,
    }
}

fn inserted(
    state: &SessionState,
    target: &Target,
    insert: &MergeInsertExpr,
    source: &Ident,
) -> Result<Vec<Expr>> {
    if insert.insert_predicate.is_some() {
        return Err(Error::unsupported("MERGE: write WHEN NOT MATCHED AND condition instead of WHERE"));
    }
    let MergeInsertKind::Values(values) = &insert.kind else {
        return Err(Error::unsupported("MERGE … INSERT ROW is not supported; write VALUES (…)"));
    };
    let [row] = values.rows.as_slice() else {
        return Err(Error::unsupported("MERGE … INSERT takes one row of VALUES"));
    };
    let columns: Vec<usize> = match insert.columns.is_empty() {
        true => (0..target.fields().len()).collect(),
        false => {
            let names = insert.columns.iter().flat_map(|name| catalog_statement::parts(name).pop());
            names.map(|name| target.column(&name)).collect::<Result<_>>()?
        }
    };
    if columns.len() != row.content.len() {
        return Err(Error::unsupported(format!(
            "MERGE inserts {} values into {} columns",
            row.content.len(),
            columns.len()
        )));
    }
    let value = |number: usize| {
        let given = columns.iter().zip(&row.content).find(|(column, _)| **column == number);
        match given.filter(|(_, value)| !is_default(value)) {
            // The target has no row here whose columns could be meant.
            Some((_, value)) if names_table(value, &target.alias) => Err(Error::unsupported(format!(
                "MERGE … INSERT: {value} names '{}', which has no row that matches; take columns of '{source}'",
                target.place.name
            ))),
            Some((_, value)) => Ok(with_table(value.clone(), source, |_| true)),
            None => target.default(state, number),
        }
    };
    (0..target.fields().len()).map(value).collect()
}

/// Whether an expression has a column of this table, outside of sub-queries, which may have a table of the name.
fn names_table(value: &Expr, table: &Ident) -> bool {
    struct Names<'t>(&'t Ident);
    impl Visitor for Names<'_> {
        type Break = bool;

        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<bool> {
            ControlFlow::Break(false)
        }

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<bool> {
            match expr {
                Expr::CompoundIdentifier(path)
                    if path.first().is_some_and(|first| normalized(first) == normalized(self.0)) =>
                {
                    ControlFlow::Break(true)
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    matches!(value.visit(&mut Names(table)), ControlFlow::Break(true))
}

/// The name by which the statement calls the source.
fn source_alias(source: &TableFactor) -> Result<Ident> {
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
