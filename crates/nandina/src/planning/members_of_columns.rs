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
use datafusion::sql::sqlparser::ast::{AccessExpr, Expr, Ident, Select, SelectItem, TableFactor, VisitorMut};

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
    /// Schemas and tables, databases and schemas.
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
            // Of a database's schema and table, the first two begin a path as well.
            self.in_schemas.extend(parts.iter().cloned().zip(parts.iter().skip(1).cloned()));
        }
        ControlFlow::Continue(())
    }
}

struct Paths<'a>(&'a Tables);

impl Paths<'_> {
    /// The member that a path means which begins with a table and its column, and would be read as one that begins with a
    /// schema; and its name.
    fn member(&self, path: &Expr) -> Option<(Expr, Ident)> {
        let Expr::CompoundIdentifier(path) = path else { return None };
        let [table, column, members @ ..] = path.as_slice() else { return None };
        let name = members.last()?.clone();
        let names = (normalized(table), normalized(column));
        let are_tables = self.0.names.contains(&names.0) && self.0.names.contains(&names.1);
        if !are_tables || self.0.in_schemas.contains(&names) {
            return None;
        }
        let access = |member: &Ident| AccessExpr::Dot(Expr::Identifier(member.clone()));
        let access_chain = members.iter().map(access).collect();
        let column = Expr::CompoundIdentifier(vec![table.clone(), column.clone()]);
        Some((Expr::CompoundFieldAccess { root: Box::new(column), access_chain }, name))
    }
}

impl VisitorMut for Paths<'_> {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr @ Expr::CompoundIdentifier(_)) = item
                && let Some((member, name)) = self.member(expr)
            {
                *item = SelectItem::ExprWithAlias { expr: member, alias: name };
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Some((member, _)) = self.member(expr) {
            *expr = member;
        }
        ControlFlow::Continue(())
    }
}
