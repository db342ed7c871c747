//! Lists, structs and maps, made of texts and of each other.
//!
//! What they consist of is cast by itself, all rows at once: one text that cannot be cast is an error, or a null where casts
//! try. A struct that becomes another one has its fields by their names, or by their places where either has none.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray as _, FixedSizeListArray, ListArray, MapArray, NullBufferBuilder, StringArray,
    StringViewArray, StringViewBuilder, StructArray, new_null_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{cast, concat};
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::{Result, internal_err, plan_err};

use super::nested_texts::are_unnamed;
use super::splitting::{self, Fields as Texts};
use super::{Failed, cast_array};

/// The nested values that texts say, if the type is nested.
pub(super) fn of_texts(texts: &StringViewArray, to: &DataType, failed: Failed) -> Option<Result<ArrayRef>> {
    Some(match to {
        DataType::List(field) => lists(texts, field, to, failed),
        DataType::LargeList(field) => lists(texts, field, to, failed).and_then(|lists| Ok(cast(&lists, to)?)),
        DataType::FixedSizeList(field, length) => fixed_lists(texts, field, *length, to, failed),
        DataType::Struct(fields) => structs(texts, fields, to, failed),
        DataType::Map(entries, _) => maps(texts, entries, to, failed),
        _ => return None,
    })
}

/// The texts of parts of many rows, and where each row's end.
struct Parts {
    texts: StringViewBuilder,
    lengths: Vec<usize>,
    nulls: NullBufferBuilder,
}

impl Parts {
    fn of(rows: usize) -> Self {
        Parts {
            texts: StringViewBuilder::new(),
            lengths: Vec::with_capacity(rows),
            nulls: NullBufferBuilder::new(rows),
        }
    }

    fn cast(mut self, to: &Field, failed: Failed) -> Result<ArrayRef> {
        let texts: ArrayRef = Arc::new(self.texts.finish());
        cast_array(&texts, to.data_type(), failed)
    }
}

fn lists(texts: &StringViewArray, field: &FieldRef, to: &DataType, failed: Failed) -> Result<ArrayRef> {
    let mut parts = Parts::of(texts.len());
    for text in texts {
        let elements = failed.read(text, to, splitting::list)?;
        parts.nulls.append(elements.is_some());
        parts.lengths.push(elements.as_ref().map_or(0, Vec::len));
        elements.into_iter().flatten().for_each(|element| parts.texts.append_option(element));
    }
    let offsets = OffsetBuffer::from_lengths(std::mem::take(&mut parts.lengths));
    let nulls = parts.nulls.finish();
    let elements = parts.cast(field, failed)?;
    Ok(Arc::new(ListArray::try_new(Arc::clone(field), offsets, elements, nulls)?))
}

fn fixed_lists(
    texts: &StringViewArray,
    field: &FieldRef,
    length: i32,
    to: &DataType,
    failed: Failed,
) -> Result<ArrayRef> {
    let Ok(of_length) = usize::try_from(length) else { return internal_err!("lists of {length} elements") };
    let read = |text| splitting::list(text).filter(|elements| elements.len() == of_length);
    let mut parts = Parts::of(texts.len());
    for text in texts {
        let elements = failed.read(text, to, read)?;
        parts.nulls.append(elements.is_some());
        match elements {
            Some(elements) => elements.into_iter().for_each(|element| parts.texts.append_option(element)),
            None => (0..of_length).for_each(|_| parts.texts.append_null()),
        }
    }
    let nulls = parts.nulls.finish();
    let elements = parts.cast(field, failed)?;
    Ok(Arc::new(FixedSizeListArray::try_new(Arc::clone(field), length, elements, nulls)?))
}

fn structs(texts: &StringViewArray, fields: &Fields, to: &DataType, failed: Failed) -> Result<ArrayRef> {
    let mut columns: Vec<StringViewBuilder> = fields.iter().map(|_| StringViewBuilder::new()).collect();
    let mut nulls = NullBufferBuilder::new(texts.len());
    for text in texts {
        let values = failed.read(text, to, |text| placed(splitting::fields(text)?, fields))?;
        nulls.append(values.is_some());
        let mut values = values.unwrap_or_default().into_iter();
        columns.iter_mut().for_each(|column| column.append_option(values.next().flatten()));
    }
    let columns = columns.into_iter().zip(fields).map(|(mut column, field)| {
        let texts: ArrayRef = Arc::new(column.finish());
        cast_array(&texts, field.data_type(), failed)
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls.finish(), texts.len())?))
}

/// The parts of a struct in the order of its fields; those that are not there are null. None if a name is no field's, or
/// stands there twice.
fn placed<'a>(texts: Texts<'a>, fields: &Fields) -> Option<Vec<splitting::Part<'a>>> {
    let named = match texts {
        Texts::Positional(parts) => return (parts.len() <= fields.len()).then_some(parts),
        Texts::Named(named) => named,
    };
    let mut parts = vec![None; fields.len()];
    let mut is_there = vec![false; fields.len()];
    for (name, part) in named {
        let place = fields.iter().position(|field| field.name().as_str() == name)?;
        if std::mem::replace(is_there.get_mut(place)?, true) {
            return None;
        }
        *parts.get_mut(place)? = part;
    }
    Some(parts)
}

fn maps(texts: &StringViewArray, entries: &FieldRef, to: &DataType, failed: Failed) -> Result<ArrayRef> {
    let DataType::Struct(fields) = entries.data_type() else { return internal_err!("a map of no entries") };
    let [key, value] = fields.as_ref() else { return internal_err!("a map of {} fields", fields.len()) };
    let mut keys = Parts::of(texts.len());
    let mut values = StringViewBuilder::new();
    for text in texts {
        let pairs = failed.read(text, to, splitting::entries)?;
        keys.nulls.append(pairs.is_some());
        keys.lengths.push(pairs.as_ref().map_or(0, Vec::len));
        for (key, value) in pairs.into_iter().flatten() {
            keys.texts.append_value(key);
            values.append_option(value);
        }
    }
    let offsets = OffsetBuffer::from_lengths(std::mem::take(&mut keys.lengths));
    let nulls = keys.nulls.finish();
    let keys = keys.cast(key, Failed::IsError)?;
    let values: ArrayRef = Arc::new(values.finish());
    let values = cast_array(&values, value.data_type(), failed)?;
    check_keys(&keys, &offsets)?;
    let pairs = StructArray::try_new(fields.clone(), vec![keys, values], None)?;
    Ok(Arc::new(MapArray::try_new(Arc::clone(entries), offsets, pairs, nulls, false)?))
}

/// Refuses maps that have a key twice.
pub(crate) fn check_keys(keys: &ArrayRef, offsets: &OffsetBuffer<i32>) -> Result<()> {
    let texts = cast(&super::cast_array(keys, &DataType::Utf8, Failed::IsError)?, &DataType::Utf8)?;
    let texts: &StringArray = texts.as_string();
    for (begin, end) in offsets.iter().zip(offsets.iter().skip(1)) {
        let mut seen = std::collections::HashSet::new();
        for key in *begin as usize..*end as usize {
            if !seen.insert(texts.value(key)) {
                return datafusion::common::exec_err!("the key {} is twice in a map", texts.value(key));
            }
        }
    }
    Ok(())
}

/// Nested values cast to others; none if the types are none that are cast by their parts.
pub(super) fn of_nested(values: &ArrayRef, to: &DataType, failed: Failed) -> Option<Result<ArrayRef>> {
    let as_lists =
        |field: &FieldRef| -> Result<ArrayRef> { Ok(cast(values, &DataType::List(Arc::clone(field)))?) };
    Some(match (values.data_type(), to) {
        (DataType::List(_), DataType::List(field)) => of_lists(values, field, failed),
        (DataType::List(field), DataType::LargeList(of)) if field.data_type() != of.data_type() => {
            of_lists(values, of, failed).and_then(|lists| Ok(cast(&lists, to)?))
        }
        (DataType::List(field), DataType::FixedSizeList(of, length)) => {
            if field.data_type() != of.data_type() {
                let lists = of_lists(values, of, failed);
                return Some(lists.and_then(|lists| cast_array(&lists, to, failed)));
            }
            of_length(values, of, *length, to, failed)
        }
        (DataType::LargeList(field) | DataType::FixedSizeList(field, _), to)
            if matches!(to, DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..)) =>
        {
            as_lists(field).and_then(|lists| cast_array(&lists, to, failed))
        }
        (DataType::Struct(from), DataType::Struct(fields)) => of_structs(values, from, fields, failed),
        (DataType::Struct(from), DataType::Map(entries, _)) => map_of_struct(values, from, entries, failed),
        (DataType::Map(..), DataType::Map(entries, _)) => of_maps(values, entries, failed),
        _ => return None,
    })
}

fn of_lists(values: &ArrayRef, field: &FieldRef, failed: Failed) -> Result<ArrayRef> {
    let lists = values.as_list::<i32>();
    let (elements, offsets) = used(lists.values(), lists.offsets());
    let elements = cast_array(&elements, field.data_type(), failed)?;
    Ok(Arc::new(ListArray::try_new(Arc::clone(field), offsets, elements, lists.nulls().cloned())?))
}

/// The elements that lists hold, without those before and behind them.
fn used(elements: &ArrayRef, offsets: &OffsetBuffer<i32>) -> (ArrayRef, OffsetBuffer<i32>) {
    let first = offsets.first().map_or(0, |first| *first as usize);
    let last = offsets.last().map_or(0, |last| *last as usize);
    (elements.slice(first, last - first), OffsetBuffer::from_lengths(offsets.lengths()))
}

/// Lists that all have a number of elements.
fn of_length(
    values: &ArrayRef,
    field: &FieldRef,
    length: i32,
    to: &DataType,
    failed: Failed,
) -> Result<ArrayRef> {
    let lists = values.as_list::<i32>();
    let Ok(of_length) = usize::try_from(length) else { return internal_err!("lists of {length} elements") };
    let filling = new_null_array(field.data_type(), of_length);
    let mut nulls = NullBufferBuilder::new(lists.len());
    let mut rows: Vec<ArrayRef> = Vec::with_capacity(lists.len());
    for row in 0..lists.len() {
        let elements = lists.is_valid(row).then(|| lists.value(row));
        let fits = elements.as_ref().is_some_and(|elements| elements.len() == of_length);
        if let Some(elements) = &elements
            && !fits
        {
            failed.check(&format!("a list of {}", elements.len()), to)?;
        }
        nulls.append(fits);
        rows.push(elements.filter(|_| fits).unwrap_or_else(|| Arc::clone(&filling)));
    }
    let parts: Vec<&dyn Array> = rows.iter().map(AsRef::as_ref).collect();
    let elements = if parts.is_empty() { new_null_array(field.data_type(), 0) } else { concat(&parts)? };
    Ok(Arc::new(FixedSizeListArray::try_new(Arc::clone(field), length, elements, nulls.finish())?))
}

fn of_structs(values: &ArrayRef, from: &Fields, to: &Fields, failed: Failed) -> Result<ArrayRef> {
    let structs = values.as_struct();
    let is_unnamed = |fields: &Fields| are_unnamed(fields.iter().map(AsRef::as_ref));
    let by_place = (is_unnamed(from) || is_unnamed(to)) && from.len() == to.len();
    let is_shared = |field: &FieldRef| from.iter().any(|of| of.name().eq_ignore_ascii_case(field.name()));
    if !by_place && !to.iter().any(is_shared) {
        let names =
            |fields: &Fields| fields.iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ");
        return plan_err!(
            "structs of ({}) cannot be cast to structs of ({}): they have no field in common",
            names(from),
            names(to)
        );
    }
    let columns = to.iter().enumerate().map(|(place, field)| {
        let column = match by_place {
            true => structs.columns().get(place),
            false => from
                .iter()
                .position(|of| of.name().eq_ignore_ascii_case(field.name()))
                .and_then(|place| structs.columns().get(place)),
        };
        match column {
            Some(column) => cast_array(column, field.data_type(), failed),
            None => Ok(new_null_array(field.data_type(), values.len())),
        }
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let nulls = structs.nulls().cloned();
    Ok(Arc::new(StructArray::try_new_with_length(to.clone(), columns, nulls, values.len())?))
}

/// Maps from the names of fields to their values, row by row.
fn map_of_struct(values: &ArrayRef, from: &Fields, entries: &FieldRef, failed: Failed) -> Result<ArrayRef> {
    let DataType::Struct(fields) = entries.data_type() else { return internal_err!("a map of no entries") };
    let [key, value] = fields.as_ref() else { return internal_err!("a map of {} fields", fields.len()) };
    let structs = values.as_struct();
    let names: ArrayRef = Arc::new(StringViewArray::from_iter_values(from.iter().map(|field| field.name())));
    let names = cast_array(&names, key.data_type(), failed)?;
    let columns = structs.columns().iter().map(|column| cast_array(column, value.data_type(), failed));
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let rows = (0..values.len()).filter(|&row| structs.is_valid(row));
    let columns: Vec<&dyn Array> = columns.iter().map(AsRef::as_ref).collect();
    let places: Vec<(usize, usize)> =
        rows.flat_map(|row| (0..columns.len()).map(move |column| (column, row))).collect();
    let of_entries = arrow::compute::interleave(&columns, &places)?;
    let keys: Vec<(usize, usize)> = places.iter().map(|(column, _)| (0, *column)).collect();
    let keys = arrow::compute::interleave(&[names.as_ref()], &keys)?;
    let lengths = (0..values.len()).map(|row| if structs.is_valid(row) { columns.len() } else { 0 });
    let offsets = OffsetBuffer::from_lengths(lengths);
    let pairs = StructArray::try_new(fields.clone(), vec![keys, of_entries], None)?;
    Ok(Arc::new(MapArray::try_new(Arc::clone(entries), offsets, pairs, structs.nulls().cloned(), false)?))
}

fn of_maps(values: &ArrayRef, entries: &FieldRef, failed: Failed) -> Result<ArrayRef> {
    let DataType::Struct(fields) = entries.data_type() else { return internal_err!("a map of no entries") };
    let [key, value] = fields.as_ref() else { return internal_err!("a map of {} fields", fields.len()) };
    let maps = values.as_map();
    let (keys, offsets) = used(maps.keys(), maps.offsets());
    let (of_keys, _) = used(maps.values(), maps.offsets());
    let keys = cast_array(&keys, key.data_type(), failed)?;
    let of_keys = cast_array(&of_keys, value.data_type(), failed)?;
    check_keys(&keys, &offsets)?;
    let pairs = StructArray::try_new(fields.clone(), vec![keys, of_keys], None)?;
    Ok(Arc::new(MapArray::try_new(Arc::clone(entries), offsets, pairs, maps.nulls().cloned(), false)?))
}
