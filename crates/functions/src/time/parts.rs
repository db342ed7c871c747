//! Parts of points in time by their names.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, Float64Array};
use arrow::compute::{cast, interleave};
use arrow::datatypes::DataType;
use datafusion::common::cast::as_string_view_array;
use datafusion::common::{Result, exec_datafusion_err};

use super::FUNCTIONS;
use crate::function::arguments;

/// The function that gives a part, by the names that the part has.
pub fn function_of_part(name: &str) -> Option<&'static str> {
    Some(match name.to_lowercase().as_str() {
        "millennium" | "millennia" | "mil" | "millenniums" | "millenium" => "millennium",
        "century" | "centuries" | "cent" | "c" => "century",
        "decade" | "decades" | "dec" | "decs" => "decade",
        "year" | "years" | "yr" | "yrs" | "y" => "year",
        "quarter" | "quarters" => "quarter",
        "month" | "months" | "mon" | "mons" => "month",
        "week" | "weeks" | "w" | "weekofyear" => "week",
        "day" | "days" | "d" | "dayofmonth" => "day",
        "dow" | "dayofweek" | "weekday" => "dayofweek",
        "isodow" => "isodow",
        "doy" | "dayofyear" => "dayofyear",
        "hour" | "hours" | "hr" | "hrs" | "h" => "hour",
        "minute" | "minutes" | "min" | "mins" | "m" => "minute",
        "second" | "seconds" | "sec" | "secs" | "s" => "second",
        "millisecond" | "milliseconds" | "ms" | "msec" | "msecs" | "msecond" | "mseconds" => "millisecond",
        "microsecond" | "microseconds" | "us" | "usec" | "usecs" | "usecond" | "useconds" => "microsecond",
        "nanosecond" | "nanoseconds" | "ns" => "nanosecond",
        "epoch" => "epoch",
        "julian" => "julian",
        "era" => "era",
        "isoyear" => "isoyear",
        "yearweek" => "yearweek",
        "timezone" => "timezone",
        "timezone_hour" => "timezone_hour",
        "timezone_minute" => "timezone_minute",
        _ => return None,
    })
}

/// The parts that each row asks for.
pub(super) fn of_names(given: &[ArrayRef]) -> Result<ArrayRef> {
    let [names, times] = arguments(given)?;
    let names = as_string_view_array(names)?;
    let mut known: Vec<&str> = Vec::new();
    let nothing: ArrayRef = Arc::new(Float64Array::new_null(1));
    let mut computed = vec![nothing];
    let mut places = Vec::with_capacity(names.len());
    for (row, name) in names.iter().enumerate() {
        let Some(name) = name else {
            places.push((0, 0));
            continue;
        };
        let place = match known.iter().position(|other| *other == name) {
            Some(place) => place,
            None => {
                known.push(name);
                computed.push(part(name, times)?);
                known.len() - 1
            }
        };
        places.push((place + 1, row));
    }
    let computed: Vec<_> = computed.iter().map(AsRef::as_ref).collect();
    Ok(interleave(&computed, &places)?)
}

fn part(name: &str, times: &ArrayRef) -> Result<ArrayRef> {
    let function =
        function_of_part(name).and_then(|function| FUNCTIONS.iter().find(|kernel| kernel.name() == function));
    let function = function.ok_or_else(|| {
        exec_datafusion_err!("'{name}' is no part of a date; there are year, month, day, hour and so on")
    })?;
    Ok(cast(&function.of(std::slice::from_ref(times))?, &DataType::Float64)?)
}
