//! `fill`: values in the place of nulls, on the straight line between those next to them in order; at the ends, on the line
//! through the two that are nearest.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, Float64Array, Int64Array};
use arrow::compute::{cast, interleave};
use arrow::datatypes::DataType;
use datafusion::common::cast::{as_float64_array, as_int64_array};
use datafusion::common::{Result, exec_err, plan_err};

use super::sorted::Order;
use super::{Partition, WindowCall};
use crate::types::sql_type;

/// Fails for values that have no distances.
pub(super) fn check(data_type: &DataType, what: &str) -> Result<()> {
    match data_type {
        of if of.is_numeric() => Ok(()),
        DataType::Null | DataType::Date32 | DataType::Timestamp(..) | DataType::Time64(_) => Ok(()),
        other => plan_err!("fill: {what} must be numbers or points in time, and not {}", sql_type(other)),
    }
}

pub(super) fn evaluate(call: &WindowCall, partition: &Partition) -> Result<ArrayRef> {
    let ([values], [keys]) = (partition.arguments.as_slice(), partition.order.as_slice()) else {
        return exec_err!("fill takes one value, and one key to order by");
    };
    let (numbers, places) = (numbers(values)?, numbers(keys)?);
    let order = Order::new(&partition.order, &call.order, partition.rows)?;
    let point = |row: usize| Some((row, places[row]?, numbers[row]?));
    // The rows between which others are, in order, and how many of them come before each place.
    let known: Vec<(usize, f64, f64)> =
        (0..partition.rows).filter_map(|place| point(order.row(place))).collect();
    let known_places: Vec<usize> = known.iter().map(|(row, ..)| order.place(*row)).collect();
    let nulls = values.logical_nulls();
    let filled = (0..partition.rows).map(|row| {
        let key = places[row].filter(|_| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)))?;
        let before = known_places.partition_point(|place| *place < order.place(row));
        // The two before and after, or the first ones, or the last ones.
        let first = before.saturating_sub(1).min(known.len().saturating_sub(2));
        match known.get(first..)? {
            [] => None,
            [(.., only)] => Some(*only),
            [(_, start, low), (_, end, high), ..] => {
                // Halves do not overflow.
                let share = (key / 2.0 - start / 2.0) / (end / 2.0 - start / 2.0);
                Some(if share.is_finite() { low * (1.0 - share) + high * share } else { *low })
            }
        }
    });
    let filled = of_numbers(filled.collect(), values.data_type())?;
    let choose = |row: usize| (usize::from(filled.is_valid(row)), row);
    let chosen: Vec<_> = (0..partition.rows).map(choose).collect();
    Ok(interleave(&[values.as_ref(), filled.as_ref()], &chosen)?)
}

/// Values as numbers; none where they are null or infinite.
fn numbers(values: &ArrayRef) -> Result<Vec<Option<f64>>> {
    let infinite = match values.data_type() {
        DataType::Date32 => i64::from(i32::MAX),
        DataType::Timestamp(..) => i64::MAX,
        _ => {
            let numbers = match values.data_type() {
                DataType::Time64(_) => cast(&cast(values, &DataType::Int64)?, &DataType::Float64)?,
                _ => cast(values, &DataType::Float64)?,
            };
            let numbers = as_float64_array(&numbers)?.iter();
            return Ok(numbers.map(|number| number.filter(|number| number.is_finite())).collect());
        }
    };
    let numbers = match values.data_type() {
        DataType::Date32 => cast(&cast(values, &DataType::Int32)?, &DataType::Int64)?,
        _ => cast(values, &DataType::Int64)?,
    };
    let is_finite = |number: &i64| *number < infinite && *number > -infinite;
    Ok(as_int64_array(&numbers)?
        .iter()
        .map(|number| number.filter(is_finite).map(|number| number as f64))
        .collect())
}

/// Numbers as values of a type, without what it has no digits for.
fn of_numbers(numbers: Float64Array, data_type: &DataType) -> Result<ArrayRef> {
    let is_whole = data_type.is_integer() || data_type.is_temporal();
    if !is_whole {
        return Ok(cast(&(Arc::new(numbers) as ArrayRef), data_type)?);
    }
    let whole: Int64Array = numbers.unary(|number| number as i64);
    Ok(match data_type {
        DataType::Date32 => cast(&cast(&whole, &DataType::Int32)?, data_type)?,
        _ => cast(&whole, data_type)?,
    })
}
