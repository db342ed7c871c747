//! The rows of a table as `ALTER TABLE` has them, as a query for the rows that it has.
//!
//! ```text
//!   ALTER TABLE t ADD c INTEGER DEFAULT 7, DROP b, ALTER a TYPE BIGINT
//!   ─►  SELECT a AS "value 0", 7 AS "value 1" FROM t
//!   ─►  each as a column of its type ─►  what must hold of them
//! ```

use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr as PlannedExpr, LogicalPlan, LogicalPlanBuilder, cast, ident, lit};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Expr, Ident, SelectItem, SetExpr, Statement as SqlStatement};
use nandina_functions::{sql_type, takes_all};

use super::catalog_statement::object_name;
use super::{checks, logical_plan, new_parser, on_planning_thread, physical_plan, sequence_names, syntax};
use crate::catalog::names::{Names, Place};
use crate::error::{Error, Result};

/// A column as it is to be.
#[derive(Debug, Clone)]
pub(crate) struct AlteredColumn {
    pub field: FieldRef,
    pub value: Value,
}

/// Where the values of a column come from.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    /// A column that the table has, as it is.
    Own(String),
    /// An expression of its columns.
    Computed(Box<Expr>),
}

/// What must hold of rows, in names of the altered table, and what is said if it does not.
#[derive(Debug, Clone)]
pub(crate) struct Demand {
    pub check: String,
    pub message: String,
}

/// All rows, or, where they are not wanted, one value for each that is as demanded.
pub(crate) async fn plan(
    state: &Arc<SessionState>,
    place: &Place,
    columns: Vec<AlteredColumn>,
    demands: Vec<Demand>,
    wants_rows: bool,
) -> Result<Arc<dyn datafusion::physical_plan::ExecutionPlan>> {
    let (own, place) = (Arc::clone(state), place.clone());
    let plan = on_planning_thread(move || async move {
        let mut rows = altered(&own, &place, &columns).await?;
        for Demand { check, message } in demands {
            rows = checks::checked_or(&own, rows, &check, message)?;
        }
        if !wants_rows {
            rows = LogicalPlanBuilder::from(rows).project(vec![lit(1)])?.build()?;
        }
        Ok(rows)
    })
    .await?;
    physical_plan(state, plan).await
}

async fn altered(state: &SessionState, place: &Place, columns: &[AlteredColumn]) -> Result<LogicalPlan> {
    let name = object_name(&[place.database.clone(), place.schema.clone(), place.name.clone()]);
    let mut query = syntax::query(&format!("SELECT 1 FROM {name}"))?;
    let SetExpr::Select(select) = query.body.as_mut() else { return Err(Error::bug("a SELECT is none")) };
    select.projection.clear();
    for (number, column) in columns.iter().enumerate() {
        let expr = match &column.value {
            Value::Own(name) => Expr::Identifier(Ident::with_quote('"', name)),
            Value::Computed(expr) => as_type(expr.as_ref().clone(), column)?,
        };
        select
            .projection
            .push(SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', of_value(number)) });
    }
    let statement = Statement::Statement(Box::new(SqlStatement::Query(Box::new(query))));
    let rows = logical_plan(state, statement).await?;
    let of_column = |(number, column): (usize, &AlteredColumn)| -> PlannedExpr {
        let value = ident(of_value(number));
        let value = match &column.value {
            Value::Own(_) => value,
            Value::Computed(_) => cast(value, column.field.data_type().clone()),
        };
        value.alias(column.field.name())
    };
    let columns = columns.iter().enumerate().map(of_column).collect::<Vec<_>>();
    Ok(LogicalPlanBuilder::from(rows).project(columns)?.build()?)
}

/// A value that goes into a column that takes values of any type is cast where it is written: a plan would have to know how first.
fn as_type(value: Expr, column: &AlteredColumn) -> Result<Expr> {
    let data_type = column.field.data_type();
    if !takes_all(data_type) {
        return Ok(value);
    }
    let mut written = syntax::expression(&format!("CAST(NULL AS {})", sql_type(data_type)))?;
    if let Expr::Cast { expr, .. } = &mut written {
        **expr = value;
    }
    Ok(written)
}

fn of_value(number: usize) -> String {
    format!("value {number}")
}

/// A default as an expression.
pub(crate) fn default(state: &SessionState, place: &Place, expression: &str) -> Result<Expr> {
    let mut default = new_parser(state, expression)?.parse_expr().map_err(Error::from_parser)?;
    if let Some(names) = state.config().get_extension::<Names>() {
        sequence_names::complete_default(&names, place, &mut default);
    }
    Ok(default)
}
