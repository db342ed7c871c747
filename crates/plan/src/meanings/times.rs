//! Points in time that are not there: Arrow takes a timestamp that is too large for the largest.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, exec_err, internal_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{Expr, ExprSchemable};

use super::function::call;

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
    matches!(expr, Expr::ScalarFunction(function) if function.func.name() == "seconds_of_timestamp")
}

fn only(values: &[ArrayRef]) -> Result<&ArrayRef> {
    match values {
        [values] => Ok(values),
        _ => internal_err!("a check has one argument, not {}", values.len()),
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
