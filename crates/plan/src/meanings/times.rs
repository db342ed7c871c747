//! Times and intervals that are not there: Arrow takes a bare number for nanoseconds or months, and a timestamp that is too
//! large for the largest. Intervals in texts are read by [`parse_interval`], as Arrow forgets fractions of years and months.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, IntervalMonthDayNanoArray, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type, IntervalUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, exec_datafusion_err, exec_err, internal_err};
use datafusion::logical_expr::expr::{Cast, ScalarFunction, TryCast};
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{Expr, ExprSchemable};

use super::function::{Compute, call, call_giving};
use crate::interval_text::parse_interval;

/// The first second that nanoseconds in 64 bits do not reach, and the last before those that they do.
const MOST_SECONDS: f64 = 9_223_372_036.854_775;

#[derive(Debug)]
pub(super) struct Times;

impl FunctionRewrite for Times {
    fn name(&self) -> &str {
        "times"
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema, _: &ConfigOptions) -> Result<Transformed<Expr>> {
        let type_of = |expr: &Expr| expr.get_type(schema).unwrap_or(DataType::Null);
        match expr {
            Expr::Cast(Cast { expr, field }) if type_of(&expr).is_string() => {
                Ok(match value_of_text(&expr, field.data_type(), texts_of_times, intervals) {
                    Some(value) => Transformed::yes(Expr::Cast(Cast { expr: Box::new(value), field })),
                    None => Transformed::no(Expr::Cast(Cast { expr, field })),
                })
            }
            Expr::TryCast(TryCast { expr, field }) if type_of(&expr).is_string() => {
                Ok(match value_of_text(&expr, field.data_type(), texts_that_are_times, known_intervals) {
                    Some(value) => Transformed::yes(Expr::TryCast(TryCast { expr: Box::new(value), field })),
                    None => Transformed::no(Expr::TryCast(TryCast { expr, field })),
                })
            }
            Expr::ScalarFunction(ScalarFunction { func, args }) => match args.as_slice() {
                [seconds]
                    if func.name() == "to_timestamp"
                        && type_of(seconds).is_floating()
                        && !is_checked(seconds) =>
                {
                    let args = vec![call("seconds_of_timestamp", seconds_of_timestamps, args)];
                    Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args })))
                }
                _ => Ok(Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args }))),
            },
            other => Ok(Transformed::no(other)),
        }
    }
}

/// The expression to cast in place of a text: the text if it is a time of day, or the interval that it says.
fn value_of_text(text: &Expr, to: &DataType, times: Compute, intervals: Compute) -> Option<Expr> {
    let arguments = || vec![text.clone()];
    match to {
        DataType::Time32(_) | DataType::Time64(_) if !is_checked(text) => {
            Some(call("text_of_time", times, arguments()))
        }
        DataType::Interval(_) => {
            let data_type = DataType::Interval(IntervalUnit::MonthDayNano);
            Some(call_giving(data_type, "interval_of_text", intervals, arguments()))
        }
        _ => None,
    }
}

/// Whether an expression has been rewritten before.
fn is_checked(expr: &Expr) -> bool {
    let names = ["text_of_time", "seconds_of_timestamp"];
    matches!(expr, Expr::ScalarFunction(function) if names.contains(&function.func.name()))
}

fn only(values: &[ArrayRef]) -> Result<&ArrayRef> {
    match values {
        [values] => Ok(values),
        _ => internal_err!("a check has one argument, not {}", values.len()),
    }
}

fn texts_of_times(texts: &[ArrayRef]) -> Result<ArrayRef> {
    let texts = only(texts)?;
    let plain = cast(texts, &DataType::Utf8)?;
    let plain: &StringArray = plain.as_string();
    match plain.iter().flatten().find(|text| is_bare_number(text)) {
        Some(bare) => exec_err!("'{bare}' is no time of day; write hours and minutes, as '11:00'"),
        None => Ok(Arc::clone(texts)),
    }
}

fn texts_that_are_times(texts: &[ArrayRef]) -> Result<ArrayRef> {
    let texts = only(texts)?;
    let plain = cast(texts, &DataType::Utf8)?;
    let plain: &StringArray = plain.as_string();
    let times: StringArray = plain.iter().map(|text| text.filter(|text| !is_bare_number(text))).collect();
    Ok(cast(&times, texts.data_type())?)
}

fn is_bare_number(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'+' | b'-'))
}

fn intervals(texts: &[ArrayRef]) -> Result<ArrayRef> {
    let plain = cast(only(texts)?, &DataType::Utf8)?;
    let plain: &StringArray = plain.as_string();
    let intervals = plain.iter().map(|text| {
        text.map(|text| {
            parse_interval(text).ok_or_else(|| {
                exec_datafusion_err!("'{text}' is no interval; write numbers and units, as '1 day 2 hours'")
            })
        })
        .transpose()
    });
    Ok(Arc::new(intervals.collect::<Result<IntervalMonthDayNanoArray>>()?))
}

/// Null where a text is no interval.
fn known_intervals(texts: &[ArrayRef]) -> Result<ArrayRef> {
    let plain = cast(only(texts)?, &DataType::Utf8)?;
    let plain: &StringArray = plain.as_string();
    let intervals = plain.iter().map(|text| text.and_then(parse_interval));
    Ok(Arc::new(intervals.collect::<IntervalMonthDayNanoArray>()))
}

fn seconds_of_timestamps(seconds: &[ArrayRef]) -> Result<ArrayRef> {
    let seconds = only(seconds)?;
    let wide = cast(seconds, &DataType::Float64)?;
    let wide = wide.as_primitive::<Float64Type>();
    let is_there = |seconds: f64| (-MOST_SECONDS..=MOST_SECONDS).contains(&seconds);
    match wide.iter().flatten().find(|&seconds| !is_there(seconds)) {
        Some(beyond) => exec_err!("{beyond} seconds are beyond the timestamps, which go from 1677 to 2262"),
        None => Ok(Arc::clone(seconds)),
    }
}
