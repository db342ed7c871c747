//! The texts of an `ENUM`: all, the first, the last, and those between two.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, ListBuilder, StringViewArray, StringViewBuilder};
use arrow::datatypes::{DataType, UInt16Type};
use datafusion::common::{Result, plan_err};

use crate::casts::enum_texts;
use crate::function::Kind::Any;
use crate::function::{Kernel, list_of};
use crate::types::sql_type;

pub(crate) static FUNCTIONS: &[Kernel] = &[
    Kernel::new(&["enum_range"], &[&[Any]], texts_type, |given, _| ranges(given, |_| Some((0, usize::MAX)))),
    Kernel::new(&["enum_range_boundary"], &[&[Any, Any]], texts_type, |given, _| {
        ranges(given, |row| {
            let place = |of: usize| given.get(of).and_then(|values| number(values, row));
            Some((place(0).unwrap_or(0), place(1).unwrap_or(usize::MAX)))
        })
    }),
    Kernel::new(&["enum_first"], &[&[Any]], text_type, |given, _| {
        text(given, |texts| texts.first().copied())
    }),
    Kernel::new(&["enum_last"], &[&[Any]], text_type, |given, _| text(given, |texts| texts.last().copied())),
];

/// The one `ENUM` that the arguments are of.
fn of<'a>(given: impl Iterator<Item = &'a DataType>) -> Result<&'a DataType> {
    let mut found: Option<&DataType> = None;
    for data_type in given.filter(|data_type| !data_type.is_null()) {
        if enum_texts(data_type).is_none() {
            return plan_err!("{} is no ENUM", sql_type(data_type));
        }
        if found.is_some_and(|found| found != data_type) {
            return plan_err!("the bounds of enum_range_boundary are of different ENUMs");
        }
        found = Some(data_type);
    }
    match found {
        Some(found) => Ok(found),
        None => plan_err!("an ENUM is needed, as NULL::mood"),
    }
}

fn texts_type(given: &[DataType]) -> Result<DataType> {
    of(given.iter()).map(|_| list_of(DataType::Utf8View))
}

fn text_type(given: &[DataType]) -> Result<DataType> {
    of(given.iter()).map(|_| DataType::Utf8View)
}

/// The place of a value among the texts.
fn number(values: &ArrayRef, row: usize) -> Option<usize> {
    let lists = values.as_fixed_size_list_opt()?;
    lists.is_valid(row).then(|| usize::from(lists.value(row).as_primitive::<UInt16Type>().value(0)))
}

fn ranges(given: &[ArrayRef], range: impl Fn(usize) -> Option<(usize, usize)>) -> Result<ArrayRef> {
    let texts = enum_texts(of(given.iter().map(|values| values.data_type()))?).unwrap_or_default();
    let mut lists = ListBuilder::new(StringViewBuilder::new());
    for row in 0..given.first().map_or(0, |values| values.len()) {
        let kept = range(row).map(|(first, last)| {
            texts
                .iter()
                .enumerate()
                .filter(move |(place, _)| (first..=last).contains(place))
                .map(|(_, text)| Some(*text))
        });
        match kept {
            Some(kept) => lists.append_value(kept),
            None => lists.append_null(),
        }
    }
    Ok(Arc::new(lists.finish()))
}

fn text(
    given: &[ArrayRef],
    chosen: impl for<'a, 'b> Fn(&'b [&'a str]) -> Option<&'a str>,
) -> Result<ArrayRef> {
    let texts = enum_texts(of(given.iter().map(|values| values.data_type()))?).unwrap_or_default();
    let rows = given.first().map_or(0, |values| values.len());
    Ok(Arc::new(std::iter::repeat_n(chosen(&texts), rows).collect::<StringViewArray>()))
}
