//! Amounts of rows that DataFusion has no word for, as calls that [`ComputedLimits`](nandina_plan::ComputedLimits) plans.
//!
//! | statement | written as |
//! |---|---|
//! | `FETCH FIRST 3 ROWS ONLY` | `LIMIT 3` |
//! | `FETCH FIRST 3 ROWS WITH TIES` | `LIMIT __with_ties(3)` |
//! | `FROM t TABLESAMPLE (__sample(…))` | `FROM (SELECT * FROM t WHERE __sample(…)) AS t` |
//! | `WHERE a CONNECT BY __sample(…)`, which `USING SAMPLE` is read as | `WHERE a AND __sample(…)` |

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, ConnectByKind, Expr, Fetch, Function, LimitClause, Query, Select, SetExpr, TableAlias,
    TableFactor, TableSampleKind, TableWithJoins, Value, VisitorMut,
};

use crate::error::{Error, Result};
use crate::planning::syntax;
use crate::planning::syntax::amounts::{PERCENT, SAMPLE};
use crate::planning::trees::call;
use crate::planning::wrong_plans::visit_queries;

pub(crate) fn write(statement: &mut Statement) -> Result<()> {
    match visit_queries(statement, &mut Amounts) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(refusal) => Err(refusal),
    }
}

struct Amounts;

impl VisitorMut for Amounts {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        as_flow(fetch_as_limit(query))
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        as_flow(sample_of_select(select))
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        as_flow(sample_of_table(factor))
    }
}

fn as_flow(result: Result<()>) -> ControlFlow<Error> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(refusal) => ControlFlow::Break(refusal),
    }
}

fn fetch_as_limit(query: &mut Query) -> Result<()> {
    let Some(Fetch { with_ties, percent, quantity }) = query.fetch.take() else { return Ok(()) };
    let one = || Expr::Value(Value::Number("1".to_owned(), false).with_empty_span());
    let mut amount = quantity.unwrap_or_else(one);
    if percent {
        amount = call(PERCENT, [amount]);
    }
    if with_ties {
        if query.order_by.is_none() {
            return Err(Error::unsupported("FETCH … WITH TIES needs an ORDER BY, which says what is tied"));
        }
        amount = call(nandina_plan::WITH_TIES, [amount]);
    }
    match &mut query.limit_clause {
        None => {
            query.limit_clause =
                Some(LimitClause::LimitOffset { limit: Some(amount), offset: None, limit_by: Vec::new() });
            Ok(())
        }
        Some(LimitClause::LimitOffset { limit: limit @ None, .. }) => {
            *limit = Some(amount);
            Ok(())
        }
        Some(_) => Err(Error::unsupported("a query has one LIMIT or FETCH")),
    }
}

/// A sample of what `FROM` gives, before `WHERE`.
fn sample_of_select(select: &mut Select) -> Result<()> {
    let [ConnectByKind::ConnectBy { nocycle: false, relationships, .. }] = select.connect_by.as_slice()
    else {
        return Ok(());
    };
    let [sample] = relationships.as_slice() else { return Ok(()) };
    if !is_sample(sample) {
        return Ok(());
    }
    let sample = checked(sample.clone())?;
    select.connect_by.clear();
    select.selection = Some(match select.selection.take() {
        None => sample,
        Some(condition) => Expr::BinaryOp {
            left: Box::new(sample),
            op: BinaryOperator::And,
            right: Box::new(Expr::Nested(Box::new(condition))),
        },
    });
    Ok(())
}

/// A sample of one table, before joins.
fn sample_of_table(factor: &mut TableFactor) -> Result<()> {
    let (sample, alias) = match factor {
        TableFactor::Table { sample, alias, name, .. } => {
            let named = || {
                let last = name.0.last().and_then(|part| part.as_ident()).cloned()?;
                Some(TableAlias { explicit: true, name: last, columns: Vec::new(), at: None })
            };
            (sample.take(), alias.clone().map(without_columns).or_else(named))
        }
        TableFactor::Derived { sample, alias, .. } => (sample.take(), alias.clone().map(without_columns)),
        _ => return Ok(()),
    };
    let Some(TableSampleKind::AfterTableAlias(sample) | TableSampleKind::BeforeTableAlias(sample)) = sample
    else {
        return Ok(());
    };
    let condition = match sample.quantity {
        Some(quantity) if is_sample(&quantity.value) => checked(quantity.value)?,
        _ => {
            return Err(Error::unsupported(
                "TABLESAMPLE takes an amount, as in `TABLESAMPLE 10%`, `TABLESAMPLE reservoir(100 ROWS)`",
            ));
        }
    };
    let mut query = syntax::query("SELECT *")?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.from = vec![TableWithJoins { relation: factor.clone(), joins: Vec::new() }];
        select.selection = Some(condition);
    }
    *factor = TableFactor::Derived { lateral: false, subquery: Box::new(query), alias, sample: None };
    Ok(())
}

/// The name alone: what is inside has named the columns.
fn without_columns(alias: TableAlias) -> TableAlias {
    TableAlias { columns: Vec::new(), ..alias }
}

fn is_sample(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(Function { name, .. }) if name.to_string() == format!("\"{SAMPLE}\""))
}

/// A sample whose percentage is one.
fn checked(sample: Expr) -> Result<Expr> {
    let text = sample.to_string();
    let amount = text.split(',').nth(1).map(str::trim).and_then(|amount| amount.parse::<f64>().ok());
    match amount {
        Some(percent) if !text.contains("'rows'") && !(0.0..=100.0).contains(&percent) => {
            Err(Error::unsupported(format!("a sample of {percent} %: it must be between 0 and 100 %")))
        }
        _ => Ok(sample),
    }
}
