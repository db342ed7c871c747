//! Views as tables.
//!
//! A view is kept as the statement that made it, and planned again when a session first uses it after a restart.

use std::sync::Arc;

use datafusion::catalog::{DynamicFileCatalog, TableProvider};
use datafusion::datasource::ViewTable;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{CreateView, DdlStatement, LogicalPlan};
use datafusion::optimizer::Analyzer;
use datafusion::sql::sqlparser::ast::Ident;

use crate::catalog::names::{Names, Place};
use crate::catalog::providers::AllDatabases;
use crate::error::{Error, Result};
use crate::files::FileTables;
use crate::planning;
use crate::statement_text;

tokio::task_local! {
    /// The views that are being planned, each for the one before.
    static PLANNING: Vec<String>;
}

/// The view that a `CREATE VIEW` makes. Its types are resolved now; its tables are looked up again for each statement.
fn as_view(state: &SessionState, create: &CreateView) -> Result<Arc<dyn TableProvider>> {
    let analyzer = Analyzer::with_rules(nandina_plan::type_rules());
    let plan = create.input.as_ref().clone();
    let plan = analyzer.execute_and_check(plan, state.config_options(), |_, _| {})?;
    Ok(Arc::new(ViewTable::new(plan, create.definition.clone())))
}

/// The view that a kept statement makes, with the names in it as those of the view's schema.
pub(crate) async fn planned(place: &Place, statement: &str, names: &Names) -> Result<Arc<dyn TableProvider>> {
    let name = place.qualified();
    let full_name = format!("{}.{name}", place.database);
    let mut planning = PLANNING.try_with(Vec::clone).unwrap_or_default();
    if planning.contains(&full_name) {
        return Err(Error::Query { message: format!("view '{name}' is made of itself; DROP VIEW {name}") });
    }
    planning.push(full_name);
    let Some(state) = names.session() else {
        return Err(Error::Query { message: format!("view '{name}' cannot be planned without a session") });
    };
    let state = within(state, names, place);
    PLANNING.scope(planning, Box::pin(view_of(&state, statement))).await
}

/// The statement that made a view, with another name for it. Its schema stays as it is written.
pub(super) fn renamed(statement: &str, name: &str) -> Result<String> {
    let tokens = statement_text::tokens(statement).collect::<Vec<_>>();
    let is =
        |at: usize, word: &str| tokens.get(at).is_some_and(|(_, token)| token.eq_ignore_ascii_case(word));
    let mut at =
        tokens.iter().position(|(_, token)| token.eq_ignore_ascii_case("view")).map_or(0, |at| at + 1);
    if is(at, "if") && is(at + 1, "not") {
        at += 3;
    }
    let mut written = || {
        let (mut begin, first) = *tokens.get(at)?;
        let mut end = begin + first.len();
        loop {
            at += 1;
            match tokens.get(at) {
                // A quote within the name.
                Some((next, token)) if *next == end && token.starts_with('"') => end += token.len(),
                Some((_, ".")) => {
                    at += 1;
                    let (next, part) = tokens.get(at)?;
                    (begin, end) = (*next, next + part.len());
                }
                _ => break,
            }
        }
        let (head, tail) = (statement.get(..begin)?, statement.get(end..)?);
        Some(format!("{head}{}{tail}", Ident::with_quote('"', name)))
    };
    written().ok_or_else(|| Error::bug("the statement of a view has no name"))
}

/// The state of a session in which names mean what they mean in a schema.
fn within(state: SessionState, names: &Names, place: &Place) -> SessionState {
    let files = Arc::new(FileTables::new(names.session_reference()));
    let names = names.within(&place.database, &place.schema);
    let config = state.config().clone().with_extension(Arc::clone(&names));
    let databases = Arc::new(DynamicFileCatalog::new(Arc::new(AllDatabases(names)), files));
    SessionStateBuilder::from(state).with_config(config).with_catalog_list(databases).build()
}

/// The view that a statement makes.
async fn view_of(state: &SessionState, statement: &str) -> Result<Arc<dyn TableProvider>> {
    match planning::logical_plan(state, planning::parse_one(state, statement)?).await? {
        LogicalPlan::Ddl(DdlStatement::CreateView(create)) => as_view(state, &create),
        _ => Err(Error::unsupported("the statement makes no view")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_get_other_names() {
        let of = |statement: &str| renamed(statement, "w\"").unwrap();
        assert_eq!(of("CREATE VIEW v AS SELECT 1"), "CREATE VIEW \"w\"\"\" AS SELECT 1");
        assert_eq!(
            of("create or replace view if not exists temp . v(a) as select 1"),
            "create or replace view if not exists temp . \"w\"\"\"(a) as select 1"
        );
        assert_eq!(of("CREATE VIEW s.\"a\"\"b\" AS SELECT 1"), "CREATE VIEW s.\"w\"\"\" AS SELECT 1");
    }
}
