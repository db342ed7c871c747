//! Names that a query gives to its outputs, where others of its expressions use them.
//!
//! ```text
//!   SELECT a + 1 AS b, b * 2 FROM t WHERE b > 5     ─►     SELECT a + 1 AS b, (a + 1) * 2 FROM t WHERE (a + 1) > 5
//! ```
//!
//! A column of the tables that has the name is meant before an output, and a parameter of a lambda before both.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Ident, LambdaFunction, Query, Select, SelectItem, VisitorMut};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::error::{Error, Result};
use crate::planning::output_names;
use crate::planning::walk::{WalkMut as _, walk_expressions};
use crate::planning::wrong_plans::normalized;

/// Most expressions that are written in the places of names, in one query.
const MOST_EXPRESSIONS: usize = 50_000;

/// Whether an expression names what may be an output before it.
pub(super) fn has_some(select: &mut Select) -> bool {
    let mut names = Names::new(Task::Find);
    let _ = names.visit(select);
    names.found
}

/// Leaves the names to the planner, for good.
pub(super) fn leave(select: &mut Select) {
    let _ = Names::new(Task::Leave).visit(select);
}

/// Puts the outputs in the places of their names, where these are no columns of the tables.
pub(super) fn write_out(
    select: &mut Select,
    columns: &HashSet<String>,
    is_volatile: impl Fn(&str) -> bool,
) -> Result<()> {
    match Names::new(Task::Write { columns, is_volatile: &is_volatile }).visit(select) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(refusal) => Err(refusal),
    }
}

enum Task<'a> {
    Find,
    Leave,
    Write { columns: &'a HashSet<String>, is_volatile: &'a dyn Fn(&str) -> bool },
}

struct Names<'a> {
    task: Task<'a>,
    outputs: HashMap<String, Expr>,
    found: bool,
    /// Expressions that have been written in the places of names.
    written: usize,
    /// Queries around, inside of the expression: their names are others.
    queries: usize,
    /// Parameters of the lambdas around.
    parameters: Vec<String>,
}

impl<'a> Names<'a> {
    fn new(task: Task<'a>) -> Self {
        let (outputs, parameters) = (HashMap::new(), Vec::new());
        Names { task, outputs, found: false, written: 0, queries: 0, parameters }
    }

    fn visit(&mut self, select: &mut Select) -> ControlFlow<Error> {
        for item in &mut select.projection {
            match item {
                SelectItem::ExprWithAlias { expr, alias } => {
                    expr.walk_mut(self)?;
                    self.outputs.entry(normalized(alias)).or_insert_with(|| expr.clone());
                }
                SelectItem::UnnamedExpr(expr) => {
                    let name = output_names::of(expr);
                    let before = self.written;
                    expr.walk_mut(self)?;
                    if self.written > before {
                        // It is called by what was written.
                        let expr = expr.clone();
                        *item = SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', name) };
                    }
                }
                _ => {}
            }
        }
        match &mut select.selection {
            Some(filter) => filter.walk_mut(self),
            None => ControlFlow::Continue(()),
        }
    }

    /// The output that is to be written in the place of its name.
    fn output(&mut self, name: &str) -> Result<Expr> {
        let Task::Write { is_volatile, .. } = &self.task else {
            unreachable!("outputs are written then alone")
        };
        let Some(output) = self.outputs.get(name) else { unreachable!("the output has been found") };
        let mut size = 0;
        let volatile = walk_expressions(output, |expr| {
            size += 1;
            match expr {
                Expr::Function(function) if is_volatile(&function.name.to_string().to_lowercase()) => {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        });
        self.written += size;
        if volatile.is_break() {
            return Err(Error::unsupported(format!(
                "'{name}' is another value each time that it is computed, so that another expression cannot name it; put it into \
                 a query in FROM"
            )));
        }
        if self.written > MOST_EXPRESSIONS {
            return Err(Error::unsupported(format!(
                "outputs in outputs come to more than {MOST_EXPRESSIONS} expressions at '{name}'; put some into a query in FROM"
            )));
        }
        Ok(Expr::Nested(Box::new(output.clone())))
    }
}

impl VisitorMut for Names<'_> {
    type Break = Error;

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<Error> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<Error> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        if let Expr::Lambda(lambda) = expr {
            self.parameters.extend(parameters(lambda));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        if let Expr::Lambda(lambda) = expr {
            let around = self.parameters.len() - parameters(lambda).count();
            self.parameters.truncate(around);
        }
        let Expr::Identifier(ident) = expr else { return ControlFlow::Continue(()) };
        let name = normalized(ident);
        // One without a place in the text has been looked up before.
        let is_output = self.queries == 0
            && ident.span != Span::empty()
            && !self.parameters.contains(&name)
            && self.outputs.contains_key(&name);
        if !is_output {
            return ControlFlow::Continue(());
        }
        self.found = true;
        match &self.task {
            Task::Find => {}
            Task::Write { columns, .. } if !columns.contains(&name) => match self.output(&name) {
                Ok(output) => *expr = output,
                Err(refusal) => return ControlFlow::Break(refusal),
            },
            Task::Leave | Task::Write { .. } => ident.span = Span::empty(),
        }
        ControlFlow::Continue(())
    }
}

fn parameters(lambda: &LambdaFunction) -> impl Iterator<Item = String> + '_ {
    lambda.params.iter().map(|parameter| normalized(&parameter.name))
}
