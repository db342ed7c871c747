//! Functions in `FROM`.
//!
//! Those that read files become the names of tables ([`crate::files::call`]). Series get the names that they have in
//! DuckDB: `FROM range(3)` is a table `range` with a column `range`, `FROM range(3) AS t` a table `t` with a column `t`, which
//! is `t.range`, too.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, ObjectNamePart, Select, TableAlias, TableAliasColumnDef, TableFactor,
    TableWithJoins, VisitorMut,
};

use nandina_storage::MAIN;

use super::wrong_plans::visit_queries;
use crate::catalog::{SYSTEM, system};
use crate::error::{Error, Result};
use crate::files::call::Call;
use crate::planning::walk::walk_expressions;

/// Rewrites the functions in a statement.
pub(crate) fn name(statement: &mut Statement) -> Result<()> {
    match visit_queries(statement, &mut Functions) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Functions;

impl VisitorMut for Functions {
    type Break = Error;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        let mut names = HashSet::new();
        let asked = series_by_their_functions(select);
        for tables in &mut select.from {
            if let Err(error) = name_in(tables, &mut names, &asked) {
                return ControlFlow::Break(error);
            }
        }
        ControlFlow::Continue(())
    }
}

/// The tables of which a column is named like a series: `t.range`.
fn series_by_their_functions(select: &Select) -> HashSet<String> {
    let mut asked = HashSet::new();
    let _ = walk_expressions(select, |expr| {
        if let Expr::CompoundIdentifier(parts) = expr
            && let [table, column] = parts.as_slice()
            && is_series(&column.value.to_lowercase())
        {
            asked.insert(table.value.to_lowercase());
        }
        ControlFlow::<()>::Continue(())
    });
    asked
}

fn is_series(function: &str) -> bool {
    matches!(function, "range" | "generate_series")
}

/// Rewrites the functions in the `FROM` of one query; `names` are those that others have got there, and `asked` the tables
/// whose column has the name of the function.
fn name_in(tables: &mut TableWithJoins, names: &mut HashSet<String>, asked: &HashSet<String>) -> Result<()> {
    let joined = tables.joins.iter_mut().map(|join| &mut join.relation);
    for factor in std::iter::once(&mut tables.relation).chain(joined) {
        match factor {
            TableFactor::NestedJoin { table_with_joins, .. } => name_in(table_with_joins, names, asked)?,
            TableFactor::Table { name, alias, args, .. } => {
                let (Some(arguments), [part]) = (args.as_ref(), name.0.as_slice()) else { continue };
                let Some(function) = part.as_ident().map(|ident| ident.value.to_lowercase()) else {
                    continue;
                };
                if let [part] = name.0.as_mut_slice()
                    && let ObjectNamePart::Identifier(written) = part
                {
                    // Functions are called by any spelling of their names.
                    written.value.clone_from(&function);
                }
                if system::FUNCTIONS.contains(&function.as_str()) && arguments.args.is_empty() {
                    *name = ObjectName::from(
                        [SYSTEM, MAIN, &function].map(|part| Ident::with_quote('"', part)).to_vec(),
                    );
                    *args = None;
                    continue;
                }
                if let Some(call) = Call::of(&function, &arguments.args) {
                    *name = ObjectName::from(vec![Ident::with_quote('"', call?.to_string())]);
                    *args = None;
                    if alias.is_none() && names.insert(function.clone()) {
                        *alias = Some(alias_of(&function, Vec::new()));
                    }
                } else if is_series(&function) {
                    // Functions are found in whatever case they are written.
                    *name = ObjectName::from(vec![Ident::new(&function)]);
                    match alias {
                        None if names.insert(function.clone()) => {
                            *alias = Some(alias_of(&function, vec![Ident::with_quote('"', &function)]));
                        }
                        Some(alias) if alias.columns.is_empty() => {
                            let by_function = asked.contains(&alias.name.value.to_lowercase());
                            let name = if by_function { Ident::new(&function) } else { alias.name.clone() };
                            alias.columns = vec![column(name)];
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn alias_of(name: &str, columns: Vec<Ident>) -> TableAlias {
    let columns = columns.into_iter().map(column).collect();
    TableAlias { explicit: true, name: Ident::with_quote('"', name), columns, at: None }
}

fn column(name: Ident) -> TableAliasColumnDef {
    TableAliasColumnDef { name, data_type: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::parser::DFParserBuilder;

    fn named(text: &str) -> String {
        let mut statement = DFParserBuilder::new(text).build().unwrap().parse_statement().unwrap();
        name(&mut statement).unwrap();
        statement.to_string()
    }

    #[test]
    fn series_have_names() {
        assert_eq!(named("SELECT * FROM range(3)"), "SELECT * FROM range(3) AS \"range\" (\"range\")");
        assert_eq!(named("SELECT * FROM generate_series(3) t"), "SELECT * FROM generate_series(3) t (t)");
        assert_eq!(named("SELECT t.range FROM range(3) t"), "SELECT t.range FROM range(3) t (range)");
        let given = "SELECT * FROM range(3) AS t (x)";
        assert_eq!(named(given), given);
    }

    #[test]
    fn files_become_tables() {
        assert_eq!(
            named("SELECT * FROM Read_CSV('a', header = true) JOIN read_csv('b') ON true"),
            "SELECT * FROM \"read_csv('a', header := true)\" AS \"read_csv\" JOIN \"read_csv('b')\" ON true"
        );
        assert_eq!(named("SELECT * FROM glob('*') AS g"), "SELECT * FROM \"glob('*')\" AS g");
    }
}
