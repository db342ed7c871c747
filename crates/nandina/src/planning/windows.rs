//! Calls of window functions that DataFusion cannot compute, written as calls of functions of their own
//! ([`nandina_functions::WindowCall`]).
//!
//! | call | why |
//! |---|---|
//! | `list(x ORDER BY y) OVER (…)`, `rank(ORDER BY y) OVER (…)` | frames have no other order than the window's |
//! | `… EXCLUDE TIES)` | frames are ranges; the parser's [tokens](super::syntax) have it as a partition's key |
//! | `ROWS BETWEEN a PRECEDING AND …`, `2 FOLLOWING AND 1 FOLLOWING` | bounds are constants, in their order |
//! | `mode(x) OVER (… ROWS 2 PRECEDING)`, `DISTINCT` | values must be taken back from what was aggregated |
//! | `lag(x, n)`, `nth_value(x, n)` | how far is a constant |
//! | `fill(x)` | there is no such function |

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::compute::SortOptions;
use datafusion::execution::SessionState;
use datafusion::logical_expr::WindowUDF;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments, Ident, NullTreatment, ObjectName, OrderByExpr, UnaryOperator, Value, VisitorMut,
    WindowFrame, WindowFrameBound, WindowFrameUnits, WindowSpec, WindowType,
};
use nandina_functions::{Exclusion, Frame, FrameBound, FrameFunction, FrameUnits, WindowCall};

use crate::error::{Error, Result};
use crate::planning::syntax::EXCLUSION;
use crate::planning::trees::{call, take};
use crate::planning::wrong_plans::{normalized, visit_queries};

/// Aggregates of which DataFusion takes values back that have left a frame.
const SLIDING: &[&str] = &[
    "array_agg",
    "list",
    "avg",
    "mean",
    "bit_xor",
    "corr",
    "count",
    "covar",
    "covar_pop",
    "covar_samp",
    "max",
    "median",
    "min",
    "percentile_cont",
    "quantile_cont",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "sum",
    "var",
    "var_pop",
    "var_samp",
    "variance",
];

/// Writes them; gives a state that knows their functions, if there are any.
pub(crate) fn write_out(state: &SessionState, statement: &mut Statement) -> Result<Option<SessionState>> {
    let mut calls = Calls { state, functions: BTreeMap::new() };
    if let ControlFlow::Break(error) = visit_queries(statement, &mut calls) {
        return Err(error);
    }
    if calls.functions.is_empty() {
        return Ok(None);
    }
    let mut state = state.clone();
    for function in calls.functions.into_values() {
        state.register_udwf(function)?;
    }
    Ok(Some(state))
}

struct Calls<'a> {
    state: &'a SessionState,
    functions: BTreeMap<String, Arc<WindowUDF>>,
}

impl VisitorMut for Calls<'_> {
    type Break = Error;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
        match self.write(function) {
            Ok(Some(written)) => *expr = written,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}

impl Calls<'_> {
    /// The call, written differently, if it must be.
    fn write(&mut self, function: &mut Function) -> Result<Option<Expr>> {
        let name = match function.name.0.as_slice() {
            [part] => part.as_ident().map(normalized),
            _ => None,
        };
        let (Some(name), Some(WindowType::WindowSpec(spec))) = (name, &mut function.over) else {
            return Ok(None);
        };
        let mut exclusion = take_exclusion(spec);
        let Some(what) = self.function(&name) else { return Ok(None) };
        let FunctionArguments::List(list) = &mut function.args else { return Ok(None) };
        let is_distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
        let has_order =
            list.clauses.iter().any(|clause| matches!(clause, FunctionArgumentClause::OrderBy(_)));
        if !has_order && !uses_frame(&what) {
            exclusion = Exclusion::Nothing;
            if spec.window_frame.as_ref().is_some_and(has_odd_bounds) {
                spec.window_frame = Some(rows_so_far());
            }
        }
        let frame = spec.window_frame.as_ref();
        let is_sliding = frame.is_some_and(|frame| !begins_with_partition(frame));
        let is_aggregate = matches!(what, FrameFunction::Aggregate(_));
        let must_be_written = has_order
            || what == FrameFunction::Fill
            || exclusion != Exclusion::Nothing
            || frame.is_some_and(has_odd_bounds)
            || is_aggregate && is_sliding && (is_distinct || !SLIDING.contains(&name.as_str()))
            || !is_aggregate && list.args.iter().skip(1).any(|argument| !is_constant(argument));
        if !must_be_written {
            return Ok(None);
        }
        if is_distinct && !is_aggregate {
            return Err(Error::unsupported(format!("{name}(DISTINCT …) OVER (…) is not supported")));
        }
        if function.filter.is_some() && !is_aggregate {
            return Err(Error::unsupported(format!("FILTER is for aggregates, and {name} is none")));
        }
        let mut arguments = Vec::with_capacity(list.args.len());
        if is_aggregate && list.args.is_empty() {
            arguments.push(number("1"));
        }
        for argument in &mut list.args {
            match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => arguments.push(take(expr)),
                FunctionArg::Unnamed(FunctionArgExpr::Wildcard) if is_aggregate => {
                    arguments.push(number("1"))
                }
                FunctionArg::Unnamed(FunctionArgExpr::Wildcard) => {}
                _ => return Ok(None),
            }
        }
        let own = arguments.len();
        let mut ignores_nulls = function.null_treatment == Some(NullTreatment::IgnoreNulls)
            || name == "any_value" && !is_aggregate;
        let mut order = Vec::new();
        for clause in list.clauses.drain(..) {
            match clause {
                FunctionArgumentClause::OrderBy(keys) => {
                    for key in keys {
                        order.push(self.options(&key));
                        arguments.push(key.expr);
                    }
                }
                FunctionArgumentClause::IgnoreOrRespectNulls(treatment) => {
                    ignores_nulls |= treatment == NullTreatment::IgnoreNulls;
                }
                other => {
                    return Err(Error::unsupported(format!(
                        "{other} is not supported in {name}(…) OVER (…)"
                    )));
                }
            }
        }
        if what == FrameFunction::Fill && order.is_empty() {
            order.extend(spec.order_by.iter().map(|key| self.options(key)));
            arguments.extend(spec.order_by.iter().map(|key| key.expr.clone()));
        }
        let is_filtered = function.filter.is_some();
        arguments.extend(function.filter.take().map(|filter| *filter));
        let frame = self.frame(spec, exclusion, &mut arguments)?;
        let call = WindowCall {
            function: what,
            arguments: own,
            order,
            is_filtered,
            is_distinct,
            ignores_nulls,
            frame,
        };
        Ok(Some(self.called(call, arguments, spec.clone())))
    }

    fn called(&mut self, window_call: WindowCall, arguments: Vec<Expr>, mut spec: WindowSpec) -> Expr {
        // Other frames are not there for keys of all types.
        spec.window_frame = Some(rows_so_far());
        let function = window_call.into_function();
        let name = function.name().to_owned();
        self.functions.insert(name.clone(), function);
        let mut written = call(&name, arguments);
        if let Expr::Function(function) = &mut written {
            function.name = ObjectName::from(vec![Ident::with_quote('"', name)]);
            function.over = Some(WindowType::WindowSpec(spec));
        }
        written
    }

    fn function(&self, name: &str) -> Option<FrameFunction> {
        Some(match name {
            "first_value" | "first" | "arbitrary" => FrameFunction::FirstValue,
            "last_value" | "last" => FrameFunction::LastValue,
            "nth_value" => FrameFunction::NthValue,
            "lead" => FrameFunction::Lead,
            "lag" => FrameFunction::Lag,
            "row_number" => FrameFunction::RowNumber,
            "rank" => FrameFunction::Rank,
            "dense_rank" => FrameFunction::DenseRank,
            "percent_rank" => FrameFunction::PercentRank,
            "cume_dist" => FrameFunction::CumeDist,
            "ntile" => FrameFunction::Ntile,
            "fill" => FrameFunction::Fill,
            name => FrameFunction::Aggregate(Arc::clone(self.state.aggregate_functions().get(name)?)),
        })
    }

    /// How a key is ordered, in the order of nulls that the session has.
    fn options(&self, key: &OrderByExpr) -> SortOptions {
        let descending = key.options.asc == Some(false);
        let nulls = self.state.config_options().sql_parser.default_null_ordering.to_lowercase();
        let nulls_first = key.options.nulls_first.unwrap_or(match nulls.as_str() {
            "nulls_min" => !descending,
            "nulls_first" => true,
            "nulls_last" => false,
            _ => descending,
        });
        SortOptions { descending, nulls_first }
    }

    /// The frame of a window; what it depends on becomes an argument.
    fn frame(&self, spec: &mut WindowSpec, exclusion: Exclusion, arguments: &mut Vec<Expr>) -> Result<Frame> {
        let frame = spec.window_frame.take().unwrap_or(WindowFrame {
            units: WindowFrameUnits::Range,
            start_bound: WindowFrameBound::Preceding(None),
            end_bound: None,
        });
        let end = frame.end_bound.unwrap_or(WindowFrameBound::CurrentRow);
        let units = match frame.units {
            WindowFrameUnits::Rows => FrameUnits::Rows,
            WindowFrameUnits::Range => FrameUnits::Range,
            WindowFrameUnits::Groups => FrameUnits::Groups,
        };
        let keys = spec.order_by.iter().map(|key| self.options(key)).collect::<Vec<_>>();
        arguments.extend(spec.order_by.iter().map(|key| key.expr.clone()));
        let mut bound = |bound: WindowFrameBound| -> Result<FrameBound> {
            let (place, distance) = match bound {
                WindowFrameBound::CurrentRow => return Ok(FrameBound::CurrentRow),
                WindowFrameBound::Preceding(None) | WindowFrameBound::Following(None) => {
                    return Ok(FrameBound::Unbounded);
                }
                WindowFrameBound::Preceding(Some(distance)) => (FrameBound::Preceding, *distance),
                WindowFrameBound::Following(Some(distance)) => (FrameBound::Following, *distance),
            };
            if units != FrameUnits::Range {
                arguments.push(distance);
                return Ok(place);
            }
            let [key] = spec.order_by.as_slice() else {
                return Err(Error::unsupported(
                    "a RANGE with a distance needs an ORDER BY of one key; ROWS and GROUPS do not",
                ));
            };
            let comes_before = (place == FrameBound::Preceding) != (key.options.asc == Some(false));
            arguments.push(Expr::BinaryOp {
                left: Box::new(Expr::Nested(Box::new(key.expr.clone()))),
                op: if comes_before { BinaryOperator::Minus } else { BinaryOperator::Plus },
                right: Box::new(Expr::Nested(Box::new(distance))),
            });
            Ok(place)
        };
        let (start, end) = (bound(frame.start_bound)?, bound(end)?);
        Ok(Frame { units, start, end, exclusion, keys })
    }
}

/// Whether a function without an order of its own looks at frames.
fn uses_frame(function: &FrameFunction) -> bool {
    use FrameFunction::{Aggregate, FirstValue, LastValue, NthValue};
    matches!(function, Aggregate(_) | FirstValue | LastValue | NthValue)
}

/// A frame that any window can have, for functions that look at none.
fn rows_so_far() -> WindowFrame {
    WindowFrame {
        units: WindowFrameUnits::Rows,
        start_bound: WindowFrameBound::Preceding(None),
        end_bound: None,
    }
}

fn begins_with_partition(frame: &WindowFrame) -> bool {
    matches!(frame.start_bound, WindowFrameBound::Preceding(None))
}

/// Whether bounds are computed, or the end may come before the start.
fn has_odd_bounds(frame: &WindowFrame) -> bool {
    let distance = |bound: &WindowFrameBound| -> Option<Option<f64>> {
        let sign = match bound {
            WindowFrameBound::CurrentRow => return Some(Some(0.0)),
            WindowFrameBound::Preceding(None) | WindowFrameBound::Following(None) => return Some(None),
            WindowFrameBound::Preceding(_) => -1.0,
            WindowFrameBound::Following(_) => 1.0,
        };
        match bound {
            WindowFrameBound::Preceding(Some(distance)) | WindowFrameBound::Following(Some(distance)) => {
                match distance.as_ref() {
                    Expr::Value(value) => match &value.value {
                        Value::Number(digits, _) => {
                            digits.parse().ok().map(|distance: f64| Some(sign * distance))
                        }
                        Value::SingleQuotedString(_) => Some(None),
                        _ => None,
                    },
                    Expr::Interval(_) => Some(None),
                    _ => None,
                }
            }
            _ => None,
        }
    };
    let end = frame.end_bound.as_ref().unwrap_or(&WindowFrameBound::CurrentRow);
    match (distance(&frame.start_bound), distance(end)) {
        (Some(Some(start)), Some(Some(end))) => start > end,
        (Some(_), Some(_)) => false,
        _ => true,
    }
}

fn is_constant(argument: &FunctionArg) -> bool {
    match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => is_literal(expr),
        _ => true,
    }
}

fn is_literal(expr: &Expr) -> bool {
    match expr {
        Expr::Value(_) | Expr::TypedString(_) | Expr::Interval(_) => true,
        Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr }
        | Expr::Nested(expr)
        | Expr::Cast { expr, .. } => is_literal(expr),
        _ => false,
    }
}

/// Takes what a frame excludes out of the keys of partitions.
fn take_exclusion(spec: &mut WindowSpec) -> Exclusion {
    let exclusion = match spec.partition_by.first() {
        Some(Expr::Value(value)) => match &value.value {
            Value::SingleQuotedString(text) => match text.strip_prefix(EXCLUSION) {
                Some("CURRENT") => Exclusion::CurrentRow,
                Some("GROUP") => Exclusion::Group,
                Some("TIES") => Exclusion::Ties,
                Some(_) => Exclusion::Nothing,
                None => return Exclusion::Nothing,
            },
            _ => return Exclusion::Nothing,
        },
        _ => return Exclusion::Nothing,
    };
    spec.partition_by.remove(0);
    exclusion
}

fn number(digits: &str) -> Expr {
    Expr::Value(Value::Number(digits.to_owned(), false).with_empty_span())
}
