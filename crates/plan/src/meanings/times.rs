//! Times and intervals that are not there: Arrow takes a bare number for nanoseconds or months, and a timestamp that is too
//! large for the largest.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, exec_err, internal_err};
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{Expr, ExprSchemable};

use super::function::{Compute, call};

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
            Expr::Cast(Cast { expr, field }) if type_of(&expr).is_string() && !is_checked(&expr) => {
                let check: Option<(&str, Compute)> = match field.data_type() {
                    DataType::Time32(_) | DataType::Time64(_) => Some(("text_of_time", texts_of_times)),
                    DataType::Interval(_) => Some(("text_of_interval", texts_of_intervals)),
                    _ => None,
                };
                Ok(match check {
                    Some((name, check)) => {
                        let expr = Box::new(call(name, check, vec![*expr]));
                        Transformed::yes(Expr::Cast(Cast { expr, field }))
                    }
                    None => Transformed::no(Expr::Cast(Cast { expr, field })),
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

/// Whether an expression has been rewritten before.
fn is_checked(expr: &Expr) -> bool {
    let names = ["text_of_time", "text_of_interval", "seconds_of_timestamp"];
    matches!(expr, Expr::ScalarFunction(function) if names.contains(&function.func.name()))
}

fn only(values: &[ArrayRef]) -> Result<&ArrayRef> {
    match values {
        [values] => Ok(values),
        _ => internal_err!("a check has one argument, not {}", values.len()),
    }
}

fn texts_of_times(texts: &[ArrayRef]) -> Result<ArrayRef> {
    refuse_bare_numbers(only(texts)?, "time of day; write hours and minutes, as '11:00'")
}

fn texts_of_intervals(texts: &[ArrayRef]) -> Result<ArrayRef> {
    refuse_bare_numbers(only(texts)?, "interval; write a unit, as '100 days'")
}

fn refuse_bare_numbers(texts: &ArrayRef, what: &str) -> Result<ArrayRef> {
    let plain = cast(texts, &DataType::Utf8)?;
    let plain: &StringArray = plain.as_string();
    let is_bare = |text: &str| {
        let text = text.trim();
        !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'+' | b'-'))
    };
    match plain.iter().flatten().find(|text| is_bare(text)) {
        Some(bare) => exec_err!("'{bare}' is no {what}"),
        None => Ok(Arc::clone(texts)),
    }
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
