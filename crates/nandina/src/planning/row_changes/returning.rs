//! `RETURNING`: a query for the rows that a statement has changed.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::Result as DataFusionResult;
use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion::datasource::empty::EmptyTable;
use datafusion::datasource::source_as_provider;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Extension, LogicalPlan};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, Ident, ObjectName, SelectItem, SetExpr, Statement as SqlStatement,
};
use nandina_exec::rows::{MERGE_ACTION, RowChange};
use nandina_plan::ChangedRows;

use super::Target;
use crate::error::{Error, Result};
use crate::planning::walk::walk_expressions;
use crate::planning::wrong_plans::normalized;
use crate::planning::{logical_plan, syntax};

const FUNCTION: &str = "changed_rows";

/// A query for `items` of the rows that `statement` changes.
pub(super) async fn plan(
    state: &SessionState,
    target: &Target,
    mut items: Vec<SelectItem>,
    change: &RowChange,
    statement: LogicalPlan,
) -> Result<LogicalPlan> {
    let mut schema = Arc::clone(target.table.schema());
    if *change == RowChange::Merge && target.column(MERGE_ACTION).is_err() && items.iter().any(names_action) {
        schema = change.returned_schema(&schema);
        items.iter_mut().for_each(leave_action_out);
    }
    // Planned as a table, in whose place the statement is put.
    let table: Arc<dyn TableProvider> = Arc::new(EmptyTable::new(schema));
    let mut own = state.clone();
    own.register_udtf(FUNCTION, Arc::new(Rows(Arc::clone(&table))));
    let mut query = syntax::query(&format!("SELECT * FROM {FUNCTION}() AS {}", target.alias))?;
    let SetExpr::Select(select) = query.body.as_mut() else {
        return Err(Error::bug("a SELECT is none"));
    };
    select.projection = items;
    let query = Statement::Statement(Box::new(SqlStatement::Query(Box::new(query))));
    let plan = Box::pin(logical_plan(&own, query)).await?;
    // Sub-queries are not nodes of the plan yet, and may have them.
    if plan.exists(|node| Ok(matches!(node, LogicalPlan::Aggregate(_) | LogicalPlan::Window(_))))? {
        return Err(Error::unsupported(
            "RETURNING gives a row for each row that is changed: it has no aggregate or window functions",
        ));
    }
    let replaced = plan.transform_up(|node| match &node {
        LogicalPlan::TableScan(scan) if is_of(&scan.source, &table) => {
            let rows = ChangedRows { schema: Arc::clone(&scan.projected_schema), change: statement.clone() };
            Ok(Transformed::yes(LogicalPlan::Extension(Extension { node: Arc::new(rows) })))
        }
        _ => Ok(Transformed::no(node)),
    });
    Ok(replaced.data()?)
}

/// Whether an item tells what `MERGE` has done to a row.
fn names_action(item: &SelectItem) -> bool {
    let visited = walk_expressions(item, |expr| {
        let name = match expr {
            Expr::Identifier(name) => Some(name),
            Expr::CompoundIdentifier(path) => path.last(),
            _ => None,
        };
        match name.is_some_and(|name| normalized(name) == MERGE_ACTION) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    visited.is_break()
}

/// Lets `*` stand for the columns of the table alone.
fn leave_action_out(item: &mut SelectItem) {
    let (SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options)) = item else { return };
    let mut names = match options.opt_exclude.take() {
        None => Vec::new(),
        Some(ExcludeSelectItem::Single(name)) => vec![name],
        Some(ExcludeSelectItem::Multiple(names)) => names,
    };
    names.push(ObjectName::from(vec![Ident::new(MERGE_ACTION)]));
    options.opt_exclude = Some(ExcludeSelectItem::Multiple(names));
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
