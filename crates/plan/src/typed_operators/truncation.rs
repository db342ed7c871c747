//! `date_trunc` of the first timestamps that there are, which begin in an hour or day before all timestamps: DataFusion's
//! result wraps around, to the last ones.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type, TimeUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, exec_err, internal_err};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::ScalarFunction;

use super::type_of;
use crate::meanings::call;

const CHECKED: &str = "truncatable_timestamp";

/// `date_trunc` with a check of its timestamps.
pub(super) fn checked(expression: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::ScalarFunction(ScalarFunction { func, mut args }) = expression else {
        return Transformed::no(expression);
    };
    let is_checked = |time: &Expr| matches!(time, Expr::ScalarFunction(call) if call.func.name() == CHECKED);
    let mut is_new = false;
    if let [_, time] = args.as_mut_slice()
        && func.name() == "date_trunc"
        && matches!(type_of(time, schema), DataType::Timestamp(..))
        && !is_checked(time)
    {
        *time = call(CHECKED, truncatable, vec![std::mem::take(time)]);
        is_new = true;
    }
    Transformed::new_transformed(Expr::ScalarFunction(ScalarFunction { func, args }), is_new)
}

/// Timestamps behind the first day that there is. Values below nulls are replaced, as they are truncated with the others.
fn truncatable(times: &[ArrayRef]) -> Result<ArrayRef> {
    let [times] = times else { return internal_err!("{} timestamps are truncated", times.len()) };
    let DataType::Timestamp(unit, _) = times.data_type() else {
        return internal_err!("{} is truncated", times.data_type());
    };
    let units_per_second = match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    };
    let first_day = i64::MIN + 86_400 * units_per_second;
    let numbers = cast(times, &DataType::Int64)?;
    let numbers = numbers.as_primitive::<Int64Type>();
    if numbers.values().iter().all(|&number| number >= first_day) {
        return Ok(Arc::clone(times));
    }
    if numbers.iter().flatten().any(|number| number < first_day) {
        return exec_err!(
            "a timestamp on the first day that there is cannot be truncated: what it is cut to may be before all others"
        );
    }
    let replaced = numbers.iter().map(|number| number.unwrap_or(0)).collect::<Vec<i64>>();
    let replaced = Int64Array::new(replaced.into(), numbers.nulls().cloned());
    Ok(cast(&replaced, times.data_type())?)
}
