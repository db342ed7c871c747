//! `m[key]` of a map: the value that the first equal key has, null without one; and maps made of maps and of entries.
//!
//! DataFusion's `get_field` compares keys that are computed, or have parts, with other rows'.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray as _, MapArray, StructArray, UInt32Array, UInt64Array, make_comparator,
    new_null_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{SortOptions, interleave, take};
use arrow::datatypes::{DataType, Field, Fields};
use arrow::row::{Row, RowConverter, SortField};
use datafusion::common::{Result, exec_err, internal_err, plan_err};
use datafusion::logical_expr::binary::type_union_coercion;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::casts::{Failed, cast_array};
use crate::function::Kind::{Any, List};
use crate::function::{Kernel, arguments, element, invoke};
use crate::types::sql_type;

pub(crate) static FUNCTIONS: &[Kernel] = &[
    Kernel::new(&["map_concat"], &[&[Any, Any, Any]], concat_type, put_together).repeating(),
    Kernel::new(&["map_from_entries"], &[&[List]], of_entries_type, of_entries),
];

/// The type of maps from keys to values.
fn map_type(key: &DataType, value: &DataType) -> DataType {
    let fields =
        Fields::from(vec![Field::new("key", key.clone(), false), Field::new("value", value.clone(), true)]);
    DataType::Map(Arc::new(Field::new("entries", DataType::Struct(fields), false)), false)
}

fn concat_type(given: &[DataType]) -> Result<DataType> {
    let mut both: Option<(DataType, DataType)> = None;
    for data_type in given.iter().filter(|data_type| !data_type.is_null()) {
        let Some((key, value)) = parts(data_type) else {
            return plan_err!("map_concat takes maps, and {} is none", sql_type(data_type));
        };
        both = Some(match both {
            None => (key.clone(), value.clone()),
            Some((known_key, known_value)) => {
                match (type_union_coercion(&known_key, key), type_union_coercion(&known_value, value)) {
                    (Some(key), Some(value)) => (key, value),
                    _ => return plan_err!("map_concat: the maps have keys or values of different types"),
                }
            }
        });
    }
    Ok(both.map_or(DataType::Null, |(key, value)| map_type(&key, &value)))
}

/// A map with the entries of all; a key that several have keeps its place, and has the value of the last.
fn put_together(given: &[ArrayRef], returned: &DataType) -> Result<ArrayRef> {
    let rows = given.first().map_or(0, |maps| maps.len());
    let given = given.iter().filter(|maps| !maps.data_type().is_null());
    let maps = given.map(|maps| cast_array(maps, returned, Failed::IsError)).collect::<Result<Vec<_>>>()?;
    let maps: Vec<&MapArray> = maps.iter().map(|maps| maps.as_map()).collect();
    let Some((key, _)) = parts(returned) else { return Ok(new_null_array(returned, rows)) };
    let converter = RowConverter::new(vec![SortField::new(key.clone())])?;
    let keys = maps.iter().map(|maps| converter.convert_columns(std::slice::from_ref(maps.keys())));
    let keys = keys.collect::<std::result::Result<Vec<_>, _>>()?;
    let (mut places, mut lengths, mut is_there) = (Vec::new(), Vec::new(), Vec::new());
    for row in 0..rows {
        let mut known: HashMap<Row, usize> = HashMap::new();
        let begins = places.len();
        is_there.push(maps.iter().any(|maps| maps.is_valid(row)));
        for (number, (maps, keys)) in maps.iter().zip(&keys).enumerate() {
            let [from, to] =
                [row, row + 1].map(|row| maps.value_offsets().get(row).copied().unwrap_or_default());
            let entries = if maps.is_valid(row) { from as usize..to as usize } else { 0..0 };
            for entry in entries {
                match known.entry(keys.row(entry)) {
                    Entry::Occupied(place) => {
                        places
                            .iter_mut()
                            .skip(*place.get())
                            .take(1)
                            .for_each(|place| *place = (number, entry));
                    }
                    Entry::Vacant(place) => {
                        place.insert(places.len());
                        places.push((number, entry));
                    }
                }
            }
        }
        lengths.push(places.len() - begins);
    }
    let column = |of: &dyn Fn(&MapArray) -> ArrayRef| -> Result<ArrayRef> {
        let columns: Vec<ArrayRef> = maps.iter().map(|maps| of(maps)).collect();
        let columns: Vec<&dyn Array> = columns.iter().map(AsRef::as_ref).collect();
        Ok(interleave(&columns, &places)?)
    };
    let (keys, values) =
        (column(&|maps| Arc::clone(maps.keys()))?, column(&|maps| Arc::clone(maps.values()))?);
    map_of(returned, lengths, keys, values, Some(is_there.into()))
}

fn map_of(
    data_type: &DataType,
    lengths: Vec<usize>,
    keys: ArrayRef,
    values: ArrayRef,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let DataType::Map(field, _) = data_type else { return internal_err!("maps are maps") };
    let DataType::Struct(fields) = field.data_type() else { return internal_err!("maps have entries") };
    let entries = StructArray::try_new(fields.clone(), vec![keys, values], None)?;
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(MapArray::try_new(Arc::clone(field), offsets, entries, nulls, false)?))
}

fn of_entries_type(given: &[DataType]) -> Result<DataType> {
    match given.first().and_then(element) {
        Some(DataType::Struct(fields)) => match fields.as_ref() {
            [key, value] => Ok(map_type(key.data_type(), value.data_type())),
            _ => plan_err!("map_from_entries takes a list of pairs, as [(1, 'a'), (2, 'b')]"),
        },
        Some(DataType::Null) => Ok(DataType::Null),
        _ => plan_err!("map_from_entries takes a list of pairs, as [(1, 'a'), (2, 'b')]"),
    }
}

fn of_entries(given: &[ArrayRef], returned: &DataType) -> Result<ArrayRef> {
    let [lists] = arguments(given)?;
    let lists = lists.as_list::<i32>();
    if returned.is_null() {
        return Ok(new_null_array(returned, lists.len()));
    }
    let entries = lists.values().as_struct();
    let [keys, values] = entries.columns() else { return internal_err!("entries are pairs") };
    let converter = RowConverter::new(vec![SortField::new(keys.data_type().clone())])?;
    let rows = converter.convert_columns(std::slice::from_ref(keys))?;
    let no_keys = keys.logical_nulls();
    let mut places = Vec::new();
    let mut lengths = Vec::with_capacity(lists.len());
    for (row, ends) in lists.value_offsets().windows(2).enumerate() {
        let &[begin, end] = ends else { continue };
        let range = if lists.is_valid(row) { begin as usize..end as usize } else { 0..0 };
        let mut known = HashSet::new();
        for entry in range.clone() {
            if entries.is_null(entry) || no_keys.as_ref().is_some_and(|nulls| nulls.is_null(entry)) {
                return exec_err!("map_from_entries: a key is NULL");
            }
            if !known.insert(rows.row(entry)) {
                return exec_err!("map_from_entries: a key is there twice");
            }
            places.push(entry as u64);
        }
        lengths.push(range.len());
    }
    let places = UInt64Array::from(places);
    let (keys, values) = (take(keys, &places, None)?, take(values, &places, None)?);
    map_of(returned, lengths, keys, values, lists.nulls().cloned())
}

/// The value of a key.
pub fn map_value(map: Expr, key: Expr) -> Expr {
    let function = ScalarUDF::from(MapValue { signature: Signature::user_defined(Volatility::Immutable) });
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), vec![map, key]))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct MapValue {
    signature: Signature,
}

/// The types of keys and values.
fn parts(map: &DataType) -> Option<(&DataType, &DataType)> {
    let DataType::Map(entries, _) = map else { return None };
    let DataType::Struct(fields) = entries.data_type() else { return None };
    match fields.as_ref() {
        [key, value] => Some((key.data_type(), value.data_type())),
        _ => None,
    }
}

impl ScalarUDFImpl for MapValue {
    fn name(&self) -> &str {
        "map_value"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let [map, _] = given else { return plan_err!("a value of a map has one key") };
        match parts(map) {
            Some((key, _)) => Ok(vec![map.clone(), key.clone()]),
            None => plan_err!("a {} has no values by keys", sql_type(map)),
        }
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        match given.first().and_then(parts) {
            Some((_, value)) => Ok(value.clone()),
            None => internal_err!("the value of a key of no map"),
        }
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        invoke(&call, |given, _| {
            let [maps, wanted] = arguments(given)?;
            values(maps, wanted)
        })
    }
}

fn values(maps: &ArrayRef, wanted: &ArrayRef) -> Result<ArrayRef> {
    let maps = maps.as_map();
    let compare = make_comparator(maps.keys(), wanted, SortOptions::default())?;
    let nulls = wanted.logical_nulls();
    let places = maps.value_offsets().windows(2).enumerate().map(|(row, ends)| {
        let &[begin, end] = ends else { return None };
        let is_known = maps.is_valid(row) && nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        let mut entries = if is_known { begin as u32..end as u32 } else { 0..0 };
        entries.find(|&entry| compare(entry as usize, row).is_eq())
    });
    let places: UInt32Array = places.collect();
    Ok(take(maps.values(), &places, None)?)
}
