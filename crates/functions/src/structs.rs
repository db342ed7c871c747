//! Structs: put together, changed, and searched.
#![allow(clippy::indexing_slicing, reason = "fields are numbered here")]

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, BooleanArray, Int32Array, StructArray, make_comparator,
};
use arrow::compute::{SortOptions, is_null, nullif};
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::{Result, internal_err, plan_err};
use datafusion::logical_expr::binary::comparison_coercion;

use crate::casts::{Failed, cast_array};
use crate::function::Kind::Any;
use crate::function::{Kernel, arguments};
use crate::types::sql_type;

pub(crate) static FUNCTIONS: &[Kernel] = &[
    Kernel::new(&["struct_concat"], &[&[Any, Any]], concat_type, put_together).repeating(),
    Kernel::new(&["struct_update"], &[&[Any, Any]], update_type, update),
    Kernel::new(
        &["struct_contains", "struct_has"],
        &[&[Any, Any]],
        |given| found(given, DataType::Boolean),
        |given, _| {
            let found = search(given)?;
            Ok(Arc::new(found.into_iter().map(|place| Some(place? > 0)).collect::<BooleanArray>()))
        },
    ),
    Kernel::new(
        &["struct_position", "struct_indexof"],
        &[&[Any, Any]],
        |given| found(given, DataType::Int32),
        |given, _| {
            Ok(Arc::new(
                search(given)?
                    .into_iter()
                    .map(|place| place.filter(|place| *place > 0))
                    .collect::<Int32Array>(),
            ))
        },
    ),
];

fn fields<'a>(function: &str, data_type: &'a DataType) -> Result<&'a Fields> {
    match data_type {
        DataType::Struct(fields) => Ok(fields),
        other => plan_err!("{function} takes structs, and {} is none", sql_type(other)),
    }
}

/// The places of fields in structs without names.
fn has_names(fields: &Fields) -> bool {
    let is_place =
        |(place, field): (usize, &FieldRef)| *field.name() == format!("c{place}") || field.name().is_empty();
    !fields.iter().enumerate().all(is_place)
}

fn concat_type(given: &[DataType]) -> Result<DataType> {
    let mut all: Vec<FieldRef> = Vec::new();
    let mut named = given.iter().map(|data_type| Ok(has_names(fields("struct_concat", data_type)?)));
    let first = named.next().transpose()?;
    if named.collect::<Result<Vec<_>>>()?.into_iter().any(|is_named| Some(is_named) != first) {
        return plan_err!("struct_concat: some of the structs have names of fields, and others do not");
    }
    for data_type in given {
        for field in fields("struct_concat", data_type)? {
            if has_names(fields("struct_concat", data_type)?)
                && let Some(twice) = all.iter().find(|known| known.name().eq_ignore_ascii_case(field.name()))
            {
                return plan_err!("struct_concat: two of the structs have a field '{}'", twice.name());
            }
            all.push(Arc::new(Field::new(field.name(), field.data_type().clone(), true)));
        }
    }
    Ok(DataType::Struct(all.into()))
}

/// The columns of a struct, null where it is.
fn columns(structs: &ArrayRef) -> Result<Vec<ArrayRef>> {
    let structs: &StructArray = structs.as_struct();
    if structs.null_count() == 0 {
        return Ok(structs.columns().to_vec());
    }
    let is_null = is_null(structs)?;
    structs.columns().iter().map(|column| Ok(nullif(column, &is_null)?)).collect()
}

fn put_together(given: &[ArrayRef], returned: &DataType) -> Result<ArrayRef> {
    let DataType::Struct(fields) = returned else { return internal_err!("structs become a struct") };
    let mut all = Vec::with_capacity(fields.len());
    for structs in given {
        all.extend(columns(structs)?);
    }
    Ok(Arc::new(StructArray::try_new(fields.clone(), all, None)?))
}

/// Where each field of an updated struct comes from: one of the first struct, or of the second.
fn sources(given: &[DataType]) -> Result<Vec<(FieldRef, usize, usize)>> {
    let [old, new] = given else {
        return plan_err!("struct_update takes a struct and the fields that change");
    };
    let (old, new) = (fields("struct_update", old)?, fields("struct_update", new)?);
    let place_of =
        |fields: &Fields, name: &str| fields.iter().position(|field| field.name().eq_ignore_ascii_case(name));
    let mut sources = Vec::new();
    for (place, field) in old.iter().enumerate() {
        sources.push(match place_of(new, field.name()) {
            Some(changed) => (Arc::clone(&new[changed]), 1, changed),
            None => (Arc::clone(field), 0, place),
        });
    }
    for (place, field) in new.iter().enumerate() {
        if place_of(old, field.name()).is_none() {
            sources.push((Arc::clone(field), 1, place));
        }
    }
    Ok(sources)
}

fn update_type(given: &[DataType]) -> Result<DataType> {
    let fields = sources(given)?.into_iter().map(|(field, ..)| field.as_ref().clone().with_nullable(true));
    Ok(DataType::Struct(fields.collect()))
}

fn update(given: &[ArrayRef], returned: &DataType) -> Result<ArrayRef> {
    let DataType::Struct(fields) = returned else { return internal_err!("a struct becomes a struct") };
    let types: Vec<DataType> = given.iter().map(|structs| structs.data_type().clone()).collect();
    let columns = given.iter().map(columns).collect::<Result<Vec<_>>>()?;
    let chosen = sources(&types)?.into_iter().map(|(_, of, place)| Arc::clone(&columns[of][place]));
    Ok(Arc::new(StructArray::try_new(fields.clone(), chosen.collect(), None)?))
}

fn found(given: &[DataType], returned: DataType) -> Result<DataType> {
    match given.first() {
        Some(DataType::Null) => Ok(returned),
        Some(structs) if has_names(fields("struct_contains", structs)?) => {
            plan_err!("struct_contains searches structs without names, as row(1, 2)")
        }
        _ => Ok(returned),
    }
}

/// The number of the first field that is equal to a value, zero without one; none where either is null.
fn search(given: &[ArrayRef]) -> Result<Vec<Option<i32>>> {
    let [structs, wanted] = arguments(given)?;
    let mut places: Vec<Option<i32>> = vec![Some(0); structs.len()];
    let forget = |places: &mut Vec<Option<i32>>, of: &ArrayRef| {
        let nulls = of.logical_nulls();
        for (row, place) in places.iter_mut().enumerate() {
            if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                *place = None;
            }
        }
    };
    forget(&mut places, structs);
    forget(&mut places, wanted);
    if structs.data_type().is_null() || wanted.data_type().is_null() {
        return Ok(places);
    }
    let columns = columns(structs)?;
    // Fields are compared as what all of them can be.
    let mut types = columns.iter().map(|column| column.data_type());
    let of_all = types.try_fold(DataType::Null, |all, of| common_type(&all, of));
    for (number, column) in columns.iter().enumerate() {
        let column = match &of_all {
            Some(of_all) if !of_all.is_null() => cast_array(column, of_all, Failed::IsNull)?,
            _ => Arc::clone(column),
        };
        let Some(both) = common_type(column.data_type(), wanted.data_type()) else { continue };
        let (values, wanted) =
            (cast_array(&column, &both, Failed::IsNull)?, cast_array(wanted, &both, Failed::IsNull)?);
        let compare = make_comparator(&values, &wanted, SortOptions::default())?;
        let nulls = values.logical_nulls();
        for (row, place) in places.iter_mut().enumerate() {
            let is_valid = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
            if *place == Some(0) && is_valid && compare(row, row).is_eq() {
                *place = Some(number as i32 + 1);
            }
        }
    }
    Ok(places)
}

/// The type in which values are compared: truth values as numbers where the others are.
fn common_type(field: &DataType, wanted: &DataType) -> Option<DataType> {
    match (field, wanted) {
        (DataType::Null, other) | (other, DataType::Null) => Some(other.clone()),
        _ if field.is_string() || wanted.is_string() => Some(DataType::Utf8View),
        (DataType::Boolean, other) | (other, DataType::Boolean) if other.is_numeric() => Some(other.clone()),
        _ => comparison_coercion(field, wanted),
    }
}
