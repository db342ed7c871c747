//! Rows that are looked for in a sub-query, which DataFusion compares single columns with.
//!
//! | statement | written as |
//! |---|---|
//! | `WHERE (a, b) IN (S)` | `WHERE EXISTS (SELECT 1 FROM (S) r(x, y) WHERE x = a AND y = b)` |
//! | `WHERE (a, b) NOT IN (S)` | `WHERE NOT EXISTS (SELECT 1 FROM (S) r(x, y) WHERE (x = a AND y = b) IS NOT FALSE)` |
//! | `(a, b) IN (S)` elsewhere | `CASE WHEN` the first `THEN TRUE WHEN` not the second `THEN NULL ELSE FALSE END` |

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, Ident, Query, Select, SetExpr, TableAlias, TableAliasColumnDef,
    TableFactor, Value, VisitorMut,
};

use crate::error::{Error, Result};
use crate::planning::syntax;
use crate::planning::trees::null;
use crate::planning::wrong_plans::visit_queries;

pub(crate) fn write(statement: &mut Statement) -> Result<()> {
    match visit_queries(statement, &mut Memberships) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(refusal) => Err(refusal),
    }
}

struct Memberships;

impl VisitorMut for Memberships {
    type Break = Error;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        match select.selection.as_mut().map_or(Ok(()), of_condition) {
            Ok(()) => ControlFlow::Continue(()),
            Err(refusal) => ControlFlow::Break(refusal),
        }
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        let Some((row, query, negated)) = membership(expr) else { return ControlFlow::Continue(()) };
        match of_three_values(&row, &query, negated) {
            Ok(written) => {
                *expr = written;
                ControlFlow::Continue(())
            }
            Err(refusal) => ControlFlow::Break(refusal),
        }
    }
}

/// The row that is looked for, where it is one.
fn membership(expr: &Expr) -> Option<(Vec<Expr>, Query, bool)> {
    match expr {
        Expr::InSubquery { expr, subquery, negated } => match expr.as_ref() {
            Expr::Tuple(row) => Some((row.clone(), subquery.as_ref().clone(), *negated)),
            _ => None,
        },
        _ => None,
    }
}

/// In a condition it does not matter whether a part is false or unknown.
fn of_condition(condition: &mut Expr) -> Result<()> {
    match condition {
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            of_condition(left)?;
            of_condition(right)
        }
        Expr::Nested(inner) => of_condition(inner),
        other => {
            if let Some((row, query, negated)) = membership(other) {
                *other = exists(&row, &query, negated, negated)?;
            }
            Ok(())
        }
    }
}

fn of_three_values(row: &[Expr], query: &Query, negated: bool) -> Result<Expr> {
    let truth = |is: bool| Expr::Value(Value::Boolean(is).with_empty_span());
    let case = |condition, result| CaseWhen { condition, result };
    Ok(Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![
            case(exists(row, query, false, false)?, truth(!negated)),
            case(exists(row, query, true, false)?, null()),
        ],
        else_result: Some(Box::new(truth(negated))),
    })
}

/// Whether the query has a row that is equal to this one, or may be.
fn exists(row: &[Expr], query: &Query, may_be: bool, negated: bool) -> Result<Expr> {
    let name = |at: usize| Ident::new(format!("__part_{at}"));
    let equal = row.iter().enumerate().map(|(at, part)| Expr::BinaryOp {
        left: Box::new(Expr::Identifier(name(at))),
        op: BinaryOperator::Eq,
        right: Box::new(Expr::Nested(Box::new(part.clone()))),
    });
    let all = equal.reduce(|left, right| Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::And,
        right: Box::new(right),
    });
    let all = all.ok_or_else(|| Error::unsupported("a row that is looked for has columns"))?;
    let mut found = syntax::query("SELECT 1 FROM (SELECT 1) AS __rows")?;
    let SetExpr::Select(select) = found.body.as_mut() else { unreachable!("the text is a SELECT") };
    if let Some(TableFactor::Derived { subquery, alias: Some(TableAlias { columns, .. }), .. }) =
        select.from.first_mut().map(|tables| &mut tables.relation)
    {
        **subquery = query.clone();
        *columns = (0..row.len()).map(|at| TableAliasColumnDef { name: name(at), data_type: None }).collect();
    }
    select.selection = Some(match may_be {
        true => Expr::IsNotFalse(Box::new(Expr::Nested(Box::new(all)))),
        false => all,
    });
    Ok(Expr::Exists { subquery: Box::new(found), negated })
}
