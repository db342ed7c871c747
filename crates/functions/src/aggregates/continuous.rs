//! Quantiles between values: of numbers and of points in time, which are interpolated; of other types the value below.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::cast::{as_float64_array, as_int64_array};
use datafusion::common::{Result, exec_err};

use crate::function::{INTERVAL, MICROSECONDS};

/// The type in which values are kept, which quantiles have, too.
pub(super) fn kept_as(given: &DataType) -> DataType {
    match given {
        of if of.is_numeric() => DataType::Float64,
        DataType::Date32 | DataType::Date64 => MICROSECONDS,
        DataType::Time32(_) => DataType::Time64(TimeUnit::Microsecond),
        other => other.clone(),
    }
}

pub(super) fn is_interpolated(kept: &DataType) -> bool {
    matches!(kept, DataType::Float64 | DataType::Timestamp(..) | DataType::Time64(_))
}

/// The type of distances between values.
pub(super) fn distance_type(kept: &DataType) -> DataType {
    if *kept == DataType::Float64 { DataType::Float64 } else { INTERVAL }
}

/// Whole numbers up to this one are floating-point numbers, too.
const MOST_EXACT: u64 = 1 << 53;

/// Values as numbers.
pub(super) fn numbers(values: &ArrayRef) -> Result<Float64Array> {
    let numbers = match values.data_type() {
        DataType::Float64 => Arc::clone(values),
        _ => {
            let whole = cast(values, &DataType::Int64)?;
            let is_inexact = |value: &i64| value.unsigned_abs() > MOST_EXACT;
            if as_int64_array(&whole)?.iter().flatten().any(|value| is_inexact(&value)) {
                return exec_err!("quantiles of points in time are exact up to 285 years from 1970");
            }
            cast(&whole, &DataType::Float64)?
        }
    };
    Ok(as_float64_array(&numbers)?.clone())
}

/// Numbers as values again.
pub(super) fn values(numbers: Float64Array, kept: &DataType) -> Result<ArrayRef> {
    if *kept == DataType::Float64 {
        return Ok(Arc::new(numbers));
    }
    let whole: Int64Array = numbers.unary(|number| number as i64);
    Ok(cast(&whole, kept)?)
}

/// Distances as intervals.
pub(super) fn distances(numbers: Float64Array, kept: &DataType) -> Result<ArrayRef> {
    let unit_nanos = match kept {
        DataType::Float64 => return Ok(Arc::new(numbers)),
        DataType::Timestamp(TimeUnit::Second, _) => 1_000_000_000,
        DataType::Timestamp(TimeUnit::Millisecond, _) => 1_000_000,
        DataType::Timestamp(TimeUnit::Nanosecond, _) | DataType::Time64(TimeUnit::Nanosecond) => 1,
        _ => 1000,
    };
    let whole: Int64Array = numbers.unary(|number| number.round() as i64);
    let lengths = whole.iter().map(|units| {
        units.map(|units| {
            let (day, nanos) = (86_400_000_000_000_i128, i128::from(units) * i128::from(unit_nanos));
            // Intervals have microseconds.
            let nanos = (nanos + 500).div_euclid(1000) * 1000;
            arrow::datatypes::IntervalMonthDayNano::new(0, (nanos / day) as i32, (nanos % day) as i64)
        })
    });
    Ok(Arc::new(lengths.collect::<arrow::array::IntervalMonthDayNanoArray>()))
}

/// The number at a fraction of all, between the two that are next to it; from the end where it is negative.
pub(super) fn at_fraction(values: &[(f64, u64)], fraction: f64) -> Option<f64> {
    let total: u64 = values.iter().map(|(_, count)| count).sum();
    let last = total.checked_sub(1)?;
    let fraction = if fraction < 0.0 { 1.0 + fraction } else { fraction };
    let place = last as f64 * fraction;
    let at = |position: u64| {
        let mut passed = 0;
        let found = values.iter().find(|(_, count)| {
            passed += count;
            passed > position
        });
        found.map(|(value, _)| *value)
    };
    let (below, above) = (at(place.floor() as u64)?, at(place.ceil() as u64)?);
    let share = place - place.floor();
    Some(if below == above || share == 0.0 { below } else { below * (1.0 - share) + above * share })
}
