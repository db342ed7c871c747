//! Members of structs, where the column has the name of a table.
//!
//! DataFusion takes `r.s.v` for a column of the table `s` of a schema `r`, and does not ask which schema the table has:
//!
//! ```text
//!   SELECT r.s.v FROM s JOIN r ON …   ─►   SELECT (r.s).v FROM s JOIN r ON …
//! ```

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{AccessExpr, Expr, Ident, TableFactor, VisitorMut};

use crate::planning::wrong_plans::{normalized, visit_queries};

/// Writes paths so that they are read as what the names of the tables say.
pub(crate) fn write(statement: &mut Statement) {
    let mut tables = Tables::default();
    // Neither visitor breaks off.
    let _ = visit_queries(statement, &mut tables);
    let _ = visit_queries(statement, &mut Paths(&tables));
}

/// What the tables of a statement may be called.
#[derive(Default)]
struct Tables {
    names: HashSet<String>,
    /// Schemas and tables.
    in_schemas: HashSet<(String, String)>,
}

impl VisitorMut for Tables {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        let alias = match factor {
            TableFactor::Table { alias, .. }
            | TableFactor::Derived { alias, .. }
            | TableFactor::TableFunction { alias, .. }
            | TableFactor::Function { alias, .. }
            | TableFactor::UNNEST { alias, .. }
            | TableFactor::NestedJoin { alias, .. }
            | TableFactor::Pivot { alias, .. }
            | TableFactor::Unpivot { alias, .. } => alias.as_ref(),
            _ => None,
        };
        if let Some(alias) = alias {
            self.names.insert(normalized(&alias.name));
        } else if let TableFactor::Table { name, .. } = factor
            && let Some(parts) =
                name.0.iter().map(|part| part.as_ident().map(normalized)).collect::<Option<Vec<_>>>()
        {
            self.names.extend(parts.last().cloned());
            if let [.., schema, table] = parts.as_slice() {
                self.in_schemas.insert((schema.clone(), table.clone()));
            }
        }
        ControlFlow::Continue(())
    }
}

struct Paths<'a>(&'a Tables);

impl Paths<'_> {
    /// Whether a path begins with a table and its column, and would be read as one that begins with a schema.
    fn begins_with_column(&self, table: &Ident, column: &Ident) -> bool {
        let (table, column) = (normalized(table), normalized(column));
        self.0.names.contains(&table)
            && self.0.names.contains(&column)
            && !self.0.in_schemas.contains(&(table, column))
    }
}

impl VisitorMut for Paths<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::CompoundIdentifier(path) = expr
            && let [table, column, members @ ..] = path.as_slice()
            && !members.is_empty()
            && self.begins_with_column(table, column)
        {
            let member = |name: &Ident| AccessExpr::Dot(Expr::Identifier(name.clone()));
            let access_chain = members.iter().map(member).collect();
            let column = Expr::CompoundIdentifier(vec![table.clone(), column.clone()]);
            *expr = Expr::CompoundFieldAccess { root: Box::new(column), access_chain };
        }
        ControlFlow::Continue(())
    }
}
