//! Dates and times of day that are made of their parts.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, Date32Array, Time64NanosecondArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Time64NanosecondType, TimeUnit};
use chrono::NaiveDate;
use datafusion::common::cast::{as_float64_array, as_int64_array, as_timestamp_microsecond_array};
use datafusion::common::{Result, exec_datafusion_err, plan_err};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::ScalarFunction;

use super::{FUNCTIONS, days_after_1970};
use crate::casts::offset_times::{is_timetz, locals};
use crate::casts::{Failed, cast_array};
use crate::function::arguments;
use crate::types::sql_type;

/// `make_date(year, month, day)`, also of a struct of these, or of a number of days since 1970.
pub(super) fn dates(given: &[ArrayRef]) -> Result<ArrayRef> {
    let [years, months, days] = match given {
        [days] if *days.data_type() == DataType::Int64 => {
            return Ok(arrow::compute::cast(
                &cast_array(days, &DataType::Int32, Failed::IsError)?,
                &DataType::Date32,
            )?);
        }
        [of_struct] => {
            let Some(fields) = of_struct.as_struct_opt() else {
                return plan_err!(
                    "make_date({}) does not exist; write make_date(BIGINT, BIGINT, BIGINT) or make_date(STRUCT)",
                    sql_type(of_struct.data_type())
                );
            };
            let field = |name: &str| match fields.column_by_name(name) {
                Some(field) => {
                    let numbers = cast_array(field, &DataType::Int64, Failed::IsError)?;
                    Ok(arrow::compute::nullif(&numbers, &arrow::compute::is_null(of_struct)?)?)
                }
                None => plan_err!("make_date: the struct has no field {name}; it needs year, month and day"),
            };
            [field("year")?, field("month")?, field("day")?]
        }
        given => arguments::<3>(given)?.clone(),
    };
    let (years, months, days) = (as_int64_array(&years)?, as_int64_array(&months)?, as_int64_array(&days)?);
    let parts = years.iter().zip(months).zip(days).map(|((year, month), day)| {
        let (Some(year), Some(month), Some(day)) = (year, month, day) else { return Ok(None) };
        let date = || {
            let (month, day) = (u32::try_from(month).ok()?, u32::try_from(day).ok()?);
            days_after_1970(NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, day)?)
        };
        date().map(Some).ok_or_else(|| exec_datafusion_err!("there is no date {year}-{month:02}-{day:02}"))
    });
    Ok(Arc::new(parts.collect::<Result<Date32Array>>()?))
}

/// Dates with a time of the day, which is one in UTC where it has an offset.
pub(super) fn moments(given: &[ArrayRef], returned: &DataType) -> Result<ArrayRef> {
    let [dates, times] = arguments(given)?;
    let of_day: Vec<Option<i64>> = match is_timetz(times.data_type()) {
        true => locals(times).map(|local| local.map(|(micros, ahead)| micros - ahead * 1_000_000)).collect(),
        false => {
            let nanos = cast_array(times, &DataType::Time64(TimeUnit::Nanosecond), Failed::IsError)?;
            nanos.as_primitive::<Time64NanosecondType>().iter().map(|nanos| Some(nanos? / 1_000)).collect()
        }
    };
    let dates = as_timestamp_microsecond_array(dates)?.iter();
    let moments = dates.zip(of_day).map(|(date, of_day)| {
        let (Some(date), Some(of_day)) = (date, of_day) else { return Ok(None) };
        if date.unsigned_abs() == i64::MAX.unsigned_abs() {
            return Ok(Some(date));
        }
        let moment = date.checked_add(of_day);
        moment
            .map(Some)
            .ok_or_else(|| exec_datafusion_err!("a date and a time are out of the range of timestamps"))
    });
    let moments: ArrayRef = Arc::new(moments.collect::<Result<TimestampMicrosecondArray>>()?);
    Ok(arrow::compute::cast(&moments, returned)?)
}

/// The operator `+` of a date and a time of the day, if these are the types of the operands.
pub fn moment_of_sum(operands: [(&Expr, &DataType); 2]) -> Option<Expr> {
    let is_time = |of: &DataType| matches!(of, DataType::Time32(_) | DataType::Time64(_)) || is_timetz(of);
    let [(left, left_type), (right, right_type)] = operands;
    let arguments = match (left_type, right_type) {
        (DataType::Date32, of) if is_time(of) => vec![left.clone(), right.clone()],
        (of, DataType::Date32) if is_time(of) => vec![right.clone(), left.clone()],
        _ => return None,
    };
    let kernel = FUNCTIONS.iter().find(|kernel| kernel.name() == "moment_of")?;
    Some(Expr::ScalarFunction(ScalarFunction::new_udf(kernel.function(), arguments)))
}

/// `make_time(hour, minute, seconds)`.
pub(super) fn times(given: &[ArrayRef]) -> Result<ArrayRef> {
    let [hours, minutes, seconds] = arguments(given)?;
    let (hours, minutes) = (as_int64_array(hours)?, as_int64_array(minutes)?);
    let parts = hours.iter().zip(minutes).zip(as_float64_array(seconds)?).map(|((hour, minute), second)| {
        let (Some(hour), Some(minute), Some(second)) = (hour, minute, second) else { return Ok(None) };
        let micros = (second * 1e6).round();
        let is_time = (0..24).contains(&hour) && (0..60).contains(&minute) && (0.0..=6e7).contains(&micros);
        match is_time {
            true => Ok(Some(((hour * 60 + minute) * 60_000_000 + micros as i64) * 1_000)),
            false => Err(exec_datafusion_err!("there is no time {hour:02}:{minute:02}:{second:02}")),
        }
    });
    Ok(Arc::new(parts.collect::<Result<Time64NanosecondArray>>()?))
}
