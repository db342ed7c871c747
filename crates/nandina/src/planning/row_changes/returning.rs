//! `RETURNING`: a query for the rows that a statement has changed.

use std::sync::Arc;

use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::Result as DataFusionResult;
use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion::datasource::empty::EmptyTable;
use datafusion::datasource::source_as_provider;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Extension, LogicalPlan};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{SelectItem, SetExpr, Statement as SqlStatement};
use nandina_plan::ChangedRows;

use super::Target;
use crate::error::{Error, Result};
use crate::planning::{logical_plan, syntax};

const FUNCTION: &str = "changed_rows";

/// A query for `items` of the rows that `change` changes.
pub(super) async fn plan(
    state: &SessionState,
    target: &Target,
    items: Vec<SelectItem>,
    change: LogicalPlan,
) -> Result<LogicalPlan> {
    // Planned as a table, in whose place the statement is put.
    let table: Arc<dyn TableProvider> = Arc::new(EmptyTable::new(Arc::clone(target.table.schema())));
    let mut own = state.clone();
    own.register_udtf(FUNCTION, Arc::new(Rows(Arc::clone(&table))));
    let mut query = syntax::query(&format!("SELECT * FROM {FUNCTION}() AS {}", target.alias))?;
    let SetExpr::Select(select) = query.body.as_mut() else {
        return Err(Error::bug("a SELECT is none"));
    };
    select.projection = items;
    let statement = Statement::Statement(Box::new(SqlStatement::Query(Box::new(query))));
    let plan = Box::pin(logical_plan(&own, statement)).await?;
    // Sub-queries are not nodes of the plan yet, and may have them.
    if plan.exists(|node| Ok(matches!(node, LogicalPlan::Aggregate(_) | LogicalPlan::Window(_))))? {
        return Err(Error::unsupported(
            "RETURNING gives a row for each row that is changed: it has no aggregate or window functions",
        ));
    }
    let replaced = plan.transform_up(|node| match &node {
        LogicalPlan::TableScan(scan) if is_of(&scan.source, &table) => {
            let rows = ChangedRows { schema: Arc::clone(&scan.projected_schema), change: change.clone() };
            Ok(Transformed::yes(LogicalPlan::Extension(Extension { node: Arc::new(rows) })))
        }
        _ => Ok(Transformed::no(node)),
    });
    Ok(replaced.data()?)
}

fn is_of(source: &Arc<dyn datafusion::logical_expr::TableSource>, table: &Arc<dyn TableProvider>) -> bool {
    source_as_provider(source).is_ok_and(|provider| Arc::ptr_eq(&provider, table))
}

#[derive(Debug)]
struct Rows(Arc<dyn TableProvider>);

impl TableFunctionImpl for Rows {
    fn call_with_args(&self, _: TableFunctionArgs) -> DataFusionResult<Arc<dyn TableProvider>> {
        Ok(Arc::clone(&self.0))
    }
}
