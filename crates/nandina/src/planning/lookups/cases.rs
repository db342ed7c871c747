//! Names without quotes that differ from a column's in capitals alone, as files often have them.
//!
//! ```text
//!   SELECT PassengerId, t.NAME FROM 'titanic.csv' t    ─►    SELECT "PassengerId", t."Name" FROM …
//! ```
//!
//! A name that has been found is in quotes, so that a query around does not look for it again.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Ident, LambdaFunction, VisitorMut};

use super::Column;
use crate::planning::walk::WalkMut;
use crate::planning::wrong_plans::normalized;

/// Writes the names in a part of a query as the columns of its tables have them.
pub(super) fn settle(part: &mut impl WalkMut, columns: &[Column]) {
    let _ = part.walk_mut(&mut Settling { columns, parameters: Vec::new() });
}

struct Settling<'a> {
    columns: &'a [Column],
    /// Those of the lambdas around, which are no columns.
    parameters: Vec<String>,
}

impl VisitorMut for Settling<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(name) => self.settle(name, None),
            Expr::CompoundIdentifier(path) => {
                if let [first, second, ..] = path.as_mut_slice() {
                    let table = normalized(first);
                    let is_table = self.columns.iter().any(|column| column.table.as_ref() == Some(&table));
                    if is_table {
                        self.settle(second, Some(&table));
                    } else {
                        self.settle(first, None);
                    }
                }
            }
            Expr::Lambda(lambda) => self.parameters.extend(names_of(lambda)),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Lambda(lambda) = expr {
            self.parameters.truncate(self.parameters.len() - names_of(lambda).count());
        }
        ControlFlow::Continue(())
    }
}

fn names_of(lambda: &LambdaFunction) -> impl Iterator<Item = String> + '_ {
    lambda.params.iter().map(|parameter| normalized(&parameter.name))
}

impl Settling<'_> {
    fn settle(&self, name: &mut Ident, table: Option<&String>) {
        if name.quote_style.is_some() {
            return;
        }
        let wanted = normalized(name);
        if table.is_none() && self.parameters.contains(&wanted) {
            return;
        }
        let candidates = || {
            let of_table =
                self.columns.iter().filter(|column| table.is_none() || column.table.as_ref() == table);
            of_table.map(|column| column.name.as_str())
        };
        let found = candidates().find(|candidate| *candidate == wanted).or_else(|| {
            let mut alike = candidates().filter(|candidate| candidate.eq_ignore_ascii_case(&wanted));
            // Of two that differ in capitals alone, the statement has to say which.
            alike.next().filter(|first| alike.all(|other| other == *first))
        });
        if let Some(found) = found {
            *name = Ident::with_quote('"', found);
        }
    }
}
