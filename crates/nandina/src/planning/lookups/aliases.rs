//! Names that a query gives to its outputs, where others of its expressions use them.
//!
//! ```text
//!   SELECT a + 1 AS b, b * 2 FROM t WHERE b > 5     ─►     SELECT a + 1 AS b, (a + 1) * 2 FROM t WHERE (a + 1) > 5
//! ```
//!
//! A column of the tables that has the name is meant before an output.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Query, Select, SelectItem, VisitMut, VisitorMut};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::planning::wrong_plans::normalized;

/// Whether an expression names what may be an output before it.
pub(super) fn has_some(select: &mut Select) -> bool {
    let mut finding = Visitor { outputs: HashMap::new(), columns: None, found: false, queries: 0 };
    visit(select, &mut finding);
    finding.found
}

/// Puts the outputs in the places of their names, where these are no columns of the tables.
pub(super) fn write_out(select: &mut Select, columns: &HashSet<String>) {
    let mut writing = Visitor { outputs: HashMap::new(), columns: Some(columns), found: false, queries: 0 };
    visit(select, &mut writing);
}

fn visit(select: &mut Select, visitor: &mut Visitor) {
    for item in &mut select.projection {
        match item {
            SelectItem::ExprWithAlias { expr, alias } => {
                let _ = VisitMut::visit(expr, visitor);
                visitor.outputs.entry(normalized(alias)).or_insert_with(|| expr.clone());
            }
            SelectItem::UnnamedExpr(expr) => {
                let _ = VisitMut::visit(expr, visitor);
            }
            _ => {}
        }
    }
    if let Some(filter) = &mut select.selection {
        let _ = VisitMut::visit(filter, visitor);
    }
}

struct Visitor<'a> {
    outputs: HashMap<String, Expr>,
    /// The columns of the tables, once they are known.
    columns: Option<&'a HashSet<String>>,
    found: bool,
    /// Queries around, inside of the expression: their names are others.
    queries: usize,
}

impl VisitorMut for Visitor<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::Identifier(name) = expr else { return ControlFlow::Continue(()) };
        // One without a place in the text has been looked up before.
        if self.queries > 0 || name.span == Span::empty() {
            return ControlFlow::Continue(());
        }
        let Some(output) = self.outputs.get(&normalized(name)) else { return ControlFlow::Continue(()) };
        self.found = true;
        match self.columns {
            Some(columns) if columns.contains(&normalized(name)) => name.span = Span::empty(),
            Some(_) => *expr = Expr::Nested(Box::new(output.clone())),
            None => {}
        }
        ControlFlow::Continue(())
    }
}
