//! Statements that change rows, as queries for these rows.
//!
//! ```text
//!   UPDATE t SET a = b + 1 FROM s WHERE t.k = s.k
//!   ─►  SELECT t."row id", b + 1, t.b, t.k FROM rows_to_change() AS t, s WHERE t.k = s.k
//!   ─►  each column as the table has it, and CHECK
//!   ─►  RowSink                      ─►  RETURNING: a query for the rows that have been changed
//!
//!   INSERT … ON CONFLICT DO UPDATE   ─►  MERGE INTO t USING (rows to be inserted) AS excluded …      conflicts
//!   MERGE INTO t USING s ON …        ─►  SELECT t."row id", action, … FROM s LEFT JOIN t ON …        merge
//! ```
//!
//! DataFusion hands tables the filters of all scans of the target, and drops those that name other tables; so it is not asked.

mod conflicts;
mod merge;
mod returning;
mod target;

use std::sync::Arc;

use datafusion::datasource::provider_as_source;
use datafusion::execution::SessionState;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{DmlStatement, LogicalPlan, LogicalPlanBuilder, WriteOp};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Assignment, Expr, FromTable, Ident, ObjectName, Query, SelectItem, SetExpr, Statement as SqlStatement,
    TableFactor, TableWithJoins, UpdateTableFromKind,
};
use nandina_exec::rows::{ROW_ID, ReturnedRows, RowChange, RowTableProvider};

use self::target::{RowsToChange, Target};
use super::{logical_plan, syntax};
use crate::catalog::names::Names;
use crate::error::{Error, Result};

/// The plan of a statement that changes rows; none if it is another one.
pub(crate) async fn plan(state: &SessionState, statement: &Statement) -> Result<Option<LogicalPlan>> {
    let inner = match statement {
        Statement::Statement(inner) => inner,
        Statement::Explain(explain) => {
            let Some(plan) = Box::pin(plan(state, &explain.statement)).await? else { return Ok(None) };
            let explained =
                LogicalPlanBuilder::from(plan).explain(explain.options.verbose, explain.options.analyze)?;
            return Ok(Some(explained.build()?));
        }
        _ => return Ok(None),
    };
    let names =
        state.config().get_extension::<Names>().ok_or_else(|| Error::bug("a session has no names"))?;
    let changing = match inner.as_ref() {
        SqlStatement::Insert(insert) => conflicts::plan(state, &names, insert).await?,
        SqlStatement::Merge(merge) => Some(Box::pin(merge::plan(state, &names, merge, None)).await?),
        SqlStatement::Query(query) => match query.body.as_ref() {
            SetExpr::Merge(SqlStatement::Merge(merge)) => {
                Some(Box::pin(merge::plan(state, &names, merge, query.with.as_ref())).await?)
            }
            _ => None,
        },
        other => match Change::of(other)? {
            Some(change) => Some(change.plan(state, &names).await?),
            None => None,
        },
    };
    match changing {
        Some(changing) => changing.plan(state).await.map(Some),
        None => Ok(None),
    }
}

/// A plan with the rows that change others, and how.
struct Changing {
    target: Target,
    rows: LogicalPlan,
    change: RowChange,
    returning: Option<Vec<SelectItem>>,
}

impl Changing {
    async fn plan(self, state: &SessionState) -> Result<LogicalPlan> {
        let Self { target, rows, change, returning } = self;
        let mut provider = RowTableProvider::new(target.table.clone()).changed_by(change.clone());
        if returning.is_some() {
            provider = provider.returning(Arc::new(ReturnedRows::default()));
        }
        let dml = LogicalPlan::Dml(DmlStatement::new(
            target.reference(),
            provider_as_source(Arc::new(provider)),
            WriteOp::Insert(InsertOp::Append),
            Arc::new(rows),
        ));
        match returning {
            Some(items) => returning::plan(state, &target, items, &change, dml).await,
            None => Ok(dml),
        }
    }
}

/// `UPDATE`, `DELETE` and `TRUNCATE`
struct Change {
    target: TableFactor,
    others: Vec<TableWithJoins>,
    selection: Option<Expr>,
    kind: Kind,
    returning: Option<Vec<SelectItem>>,
}

enum Kind {
    Update(Vec<Assignment>),
    Delete,
}

impl Change {
    fn of(statement: &SqlStatement) -> Result<Option<Self>> {
        let unsupported = |what: &str| Err(Error::unsupported(format!("{what} is not supported")));
        let mut returned = None;
        let (target, others, selection, kind) = match statement {
            SqlStatement::Update(update) => {
                if update.output.is_some() {
                    return unsupported("UPDATE … OUTPUT");
                }
                if update.or.is_some() || !update.order_by.is_empty() || update.limit.is_some() {
                    return unsupported("UPDATE with OR, ORDER BY or LIMIT");
                }
                if !update.table.joins.is_empty() {
                    return unsupported("UPDATE of a join: name the other tables in FROM;");
                }
                let others = match &update.from {
                    Some(UpdateTableFromKind::BeforeSet(from) | UpdateTableFromKind::AfterSet(from)) => {
                        from.clone()
                    }
                    None => Vec::new(),
                };
                returned.clone_from(&update.returning);
                let kind = Kind::Update(update.assignments.clone());
                (update.table.relation.clone(), others, update.selection.clone(), kind)
            }
            SqlStatement::Delete(delete) => {
                if delete.output.is_some() {
                    return unsupported("DELETE … OUTPUT");
                }
                if !delete.tables.is_empty() || !delete.order_by.is_empty() || delete.limit.is_some() {
                    return unsupported("DELETE of several tables, or with ORDER BY or LIMIT");
                }
                let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
                let [TableWithJoins { relation, joins }] = from.as_slice() else {
                    return unsupported("DELETE of several tables");
                };
                if !joins.is_empty() {
                    return unsupported("DELETE of a join: name the other tables in USING;");
                }
                let others = delete.using.clone().unwrap_or_default();
                returned.clone_from(&delete.returning);
                (relation.clone(), others, delete.selection.clone(), Kind::Delete)
            }
            SqlStatement::Truncate(truncate) => {
                let [table] = truncate.table_names.as_slice() else {
                    return unsupported("TRUNCATE of several tables");
                };
                (table_factor(table.name.clone())?, Vec::new(), None, Kind::Delete)
            }
            _ => return Ok(None),
        };
        Ok(Some(Self { target, others, selection, kind, returning: returned }))
    }

    async fn plan(self, state: &SessionState, names: &Arc<Names>) -> Result<Changing> {
        let target = Target::of(state, names, &self.target).await?;
        let query = self.query(state, &target)?;
        let rows = planned(state, &target, query).await?;
        let (rows, change) = match self.kind {
            Kind::Update(_) => {
                let rows = target.columns(rows, vec![target::row_id()])?;
                let has_each_once = self.others.is_empty();
                (target.checked(state, rows)?, RowChange::Update { has_each_once })
            }
            Kind::Delete if self.returning.is_some() => {
                (target.columns(rows, vec![target::row_id()])?, RowChange::Delete)
            }
            Kind::Delete => (rows, RowChange::Delete),
        };
        Ok(Changing { target, rows, change, returning: self.returning })
    }

    /// The query for the rows that are changed.
    fn query(&self, state: &SessionState, target: &Target) -> Result<Query> {
        let row_id = Ident::with_quote('"', ROW_ID);
        let text = format!("SELECT {}.{row_id} FROM {}", target.alias, target.rows_to_change());
        let mut query = syntax::query(&text)?;
        let SetExpr::Select(select) = query.body.as_mut() else {
            return Err(Error::bug("a SELECT is none"));
        };
        match &self.kind {
            Kind::Update(assignments) => select.projection.extend(target.values(state, assignments)?),
            Kind::Delete if self.returning.is_some() => select.projection.extend(target.values(state, &[])?),
            Kind::Delete => {}
        }
        select.from.extend(self.others.iter().cloned());
        select.selection.clone_from(&self.selection);
        Ok(query)
    }
}

/// The plan of a query that names rows to be changed.
async fn planned(state: &SessionState, target: &Target, query: Query) -> Result<LogicalPlan> {
    // A function that no other statement knows.
    let mut own = state.clone();
    own.register_udtf(target::FUNCTION, Arc::new(RowsToChange(target.table.clone())));
    let statement = Statement::Statement(Box::new(SqlStatement::Query(Box::new(query))));
    Box::pin(logical_plan(&own, statement)).await
}

fn table_factor(name: ObjectName) -> Result<TableFactor> {
    let query = syntax::query(&format!("SELECT 1 FROM {name}"))?;
    match *query.body {
        SetExpr::Select(select) => match select.from.into_iter().next() {
            Some(table) => Ok(table.relation),
            None => Err(Error::bug("a query without a table")),
        },
        _ => Err(Error::bug("a SELECT is none")),
    }
}
