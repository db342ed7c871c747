//! What DataFusion 55 would plan and answer wrongly: written differently, or refused, before it is planned.
//!
//! | statement | what happens | here |
//! |---|---|---|
//! | `x > ANY (SELECT x FROM t)` inside a query of the same `t` | the outer `x` is taken for the inner one | the sub-query gets a name of its own |
//! | `EXISTS (SELECT count(x) FROM t WHERE …)` | a semi join of the rows that are counted | it always has a row: `true` |
//! | `INTERSECT ALL`, `EXCEPT ALL` | rows are not counted, only looked for | refused |
//! | `RIGHT` and `FULL JOIN … USING (k)`, `NATURAL` | `k` is the left table's, null where only the right has a row | refused |

use std::ops::ControlFlow;

use datafusion::functions_aggregate::all_default_aggregate_functions;
use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, JoinConstraint, JoinOperator, Query, Select, SelectItem, SetExpr, SetOperator,
    SetQuantifier, TableFactor, TableWithJoins, Value, Visit, VisitMut, Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::error::{Error, Result};

/// Changes what can be written differently, and refuses the rest.
pub(crate) fn avoid(statement: &mut Statement) -> Result<()> {
    let mut visitor = Avoid { comparisons: 0 };
    let flow = match statement {
        Statement::Statement(inner) => inner.visit(&mut visitor),
        Statement::Explain(explain) => return avoid(&mut explain.statement),
        Statement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => query.visit(&mut visitor),
            CopyToSource::Relation(_) => ControlFlow::Continue(()),
        },
        _ => ControlFlow::Continue(()),
    };
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(refusal) => Err(refusal),
    }
}

struct Avoid {
    /// Comparisons with sub-queries so far; numbers their names.
    comparisons: usize,
}

impl VisitorMut for Avoid {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        refuse_counting_set_operations(&query.body)
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        select.from.iter().try_for_each(refuse_merged_columns)
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        match factor {
            TableFactor::NestedJoin { table_with_joins, .. } => refuse_merged_columns(table_with_joins),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        if let Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } = expr
            && let Expr::Subquery(query) = right.as_mut()
        {
            self.comparisons += 1;
            return match named(query, self.comparisons) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(error),
            };
        }
        if let Expr::Exists { subquery, negated } = expr
            && has_one_row(subquery)
        {
            *expr = Expr::Value(Value::Boolean(!*negated).with_empty_span());
        }
        ControlFlow::Continue(())
    }
}

/// Puts a query into `SELECT * FROM (…) AS name`, so that no column of it bears the name of a table outside.
fn named(query: &mut Query, number: usize) -> Result<()> {
    let text = format!("SELECT * FROM (SELECT 1) AS __compared_{number}");
    let parsed =
        Parser::new(&GenericDialect {}).try_with_sql(&text).and_then(|mut parser| parser.parse_query());
    let mut wrapper = *parsed.map_err(|error| Error::Syntax { message: error.to_string() })?;
    if let SetExpr::Select(select) = wrapper.body.as_mut()
        && let Some(TableWithJoins { relation: TableFactor::Derived { subquery, .. }, .. }) =
            select.from.first_mut()
    {
        std::mem::swap(subquery.as_mut(), query);
        *query = wrapper;
    }
    Ok(())
}

/// Whether a query is an aggregation without groups, whose one row nothing takes away.
fn has_one_row(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    let has_no_groups = matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty());
    let keeps_rows = query.limit_clause.is_none()
        && query.fetch.is_none()
        && select.top.is_none()
        && select.having.is_none()
        && select.qualify.is_none();
    has_no_groups && keeps_rows && select.projection.iter().any(aggregates)
}

/// Whether an output is computed of all rows together.
fn aggregates(output: &SelectItem) -> bool {
    let mut search = AggregateSearch { queries: 0 };
    output.visit(&mut search).is_break()
}

/// Breaks at an aggregate function that is in no query of its own, and no window function.
struct AggregateSearch {
    /// Queries around the expression.
    queries: usize,
}

impl Visitor for AggregateSearch {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(function) if self.queries == 0 && function.over.is_none() => {
                let name = function.name.to_string().to_lowercase();
                let known = all_default_aggregate_functions();
                let is_aggregate =
                    known.iter().any(|known| known.name() == name || known.aliases().contains(&name));
                if is_aggregate { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

fn refuse_counting_set_operations(body: &SetExpr) -> ControlFlow<Error> {
    let SetExpr::SetOperation { left, op, set_quantifier, right } = body else {
        return ControlFlow::Continue(());
    };
    let counts = matches!(set_quantifier, SetQuantifier::All | SetQuantifier::AllByName);
    if counts && !matches!(op, SetOperator::Union) {
        return ControlFlow::Break(Error::unsupported(format!(
            "{op} ALL is not supported; {op} is, without the rows that are there several times"
        )));
    }
    refuse_counting_set_operations(left)?;
    refuse_counting_set_operations(right)
}

fn refuse_merged_columns(tables: &TableWithJoins) -> ControlFlow<Error> {
    for join in &tables.joins {
        let (kind, constraint) = match &join.join_operator {
            JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => ("RIGHT", constraint),
            JoinOperator::FullOuter(constraint) => ("FULL", constraint),
            _ => continue,
        };
        if matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural) {
            return ControlFlow::Break(Error::unsupported(format!(
                "{kind} JOIN with USING or NATURAL is not supported; write {kind} JOIN … ON a.k = b.k, and \
                 coalesce(a.k, b.k) for the column"
            )));
        }
    }
    ControlFlow::Continue(())
}
