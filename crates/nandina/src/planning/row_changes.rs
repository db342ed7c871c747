//! `UPDATE`, `DELETE` and `TRUNCATE`, as queries for the rows that they change.
//!
//! ```text
//!   UPDATE t SET a = b + 1 FROM s WHERE t.k = s.k
//!   ─►  SELECT t."row id", b + 1, t.b, t.k FROM rows_to_change('db', 'main', 't') AS t, s WHERE t.k = s.k
//!   ─►  each column as the table has it, and CHECK
//!   ─►  RowSink
//! ```
//!
//! DataFusion hands tables the filters of all scans of the target, and drops those that name other tables; so it is not asked.

use std::sync::Arc;

use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{DataFusionError, Result as DataFusionResult, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::execution::SessionState;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{
    DmlStatement, Expr as PlannedExpr, LogicalPlan, LogicalPlanBuilder, WriteOp, cast, ident,
};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, Expr, FromTable, Ident, ObjectName, Query, SetExpr,
    Statement as SqlStatement, TableFactor, TableWithJoins, UpdateTableFromKind,
};
use nandina_exec::rows::{ROW_ID, RowChange, RowTableProvider};
use nandina_storage::Table;

use super::insertion::is_default;
use super::wrong_plans::normalized;
use super::{catalog_statement, checks, logical_plan, new_parser, syntax};
use crate::catalog::names::{Names, Place};
use crate::error::{Error, Result};
use crate::suggestion;

/// What a statement changes.
struct Change {
    target: TableFactor,
    others: Vec<TableWithJoins>,
    selection: Option<Expr>,
    kind: Kind,
}

enum Kind {
    Update(Vec<Assignment>),
    Delete,
}

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
    let Some(change) = Change::of(inner)? else { return Ok(None) };
    let names =
        state.config().get_extension::<Names>().ok_or_else(|| Error::bug("a session has no names"))?;
    let target = Target::of(&names, &change.target).await?;
    let query = change.query(state, &target)?;
    let statement = Statement::Statement(Box::new(SqlStatement::Query(Box::new(query))));
    // A function that no other statement knows.
    let mut own = state.clone();
    own.register_udtf(FUNCTION, Arc::new(RowsToChange(names)));
    let rows = Box::pin(logical_plan(&own, statement)).await?;
    let (rows, change) = match change.kind {
        Kind::Update(_) => {
            let rows = target.rows(state, rows)?;
            (rows, RowChange::Update { has_each_once: change.others.is_empty() })
        }
        Kind::Delete => (rows, RowChange::Delete),
    };
    let provider = RowTableProvider::new(target.table).changed_by(change);
    let dml = DmlStatement::new(
        TableReference::full(target.place.database, target.place.schema, target.place.name),
        provider_as_source(Arc::new(provider)),
        WriteOp::Insert(InsertOp::Append),
        Arc::new(rows),
    );
    Ok(Some(LogicalPlan::Dml(dml)))
}

impl Change {
    fn of(statement: &SqlStatement) -> Result<Option<Self>> {
        let unsupported = |what: &str| Err(Error::unsupported(format!("{what} is not supported")));
        let (target, others, selection, kind) = match statement {
            SqlStatement::Update(update) => {
                if update.returning.is_some() || update.output.is_some() {
                    return unsupported("UPDATE … RETURNING");
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
                let kind = Kind::Update(update.assignments.clone());
                (update.table.relation.clone(), others, update.selection.clone(), kind)
            }
            SqlStatement::Delete(delete) => {
                if delete.returning.is_some() || delete.output.is_some() {
                    return unsupported("DELETE … RETURNING");
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
        Ok(Some(Self { target, others, selection, kind }))
    }

    /// The query for the rows that are changed.
    fn query(&self, state: &SessionState, target: &Target) -> Result<Query> {
        let literal = |text: &str| format!("'{}'", text.replace('\'', "''"));
        let Place { database, schema, name, .. } = &target.place;
        let text = format!(
            "SELECT {alias}.{row_id} FROM {FUNCTION}({}, {}, {}) AS {alias}",
            literal(database),
            literal(schema),
            literal(name),
            alias = target.alias,
            row_id = Ident::with_quote('"', ROW_ID),
        );
        let mut query = syntax::query(&text)?;
        let SetExpr::Select(select) = query.body.as_mut() else {
            return Err(Error::bug("a SELECT is none"));
        };
        if let Kind::Update(assignments) = &self.kind {
            let values = target.values(state, assignments)?;
            select.projection.extend(values);
        }
        select.from.extend(self.others.iter().cloned());
        select.selection.clone_from(&self.selection);
        Ok(query)
    }
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

/// The table whose rows are changed.
struct Target {
    place: Place,
    alias: Ident,
    table: Table,
}

impl Target {
    async fn of(names: &Arc<Names>, factor: &TableFactor) -> Result<Self> {
        let TableFactor::Table { name, alias, args: None, .. } = factor else {
            return Err(Error::unsupported("rows are changed of a table that has a name"));
        };
        let reference = catalog_statement::reference(name).map_err(Error::from_parser)?;
        let unknown = || Error::UnknownTable { name: reference.to_string(), hint: String::new() };
        let place = names.find(&reference).ok_or_else(unknown)?;
        let provider = place.tables.table(&place, names).await?.ok_or_else(unknown)?;
        let table = match provider.downcast_ref::<RowTableProvider>() {
            Some(rows) => rows.table().clone(),
            None => return Err(super::cannot_change(&place.name)),
        };
        if table.schema().fields().iter().any(|field| field.name() == ROW_ID) {
            return Err(Error::unsupported(format!(
                "rows of '{}' cannot be changed, as it has a column called '{ROW_ID}'",
                place.name
            )));
        }
        let alias = match alias {
            Some(alias) => alias.name.clone(),
            None => Ident::with_quote('"', &place.name),
        };
        Ok(Self { place, alias, table })
    }

    /// What each column is to hold.
    fn values(
        &self,
        state: &SessionState,
        assignments: &[Assignment],
    ) -> Result<Vec<datafusion::sql::sqlparser::ast::SelectItem>> {
        use datafusion::sql::sqlparser::ast::SelectItem;
        let schema = self.table.schema();
        let mut values: Vec<Option<Expr>> = vec![None; schema.fields().len()];
        let mut assign = |name: &ObjectName, value: &Expr| -> Result<()> {
            let parts = catalog_statement::parts(name);
            let column = match parts.as_slice() {
                [column] => column.clone(),
                [table, column] if *table == normalized(&self.alias) => column.clone(),
                _ => {
                    return Err(Error::unsupported(format!(
                        "UPDATE … SET {name}: name a column of the table that is changed"
                    )));
                }
            };
            let fields = schema.fields();
            let at = fields.iter().position(|field| *field.name() == column);
            let at =
                at.or_else(|| fields.iter().position(|field| field.name().eq_ignore_ascii_case(&column)));
            let Some(at) = at else {
                let columns = schema.fields().iter().map(|field| field.name().as_str());
                let hint = suggestion::phrase(&column, columns);
                return Err(Error::UnknownColumn { name: format!("{}.{column}", self.place.name), hint });
            };
            let value =
                if is_default(value) { self.default(state, schema.field(at).name())? } else { value.clone() };
            match values.get_mut(at) {
                Some(Some(_)) => Err(Error::unsupported(format!("UPDATE sets column '{column}' twice"))),
                Some(place) => {
                    *place = Some(value);
                    Ok(())
                }
                None => Err(Error::bug("a column that was found is not there")),
            }
        };
        for assignment in assignments {
            match (&assignment.target, &assignment.value) {
                (AssignmentTarget::ColumnName(name), value) => assign(name, value)?,
                (AssignmentTarget::Tuple(names), Expr::Tuple(values)) if names.len() == values.len() => {
                    for (name, value) in names.iter().zip(values) {
                        assign(name, value)?;
                    }
                }
                (AssignmentTarget::Tuple(_), value) => {
                    return Err(Error::unsupported(format!(
                        "UPDATE … SET (…) = {value}: write as many values in brackets as columns"
                    )));
                }
            }
        }
        let own =
            |name: &str| Expr::CompoundIdentifier(vec![self.alias.clone(), Ident::with_quote('"', name)]);
        let named = values.into_iter().zip(schema.fields()).enumerate().map(|(number, (value, field))| {
            SelectItem::ExprWithAlias {
                expr: value.unwrap_or_else(|| own(field.name())),
                alias: Ident::with_quote('"', value_name(number)),
            }
        });
        Ok(named.collect())
    }

    fn default(&self, state: &SessionState, column: &str) -> Result<Expr> {
        let rules = self.place.tables.rules(&self.place);
        let expression = rules.default_of(column).unwrap_or("NULL").to_owned();
        new_parser(state, &expression)?.parse_expr().map_err(Error::from_parser)
    }

    /// Rows with the columns of the table, of its types, which keep what it asks for.
    fn rows(&self, state: &SessionState, rows: LogicalPlan) -> Result<LogicalPlan> {
        let of_column = |(number, field): (usize, &Arc<arrow::datatypes::Field>)| -> PlannedExpr {
            cast(ident(value_name(number)), field.data_type().clone()).alias(field.name())
        };
        let columns = self.table.schema().fields().iter().enumerate().map(of_column);
        let columns: Vec<PlannedExpr> = std::iter::once(ident(ROW_ID)).chain(columns).collect();
        let rows = LogicalPlanBuilder::from(rows).project(columns)?.build()?;
        let checks = self.place.tables.rules(&self.place).checks;
        checks.iter().try_fold(rows, |rows, check| checks::checked(state, rows, check, &self.place.name))
    }
}

/// Apart from the names of columns, which values may hide.
fn value_name(number: usize) -> String {
    format!("value {number}")
}

const FUNCTION: &str = "rows_to_change";

/// `rows_to_change(database, schema, table)`: the rows of a table with their ids.
#[derive(Debug)]
struct RowsToChange(Arc<Names>);

impl TableFunctionImpl for RowsToChange {
    fn call_with_args(&self, arguments: TableFunctionArgs) -> DataFusionResult<Arc<dyn TableProvider>> {
        let text = |argument: &PlannedExpr| match argument {
            PlannedExpr::Literal(value, _) => value.try_as_str().flatten().map(str::to_owned),
            _ => None,
        };
        let names: Option<Vec<String>> = arguments.exprs().iter().map(text).collect();
        let Some([database, schema, name]) = names.as_deref() else {
            return Err(Error::unsupported("rows_to_change is for UPDATE and DELETE").into());
        };
        let reference = TableReference::full(database.as_str(), schema.as_str(), name.as_str());
        let table = self.0.find(&reference).and_then(|place| place.tables.changeable(&place));
        let gone = || DataFusionError::from(Error::UnknownTable { name: name.clone(), hint: String::new() });
        Ok(Arc::new(RowTableProvider::new(table.ok_or_else(gone)?).with_row_ids()))
    }
}
