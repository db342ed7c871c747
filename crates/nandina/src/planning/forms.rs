//! What DataFusion does not know, written as what it does.
//!
//! | statement | written as |
//! |---|---|
//! | `a SEMI JOIN b`, `a ANTI JOIN b` | `a LEFT SEMI JOIN b`, `a LEFT ANTI JOIN b` |
//! | `a ASOF JOIN b …` | `(a ASOF JOIN b …)`, a relation of its own that has a planner |
//! | `INTERVAL (x) DAY` | `to_days(x)` |
//! | `(a, b) = (x, y)`, `<`, `IN ((1, 2), …)` | comparisons of their parts |
//! | `SELECT … UNION SELECT … ORDER BY ALL` | `SELECT * FROM (…) ORDER BY ALL` |
//! | `ORDER BY #1`, `GROUP BY #1` | `ORDER BY 1`, `GROUP BY 1` |

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, GroupByExpr, Interval, Join, JoinOperator, OrderByKind, Query, Select, SetExpr,
    TableFactor, TableWithJoins, UnaryOperator, Value, VisitorMut,
};

use crate::error::{Error, Result};
use crate::planning::syntax;
use crate::planning::trees::{call, take};
use crate::planning::wrong_plans::visit_queries;

/// Writes them.
pub(crate) fn write(statement: &mut Statement) -> Result<()> {
    match visit_queries(statement, &mut Forms) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(refusal) => Err(refusal),
    }
}

struct Forms;

impl VisitorMut for Forms {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        if let Some(order) = &mut query.order_by
            && let OrderByKind::Expressions(orders) = &mut order.kind
        {
            orders.iter_mut().for_each(|order| number_position(&mut order.expr));
        }
        let orders_all =
            query.order_by.as_ref().is_some_and(|order| matches!(order.kind, OrderByKind::All(_)));
        if orders_all && !matches!(query.body.as_ref(), SetExpr::Select(_)) {
            return match wrapped(&mut query.body) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(error),
            };
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
            keys.iter_mut().for_each(number_position);
        }
        select.from.iter_mut().for_each(settle_joins);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        if let TableFactor::NestedJoin { table_with_joins, .. } = factor
            && !is_asof_alone(table_with_joins)
        {
            settle_joins(table_with_joins);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        let written = match expr {
            Expr::Interval(interval) => length(interval),
            Expr::BinaryOp { left, op, right } => match (left.as_mut(), right.as_mut()) {
                (Expr::Tuple(left), Expr::Tuple(right)) if left.len() == right.len() => {
                    of_rows(left, op, right)
                }
                _ => None,
            },
            Expr::InList { expr: row, list, negated } => in_rows(row, list, *negated),
            _ => None,
        };
        if let Some(written) = written {
            *expr = written;
        }
        ControlFlow::Continue(())
    }
}

/// Puts a body into `SELECT * FROM (…)`.
fn wrapped(body: &mut SetExpr) -> Result<()> {
    let mut wrapper = syntax::query("SELECT * FROM (SELECT 1) AS all_rows")?;
    if let SetExpr::Select(select) = wrapper.body.as_mut()
        && let Some(TableWithJoins { relation: TableFactor::Derived { subquery, .. }, .. }) =
            select.from.first_mut()
    {
        std::mem::swap(subquery.body.as_mut(), body);
        *body = *wrapper.body;
    }
    Ok(())
}

/// `#1` as `1`.
fn number_position(expr: &mut Expr) {
    if let Expr::Identifier(name) = expr
        && name.quote_style.is_none()
        && let Some(digits) = name.value.strip_prefix('#')
        && digits.parse::<u32>().is_ok()
    {
        *expr = Expr::Value(Value::Number(digits.to_owned(), false).with_empty_span());
    }
}

/// Names the sides of semi and anti joins, and puts what an `ASOF` join ends into brackets.
fn settle_joins(tables: &mut TableWithJoins) {
    let mut settled: Vec<Join> = Vec::with_capacity(tables.joins.len());
    for mut join in std::mem::take(&mut tables.joins) {
        join.join_operator = match join.join_operator {
            JoinOperator::Semi(constraint) => JoinOperator::LeftSemi(constraint),
            JoinOperator::Anti(constraint) => JoinOperator::LeftAnti(constraint),
            other => other,
        };
        let is_asof = join.global;
        settled.push(join);
        if is_asof {
            let inside =
                TableWithJoins { relation: tables.relation.clone(), joins: std::mem::take(&mut settled) };
            tables.relation = TableFactor::NestedJoin { table_with_joins: Box::new(inside), alias: None };
        }
    }
    tables.joins = settled;
}

/// Whether these are the tables up to an `ASOF` join, in brackets for it alone.
pub(crate) fn is_asof_alone(tables: &TableWithJoins) -> bool {
    tables.joins.last().is_some_and(|join| join.global)
        && tables.joins.iter().filter(|join| join.global).count() == 1
}

/// The length that an interval of so many units has, if the number is none that is written.
fn length(interval: &mut Interval) -> Option<Expr> {
    let mut number = interval.value.as_mut();
    while let Expr::Nested(inner) = number {
        number = inner;
    }
    let signed = match &*number {
        Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } => expr,
        other => other,
    };
    let (Some(unit), None) = (&interval.leading_field, &interval.last_field) else { return None };
    if matches!(signed, Expr::Value(_)) {
        // What is written in brackets is read as if it were not.
        *interval.value = take(number);
        return None;
    }
    let unit = unit.to_string().to_lowercase();
    let unit = match unit.trim_end_matches('s') {
        "century" => "centurie",
        "millennium" => "millennia",
        unit => unit,
    };
    let function = if unit == "millennia" { "to_millennia".to_owned() } else { format!("to_{unit}s") };
    Some(call(&function, [take(number)]))
}

/// A comparison of two rows by their values.
fn of_rows(left: &mut [Expr], operator: &BinaryOperator, right: &mut [Expr]) -> Option<Expr> {
    let compared = |left: &Expr, op: BinaryOperator, right: &Expr| {
        Expr::Nested(Box::new(Expr::BinaryOp {
            left: Box::new(left.clone()),
            op,
            right: Box::new(right.clone()),
        }))
    };
    let pairs = || left.iter().zip(right.iter());
    match operator {
        BinaryOperator::Eq => {
            all(pairs().map(|(a, b)| compared(a, BinaryOperator::Eq, b)), BinaryOperator::And)
        }
        BinaryOperator::NotEq => {
            all(pairs().map(|(a, b)| compared(a, BinaryOperator::NotEq, b)), BinaryOperator::Or)
        }
        BinaryOperator::Lt | BinaryOperator::LtEq | BinaryOperator::Gt | BinaryOperator::GtEq => {
            // The first values that differ decide.
            let strict = match operator {
                BinaryOperator::Lt | BinaryOperator::LtEq => BinaryOperator::Lt,
                _ => BinaryOperator::Gt,
            };
            let mut decided: Option<Expr> = None;
            for (a, b) in pairs().rev() {
                decided = Some(match decided {
                    None => compared(a, operator.clone(), b),
                    Some(later) => {
                        let equal = compared(a, BinaryOperator::Eq, b);
                        let later = all([equal, later], BinaryOperator::And)?;
                        all([compared(a, strict.clone(), b), later], BinaryOperator::Or)?
                    }
                });
            }
            decided
        }
        _ => None,
    }
}

/// Whether a row is one of a list of rows.
fn in_rows(row: &mut Expr, list: &mut [Expr], negated: bool) -> Option<Expr> {
    let Expr::Tuple(row) = row else { return None };
    let mut any = Vec::with_capacity(list.len());
    for other in list.iter_mut() {
        match other {
            Expr::Tuple(other) if other.len() == row.len() => {
                any.push(of_rows(row, &BinaryOperator::Eq, other)?);
            }
            _ => return None,
        }
    }
    let found = all(any, BinaryOperator::Or)?;
    Some(if negated { Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(found) } } else { found })
}

/// All of these with an operator between them, in brackets.
fn all(terms: impl IntoIterator<Item = Expr>, op: BinaryOperator) -> Option<Expr> {
    let together =
        |left, right| Expr::BinaryOp { left: Box::new(left), op: op.clone(), right: Box::new(right) };
    terms.into_iter().reduce(together).map(|terms| Expr::Nested(Box::new(terms)))
}
