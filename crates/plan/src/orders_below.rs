//! The order of a sub-query in `FROM`.
//!
//! SQL lets an engine forget it, and DataFusion does. Users count on it, as other engines keep it: a limit, a window, a list,
//! a first value or the statement itself takes rows in the order of the query below. Expressions and filters between the
//! sort and who looks at its order may be computed by several threads, which mix rows: the sort moves up to right below
//! who looks, with its keys in columns that are dropped again. Where nothing looks at the order, there need be no sort.
//!
//! ```text
//!   Limit: 3                      Limit: 3
//!     Projection: upper(name)       Projection: upper(name)
//!       Sort: k              ─►       Sort: __order_0
//!         TableScan: t                  Projection: upper(name), k AS __order_0
//!                                         TableScan: t
//! ```

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::expr::{AggregateFunction, WindowFunction};
use datafusion::logical_expr::{
    Aggregate, Distinct, DistinctOn, Expr, Filter, Limit, LogicalPlan, Projection, Sort, SortExpr,
    SubqueryAlias, Window, WindowFrameUnits,
};
use datafusion::optimizer::AnalyzerRule;

/// Gives functions that depend on the order of their rows the order of the query below, and leaves out the sorts of
/// sub-queries that nothing looks at.
#[derive(Debug)]
pub struct OrdersBelow;

impl AnalyzerRule for OrdersBelow {
    fn name(&self) -> &str {
        "orders_below"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Aggregate(aggregate) => ordered_aggregate(aggregate),
            LogicalPlan::Distinct(Distinct::On(distinct)) => ordered_distinct(distinct),
            LogicalPlan::Limit(_) => ordered_input(node),
            LogicalPlan::Window(window) => ordered_window(window),
            other => Ok(Transformed::no(other)),
        });
        without_unseen(ordered_statement(plan.data()?)?, true).data()
    }
}

/// Functions that take rows one after the other, or give them out so.
const FUNCTIONS_OF_ORDER: [&str; 9] = [
    "array_agg",
    "first_value",
    "lag",
    "last_value",
    "lead",
    "nth_value",
    "ntile",
    "row_number",
    "string_agg",
];

/// Functions of windows that give the same for rows that are equal in the window's order: without one, all rows are.
const FUNCTIONS_OF_PEERS: [&str; 4] = ["rank", "dense_rank", "percent_rank", "cume_dist"];

/// Whether a function of a window depends on the order of rows, and the statement does not say it.
fn window_follows_order(call: &WindowFunction) -> bool {
    let (params, frame, name) = (&call.params, &call.params.window_frame, call.fun.name());
    let is_whole = frame.start_bound.is_unbounded() && frame.end_bound.is_unbounded();
    let moves = frame.units == WindowFrameUnits::Rows && !is_whole && !FUNCTIONS_OF_PEERS.contains(&name);
    let takes_turns =
        FUNCTIONS_OF_ORDER.contains(&name) && (is_whole || frame.units == WindowFrameUnits::Rows);
    params.order_by.is_empty() && (moves || takes_turns)
}

/// Functions of windows that have no order of their own take rows in that of the query below.
fn ordered_window(window: Window) -> Result<Transformed<LogicalPlan>> {
    let follows = |part: &Expr| Ok(matches!(part, Expr::WindowFunction(call) if window_follows_order(call)));
    let mut any_follows = false;
    for function in &window.window_expr {
        any_follows |= function.exists(follows)?;
    }
    let ordered = if any_follows { with_order(&window.input)? } else { None };
    let Some((input, order)) = ordered else {
        return Ok(Transformed::no(LogicalPlan::Window(window)));
    };
    let functions = window.window_expr.into_iter().map(|function| {
        let ordered = function.transform(|part| match part {
            Expr::WindowFunction(mut call) if window_follows_order(&call) => {
                call.params.order_by.clone_from(&order);
                Ok(Transformed::yes(Expr::WindowFunction(call)))
            }
            other => Ok(Transformed::no(other)),
        });
        ordered.data()
    });
    let (functions, places) = told_apart(functions.collect::<Result<_>>()?);
    let was = window.schema.columns();
    let (passed, results) = was.split_at(was.len() - places.len());
    let ordered = Window::try_new(functions, Arc::new(input))?;
    let now = ordered.schema.columns();
    let first = ordered.input.schema().fields().len();
    let now = places.into_iter().map(|place| Expr::Column(now[first + place].clone()));
    let results = now.zip(results).map(|(now, was)| now.alias_qualified(was.relation.clone(), &was.name));
    let named = passed.iter().cloned().map(Expr::Column).chain(results).collect();
    let named = Projection::try_new(named, Arc::new(LogicalPlan::Window(ordered)))?;
    Ok(Transformed::yes(LogicalPlan::Projection(named)))
}

/// Functions without those that are there already, under names of their own, and the place of each among them. An order is part
/// of a function's name: the statement may have written the same one itself, or one that is only called so.
fn told_apart(functions: Vec<Expr>) -> (Vec<Expr>, Vec<usize>) {
    let mut apart: Vec<Expr> = Vec::with_capacity(functions.len());
    let mut places = Vec::with_capacity(functions.len());
    for function in functions {
        let place = apart.iter().position(|other| *other == function);
        places.push(place.unwrap_or(apart.len()));
        if place.is_none() {
            let name = function.schema_name().to_string();
            let is_taken = apart.iter().any(|other| other.schema_name().to_string() == name);
            let number = apart.len();
            apart.push(if is_taken { function.alias(format!("__ordered_{number}")) } else { function });
        }
    }
    (apart, places)
}

/// A statement whose rows come in the order of the query below, where that has one.
fn ordered_statement(plan: LogicalPlan) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Explain(_)
        | LogicalPlan::Analyze(_)
        | LogicalPlan::Copy(_)
        | LogicalPlan::Dml(_)
        | LogicalPlan::Ddl(_) => {
            plan.map_children(|input| ordered_statement(input).map(Transformed::yes)).data()
        }
        query => Ok(ordered_rows(&query)?.unwrap_or(query)),
    }
}

/// A node whose input comes in the order of the query below it.
fn ordered_input(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    node.map_children(|input| {
        Ok(match ordered_rows(&input)? {
            Some(ordered) => Transformed::yes(ordered),
            None => Transformed::no(input),
        })
    })
}

/// The rows of a plan, sorted once more by what they are sorted by further down. `None` if they come in that order anyhow, or
/// in none.
fn ordered_rows(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    if keeps_order(plan) {
        return Ok(None);
    }
    let Some((rows, order)) = with_order(plan)? else { return Ok(None) };
    let sorted = LogicalPlan::Sort(Sort { expr: order, input: Arc::new(rows), fetch: None });
    let columns = plan.schema().columns().into_iter().map(Expr::Column).collect();
    let shown = Projection::try_new_with_schema(columns, Arc::new(sorted), Arc::clone(plan.schema()))?;
    Ok(Some(LogicalPlan::Projection(shown)))
}

/// Whether between a plan and its sort there is nothing that several threads could compute.
fn keeps_order(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::SubqueryAlias(alias) => keeps_order(&alias.input),
        LogicalPlan::Limit(limit) => keeps_order(&limit.input),
        LogicalPlan::Projection(projection) => {
            projection.expr.iter().all(|column| matches!(column.clone().unalias(), Expr::Column(_)))
                && keeps_order(&projection.input)
        }
        _ => false,
    }
}

/// Whether the result of a call depends on the order of its rows, and the statement does not say it.
fn follows_order(call: &AggregateFunction) -> bool {
    let params = &call.params;
    params.order_by.is_empty() && !params.distinct && FUNCTIONS_OF_ORDER.contains(&call.func.name())
}

fn ordered_aggregate(aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let follows = |part: &Expr| Ok(matches!(part, Expr::AggregateFunction(call) if follows_order(call)));
    let mut any_follows = false;
    for function in &aggregate.aggr_expr {
        any_follows |= function.exists(follows)?;
    }
    let ordered = if any_follows { with_order(&aggregate.input)? } else { None };
    let Some((input, order)) = ordered else {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    };
    let functions = aggregate.aggr_expr.into_iter().map(|function| {
        let ordered = function.transform(|part| match part {
            Expr::AggregateFunction(mut call) if follows_order(&call) => {
                call.params.order_by.clone_from(&order);
                Ok(Transformed::yes(Expr::AggregateFunction(call)))
            }
            other => Ok(Transformed::no(other)),
        });
        ordered.data()
    });
    let (functions, places) = told_apart(functions.collect::<Result<_>>()?);
    let ordered = Aggregate::try_new(Arc::new(input), aggregate.group_expr, functions)?;
    let keys = aggregate.schema.fields().len() - places.len();
    let now = ordered.schema.columns();
    let now = (0..keys).chain(places.into_iter().map(|place| keys + place)).map(|place| now[place].clone());
    let named = now.zip(aggregate.schema.columns()).map(|(now, was)| {
        if now == was { Expr::Column(now) } else { Expr::Column(now).alias_qualified(was.relation, was.name) }
    });
    let named = Projection::try_new(named.collect(), Arc::new(LogicalPlan::Aggregate(ordered)))?;
    Ok(Transformed::yes(LogicalPlan::Projection(named)))
}

/// The first row of each key is, behind the order that the statement says, the first in that of the query below.
fn ordered_distinct(distinct: DistinctOn) -> Result<Transformed<LogicalPlan>> {
    let Some((input, order)) = with_order(&distinct.input)? else {
        return Ok(Transformed::no(LogicalPlan::Distinct(Distinct::On(distinct))));
    };
    let keys = distinct.on_expr.iter().map(|key| key.clone().sort(true, false));
    let written = distinct.sort_expr.clone().unwrap_or_else(|| keys.collect());
    let order = written.into_iter().chain(order).collect();
    let DistinctOn { on_expr, select_expr, .. } = distinct;
    let ordered = DistinctOn::try_new(on_expr, select_expr, Some(order), Arc::new(input))?;
    Ok(Transformed::yes(LogicalPlan::Distinct(Distinct::On(ordered))))
}

/// The rows of a plan with the keys of their order, if they have one: in columns of their own behind the others where the
/// plan does not give them out.
fn with_order(plan: &LogicalPlan) -> Result<Option<(LogicalPlan, Vec<SortExpr>)>> {
    let ordered = match plan {
        LogicalPlan::Sort(sort) => Some(sorted(sort)?),
        LogicalPlan::SubqueryAlias(SubqueryAlias { input, alias, .. }) => match with_order(input)? {
            None => None,
            Some((rows, order)) => {
                let inner = Arc::clone(rows.schema());
                let named = SubqueryAlias::try_new(Arc::new(rows), alias.clone())?;
                let order = with_columns(order, |column| renamed(column, &inner, &named.schema))?;
                Some((LogicalPlan::SubqueryAlias(named), order))
            }
        },
        LogicalPlan::Filter(Filter { input, predicate, .. }) => match with_order(input)? {
            None => None,
            Some((rows, order)) => {
                Some((LogicalPlan::Filter(Filter::try_new(predicate.clone(), Arc::new(rows))?), order))
            }
        },
        LogicalPlan::Limit(limit) => with_order(&limit.input)?.map(|(rows, order)| {
            (LogicalPlan::Limit(Limit { input: Arc::new(rows), ..limit.clone() }), order)
        }),
        LogicalPlan::Window(window) => match with_order(&window.input)? {
            None => None,
            Some((rows, order)) => {
                let functions = window.window_expr.clone();
                Some((LogicalPlan::Window(Window::try_new(functions, Arc::new(rows))?), order))
            }
        },
        LogicalPlan::Projection(projection) => match with_order(&projection.input)? {
            None => None,
            Some((rows, order)) => Some(projected(projection, rows, order)?),
        },
        _ => None,
    };
    Ok(ordered)
}

/// A sort with its keys. What is another value each time that it is computed, or names columns outside of expressions,
/// becomes a column.
fn sorted(sort: &Sort) -> Result<(LogicalPlan, Vec<SortExpr>)> {
    let is_fixed =
        |key: &SortExpr| key.expr.is_volatile() || key.expr.contains_outer() || has_sub_query(&key.expr);
    if !sort.expr.iter().any(is_fixed) {
        return Ok((LogicalPlan::Sort(sort.clone()), sort.expr.clone()));
    }
    let schema = sort.input.schema();
    let all = schema.columns().into_iter().map(Expr::Column).collect();
    let all = Projection::try_new(all, Arc::clone(&sort.input))?;
    let (rows, order) = projected(&all, sort.input.as_ref().clone(), sort.expr.clone())?;
    Ok((LogicalPlan::Sort(Sort { expr: order.clone(), input: Arc::new(rows), fetch: sort.fetch }), order))
}

fn has_sub_query(expression: &Expr) -> bool {
    let is_sub_query = |part: &Expr| {
        Ok(matches!(
            part,
            Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_)
        ))
    };
    expression.exists(is_sub_query).unwrap_or(true)
}

/// A projection with the keys of an order, each in a column of its own.
fn projected(
    projection: &Projection,
    rows: LogicalPlan,
    order: Vec<SortExpr>,
) -> Result<(LogicalPlan, Vec<SortExpr>)> {
    let free = (0..).map(|number| format!("__order_{number}"));
    let mut free = free.filter(|name| !projection.schema.has_column_with_unqualified_name(name));
    let mut columns = projection.expr.clone();
    let mut above = Vec::with_capacity(order.len());
    for key in order {
        let shown = projection.expr.iter().position(|column| column.clone().unalias() == key.expr);
        let column = match shown {
            Some(place) => Expr::Column(Column::from(projection.schema.qualified_field(place))),
            None => {
                let Some(name) = free.next() else { unreachable!("there are more names than keys") };
                columns.push(key.expr.alias(&name));
                Expr::Column(Column::new_unqualified(name))
            }
        };
        above.push(SortExpr { expr: column, ..key });
    }
    Ok((LogicalPlan::Projection(Projection::try_new(columns, Arc::new(rows))?), above))
}

fn with_columns(
    order: Vec<SortExpr>,
    mut column_above: impl FnMut(&Column) -> Result<Column>,
) -> Result<Vec<SortExpr>> {
    let above = order.into_iter().map(|key| {
        let expr = key.expr.transform(|part| match part {
            Expr::Column(column) => Ok(Transformed::yes(Expr::Column(column_above(&column)?))),
            other => Ok(Transformed::no(other)),
        });
        Ok(SortExpr { expr: expr.data()?, ..key })
    });
    above.collect()
}

/// What a column is called in another schema of the same columns.
fn renamed(column: &Column, from: &DFSchema, to: &DFSchema) -> Result<Column> {
    Ok(Column::from(to.qualified_field(from.index_of_column(column)?)))
}

/// `plan` without sorts whose order is not seen: by a limit, a window or the statement's consumer (`is_seen`).
fn without_unseen(plan: LogicalPlan, is_seen: bool) -> Result<Transformed<LogicalPlan>> {
    if let LogicalPlan::Sort(Sort { input, fetch: None, .. }) = &plan
        && !is_seen
    {
        let below = without_unseen(input.as_ref().clone(), false)?;
        return Ok(Transformed::yes(below.data));
    }
    let is_seen_below = match &plan {
        LogicalPlan::Limit(_) | LogicalPlan::Window(_) => true,
        LogicalPlan::Sort(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Aggregate(_) => false,
        LogicalPlan::Projection(projection) => is_seen || projection.expr.iter().any(Expr::is_volatile),
        _ => is_seen,
    };
    let subqueries = plan.map_subqueries(|rows| without_unseen(rows, true))?;
    subqueries.transform_data(|plan| plan.map_children(|child| without_unseen(child, is_seen_below)))
}
