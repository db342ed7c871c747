//! `MERGE`: rows of one table decide what becomes of those of another.
//!
//! ```text
//!   MERGE INTO t USING s ON t.k = s.k WHEN MATCHED AND s.a > 0 THEN UPDATE SET a = s.a WHEN NOT MATCHED THEN INSERT …
//!   ─►  SELECT t."row id", CASE WHEN t."row id" IS NOT NULL AND (s.a > 0) THEN 2 WHEN … THEN 1 END AS action,
//!              CASE WHEN … THEN s.a WHEN … THEN … END, …
//!       FROM (SELECT *, true AS "in source" FROM s) AS s LEFT JOIN rows_to_change(…) AS t ON t.k = s.k
//!       WHERE action IS NOT NULL
//! ```

use std::sync::Arc;

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Merge, MergeAction as Action, MergeClause, MergeClauseKind, MergeInsertExpr,
    MergeInsertKind, OutputClause, SelectItem, TableFactor,
};
use nandina_exec::rows::{MergeAction, ROW_ID, RowChange};
use nandina_functions::sql_type;

use super::target::{self, Target, value_name};
use super::{Changing, planned};
use crate::catalog::names::Names;
use crate::error::{Error, Result};
use crate::planning::insertion::is_default;
use crate::planning::{catalog_statement, syntax};

const IN_SOURCE: &str = "in source";

pub(super) async fn plan(state: &SessionState, names: &Arc<Names>, merge: &Merge) -> Result<Changing> {
    let target = Target::of(names, &merge.table).await?;
    let returning = match &merge.output {
        None => None,
        Some(OutputClause::Returning { select_items, .. }) => Some(select_items.clone()),
        Some(OutputClause::Output { .. }) => {
            return Err(Error::unsupported("MERGE … OUTPUT is not supported"));
        }
    };
    let alias = source_alias(&merge.source)?;
    let in_source = format!("{alias}.{}", Ident::with_quote('"', IN_SOURCE));
    let clauses = &merge.clauses;
    let branches = clauses
        .iter()
        .map(|clause| branch(state, &target, clause, &in_source))
        .collect::<Result<Vec<_>>>()?;
    let keeps_target = clauses.iter().any(|clause| clause.clause_kind == MergeClauseKind::NotMatchedBySource);
    let join = if keeps_target { "FULL" } else { "LEFT" };
    let from = format!(
        "(SELECT *, true AS {} FROM {}) AS {alias} {join} JOIN {} ON {}",
        Ident::with_quote('"', IN_SOURCE),
        merge.source,
        target.rows_to_change(),
        merge.on
    );
    merging(state, names, target, &from, &branches, returning).await
}

/// What becomes of rows for which a condition is true, and none of those before.
pub(super) struct Branch {
    pub condition: String,
    pub action: MergeAction,
    /// Of each column.
    pub values: Vec<String>,
}

/// The plan of rows that `from` has beside rows of the target.
pub(super) async fn merging(
    state: &SessionState,
    names: &Arc<Names>,
    target: Target,
    from: &str,
    branches: &[Branch],
    returning: Option<Vec<SelectItem>>,
) -> Result<Changing> {
    if branches.is_empty() {
        return Err(Error::unsupported("MERGE without WHEN does nothing"));
    }
    let case = |value: &dyn Fn(&Branch) -> String| {
        let when = |branch: &Branch| format!("WHEN {} THEN {}", branch.condition, value(branch));
        format!("CASE {} END", branches.iter().map(when).collect::<Vec<_>>().join(" "))
    };
    let action = case(&|branch| format!("CAST({} AS TINYINT)", branch.action as i8));
    let mut items = vec![
        format!("{}.{}", target.alias, Ident::with_quote('"', ROW_ID)),
        format!("{action} AS {}", Ident::with_quote('"', target::ACTION)),
    ];
    for (number, field) in target.fields().iter().enumerate() {
        let data_type = sql_type(field.data_type());
        let value = case(&|branch| {
            let value = branch.values.get(number).map_or("NULL", String::as_str);
            format!("CAST(({value}) AS {data_type})")
        });
        items.push(format!("{value} AS {}", Ident::with_quote('"', value_name(number))));
    }
    let text = format!("SELECT {} FROM {from} WHERE {action} IS NOT NULL", items.join(", "));
    let rows = planned(state, names, syntax::query(&text)?).await?;
    let rows = target.columns(rows, vec![target::row_id(), target::action()])?;
    let rows = target.checked(state, rows)?;
    Ok(Changing { target, rows, change: RowChange::Merge, returning })
}

fn branch(state: &SessionState, target: &Target, clause: &MergeClause, in_source: &str) -> Result<Branch> {
    let row_id = format!("{}.{}", target.alias, Ident::with_quote('"', ROW_ID));
    let (mut condition, takes) = match clause.clause_kind {
        MergeClauseKind::Matched => (format!("{row_id} IS NOT NULL AND {in_source}"), Takes::Changes),
        MergeClauseKind::NotMatched | MergeClauseKind::NotMatchedByTarget => {
            (format!("{row_id} IS NULL"), Takes::Inserts)
        }
        MergeClauseKind::NotMatchedBySource => (format!("{in_source} IS NULL"), Takes::Changes),
    };
    if let Some(predicate) = &clause.predicate {
        condition = format!("{condition} AND ({predicate})");
    }
    let own = || target.fields().iter().map(|field| target.own(field.name()).to_string());
    let (action, values) = match (&clause.action, takes) {
        (Action::Insert(insert), Takes::Inserts) => (MergeAction::Insert, inserted(state, target, insert)?),
        (Action::Update(update), Takes::Changes) => {
            if update.update_predicate.is_some() || update.delete_predicate.is_some() {
                return Err(Error::unsupported("MERGE: write WHEN … AND condition instead of WHERE"));
            }
            let assigned = target.assigned(state, &update.assignments)?;
            let value = |(value, own): (Option<Expr>, String)| value.map_or(own, |value| value.to_string());
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

fn inserted(state: &SessionState, target: &Target, insert: &MergeInsertExpr) -> Result<Vec<String>> {
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
            Some((_, value)) => Ok(value.to_string()),
            None => target.default(state, number).map(|default| default.to_string()),
        }
    };
    (0..target.fields().len()).map(value).collect()
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
