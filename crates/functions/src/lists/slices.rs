//! `list_slice`: the parts of lists, texts and bytes from one place to another, as `l[2:-1]` and `l[5:1:-2]` ask for them.
//!
//! Places are counted from 1, and from the end if they are negative; those beyond the ends are the ends. A place that is left
//! out is an end, and is written as `[]`, which no place can be. A step below zero goes from the end to the beginning, whose
//! places change sides then.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, BinaryArray, Int64Array, StringViewArray, new_null_array,
};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::cast::{as_binary_array, as_list_array};
use datafusion::common::{Result, exec_err, plan_err};

use super::{gather_kept, ranges};
use crate::casts::offset_times::is_timetz;
use crate::casts::{Failed, cast_array, enum_texts};
use crate::function::Kind::Any;
use crate::function::{Kernel, arguments, element, list_of};
use crate::types::sql_type;
use crate::variants::is_variant;

pub(crate) static FUNCTIONS: &[Kernel] = &[Kernel::new(
    &["list_slice", "array_slice"],
    &[&[Any, Any, Any], &[Any, Any, Any, Any]],
    |given| match given {
        [whole, _, _, step] if element(whole).is_none() && !whole.is_null() && !step.is_null() => {
            plan_err!("a slice of a {} has no step; those of lists have", sql_type(whole))
        }
        [whole, ..] => sliced_type(whole),
        [] => plan_err!("a slice is one of a list, a text or bytes"),
    },
    slice,
)];

fn sliced_type(whole: &DataType) -> Result<DataType> {
    Ok(match whole {
        DataType::Null => DataType::Null,
        DataType::List(_) => whole.clone(),
        of if of.is_string() || enum_texts(of).is_some() => DataType::Utf8View,
        of if of.is_binary() => DataType::Binary,
        of if is_variant(of) => {
            return plan_err!("a VARIANT has no slices; cast it to the type of a list first");
        }
        of if is_timetz(of) => {
            return plan_err!("there are slices of lists, texts and bytes, and none of TIMETZ");
        }
        of => match element(of) {
            Some(element) => list_of(element.clone()),
            None => {
                return plan_err!("there are slices of lists, texts and bytes, and none of {}", sql_type(of));
            }
        },
    })
}

/// A place of each row: none where it is null.
enum Places {
    LeftOut,
    At(Int64Array),
}

impl Places {
    fn of(given: &ArrayRef) -> Result<Self> {
        match element(given.data_type()) {
            Some(of) if of.is_null() => Ok(Places::LeftOut),
            _ => {
                let numbers = cast_array(given, &DataType::Int64, Failed::IsError)?;
                Ok(Places::At(numbers.as_primitive::<Int64Type>().clone()))
            }
        }
    }

    fn at(&self, row: usize) -> Option<Option<i64>> {
        match self {
            Places::LeftOut => Some(None),
            Places::At(places) => places.is_valid(row).then(|| Some(places.value(row))),
        }
    }
}

fn slice(given: &[ArrayRef], returned: &DataType) -> Result<ArrayRef> {
    let [whole, begins, ends] = arguments(given)?;
    if returned.is_null() {
        return Ok(new_null_array(returned, whole.len()));
    }
    let (begins, ends) = (Places::of(begins)?, Places::of(ends)?);
    let whole = cast_array(whole, returned, Failed::IsError)?;
    let part = |row: usize, length: usize| Some(between(begins.at(row)?, ends.at(row)?, length));
    match returned {
        DataType::Utf8View => {
            let texts = whole.as_string_view().iter().enumerate();
            let parts = texts.map(|(row, text)| {
                let text = text?;
                let part = part(row, text.chars().count())?;
                let byte = |place| text.char_indices().nth(place).map_or(text.len(), |(byte, _)| byte);
                text.get(byte(part.start)..byte(part.end))
            });
            Ok(Arc::new(parts.collect::<StringViewArray>()))
        }
        DataType::Binary => {
            let bytes = as_binary_array(&whole)?.iter().enumerate();
            let parts = bytes.map(|(row, bytes)| bytes?.get(part(row, bytes?.len())?));
            Ok(Arc::new(parts.collect::<BinaryArray>()))
        }
        _ => {
            let lists = as_list_array(&whole)?;
            let steps = match given.get(3) {
                Some(steps) => cast_array(steps, &DataType::Int64, Failed::IsError)?,
                None => Arc::new(Int64Array::from_value(1, whole.len())),
            };
            let steps = steps.as_primitive::<Int64Type>();
            let chosen = ranges(lists).enumerate().map(|(row, range)| {
                let (Some(range), Some(begin), Some(end)) = (range, begins.at(row), ends.at(row)) else {
                    return Ok(None);
                };
                let step = steps.is_valid(row).then(|| steps.value(row));
                let places = match step {
                    None => return Ok(None),
                    Some(0) => return exec_err!("the step of a slice cannot be 0"),
                    Some(step @ ..0) => (between(end, begin, range.len()), step),
                    Some(step) => (between(begin, end, range.len()), step),
                };
                let (part, step) = places;
                let every = usize::try_from(step.unsigned_abs()).unwrap_or(usize::MAX);
                let place = |place: usize| Some((range.start + place) as u64);
                Ok(Some(match step {
                    ..0 => part.rev().step_by(every).map(place).collect(),
                    _ => part.step_by(every).map(place).collect(),
                }))
            });
            gather_kept(lists, chosen.collect::<Result<_>>()?)
        }
    }
}

/// What stands between two places of so many.
fn between(begin: Option<i64>, end: Option<i64>, length: usize) -> Range<usize> {
    let all = length as i64;
    let begin = match begin.unwrap_or_default() {
        0 => 0,
        begin @ 1.. => (begin - 1).min(all),
        from_end => all.saturating_add(from_end).max(0),
    };
    let end = match end {
        None => all,
        Some(end @ 0..) => end.min(all),
        Some(from_end) => all.saturating_add(from_end) + 1,
    };
    begin as usize..end.max(begin) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_from_both_ends() {
        for (begin, end, part) in [
            (Some(2), Some(4), 1..4),
            (Some(-3), Some(-2), 2..4),
            (None, None, 0..5),
            (Some(0), Some(0), 0..0),
            (Some(4), Some(2), 3..3),
            (Some(9), Some(i64::MAX), 5..5),
            (Some(i64::MIN), Some(i64::MAX), 0..5),
            (Some(1), Some(i64::MIN), 0..0),
        ] {
            assert_eq!(between(begin, end, 5), part, "{begin:?} {end:?}");
        }
    }
}
