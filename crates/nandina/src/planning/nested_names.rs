//! Common table expressions that have the name of one around them, which DataFusion refuses.
//!
//! ```text
//!   WITH t AS (…) SELECT * FROM (WITH t AS (SELECT a FROM t) SELECT t.a FROM t) x, t
//!     ─►  WITH t AS (…) SELECT * FROM (WITH __t_1 AS (SELECT a FROM t) SELECT t.a FROM __t_1 AS t) x, t
//! ```

use std::collections::VecDeque;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Ident, ObjectName, ObjectNamePart, Query, TableAlias, TableFactor, VisitorMut,
};

use crate::planning::wrong_plans::{normalized, visit_queries};

/// Gives the inner ones names of their own.
pub(crate) fn tell_apart(statement: &mut Statement) {
    // It never breaks off.
    let _ = visit_queries(statement, &mut Names::default());
}

#[derive(Default)]
struct Names {
    queries: Vec<Expressions>,
    renamed: usize,
}

/// The expressions of one query, as they are called in the statement, and the names that they have been given.
struct Expressions {
    visible: Vec<(String, Option<Ident>)>,
    /// Those that are named behind the place where the visitor is alone.
    coming: VecDeque<(String, Option<Ident>)>,
}

impl Names {
    fn is_taken(&self, name: &str) -> bool {
        let all = self.queries.iter().flat_map(|query| query.visible.iter().chain(&query.coming));
        all.into_iter().any(|(known, _)| known == name)
    }

    /// The name that the expression has been given which a name stands for.
    fn given(&self, name: &str) -> Option<&Ident> {
        let known = self.queries.iter().rev().flat_map(|query| query.visible.iter().rev());
        known.into_iter().find(|(known, _)| known == name)?.1.as_ref()
    }
}

impl VisitorMut for Names {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let mut expressions = Expressions { visible: Vec::new(), coming: VecDeque::new() };
        if let Some(with) = &mut query.with {
            for table in &mut with.cte_tables {
                let name = normalized(&table.alias.name);
                let given = self.is_taken(&name).then(|| {
                    self.renamed += 1;
                    Ident::with_quote('"', format!("__{name}_{}", self.renamed))
                });
                if let Some(given) = &given {
                    table.alias.name = given.clone();
                }
                if with.recursive {
                    expressions.visible.push((name, given));
                } else {
                    expressions.coming.push_back((name, given));
                }
            }
        }
        self.queries.push(expressions);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.queries.pop();
        // Those of a query are visited before anything else of it.
        if let Some(around) = self.queries.last_mut() {
            around.visible.extend(around.coming.pop_front());
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, alias, args: None, .. } = factor
            && let [ObjectNamePart::Identifier(written)] = name.0.as_slice()
            && let Some(given) = self.given(&normalized(written))
        {
            let written = written.clone();
            *name = ObjectName::from(vec![given.clone()]);
            alias.get_or_insert(TableAlias { explicit: true, name: written, columns: Vec::new(), at: None });
        }
        ControlFlow::Continue(())
    }
}
