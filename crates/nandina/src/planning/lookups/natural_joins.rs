//! `NATURAL` joins, written as joins `USING` the columns that both sides have.
//!
//! Their columns are merged as those of [`USING`](crate::planning::wrong_plans) are. A join stays whose sides cannot be
//! planned by themselves, as they name columns of the query around them: DataFusion finds its columns.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, JoinConstraint, JoinOperator, ObjectName, TableWithJoins, Value,
};

use super::{Lookups, Stop, Unknown};
use crate::error::Error;
use crate::planning::trees::join_constraint;

/// Writes the joins of some tables out.
pub(super) fn resolve(lookups: &mut Lookups, tables: &mut TableWithJoins) -> ControlFlow<Stop> {
    for joined in 0..tables.joins.len() {
        let (before, rest) = tables.joins.split_at_mut(joined);
        let Some(join) = rest.first_mut() else { unreachable!("there are more joins than {joined}") };
        let Some(constraint) = natural(&mut join.join_operator) else { continue };
        let left = TableWithJoins { relation: tables.relation.clone(), joins: before.to_vec() };
        let right = TableWithJoins { relation: join.relation.clone(), joins: Vec::new() };
        let sides = |lookups: &Lookups| Ok(vec![lookups.all_of(left)?, lookups.all_of(right)?]);
        let Some(answers) = lookups.answers(sides, Unknown::PassedOver)? else { continue };
        let mut names =
            answers.into_iter().map(|answer| answer.columns().into_iter().map(|column| column.name));
        let (Some(left), Some(right)) = (names.next(), names.next()) else {
            unreachable!("both sides were asked for");
        };
        let right: HashSet<String> = right.collect();
        let left: Vec<String> = left.collect();
        let differ = |column: &&String| {
            right.iter().any(|other| other != *column && other.eq_ignore_ascii_case(column))
        };
        if let Some(column) = left.iter().find(differ) {
            return ControlFlow::Break(Box::new(Err(Error::unsupported(format!(
                "NATURAL JOIN: the column '{column}' is on the other side with other capitals; write USING or ON"
            )))));
        }
        *constraint = using(&left.into_iter().filter(|column| right.contains(column)).collect::<Vec<_>>());
    }
    ControlFlow::Continue(())
}

fn natural(operator: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    join_constraint(operator).filter(|constraint| matches!(constraint, JoinConstraint::Natural))
}

/// The constraint of a join that merges some columns; of all rows with all, if there are none.
fn using(columns: &[String]) -> JoinConstraint {
    if columns.is_empty() {
        return JoinConstraint::On(Expr::Value(Value::Boolean(true).with_empty_span()));
    }
    let name = |column: &String| ObjectName::from(vec![Ident::with_quote('"', column)]);
    JoinConstraint::Using(columns.iter().map(name).collect())
}
