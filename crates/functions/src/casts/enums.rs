//! `ENUM`: one of a few texts, in the order in which the type says them.
//!
//! A value is the number of its text, in a list of its own whose element bears the texts as its name: the type itself knows
//! them, values of one type are compared by their numbers, and storage knows nothing of it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::UInt16Array;
use arrow::array::{
    Array as _, ArrayRef, AsArray as _, FixedSizeListArray, NullBufferBuilder, StringViewArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, UInt16Type};
use datafusion::common::cast::as_string_view_array;
use datafusion::common::{Result, internal_err, plan_err};

use super::Failed;

const MARK: &str = "enum";
/// Stands before each of the texts.
const SEPARATOR: char = '\u{1f}';

/// The type of these texts.
pub(crate) fn enum_type(texts: &[&str]) -> Result<DataType> {
    let mut known = HashSet::new();
    if let Some(twice) = texts.iter().find(|text| !known.insert(**text)) {
        return plan_err!("'{twice}' is twice in an ENUM");
    }
    if texts.is_empty()
        || texts.len() > usize::from(u16::MAX)
        || texts.iter().any(|text| text.contains(SEPARATOR))
    {
        return plan_err!("an ENUM has 1 to {} texts, without separators of units", u16::MAX);
    }
    let name: String = texts.iter().map(|text| format!("{SEPARATOR}{text}")).collect();
    let field = Field::new(format!("{MARK}{name}"), DataType::UInt16, true);
    Ok(DataType::FixedSizeList(Arc::new(field), 1))
}

/// The texts of an `ENUM`, in their order; none of another type.
pub fn enum_texts(data_type: &DataType) -> Option<Vec<&str>> {
    let DataType::FixedSizeList(field, 1) = data_type else { return None };
    let texts = field.name().strip_prefix(MARK)?.strip_prefix(SEPARATOR)?;
    Some(texts.split(SEPARATOR).collect())
}

pub(super) fn of_texts(values: &ArrayRef, to: &DataType, failed: Failed) -> Result<ArrayRef> {
    let (Some(texts), DataType::FixedSizeList(field, _)) = (enum_texts(to), to) else {
        return internal_err!("an ENUM of no texts");
    };
    let numbers: HashMap<&str, u16> = texts.into_iter().zip(0..).collect();
    let views = cast(values, &DataType::Utf8View)?;
    let views = as_string_view_array(&views)?;
    let read = |text| failed.read(text, to, |text| numbers.get(text).copied());
    let numbers = views.iter().map(read).collect::<Result<UInt16Array>>()?;
    lists(field, numbers)
}

fn lists(field: &FieldRef, numbers: UInt16Array) -> Result<ArrayRef> {
    let mut nulls = NullBufferBuilder::new(numbers.len());
    (0..numbers.len()).for_each(|row| nulls.append(numbers.is_valid(row)));
    Ok(Arc::new(FixedSizeListArray::try_new(Arc::clone(field), 1, Arc::new(numbers), nulls.finish())?))
}

pub(crate) fn texts_of(values: &ArrayRef) -> StringViewArray {
    let texts = enum_texts(values.data_type()).unwrap_or_default();
    let lists = values.as_fixed_size_list();
    let numbers = lists.values().as_primitive::<UInt16Type>();
    let rows = (0..lists.len()).map(|row| lists.is_valid(row).then(|| numbers.value(row)));
    rows.map(|number| texts.get(usize::from(number?)).copied()).collect()
}
