//! `UNION(a INTEGER, b VARCHAR)`: one of several members, each of a type of its own.
//!
//! A value is a struct of all members, of which one is there, behind the number of that one: values are ordered by their
//! members first, storage and joins know structs, and `u.a` is a field. The name of the first field is the mark.
//!
//! A value of another type becomes the member of this type, or the one that it becomes with the least change, as DuckDB counts
//! it. A whole number of 64 bits, as all are that are written, becomes an `INTEGER` where there is no `BIGINT`.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, BooleanArray, StringViewArray, StructArray, UInt8Array,
    make_comparator, new_null_array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{SortOptions, cast};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, TimeUnit, UInt8Type};
use datafusion::common::{Result, exec_err, internal_err, plan_err};

use super::enums::enum_type;
use super::huge_integers::HUGE;
use super::{CANNOT_BE_CAST, Failed, cast_array, texts};
use crate::function::Kind::Any;
use crate::function::{Kernel, arguments, element};
use crate::types::sql_type;

/// The name of the field that has the number of the member.
const TAG: &str = "union\u{1f}";
const MOST_MEMBERS: usize = 256;

pub(crate) static FUNCTIONS: &[Kernel] = &[
    // What `union_value(a := 1)` is planned as, of a struct with one field.
    Kernel::new(&["union_of_struct"], &[&[Any]], of_struct_type, |given, to| {
        let [structs] = arguments(given)?;
        let member = Arc::clone(structs.as_struct().column(0));
        of_member(0, member, to)
    }),
    Kernel::new(&["union_tag"], &[&[Any]], tag_type, |given, to| {
        let [unions] = arguments(given)?;
        let names = members(unions.data_type()).unwrap_or_default();
        let name =
            |row| names.get(usize::from(tag(unions.as_struct(), row)?)).map(|field| field.name().as_str());
        let names: ArrayRef = Arc::new((0..unions.len()).map(name).collect::<StringViewArray>());
        cast_array(&names, to, Failed::IsError)
    }),
];

/// The type with these members.
pub(crate) fn union_type(members: Vec<(String, DataType)>) -> Result<DataType> {
    if members.is_empty() || members.len() > MOST_MEMBERS {
        return plan_err!("a UNION has 1 to {MOST_MEMBERS} members");
    }
    let mut fields = vec![Field::new(TAG, DataType::UInt8, true)];
    for (name, data_type) in members {
        if fields.iter().any(|field| field.name().eq_ignore_ascii_case(&name)) {
            return plan_err!("two members of a UNION are called {name}");
        }
        fields.push(Field::new(name, data_type, true));
    }
    Ok(DataType::Struct(fields.into()))
}

pub fn is_union(data_type: &DataType) -> bool {
    members(data_type).is_some()
}

/// The members of a `UNION`; none of another type.
pub(crate) fn members(data_type: &DataType) -> Option<&[FieldRef]> {
    let DataType::Struct(fields) = data_type else { return None };
    let (first, members) = fields.split_first()?;
    (first.name() == TAG && *first.data_type() == DataType::UInt8).then_some(members)
}

fn of_struct_type(given: &[DataType]) -> Result<DataType> {
    match given {
        [DataType::Struct(fields)] if fields.len() == 1 => {
            union_type(fields.iter().map(|field| (field.name().clone(), field.data_type().clone())).collect())
        }
        _ => plan_err!("union_value takes one value and its name, as union_value(a := 1)"),
    }
}

fn tag_type(given: &[DataType]) -> Result<DataType> {
    match given.first().and_then(members) {
        Some(members) => enum_type(&members.iter().map(|field| field.name().as_str()).collect::<Vec<_>>()),
        None => plan_err!("union_tag takes a UNION"),
    }
}

/// The number of the member that is there.
fn tag(unions: &StructArray, row: usize) -> Option<u8> {
    let tags = unions.column(0).as_primitive::<UInt8Type>();
    (unions.is_valid(row) && tags.is_valid(row)).then(|| tags.value(row))
}

/// Values of one member.
fn of_member(number: usize, values: ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let DataType::Struct(fields) = to else { return internal_err!("a UNION of no members") };
    let rows = values.len();
    let Ok(number) = u8::try_from(number) else { return internal_err!("a UNION of {number} members") };
    let mut columns: Vec<ArrayRef> = vec![Arc::new(UInt8Array::from_value(number, rows))];
    for (place, field) in fields.iter().skip(1).enumerate() {
        columns.push(match place == usize::from(number) {
            true => Arc::clone(&values),
            false => new_null_array(field.data_type(), rows),
        });
    }
    Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, None, rows)?))
}

/// Values as those of a `UNION`.
pub(super) fn of_values(values: &ArrayRef, to: &DataType, failed: Failed) -> Result<ArrayRef> {
    let Some(wanted) = members(to) else { return internal_err!("a UNION of no members") };
    if let Some(known) = members(values.data_type()) {
        return of_union(values.as_struct(), known, wanted, to, failed);
    }
    if let Some(tagged) = of_tagged(values, wanted, to)? {
        return Ok(tagged);
    }
    let number = member_for(values.data_type(), wanted, to)?;
    let Some(member) = wanted.get(number) else { return internal_err!("a UNION without its member") };
    of_member(number, cast_array(values, member.data_type(), failed)?, to)
}

/// Members by their names.
fn of_union(
    unions: &StructArray,
    known: &[FieldRef],
    wanted: &[FieldRef],
    to: &DataType,
    failed: Failed,
) -> Result<ArrayRef> {
    let DataType::Struct(fields) = to else { return internal_err!("a UNION of no members") };
    let place = |field: &FieldRef| wanted.iter().position(|of| of.name().eq_ignore_ascii_case(field.name()));
    let mut columns: Vec<ArrayRef> =
        wanted.iter().map(|field| new_null_array(field.data_type(), unions.len())).collect();
    let mut places = Vec::with_capacity(known.len());
    for (field, values) in known.iter().zip(unions.columns().iter().skip(1)) {
        let Some(place) = place(field) else {
            return plan_err!(
                "{}{CANNOT_BE_CAST}{}, which has no member {}",
                sql_type(unions.data_type()),
                sql_type(to),
                field.name()
            );
        };
        if let (Some(column), Some(wanted)) = (columns.get_mut(place), wanted.get(place)) {
            *column = cast_array(values, wanted.data_type(), failed)?;
        }
        places.push(place as u8);
    }
    let tags = (0..unions.len()).map(|row| places.get(usize::from(tag(unions, row)?)).copied());
    columns.insert(0, Arc::new(tags.collect::<UInt8Array>()));
    // What a cast made of the members that are not there is nothing.
    let nulls = unions.nulls().cloned();
    Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, unions.len())?))
}

/// Structs of a `tag` and all members, of which the one that the tag says is there; none of other values.
fn of_tagged(values: &ArrayRef, wanted: &[FieldRef], to: &DataType) -> Result<Option<ArrayRef>> {
    let (DataType::Struct(from), DataType::Struct(fields)) = (values.data_type(), to) else {
        return Ok(None);
    };
    let Some((first, given)) = from.split_first() else { return Ok(None) };
    let is_member = |(given, wanted): (&FieldRef, &FieldRef)| {
        let are_alike = sql_type(given.data_type()) == sql_type(wanted.data_type());
        given.name().eq_ignore_ascii_case(wanted.name()) && are_alike
    };
    let is_tag = first.name().eq_ignore_ascii_case("tag") && *first.data_type() == DataType::UInt8;
    if !is_tag || given.len() != wanted.len() || !given.iter().zip(wanted).all(is_member) {
        return Ok(None);
    }
    let structs = values.as_struct();
    for row in (0..structs.len()).filter(|&row| structs.is_valid(row)) {
        let number = tag(structs, row).map(usize::from);
        if number.is_none_or(|number| number >= wanted.len()) {
            return exec_err!("the tag of a value of {} is none of its members", sql_type(to));
        }
        let is_other = |(place, member): (usize, &ArrayRef)| Some(place) != number && member.is_valid(row);
        if structs.columns().iter().skip(1).enumerate().any(is_other) {
            return exec_err!("a value of {} has members beside the one that its tag says", sql_type(to));
        }
    }
    let mut columns = structs.columns().to_vec();
    for (column, field) in columns.iter_mut().zip(fields.iter()) {
        *column = cast(column, field.data_type())?;
    }
    let nulls = structs.nulls().cloned();
    Ok(Some(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, structs.len())?)))
}

/// The member that values of a type become.
fn member_for(from: &DataType, wanted: &[FieldRef], to: &DataType) -> Result<usize> {
    let costs =
        wanted.iter().enumerate().filter_map(|(place, field)| Some((cost(from, field.data_type())?, place)));
    let costs: Vec<(u32, usize)> = costs.collect();
    let Some(&(least, place)) = costs.iter().min() else {
        return plan_err!(
            "a value of type {}{CANNOT_BE_CAST}{}: no member takes it; cast it to the type of a member first",
            sql_type(from),
            sql_type(to)
        );
    };
    if costs.iter().filter(|(cost, _)| *cost == least).count() > 1 {
        return plan_err!(
            "a value of type {}{CANNOT_BE_CAST}{}: several members take it; say which, as union_value(a := 1)",
            sql_type(from),
            sql_type(to)
        );
    }
    Ok(place)
}

/// How much a value changes that becomes another one by itself; none if it does not.
fn cost(from: &DataType, to: &DataType) -> Option<u32> {
    if from == to || (from.is_string() && to.is_string()) || sql_type(from) == sql_type(to) {
        return Some(0);
    }
    let takes = match (from, to) {
        (DataType::Int64, DataType::Int32) => return Some(100),
        (from, to) if from.is_integer() && to.is_integer() => widens(from, to),
        (from, to) if from.is_integer() => to.is_floating() || to.is_decimal(),
        (from, to) if from.is_decimal() => to.is_floating() || to.is_decimal(),
        (DataType::Float32, DataType::Float64) => true,
        // Numbers with a point that are written have 64 bits.
        (DataType::Float64, DataType::Float32) => return Some(106),
        (DataType::Float64, to) if to.is_decimal() => return Some(107),
        (DataType::Date32, DataType::Timestamp(..)) => true,
        (DataType::Timestamp(_, None), DataType::Timestamp(..)) => true,
        (DataType::Struct(from), DataType::Struct(to)) => are_alike(from, to),
        (from, to) => match (element(from), element(to)) {
            (Some(from), Some(to)) => from.is_null() || cost(from, to).is_some(),
            _ => false,
        },
    };
    takes.then(|| of_type(to))
}

fn are_alike(from: &Fields, to: &Fields) -> bool {
    let is_field = |(from, to): (&FieldRef, &FieldRef)| {
        let is_kept = from.data_type().is_null() || cost(from.data_type(), to.data_type()).is_some();
        from.name().eq_ignore_ascii_case(to.name()) && is_kept
    };
    from.len() == to.len() && from.iter().zip(to.iter()).all(is_field)
}

fn of_type(to: &DataType) -> u32 {
    match to {
        DataType::Int64 => 101,
        DataType::Int32 => 102,
        to if *to == HUGE => 103,
        DataType::Float64 => 104,
        to if to.is_decimal() => 105,
        DataType::Timestamp(TimeUnit::Nanosecond, None) => 119,
        DataType::Timestamp(TimeUnit::Microsecond, None) => 120,
        DataType::Timestamp(TimeUnit::Millisecond, None) => 121,
        DataType::Timestamp(TimeUnit::Second, None) => 122,
        DataType::Timestamp(..) => 123,
        to if to.is_nested() => 160,
        _ => 110,
    }
}

fn widens(from: &DataType, to: &DataType) -> bool {
    let bits = |integer: &DataType| integer.primitive_width();
    match (from.is_unsigned_integer(), to.is_unsigned_integer()) {
        (false, true) => false,
        _ => bits(from) < bits(to),
    }
}

/// The texts of the members that are there.
pub(super) fn texts_of(values: &ArrayRef) -> Result<StringViewArray> {
    let unions = values.as_struct();
    let of_members = unions.columns().iter().skip(1).map(texts::of_values).collect::<Result<Vec<_>>>()?;
    let text = |row| {
        let texts: &StringViewArray = of_members.get(usize::from(tag(unions, row)?))?;
        texts.is_valid(row).then(|| texts.value(row))
    };
    Ok((0..unions.len()).map(text).collect())
}

/// The number of each row's member.
pub(crate) fn tags(unions: &StructArray) -> Vec<Option<usize>> {
    (0..unions.len()).map(|row| tag(unions, row).map(usize::from)).collect()
}

/// The same, without those of members that are null.
pub(crate) fn present(unions: &StructArray) -> Vec<Option<usize>> {
    let nulls: Vec<_> = unions.columns().iter().skip(1).map(|member| member.logical_nulls()).collect();
    let is_there = |number: usize, row: usize| {
        nulls.get(number).is_some_and(|nulls| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)))
    };
    let tags = tags(unions).into_iter().enumerate();
    tags.map(|(row, number)| number.filter(|&number| is_there(number, row))).collect()
}

/// Whether values are equal, less or both; null where either is, or both have one member and it is null in either.
pub fn compare_unions(
    left: &ArrayRef,
    right: &ArrayRef,
    holds: fn(std::cmp::Ordering) -> bool,
) -> Result<ArrayRef> {
    let options = SortOptions { descending: false, nulls_first: false };
    let compare = make_comparator(left.as_ref(), right.as_ref(), options)?;
    let of_sides = [left, right].map(|side| side.as_struct());
    let members = of_sides.map(present);
    let is_known = |row: usize| {
        let [left, right] = of_sides.map(|side| tag(side, row));
        let are_there = members.iter().all(|members| members.get(row).is_some_and(Option::is_some));
        left.is_some() && right.is_some() && (left != right || are_there)
    };
    let nulls: NullBuffer = (0..left.len()).map(is_known).collect();
    let holds = (0..left.len()).map(|row| holds(compare(row, row))).collect();
    Ok(Arc::new(BooleanArray::new(holds, Some(nulls))))
}
