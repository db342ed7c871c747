//! Views as tables.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::datasource::ViewTable;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{CreateView, DdlStatement, LogicalPlan};
use datafusion::optimizer::Analyzer;

use crate::error::{Error, Result};
use crate::planning;

/// The view that a `CREATE VIEW` makes. Its types are resolved now; its tables are looked up again for each statement.
pub(crate) fn as_view(state: &SessionState, create: &CreateView) -> Result<Arc<dyn TableProvider>> {
    let analyzer = Analyzer::with_rules(nandina_plan::type_rules());
    let plan = create.input.as_ref().clone();
    let plan = analyzer.execute_and_check(plan, state.config_options(), |_, _| {})?;
    Ok(Arc::new(ViewTable::new(plan, create.definition.clone())))
}

/// The view that a statement makes.
pub(crate) async fn view_of(state: &SessionState, statement: &str) -> Result<Arc<dyn TableProvider>> {
    match planning::logical_plan(state, planning::parse_one(state, statement)?).await? {
        LogicalPlan::Ddl(DdlStatement::CreateView(create)) => as_view(state, &create),
        _ => Err(Error::unsupported("the statement makes no view")),
    }
}
