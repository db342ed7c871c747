//! Lists: their order, their elements by number or mask, and aggregates over each.
//!
//! Elements are compared in Arrow's row format, so that lists of anything have an order.

pub(crate) mod aggregates;
pub(crate) mod coerced;
pub(crate) mod lambdas;
pub(crate) mod slices;

use std::cmp::Ordering;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray as _, BooleanArray, Int32Array, Int64Array, ListArray, StringViewArray,
    UInt64Array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{contains as contains_text, take};
use arrow::datatypes::{DataType, Int64Type};
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::cast::{
    as_boolean_array, as_int64_array, as_list_array, as_map_array, as_string_view_array,
};
use datafusion::common::{DataFusionError, Result, exec_err, plan_err};

use crate::casts::{Failed, cast_array};
use crate::function::Kind::{Any, Booleans, Integer, Integers, List, Text};
use crate::function::{Kernel, arguments, element, list_of};
use crate::types::sql_type;

pub(crate) static FUNCTIONS: &[Kernel] = &[
    Kernel::new(
        &["list_sort", "array_sort"],
        &[&[List], &[List, Text], &[List, Text, Text]],
        same,
        |given, _| sort(given, false),
    ),
    Kernel::new(&["list_reverse_sort", "array_reverse_sort"], &[&[List], &[List, Text]], same, |given, _| {
        sort(given, true)
    }),
    Kernel::new(
        &["list_grade_up", "grade_up", "array_grade_up"],
        &[&[List], &[List, Text], &[List, Text, Text]],
        |_| Ok(list_of(DataType::Int64)),
        grade_up,
    ),
    Kernel::new(&["list_unique", "array_unique"], &[&[List]], bigint, |given, _| {
        let [lists] = arguments(given)?;
        let lists = as_list_array(lists)?;
        let rows = rows(lists.values())?;
        let nulls = lists.values().logical_nulls();
        let counts = ranges(lists).map(|range| {
            let is_valid = |element: &usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*element));
            let elements = range?.filter(is_valid);
            Some(elements.map(|element| rows.row(element)).collect::<HashSet<_>>().len() as i64)
        });
        Ok(Arc::new(counts.collect::<Int64Array>()))
    }),
    Kernel::new(&["list_first", "array_first"], &[&[List]], of_element, |given, _| {
        pick(given, |range| range.clone().next())
    }),
    Kernel::new(&["list_last", "array_last"], &[&[List]], of_element, |given, _| {
        pick(given, |range| range.clone().next_back())
    }),
    Kernel::new(
        &["list_extract", "list_element", "array_extract"],
        &[&[Text, Integer], &[List, Integer]],
        |given| match given.first() {
            Some(list) if element(list).is_some() => of_element(given),
            _ => Ok(DataType::Utf8View),
        },
        extract,
    ),
    Kernel::new(
        &["array_position", "list_position", "array_indexof", "list_indexof"],
        &[&[List, Any], &[List, Any, Integer]],
        |_| Ok(DataType::Int32),
        |given, _| position(given),
    ),
    Kernel::new(&["list_where", "array_where"], &[&[List, Booleans]], same, list_where),
    Kernel::new(&["list_select", "array_select"], &[&[List, Integers]], same, list_select),
    Kernel::new(
        &["contains"],
        &[&[Text, Text], &[List, Any], &[Any, Any]],
        |_| Ok(DataType::Boolean),
        contains,
    ),
];

fn same(given: &[DataType]) -> Result<DataType> {
    match given.first() {
        Some(list) => Ok(list.clone()),
        None => exec_err!("a list is missing"),
    }
}

fn of_element(given: &[DataType]) -> Result<DataType> {
    match given.first().and_then(element) {
        Some(element) => Ok(element.clone()),
        None => exec_err!("a list is missing"),
    }
}

fn bigint(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Int64)
}

/// Where the elements of each list stand; none where the list is null.
fn ranges(lists: &ListArray) -> impl Iterator<Item = Option<Range<usize>>> + '_ {
    let offsets = lists.value_offsets();
    let bounds = offsets.iter().zip(offsets.iter().skip(1));
    bounds.enumerate().map(|(row, (&from, &to))| lists.is_valid(row).then_some(from as usize..to as usize))
}

fn rows(elements: &ArrayRef) -> Result<Rows> {
    let converter = RowConverter::new(vec![SortField::new(elements.data_type().clone())])?;
    Ok(converter.convert_columns(std::slice::from_ref(elements))?)
}

/// New lists of the elements at these places, for each list; nothing stands for null.
fn gather(lists: &ListArray, places: &[Option<Vec<Option<u64>>>]) -> Result<ArrayRef> {
    let lengths = places.iter().map(|places| places.as_ref().map_or(0, Vec::len));
    let offsets = OffsetBuffer::from_lengths(lengths);
    let indices: UInt64Array = places.iter().flatten().flatten().copied().collect();
    let elements = take(lists.values(), &indices, None)?;
    let DataType::List(field) = list_of(lists.value_type()) else { return exec_err!("no list") };
    Ok(Arc::new(ListArray::try_new(field, offsets, elements, lists.nulls().cloned())?))
}

/// Which order a call asks for.
#[derive(Debug, Clone, Copy)]
struct Order {
    descending: bool,
    nulls_first: bool,
}

fn order(given: &[ArrayRef], row: usize, reverse: bool) -> Result<Option<Order>> {
    let mut order = Order { descending: reverse, nulls_first: false };
    for (number, words) in given.iter().skip(1).enumerate() {
        let words = as_string_view_array(words)?;
        if words.is_null(row) {
            return Ok(None);
        }
        // The only words of a reversed sort say where nulls stand.
        let is_direction = number == 0 && !reverse;
        match words.value(row).trim().to_uppercase().as_str() {
            "ASC" | "ASCENDING" | "DEFAULT" if is_direction => order.descending = false,
            "DESC" | "DESCENDING" if is_direction => order.descending = true,
            "NULLS FIRST" if !is_direction => order.nulls_first = true,
            "NULLS LAST" | "DEFAULT" if !is_direction => order.nulls_first = false,
            _ => {
                let known = if is_direction { "ASC or DESC" } else { "NULLS FIRST or NULLS LAST" };
                return exec_err!("'{}' is no order of a list; write {known}", words.value(row));
            }
        }
    }
    Ok(Some(order))
}

/// The places of each list's elements in their order.
fn sorted(given: &[ArrayRef], lists: &ListArray, reverse: bool) -> Result<Vec<Option<Vec<usize>>>> {
    let rows = rows(lists.values())?;
    let place = |(row, range): (usize, Option<Range<usize>>)| {
        let Some((range, order)) = range.zip(order(given, row, reverse)?) else { return Ok(None) };
        let (mut places, nulls): (Vec<_>, Vec<_>) = range.partition(|&place| lists.values().is_valid(place));
        let compare = |first: &usize, second: &usize| -> Ordering {
            let ordering = rows.row(*first).cmp(&rows.row(*second));
            if order.descending { ordering.reverse() } else { ordering }
        };
        places.sort_by(compare);
        let (first, second) = if order.nulls_first { (nulls, places) } else { (places, nulls) };
        Ok(Some(first.into_iter().chain(second).collect()))
    };
    ranges(lists).enumerate().map(place).collect()
}

fn sort(given: &[ArrayRef], reverse: bool) -> Result<ArrayRef> {
    let [lists] = arguments(given)?;
    let lists = as_list_array(lists)?;
    let numbers = |places: Vec<usize>| places.into_iter().map(|place| Some(place as u64)).collect();
    let places: Vec<_> =
        sorted(given, lists, reverse)?.into_iter().map(|places| places.map(numbers)).collect();
    gather(lists, &places)
}

fn grade_up(given: &[ArrayRef], _: &DataType) -> Result<ArrayRef> {
    let [lists] = arguments(given)?;
    let lists = as_list_array(lists)?;
    let starts = lists.value_offsets().iter().map(|&start| start as usize);
    let numbers = sorted(given, lists, false)?.into_iter().zip(starts).map(|(places, start)| {
        Some(places?.into_iter().map(move |place| Some((place - start) as i64 + 1)).collect::<Vec<_>>())
    });
    Ok(Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(numbers)))
}

fn pick(given: &[ArrayRef], place: impl Fn(Range<usize>) -> Option<usize>) -> Result<ArrayRef> {
    let [lists] = arguments(given)?;
    let lists = as_list_array(lists)?;
    let places = ranges(lists).map(|range| place(range?).map(|place| place as u64));
    Ok(take(lists.values(), &places.collect::<UInt64Array>(), None)?)
}

/// The elements for which the other list holds true.
fn list_where(given: &[ArrayRef], _: &DataType) -> Result<ArrayRef> {
    let [lists, masks] = arguments(given)?;
    let (lists, masks) = (as_list_array(lists)?, as_list_array(masks)?);
    let holds = as_boolean_array(masks.values())?;
    let places = ranges(lists).zip(ranges(masks)).map(|(list, mask)| {
        let (list, mask) = list.zip(mask)?;
        // Elements that the list does not have are null.
        let elements = list.map(|place| Some(place as u64)).chain(std::iter::repeat(None));
        let kept = mask.zip(elements).filter(|(place, _)| holds.is_valid(*place) && holds.value(*place));
        Some(kept.map(|(_, element)| element).collect())
    });
    gather_kept(lists, places.collect())
}

/// The place that a number from 1 on, or from the end if it is negative, has among so many.
fn place_of(number: i64, length: usize) -> Option<usize> {
    match usize::try_from(number.unsigned_abs()).ok()? {
        0 => None,
        from_end if number < 0 => length.checked_sub(from_end),
        number => Some(number - 1).filter(|place| *place < length),
    }
}

/// An element of a list, null where there is none, or a letter of a text, which is empty there.
fn extract(given: &[ArrayRef], _: &DataType) -> Result<ArrayRef> {
    let [whole, numbers] = arguments(given)?;
    let numbers = as_int64_array(numbers)?;
    if let Some(texts) = whole.as_string_view_opt() {
        let letters = texts.iter().zip(numbers.iter()).map(|(text, number)| {
            let (text, number) = (text?, number?);
            let place = place_of(number, text.chars().count());
            let letter = place.and_then(|place| text.chars().nth(place));
            Some(letter.map(String::from).unwrap_or_default())
        });
        return Ok(Arc::new(letters.collect::<StringViewArray>()));
    }
    let lists = as_list_array(whole)?;
    let places = ranges(lists).zip(numbers.iter()).map(|(range, number)| {
        let range = range?;
        place_of(number?, range.len()).map(|place| (range.start + place) as u64)
    });
    Ok(take(lists.values(), &places.collect::<UInt64Array>(), None)?)
}

/// The elements with these numbers, from 1 on; null where there is none.
fn list_select(given: &[ArrayRef], _: &DataType) -> Result<ArrayRef> {
    let [lists, numbers] = arguments(given)?;
    let (lists, numbers) = (as_list_array(lists)?, as_list_array(numbers)?);
    let wanted = as_int64_array(numbers.values())?;
    let places = ranges(lists).zip(ranges(numbers)).map(|(list, numbers)| {
        let (list, numbers) = list.zip(numbers)?;
        let place = |number: usize| {
            let wanted = wanted.is_valid(number).then(|| wanted.value(number))?;
            let place = list.start.checked_add(usize::try_from(wanted.checked_sub(1)?).ok()?)?;
            list.contains(&place).then_some(place as u64)
        };
        Some(numbers.map(place).collect())
    });
    gather_kept(lists, places.collect())
}

/// As [`gather`], where lists may also have become null.
fn gather_kept(lists: &ListArray, places: Vec<Option<Vec<Option<u64>>>>) -> Result<ArrayRef> {
    let gathered = gather(lists, &places)?;
    let kept: BooleanArray = places.iter().map(|places| Some(places.is_none())).collect();
    Ok(arrow::compute::nullif(&gathered, &kept)?)
}

/// Whether a text has another one in it, a list an element, or a map a key.
fn contains(given: &[ArrayRef], _: &DataType) -> Result<ArrayRef> {
    let [whole, part] = arguments(given)?;
    match whole.data_type() {
        DataType::Utf8View => Ok(Arc::new(contains_text(&whole.as_string_view(), &part.as_string_view())?)),
        DataType::Map(..) => {
            let maps = as_map_array(whole)?;
            let DataType::List(field) = list_of(maps.key_type().clone()) else { return exec_err!("no list") };
            let keys = ListArray::try_new(
                field,
                maps.offsets().clone(),
                Arc::clone(maps.keys()),
                maps.nulls().cloned(),
            )?;
            has_element(&keys, part)
        }
        _ => match whole.as_list_opt::<i32>() {
            Some(lists) => has_element(lists, part),
            None => exec_err!("contains() looks into texts, lists and maps alone"),
        },
    }
}

/// Elements of lists and values to be found among them, as rows that can be compared.
fn comparable(lists: &ListArray, wanted: &ArrayRef) -> Result<(Rows, Rows)> {
    let types = [lists.value_type(), wanted.data_type().clone()];
    let Some(common) = coerced::common(&types) else {
        let [of_list, of_wanted] = types.each_ref().map(sql_type);
        return plan_err!("values of type {of_wanted} are not compared with elements of type {of_list}");
    };
    let converter = RowConverter::new(vec![SortField::new(common.clone())])?;
    let rows = |values: &ArrayRef| {
        Ok::<_, DataFusionError>(converter.convert_columns(&[cast_array(
            values,
            &common,
            Failed::IsError,
        )?])?)
    };
    Ok((rows(lists.values())?, rows(wanted)?))
}

/// The number of the first element that is equal, or null as the value that is looked for; null where there is none.
fn position(given: &[ArrayRef]) -> Result<ArrayRef> {
    let [lists, wanted] = arguments(given)?;
    let lists = as_list_array(lists)?;
    let (elements, rows) = comparable(lists, wanted)?;
    let firsts = given.get(2).map(|firsts| as_int64_array(firsts)).transpose()?;
    let positions = ranges(lists).enumerate().map(|(row, range)| {
        let range = range?;
        let skipped = match firsts {
            Some(firsts) => usize::try_from(firsts.value(row).checked_sub(1)?).ok()?,
            None => 0,
        };
        let place = range.clone().skip(skipped).find(|place| elements.row(*place) == rows.row(row))?;
        i32::try_from(place - range.start + 1).ok()
    });
    Ok(Arc::new(positions.collect::<Int32Array>()))
}

fn has_element(lists: &ListArray, wanted: &ArrayRef) -> Result<ArrayRef> {
    let (elements, rows) = comparable(lists, wanted)?;
    let answers = ranges(lists).enumerate().map(|(row, range)| {
        let is_null = wanted.data_type().is_null() || wanted.is_null(row);
        let mut range = range.filter(|_| !is_null)?;
        Some(range.any(|place| elements.row(place) == rows.row(row)))
    });
    Ok(Arc::new(answers.collect::<BooleanArray>()))
}
