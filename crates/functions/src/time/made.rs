//! Dates and times of day that are made of their parts.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, Date32Array, Time64NanosecondArray};
use arrow::datatypes::DataType;
use chrono::NaiveDate;
use datafusion::common::cast::{as_float64_array, as_int64_array};
use datafusion::common::{Result, exec_datafusion_err, plan_err};

use super::days_after_1970;
use crate::casts::{Failed, cast_array};
use crate::function::arguments;
use crate::types::sql_type;

/// `make_date(year, month, day)`, also of a struct of these, or of a number of days since 1970.
pub(super) fn dates(given: &[ArrayRef]) -> Result<ArrayRef> {
    let [years, months, days] = match given {
        [days] if *days.data_type() == DataType::Int64 => {
            return Ok(arrow::compute::cast(&cast_array(days, &DataType::Int32, Failed::IsError)?, &DataType::Date32)?);
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
