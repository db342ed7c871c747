//! `TIMETZ`: times of the day with an offset from UTC.
//!
//! A value is a list of two numbers whose element is called so: the microseconds of the same time in UTC, which are below zero
//! or beyond the day where the offset says so, and the seconds that it is west of there. So values are ordered as DuckDB
//! orders them: by the time that they mean, and then the eastern ones first.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, Int64Array, ListArray, NullBufferBuilder, StringViewArray,
    Time64NanosecondArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type, TimeUnit};
use datafusion::common::Result;
use datafusion::common::cast::{as_int64_array, as_string_view_array};

use super::calendar::{offset_time, write_time};
use super::texts::write_offset;
use super::{Failed, cast_array};

const ELEMENT: &str = "timetz";
const MICROS_PER_SECOND: i64 = 1_000_000;

/// The type `TIMETZ`.
pub(crate) fn timetz_type() -> DataType {
    DataType::List(Arc::new(Field::new(ELEMENT, DataType::Int64, false)))
}

pub(crate) fn is_timetz(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(field) if field.name() == ELEMENT && *field.data_type() == DataType::Int64)
}

/// The time that a clock shows in microseconds, and how many seconds it is ahead of UTC.
pub(crate) type Local = (i64, i64);

/// Values that show these times.
pub(crate) fn of_locals(locals: impl Iterator<Item = Option<Local>>) -> Result<ArrayRef> {
    let DataType::List(field) = timetz_type() else { unreachable!("it is a list") };
    let mut nulls = NullBufferBuilder::new(0);
    let mut numbers = Vec::new();
    for local in locals {
        nulls.append(local.is_some());
        let (micros, ahead) = local.unwrap_or_default();
        numbers.extend([micros - ahead * MICROS_PER_SECOND, -ahead]);
    }
    let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(2, numbers.len() / 2));
    let numbers = Arc::new(Int64Array::from(numbers));
    Ok(Arc::new(ListArray::try_new(field, offsets, numbers, nulls.finish())?))
}

/// The times that values show.
pub(crate) fn locals(values: &ArrayRef) -> impl Iterator<Item = Option<Local>> + '_ {
    values.as_list::<i32>().iter().map(|pair| {
        let pair = pair?;
        let &[utc, west] = pair.as_primitive::<Int64Type>().values().as_ref() else {
            unreachable!("a time and an offset are two numbers");
        };
        Some((utc - west * MICROS_PER_SECOND, -west))
    })
}

/// Values of other types as such times; none if they are of a type that has none.
pub(super) fn of_values(values: &ArrayRef, failed: Failed) -> Result<Option<ArrayRef>> {
    let of_day = |nanos: Int64Array| of_locals(nanos.iter().map(|nanos| Some((nanos? / 1_000, 0)))).map(Some);
    match values.data_type() {
        of if of.is_string() => {
            let views = cast(values, &DataType::Utf8View)?;
            let to = timetz_type();
            let read = |text| failed.read(text, &to, offset_time);
            let read = as_string_view_array(&views)?.iter().map(read).collect::<Result<Vec<_>>>()?;
            of_locals(read.into_iter().map(|time| time.map(|(nanos, ahead)| (nanos / 1_000, ahead))))
                .map(Some)
        }
        DataType::Time32(_) | DataType::Time64(_) => {
            let nanos = cast(&cast(values, &DataType::Time64(TimeUnit::Nanosecond))?, &DataType::Int64)?;
            of_day(as_int64_array(&nanos)?.clone())
        }
        DataType::Timestamp(_, Some(zone)) => {
            let micros = DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::clone(zone)));
            let local = cast_array(&cast_array(values, &micros, failed)?, &DataType::Utf8View, failed)?;
            of_values(&times_behind_dates(&local)?, failed)
        }
        _ => Ok(None),
    }
}

/// What stands behind the dates of points in time; null for infinite ones.
fn times_behind_dates(texts: &ArrayRef) -> Result<ArrayRef> {
    let times = as_string_view_array(texts)?.iter().map(|text| text?.rsplit_once(' ').map(|(_, time)| time));
    Ok(Arc::new(times.collect::<StringViewArray>()))
}

/// The times that values show, if that is the type.
pub(super) fn to_values(values: &ArrayRef, to: &DataType) -> Result<Option<ArrayRef>> {
    Ok(match to {
        of if of.is_string() => Some(cast(&(Arc::new(texts_of(values)?) as ArrayRef), to)?),
        DataType::Time32(_) | DataType::Time64(_) => {
            let nanos = locals(values).map(|local| Some(local?.0 * 1_000));
            let times: ArrayRef = Arc::new(nanos.collect::<Time64NanosecondArray>());
            Some(cast(&times, to)?)
        }
        _ => None,
    })
}

pub(crate) fn texts_of(values: &ArrayRef) -> Result<StringViewArray> {
    let text = |(micros, ahead): Local| {
        let mut text = String::new();
        write_time(&mut text, micros * 1_000)?;
        write_offset(&mut text, ahead)?;
        Ok(text)
    };
    locals(values).map(|local| local.map(text).transpose()).collect()
}
