//! Intervals are compared by their lengths: a month has 30 days, a day 24 hours, as in Postgres and DuckDB. Arrow compares
//! months first, then days, then nanoseconds.
//!
//! `GROUP BY`, `DISTINCT` and set operations keep intervals apart that are written differently.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array};
use datafusion::arrow::datatypes::{
    DataType, IntervalDayTimeType, IntervalMonthDayNanoType, IntervalUnit, IntervalYearMonthType,
};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, internal_err};
use datafusion::functions_aggregate::first_last::{first_value_udaf, last_value_udaf};
use datafusion::logical_expr::expr::{AggregateFunction, InList};
use datafusion::logical_expr::{Between, BinaryExpr, Expr};

use super::{compares, type_of};
use crate::meanings::call_giving;

const DAYS_OF_MONTH: i128 = 30;
const NANOSECONDS_OF_DAY: i128 = 86_400_000_000_000;
const NANOSECONDS_OF_MILLISECOND: i128 = 1_000_000;

/// A comparison of intervals.
pub(super) fn comparison(operation: &BinaryExpr, types: &[DataType; 2]) -> Option<Expr> {
    let are_intervals = types.iter().all(|side| matches!(side, DataType::Interval(_)));
    (are_intervals && compares(operation.op)).then(|| {
        let [left, right] = [&operation.left, &operation.right].map(|side| Box::new(length(*side.clone())));
        Expr::BinaryExpr(BinaryExpr::new(left, operation.op, right))
    })
}

pub(super) fn between(
    between: Between,
    compared: &DataType,
    otherwise: impl FnOnce(Between) -> Transformed<Expr>,
) -> Transformed<Expr> {
    if !matches!(compared, DataType::Interval(_)) {
        return otherwise(between);
    }
    let Between { expr, negated, low, high } = between;
    let [expr, low, high] = [expr, low, high].map(|part| Box::new(length(*part)));
    Transformed::yes(Expr::Between(Between { expr, negated, low, high }))
}

pub(super) fn in_list(list: InList, compared: &DataType) -> Transformed<Expr> {
    if !matches!(compared, DataType::Interval(_)) {
        return Transformed::no(Expr::InList(list));
    }
    let InList { expr, list, negated } = list;
    let list = list.into_iter().map(length).collect();
    Transformed::yes(Expr::InList(InList { expr: Box::new(length(*expr)), list, negated }))
}

/// What an interval is ordered by; other values by themselves.
pub(super) fn key(value: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match type_of(&value, schema) {
        DataType::Interval(_) => Transformed::yes(length(value)),
        _ => Transformed::no(value),
    })
}

/// The least or greatest interval by a key; nulls do not count.
pub(super) fn extreme(is_least: bool, value: Expr, key: Expr, filter: Option<Box<Expr>>) -> Expr {
    let is_there = value.clone().is_not_null();
    let filter = match filter {
        Some(filter) => filter.and(is_there),
        None => is_there,
    };
    let function = if is_least { first_value_udaf() } else { last_value_udaf() };
    let order_by = vec![key.sort(true, false)];
    Expr::AggregateFunction(AggregateFunction::new_udf(
        function,
        vec![value],
        false,
        Some(Box::new(filter)),
        order_by,
        None,
    ))
}

fn length(interval: Expr) -> Expr {
    // 128 bits hold the nanoseconds of 2^31 months.
    call_giving(DataType::Decimal128(38, 0), "interval_length", lengths, vec![interval])
}

fn lengths(intervals: &[ArrayRef]) -> Result<ArrayRef> {
    let [intervals] = intervals else { return internal_err!("the length of several intervals") };
    let nanoseconds = |months: i32, days: i32, nanoseconds: i128| {
        (i128::from(months) * DAYS_OF_MONTH + i128::from(days)) * NANOSECONDS_OF_DAY + nanoseconds
    };
    let lengths: Decimal128Array = match intervals.data_type() {
        DataType::Interval(IntervalUnit::MonthDayNano) => intervals
            .as_primitive::<IntervalMonthDayNanoType>()
            .unary(|interval| nanoseconds(interval.months, interval.days, interval.nanoseconds.into())),
        DataType::Interval(IntervalUnit::DayTime) => {
            intervals.as_primitive::<IntervalDayTimeType>().unary(|interval| {
                let time = i128::from(interval.milliseconds) * NANOSECONDS_OF_MILLISECOND;
                nanoseconds(0, interval.days, time)
            })
        }
        DataType::Interval(IntervalUnit::YearMonth) => {
            intervals.as_primitive::<IntervalYearMonthType>().unary(|months| nanoseconds(months, 0, 0))
        }
        other => return internal_err!("the length of a {other}"),
    };
    Ok(Arc::new(lengths.with_precision_and_scale(38, 0)?))
}
