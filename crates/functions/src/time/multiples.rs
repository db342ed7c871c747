//! Multiples and parts of intervals, as Postgres and DuckDB compute them: what is left of months becomes days of them, and
//! what is left of days time.

use std::sync::Arc;

use arrow::array::{ArrayRef, IntervalMonthDayNanoArray};
use arrow::datatypes::{DataType, IntervalMonthDayNano};
use datafusion::common::cast::{as_float64_array, as_interval_mdn_array};
use datafusion::common::{Result, exec_datafusion_err, exec_err};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::ScalarFunction;

use super::{FUNCTIONS, NANOS_PER_DAY};
use crate::function::arguments;

const DAYS_PER_MONTH: f64 = 30.0;

/// An interval times a number, the other way round, or divided by one, if these are the types of the operands.
pub fn interval_multiple(operator: &str, operands: [(&Expr, &DataType); 2]) -> Option<Expr> {
    let [(left, left_type), (right, right_type)] = operands;
    let is_interval = |of: &DataType| matches!(of, DataType::Interval(_));
    let (name, interval, number) = match operator {
        "*" if is_interval(left_type) && right_type.is_numeric() => ("interval_times", left, right),
        "*" if left_type.is_numeric() && is_interval(right_type) => ("interval_times", right, left),
        "/" if is_interval(left_type) && right_type.is_numeric() => ("interval_part", left, right),
        _ => return None,
    };
    let kernel = FUNCTIONS.iter().find(|kernel| kernel.name() == name)?;
    let operands = vec![interval.clone(), number.clone()];
    Some(Expr::ScalarFunction(ScalarFunction::new_udf(kernel.function(), operands)))
}

/// Each part of intervals with a number.
pub(super) fn scaled(given: &[ArrayRef], is_divisor: bool) -> Result<ArrayRef> {
    let [lengths, numbers] = arguments(given)?;
    let rows = as_interval_mdn_array(lengths)?.iter().zip(as_float64_array(numbers)?.iter());
    let scaled = rows.map(|(length, number)| {
        let (Some(length), Some(number)) = (length, number) else { return Ok(None) };
        if is_divisor && number == 0.0 {
            return exec_err!("an interval / 0: a division by zero");
        }
        let of = |part: f64| if is_divisor { part / number } else { part * number };
        let out_of_range =
            || exec_datafusion_err!("an interval times or divided by {number} is out of range");
        multiple(length, of).map(Some).ok_or_else(out_of_range)
    });
    Ok(Arc::new(scaled.collect::<Result<IntervalMonthDayNanoArray>>()?))
}

fn multiple(length: IntervalMonthDayNano, of: impl Fn(f64) -> f64) -> Option<IntervalMonthDayNano> {
    let (months, days) = (of(length.months.into()), of(length.days.into()));
    // A part of a microsecond is what rounding has left.
    let exactly = |part: f64| (part * 1e6).round() / 1e6;
    let days_of_month = exactly(months.fract() * DAYS_PER_MONTH);
    let rest = exactly(days.fract() + days_of_month.fract());
    let whole_days = rest.trunc();
    let micros = (of(length.nanoseconds as f64 / 1000.0)
        + (rest - whole_days) * (NANOS_PER_DAY / 1000) as f64)
        .round();
    let small = |part: f64| (part.abs() <= f64::from(i32::MAX)).then_some(part as i32);
    Some(IntervalMonthDayNano::new(
        small(months.trunc())?,
        small(days.trunc() + days_of_month.trunc() + whole_days)?,
        (micros.abs() < 9.2e15).then(|| micros as i64 * 1000)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_months_becomes_days() {
        let month = IntervalMonthDayNano::new(1, 0, 0);
        assert_eq!(multiple(month, |part| part * 0.5), Some(IntervalMonthDayNano::new(0, 15, 0)));
        assert_eq!(multiple(month, |part| part * 3.0), Some(IntervalMonthDayNano::new(3, 0, 0)));
        let day = IntervalMonthDayNano::new(0, 1, 0);
        assert_eq!(
            multiple(day, |part| part / 2.0),
            Some(IntervalMonthDayNano::new(0, 0, NANOS_PER_DAY / 2))
        );
        assert_eq!(multiple(day, |part| part * 1e12), None);
    }
}
