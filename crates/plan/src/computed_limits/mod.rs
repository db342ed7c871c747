//! Numbers of rows that are known when the query runs, and samples.
//!
//! DataFusion's `Limit` takes constants. Others are conditions on the number of a row:
//!
//! ```text
//!   LIMIT (SELECT n …)  OFFSET m       row_number() > m AND row_number() <= m + n
//!   LIMIT __percent(p)                 row_number() <= n, the percentage of count(*) OVER ()
//!   LIMIT __with_ties(n)               rank() <= n
//!   WHERE __sample('rows', n, seed)    the n rows with the least random numbers
//!   WHERE __sample('percent', p, …)    random() < p / 100
//! ```
//!
//! The input ends with the first row whose number is too high: [`EndComputedLimits`].

mod ending;
mod functions;

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, internal_err};
use datafusion::functions::math::random;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_window::expr_fn::{rank, row_number};
use datafusion::logical_expr::expr::{ScalarFunction, Sort as SortKey, WindowFunction};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    Expr, ExprFunctionExt, Filter, Limit, LogicalPlan, LogicalPlanBuilder, Projection, Sort, Window, cast,
    col, lit,
};
use datafusion::optimizer::AnalyzerRule;

pub use self::ending::EndComputedLimits;
pub use self::functions::{PERCENT, SAMPLE, WITH_TIES, limit_markers};
use self::functions::{chance, percent_of_rows, row_amount, rows_while};

const NUMBER: &str = "__row_number";
const SAMPLED: &str = "__sample_row";
const RANK: &str = "__rank";
const COUNT: &str = "__row_count";

/// Plans them.
#[derive(Debug)]
pub struct ComputedLimits;

impl AnalyzerRule for ComputedLimits {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|part| match part {
            LogicalPlan::Filter(filter) => sampled(filter),
            LogicalPlan::Limit(limit) if is_computed(&limit) => limited(limit).map(Transformed::yes),
            other => Ok(Transformed::no(other)),
        })
        .data()
    }

    fn name(&self) -> &str {
        "computed_limits"
    }
}

fn is_computed(limit: &Limit) -> bool {
    [&limit.skip, &limit.fetch].into_iter().flatten().any(|amount| {
        let found = amount.exists(|part| {
            Ok(match part {
                Expr::ScalarSubquery(_) | Expr::OuterReferenceColumn(..) => true,
                Expr::ScalarFunction(call) => matches!(call.name(), PERCENT | WITH_TIES),
                _ => false,
            })
        });
        found.unwrap_or(true)
    })
}

/// A limit at the operator that orders the rows.
fn limited(limit: Limit) -> Result<LogicalPlan> {
    match limit.input.as_ref() {
        LogicalPlan::Projection(projection) => {
            let input = Limit { input: Arc::clone(&projection.input), ..limit };
            let schema = Arc::clone(&projection.schema);
            let again =
                Projection::try_new_with_schema(projection.expr.clone(), Arc::new(limited(input)?), schema)?;
            Ok(LogicalPlan::Projection(again))
        }
        LogicalPlan::Sort(Sort { expr, input, fetch: None }) => numbered(&limit, expr, input),
        _ => numbered(&limit, &[], &limit.input),
    }
}

/// The rows whose numbers in the order of these keys are within a limit.
fn numbered(limit: &Limit, keys: &[SortKey], rows: &LogicalPlan) -> Result<LogicalPlan> {
    let columns: Vec<Expr> = rows.schema().columns().into_iter().map(Expr::Column).collect();
    let window = |function: Expr| match keys {
        [] => Ok(function),
        keys => function.order_by(keys.to_vec()).build(),
    };
    let mut windows = vec![window(row_number())?.alias(NUMBER)];
    let mut counted = None;
    let is_literal = |amount: &Expr| {
        matches!(amount, Expr::Literal(..)) || matches!(argument(amount, WITH_TIES), Some(Expr::Literal(..)))
    };
    let is_written = [&limit.skip, &limit.fetch].into_iter().flatten().all(|amount| is_literal(amount));
    let skip = limit.skip.as_deref().cloned().map(|skip| whole(skip, None));
    let mut place = NUMBER;
    let fetch = limit.fetch.as_deref().cloned().map(|mut amount| {
        if let Some(inner) = argument(&amount, WITH_TIES) {
            windows.push(window(rank())?.alias(RANK));
            (place, amount) = (RANK, inner);
        }
        match argument(&amount, PERCENT) {
            Some(percent) => {
                counted = Some(Expr::from(WindowFunction::new(count_udaf(), vec![lit(1i64)])).alias(COUNT));
                Ok(whole(percent, Some(col(COUNT))))
            }
            None => Ok::<Expr, datafusion::error::DataFusionError>(whole(amount, None)),
        }
    });
    let fetch = fetch.transpose()?;
    let number = |name: &str| cast(col(name), DataType::Int64);
    let skipped = skip.clone().map(|skip| number(NUMBER).gt(or_none(skip)));
    let last = fetch.map(|fetch| {
        let last = match skip {
            Some(skip) => fetch.clone() + or_none(skip),
            None => fetch.clone(),
        };
        let within = number(place).lt_eq(last);
        // No row is tied with the last one of none.
        let within = if place == RANK { within.and(fetch.clone().gt(lit(0i64))) } else { within };
        let within = fetch.is_null().or(within);
        // A percentage is known when all rows have been counted. Numbers that are known are looked for below the sort.
        if counted.is_some() || is_written { within } else { rows_while(within) }
    });
    let within = conjunction(skipped.into_iter().chain(last)).unwrap_or_else(|| lit(true));
    // A window operator has one order.
    let mut numbered = LogicalPlan::Window(Window::try_new(windows, Arc::new(rows.clone()))?);
    if let Some(count) = counted {
        numbered = LogicalPlan::Window(Window::try_new(vec![count], Arc::new(numbered))?);
    }
    let mut found = LogicalPlanBuilder::from(numbered).filter(within)?;
    if !keys.is_empty() {
        found = found.sort([col(NUMBER).sort(true, false)])?;
    }
    found.project(columns)?.build()
}

/// An offset of null is none.
fn or_none(amount: Expr) -> Expr {
    datafusion::functions::expr_fn::coalesce(vec![amount, lit(0i64)])
}

/// The argument of a call.
fn argument(expr: &Expr, name: &str) -> Option<Expr> {
    match expr {
        Expr::ScalarFunction(call) if call.name() == name => call.args.first().cloned(),
        _ => None,
    }
}

/// An amount, or a percentage of one, as a number of rows.
fn whole(amount: Expr, of: Option<Expr>) -> Expr {
    match of {
        None => row_amount(vec![cast(amount, DataType::Int64)]),
        Some(count) => row_amount(vec![cast(amount, DataType::Float64), count]),
    }
}

/// The rows below a filter that a sample has.
fn sampled(filter: Filter) -> Result<Transformed<LogicalPlan>> {
    let is_sample = |part: &&Expr| matches!(part, Expr::ScalarFunction(call) if call.name() == SAMPLE);
    let (samples, others): (Vec<&Expr>, Vec<&Expr>) =
        split_conjunction(&filter.predicate).into_iter().partition(is_sample);
    if samples.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    }
    let others = conjunction(others.into_iter().cloned());
    let mut rows = filter.input.as_ref().clone();
    for sample in samples {
        let Expr::ScalarFunction(ScalarFunction { args, .. }) = sample else {
            unreachable!("samples are calls")
        };
        rows = sample_of(rows, args)?;
    }
    let rows = match others {
        Some(others) => LogicalPlan::Filter(Filter::try_new(others, Arc::new(rows))?),
        None => rows,
    };
    Ok(Transformed::yes(rows))
}

fn sample_of(rows: LogicalPlan, arguments: &[Expr]) -> Result<LogicalPlan> {
    let [Expr::Literal(kind, _), amount, seed] = arguments else {
        return internal_err!("a sample has a kind, an amount and a seed");
    };
    let columns: Vec<Expr> = rows.schema().columns().into_iter().map(Expr::Column).collect();
    let plan = LogicalPlanBuilder::from(rows);
    let (plan, chance) = match seed {
        Expr::Literal(seed, _) if seed.is_null() => (plan, random().call(Vec::new())),
        seed => {
            let number = row_number().alias(SAMPLED);
            let seed = cast(seed.clone(), DataType::Int64);
            let numbered = Window::try_new(vec![number], Arc::new(plan.build()?))?;
            let plan = LogicalPlanBuilder::from(LogicalPlan::Window(numbered));
            (plan, chance(seed, cast(col(SAMPLED), DataType::Int64)))
        }
    };
    let percent = || cast(amount.clone(), DataType::Float64);
    let plan = match kind.try_as_str().flatten() {
        Some("percent") => plan.filter((chance * lit(100.0)).lt(percent()))?,
        Some("rows") => {
            let fetch = cast(amount.clone(), DataType::Int64);
            let sorted = plan.sort([chance.sort(true, false)])?.build()?;
            let limit = Limit { skip: None, fetch: Some(Box::new(fetch)), input: Arc::new(sorted) };
            LogicalPlanBuilder::from(LogicalPlan::Limit(limit))
        }
        Some("reservoir") => {
            let sorted = plan.sort([chance.sort(true, false)])?.build()?;
            let fetch = percent_of_rows(percent());
            let limit = Limit { skip: None, fetch: Some(Box::new(fetch)), input: Arc::new(sorted) };
            LogicalPlanBuilder::from(limited(limit)?)
        }
        _ => return internal_err!("a sample of an unknown kind"),
    };
    plan.project(columns)?.build()
}
