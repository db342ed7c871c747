//! `INSERT` with `ON CONFLICT` or `RETURNING`.
//!
//! ```text
//!   INSERT INTO t VALUES … ON CONFLICT (k) DO UPDATE SET a = t.a + excluded.a
//!   ─►  rows that would be inserted AS excluded LEFT JOIN t ON excluded.k = t.k:
//!       inserted where there is no row of t, and otherwise an UPDATE of that one
//! ```
//!
//! `DO NOTHING` is for the sink, which looks for the keys of a row when those before are there.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::Result as DataFusionResult;
use datafusion::datasource::ViewTable;
use datafusion::execution::SessionState;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{LogicalPlan, WriteOp};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, ConflictTarget, DoUpdate, Expr, Ident, Insert, ObjectName, OnConflict,
    OnConflictAction, OnInsert, SelectItem, SqliteOnConflict, Statement as SqlStatement, TableObject,
};
use nandina_exec::rows::{MergeAction, ROW_ID, RowChange};

use super::merge::{Branch, From, ON, Outcome, both, merging};
use super::target::with_table;
use super::{Changing, Target};
use crate::catalog::names::Names;
use crate::error::{Error, Result};
use crate::planning::catalog_statement::parts;
use crate::planning::insertion::BY_NAME;
use crate::planning::wrong_plans::normalized;
use crate::planning::{logical_plan, syntax};

const FUNCTION: &str = "rows_to_insert";
/// What SQL calls a row that could not be inserted.
const EXCLUDED: &str = "excluded";

/// None if it is an `INSERT` without these.
pub(super) async fn plan(
    state: &SessionState,
    names: &Arc<Names>,
    insert: &Insert,
) -> Result<Option<Changing>> {
    let conflict = conflict(insert)?;
    if conflict.is_none() && insert.returning.is_none() {
        return Ok(None);
    }
    let TableObject::TableName(name) = &insert.table else {
        return Err(Error::unsupported("rows are inserted into a table that has a name"));
    };
    let alias = insert.table_alias.as_ref().map(|alias| alias.alias.clone());
    let target = Target::named(state, names, name, alias).await?;
    let plain = Insert { on: None, or: None, replace_into: false, returning: None, ..insert.clone() };
    let given = given_columns(&target, &plain);
    let plain = Statement::Statement(Box::new(SqlStatement::Insert(plain)));
    let rows = match Box::pin(logical_plan(state, plain)).await? {
        LogicalPlan::Dml(dml) if dml.op == WriteOp::Insert(InsertOp::Append) => {
            Arc::unwrap_or_clone(dml.input)
        }
        _ => return Err(Error::unsupported("INSERT OVERWRITE has neither ON CONFLICT nor RETURNING")),
    };
    let returning = insert.returning.clone();
    let change = match conflict {
        None => RowChange::Insert,
        Some(Conflict::Skip(on)) => {
            let index = on.map(|on| unique_index(&target, &on)).transpose()?.map(|(name, _)| name);
            RowChange::InsertAbsent { index }
        }
        Some(Conflict::Replace) => {
            let (_, key) = only_index(&target, "INSERT OR REPLACE")?;
            let changed = given?.into_iter().filter(|column| !key.contains(column));
            let assignments = changed.map(|column| replaced(&target, column)).collect();
            let update = DoUpdate { assignments, selection: None };
            return upsert(state, target, rows, &key, update, returning).await.map(Some);
        }
        Some(Conflict::Update(on, update)) => {
            let (_, key) = match on {
                Some(on) => unique_index(&target, &on)?,
                None => only_index(&target, "ON CONFLICT DO UPDATE")?,
            };
            return upsert(state, target, rows, &key, *update, returning).await.map(Some);
        }
    };
    Ok(Some(Changing { target, rows, change, returning }))
}

/// What becomes of a row whose key is there.
enum Conflict {
    Skip(Option<ConflictTarget>),
    Update(Option<ConflictTarget>, Box<DoUpdate>),
    /// Every column becomes that of the new row.
    Replace,
}

fn conflict(insert: &Insert) -> Result<Option<Conflict>> {
    let on = match &insert.on {
        None => None,
        Some(OnInsert::OnConflict(OnConflict { conflict_target, action })) => Some(match action {
            OnConflictAction::DoNothing => Conflict::Skip(conflict_target.clone()),
            OnConflictAction::DoUpdate(update) => {
                Conflict::Update(conflict_target.clone(), Box::new(update.clone()))
            }
        }),
        Some(_) => {
            return Err(Error::unsupported(
                "ON DUPLICATE KEY UPDATE is ON CONFLICT (key) DO UPDATE SET … here",
            ));
        }
    };
    let or = match insert.or {
        None if insert.replace_into => Some(Conflict::Replace),
        None | Some(SqliteOnConflict::Abort) => None,
        Some(SqliteOnConflict::Replace) => Some(Conflict::Replace),
        Some(SqliteOnConflict::Ignore) => Some(Conflict::Skip(None)),
        Some(other) => {
            return Err(Error::unsupported(format!(
                "INSERT OR {other}: INSERT OR IGNORE and OR REPLACE are supported"
            )));
        }
    };
    match (on, or) {
        (Some(_), Some(_)) => Err(Error::unsupported("INSERT OR … has no ON CONFLICT beside it")),
        (on, or) => Ok(on.or(or)),
    }
}

/// Inserts rows, or changes those that have their keys.
async fn upsert(
    state: &SessionState,
    target: Target,
    rows: LogicalPlan,
    key: &[usize],
    update: DoUpdate,
    returning: Option<Vec<SelectItem>>,
) -> Result<Changing> {
    let excluded = Ident::new(EXCLUDED);
    let row_id = Box::new(target.own(ROW_ID));
    let of_excluded =
        |name: &str| Expr::CompoundIdentifier(vec![excluded.clone(), Ident::with_quote('"', name)]);
    let names_of: Vec<&str> = target.fields().iter().map(|field| field.name().as_str()).collect();
    let inserted = names_of.iter().map(|name| of_excluded(name)).collect();
    let assigned = target.assigned(state, &update.assignments)?;
    let value = |(value, name): (Option<Expr>, &&str)| match value {
        Some(value) => with_names_of(&target, value),
        None => target.own(name),
    };
    let updated = assigned.into_iter().zip(&names_of).map(value).collect();
    let selection = update.selection.map(|selection| with_names_of(&target, selection));
    let matched = both(Expr::IsNotNull(row_id.clone()), selection);
    let branches = vec![
        Branch { condition: Expr::IsNull(row_id), outcome: Outcome::Change(MergeAction::Insert, inserted) },
        Branch { condition: matched, outcome: Outcome::Change(MergeAction::Update, updated) },
    ];
    let equal = |column: &usize| {
        let name = target.name_of(*column);
        format!("{} = {}", of_excluded(name), target.own(name))
    };
    let on = syntax::expression(&key.iter().map(equal).collect::<Vec<_>>().join(" AND "))?;
    let text = format!("{FUNCTION}() AS {EXCLUDED} LEFT JOIN {} ON {ON}", target.rows_to_change());
    let from = From { text, source: None, on, with: None };
    // Before their keys are looked for: a row that could not be inserted does not change another one.
    let rows = target.without_nulls(state, rows)?;
    let mut own = state.clone();
    own.register_udtf(FUNCTION, Arc::new(RowsToInsert(Arc::new(ViewTable::new(rows, None)))));
    merging(&own, target, from, branches, returning).await
}

/// `column = excluded.column`
fn replaced(target: &Target, column: usize) -> Assignment {
    let name = Ident::with_quote('"', target.name_of(column));
    Assignment {
        target: AssignmentTarget::ColumnName(ObjectName::from(vec![name.clone()])),
        value: Expr::CompoundIdentifier(vec![Ident::new(EXCLUDED), name]),
    }
}

/// The columns that a statement gives values.
fn given_columns(target: &Target, insert: &Insert) -> Result<Vec<usize>> {
    if insert.columns.is_empty() {
        return Ok((0..target.fields().len()).collect());
    }
    let names: Vec<String> = insert.columns.iter().flat_map(|name| parts(name).pop()).collect();
    if names == [BY_NAME] {
        return Err(Error::unsupported("INSERT OR REPLACE … BY NAME is not supported; list the columns"));
    }
    names.iter().map(|name| target.column(name)).collect()
}

/// The unique index that a statement means, and its columns.
fn unique_index(target: &Target, on: &ConflictTarget) -> Result<(String, Vec<usize>)> {
    let unique = target.table.indexes().filter(|(_, index)| index.is_unique);
    let mut unique = unique.map(|(_, index)| (index.name.clone(), index.columns.clone()));
    let found = match on {
        ConflictTarget::Columns(columns) => {
            let wanted: HashSet<usize> =
                columns.iter().map(|column| target.column(&normalized(column))).collect::<Result<_>>()?;
            unique.find(|(_, columns)| columns.iter().copied().collect::<HashSet<_>>() == wanted)
        }
        ConflictTarget::OnConstraint(name) => {
            let name = parts(name).pop();
            unique.find(|(other, _)| Some(other) == name.as_ref())
        }
    };
    found.ok_or_else(|| {
        Error::unsupported(format!(
            "ON CONFLICT{on}: table '{}' has no primary key and no unique key that is that",
            target.place.name
        ))
    })
}

/// The primary key, or the only unique one.
fn only_index(target: &Target, what: &str) -> Result<(String, Vec<usize>)> {
    let unique: Vec<_> = target.table.indexes().filter(|(_, index)| index.is_unique).collect();
    let primary = unique.iter().find(|(_, index)| index.is_primary);
    match (primary, unique.as_slice()) {
        (Some((_, index)), _) | (None, [(_, index)]) => Ok((index.name.clone(), index.columns.clone())),
        (None, []) => Err(Error::unsupported(format!(
            "{what}: table '{}' has no primary key and no unique key",
            target.place.name
        ))),
        (None, _) => Err(Error::unsupported(format!(
            "{what}: table '{}' has several unique keys; say ON CONFLICT (columns) DO UPDATE",
            target.place.name
        ))),
    }
}

/// An expression in which columns without a table are the target's.
fn with_names_of(target: &Target, expr: Expr) -> Expr {
    with_table(expr, &target.alias, |name| target.column(&normalized(name)).is_ok())
}

/// `rows_to_insert()`: the rows of the statement.
#[derive(Debug)]
struct RowsToInsert(Arc<ViewTable>);

impl TableFunctionImpl for RowsToInsert {
    fn call_with_args(&self, _: TableFunctionArgs) -> DataFusionResult<Arc<dyn TableProvider>> {
        Ok(Arc::clone(&self.0) as Arc<dyn TableProvider>)
    }
}
