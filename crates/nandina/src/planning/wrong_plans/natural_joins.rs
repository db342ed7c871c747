//! `NATURAL` joins, written as joins `USING` the columns that both sides have.
//!
//! Which these are, only the planner knows: each side is planned as `SELECT * FROM …` for it. Then their columns are merged
//! as those of [`USING`](super::merged_columns) are.

use std::collections::{HashSet, VecDeque};
use std::ops::ControlFlow;

use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    Cte, Expr, Ident, JoinConstraint, JoinOperator, ObjectName, Query, Select, SetExpr,
    Statement as SqlStatement, TableFactor, TableWithJoins, Value, VisitorMut, With,
};

use super::{parsed_query, select_all_from, visit_queries};
use crate::error::Result;
use crate::planning::logical_plan;

/// Writes all of them out in a statement, those inside first. One stays whose sides cannot be planned by themselves, as
/// they name columns of the query around them: DataFusion finds its columns.
pub(crate) async fn write_out(state: &SessionState, statement: &mut Statement) -> Result<()> {
    let (mut merged, mut left_alone) = (None, 0);
    loop {
        let mut resolving = Resolving { merged: merged.take(), left_alone, queries: Vec::new() };
        match visit_queries(statement, &mut resolving) {
            ControlFlow::Continue(()) => return Ok(()),
            ControlFlow::Break(sides) => {
                let Sides { left, right } = (*sides)?;
                match (columns_of(state, left).await, columns_of(state, right).await) {
                    (Ok(left), Ok(right)) => {
                        let right: HashSet<String> = right.into_iter().collect();
                        merged = Some(left.into_iter().filter(|column| right.contains(column)).collect());
                    }
                    _ => left_alone += 1,
                }
            }
        }
    }
}

async fn columns_of(state: &SessionState, query: Query) -> Result<Vec<String>> {
    let statement = Statement::Statement(Box::new(SqlStatement::Query(Box::new(query))));
    let plan = Box::pin(logical_plan(state, statement)).await?;
    Ok(plan.schema().fields().iter().map(|field| field.name().clone()).collect())
}

/// Queries for all columns of the inputs of a join.
struct Sides {
    left: Query,
    right: Query,
}

/// In a box, as every step of a visitor has room for it on the stack.
type Found = Box<Result<Sides>>;

/// Writes one join out, if it has been told its columns, and stops at the next.
struct Resolving {
    /// The columns that both sides of the first one have.
    merged: Option<Vec<String>>,
    /// Joins to pass over before.
    left_alone: usize,
    /// The queries around the place where the visitor is, from the outermost.
    queries: Vec<Expressions>,
}

/// Common table expressions of a query.
struct Expressions {
    known: Vec<Cte>,
    /// Those that the visitor has not left yet, the first of which it may be in.
    coming: VecDeque<Cte>,
    is_recursive: bool,
}

impl Expressions {
    /// Those that can be named where the visitor is. One that is recursive stands for its first rows.
    fn visible(&self) -> impl Iterator<Item = Cte> {
        let mut around = self.coming.front().filter(|_| self.is_recursive).cloned();
        if let Some(expression) = &mut around
            && let SetExpr::SetOperation { left, .. } = expression.query.body.as_ref()
        {
            let first_rows = left.clone();
            expression.query.body = first_rows;
        }
        self.known.iter().cloned().chain(around)
    }
}

impl VisitorMut for Resolving {
    type Break = Found;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Found> {
        let with = query.with.as_ref();
        let coming = with.map(|with| with.cte_tables.clone()).unwrap_or_default();
        let is_recursive = with.is_some_and(|with| with.recursive);
        self.queries.push(Expressions { known: Vec::new(), coming: coming.into(), is_recursive });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<Found> {
        self.queries.pop();
        // Those of a query are visited before anything else of it.
        if let Some(around) = self.queries.last_mut()
            && let Some(left) = around.coming.pop_front()
        {
            around.known.push(left);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Found> {
        select.from.iter_mut().try_for_each(|tables| self.resolve(tables))
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Found> {
        match factor {
            TableFactor::NestedJoin { table_with_joins, .. } => self.resolve(table_with_joins),
            _ => ControlFlow::Continue(()),
        }
    }
}

impl Resolving {
    fn resolve(&mut self, tables: &mut TableWithJoins) -> ControlFlow<Found> {
        for joined in 0..tables.joins.len() {
            let (before, rest) = tables.joins.split_at_mut(joined);
            let Some(join) = rest.first_mut() else { unreachable!("there are more joins than {joined}") };
            let Some(constraint) = natural(&mut join.join_operator) else { continue };
            if self.left_alone > 0 {
                self.left_alone -= 1;
                continue;
            }
            let Some(merged) = self.merged.take() else {
                let left = TableWithJoins { relation: tables.relation.clone(), joins: before.to_vec() };
                let right = TableWithJoins { relation: join.relation.clone(), joins: Vec::new() };
                return ControlFlow::Break(Box::new(self.sides(left, right)));
            };
            *constraint = using(&merged);
        }
        ControlFlow::Continue(())
    }

    fn sides(&self, left: TableWithJoins, right: TableWithJoins) -> Result<Sides> {
        Ok(Sides { left: self.all_of(left)?, right: self.all_of(right)? })
    }

    /// All columns of tables, with the common table expressions of all queries around them.
    fn all_of(&self, tables: TableWithJoins) -> Result<Query> {
        let mut query = select_all_from(tables)?;
        for around in self.queries.iter().rev() {
            let cte_tables: Vec<Cte> = around.visible().collect();
            if cte_tables.is_empty() {
                continue;
            }
            let with_token = AttachedToken::empty();
            let with = With { with_token, recursive: around.is_recursive, cte_tables };
            if query.with.is_some() {
                let mut outer = parsed_query("SELECT 1")?;
                outer.body = Box::new(SetExpr::Query(Box::new(query)));
                query = outer;
            }
            query.with = Some(with);
        }
        Ok(query)
    }
}

fn natural(operator: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    match operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint) => {
            matches!(constraint, JoinConstraint::Natural).then_some(constraint)
        }
        _ => None,
    }
}

/// The constraint of a join that merges some columns; of all rows with all, if there are none.
fn using(columns: &[String]) -> JoinConstraint {
    if columns.is_empty() {
        return JoinConstraint::On(Expr::Value(Value::Boolean(true).with_empty_span()));
    }
    let name = |column: &String| ObjectName::from(vec![Ident::with_quote('"', column)]);
    JoinConstraint::Using(columns.iter().map(name).collect())
}
