//! What `VARIANT`s are, and their parts: `variant_typeof(v)`, `variant_extract(v, 'a')`, `variant_keys(v, ['a', 'b'])`.
//!
//! A path is the name of a member, and an empty one the value itself; with a list of them, the answer is a list. Values of other
//! types are taken for `VARIANT`s.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, ListArray, StringViewArray};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::cast::as_string_view_array;
use datafusion::common::{Result, ScalarValue, exec_err, internal_err, plan_err};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::ScalarFunction;

use super::results::to_type;
use super::texts::{self, Form};
use super::{Value, decoded, encoded, encoding, variant_keys, variant_type};
use crate::casts::{Failed, cast_array};
use crate::function::Kind::{Any, Integer, List, Text, Texts};
use crate::function::{Kernel, Kind, arguments, list_of};

const EXTRACT: &str = "variant_extract";
const ALONE_OR_WITH_PATHS: &[&[Kind]] = &[&[Any], &[Any, Text], &[Any, Texts]];

pub(crate) static FUNCTIONS: &[Kernel] = &[
    Kernel::new(
        &["variant_typeof"],
        &[&[Any]],
        |_| Ok(DataType::Utf8View),
        |given, _| {
            let [values] = arguments(given)?;
            let names =
                variants(values)?.iter().map(|value| type_name(value, true)).collect::<StringViewArray>();
            Ok(Arc::new(names))
        },
    ),
    Kernel::new(
        &["variant_type"],
        ALONE_OR_WITH_PATHS,
        |given| of_paths(given, DataType::Utf8View),
        |given, to| {
            at_paths(given, to, Value::Null, |value| {
                Ok(Value::text(&type_name(value, false).unwrap_or_default()))
            })
        },
    ),
    Kernel::new(
        &["variant_keys"],
        ALONE_OR_WITH_PATHS,
        |given| of_paths(given, list_of(DataType::Utf8View)),
        |given, to| at_paths(given, to, Value::Null, |value| Ok(names(value))),
    ),
    Kernel::new(
        &["variant_array_length"],
        ALONE_OR_WITH_PATHS,
        |given| of_paths(given, DataType::UInt64),
        |given, to| at_paths(given, to, Value::Null, |value| Ok(length(value))),
    ),
    Kernel::new(
        &["variant_exists"],
        &[&[Any, Text], &[Any, Texts]],
        |given| of_paths(given, DataType::Boolean),
        |given, to| at_paths(given, to, boolean(false), |_| Ok(boolean(true))),
    ),
    Kernel::new(
        &["variant_extract_string"],
        &[&[Any, Text], &[Any, Texts]],
        |given| of_paths(given, DataType::Utf8View),
        |given, to| at_paths(given, to, Value::Null, text),
    ),
    Kernel::new(&[EXTRACT], &[&[Any, Text], &[Any, Integer]], variant, extract),
    Kernel::new(&["variant_contains"], &[&[Any, Any]], |_| Ok(DataType::Boolean), contains),
    Kernel::new(&["variant_normalize"], &[&[Any]], variant, |given, _| {
        let [values] = arguments(given)?;
        cast_array(values, &variant_type(), Failed::IsError)
    }),
    Kernel::new(
        &["variant_comparator"],
        &[&[Any]],
        |_| Ok(DataType::Binary),
        |given, _| {
            let [values] = arguments(given)?;
            variant_keys(&cast_array(values, &variant_type(), Failed::IsError)?)
        },
    ),
    // What `variant_group_object(name, value)` is planned as.
    Kernel::new(&["variant_object_of"], &[&[List]], variant, objects),
];

/// A member by its name, or an element by its number.
pub fn variant_extract(value: Expr, place: Expr) -> Expr {
    let Some(kernel) = FUNCTIONS.iter().find(|kernel| kernel.name() == EXTRACT) else {
        unreachable!("{EXTRACT} is one of the functions")
    };
    Expr::ScalarFunction(ScalarFunction::new_udf(kernel.function(), vec![value, place]))
}

fn variant(_: &[DataType]) -> Result<DataType> {
    Ok(variant_type())
}

fn variants(values: &ArrayRef) -> Result<Vec<Value>> {
    decoded(&cast_array(values, &variant_type(), Failed::IsError)?)
}

fn boolean(value: bool) -> Value {
    Value::Plain(ScalarValue::Boolean(Some(value)))
}

/// The type of an answer: a list of what one path gives where there are several.
fn of_paths(given: &[DataType], one: DataType) -> Result<DataType> {
    Ok(match given {
        [_, DataType::List(_)] => list_of(one),
        _ => one,
    })
}

/// What a function gives for the value itself, or for those at paths; `missing` where there is none, null for a null.
fn at_paths(
    given: &[ArrayRef],
    to: &DataType,
    missing: Value,
    of: impl Fn(&Value) -> Result<Value>,
) -> Result<ArrayRef> {
    let Some(values) = given.first() else { return plan_err!("a value is needed") };
    let values = variants(values)?;
    let at = |value: &Value, path: &str| match path {
        "" => of(value),
        path => value.member(path).map_or_else(|| Ok(missing.clone()), &of),
    };
    let answer = |(row, value): (usize, &Value)| {
        if *value == Value::Null {
            return Ok(Value::Null);
        }
        match given.get(1) {
            None => of(value),
            Some(paths) if paths.is_null(row) => Ok(Value::Null),
            Some(paths) if paths.data_type().is_string() => {
                at(value, as_string_view_array(paths)?.value(row))
            }
            Some(paths) => {
                let paths = paths.as_list::<i32>().value(row);
                let paths = as_string_view_array(&paths)?.iter().map(|path| match path {
                    Some(path) => at(value, path),
                    None => exec_err!("a path is NULL; write the name of a member, or ''"),
                });
                Ok(Value::List(paths.collect::<Result<_>>()?))
            }
        }
    };
    let answers = values.iter().enumerate().map(answer).collect::<Result<Vec<_>>>()?;
    to_type(&answers.iter().collect::<Vec<_>>(), to, Failed::IsError)
}

/// What a value is, in DuckDB's words; with the digits of decimals, the names of members and the number of elements.
fn type_name(value: &Value, is_whole: bool) -> Option<String> {
    let name = match value {
        Value::Null => "VARIANT_NULL",
        Value::Bits(_) => "BITSTRING",
        Value::List(elements) if is_whole => return Some(format!("ARRAY({})", elements.len())),
        Value::List(_) => "ARRAY",
        Value::Object(members) if is_whole => {
            let names: Vec<_> = members.iter().map(|(name, _)| name.as_str()).collect();
            return Some(format!("OBJECT({})", names.join(", ")));
        }
        Value::Object(_) => "OBJECT",
        Value::Plain(plain) => match plain {
            ScalarValue::Boolean(Some(true)) => "BOOL_TRUE",
            ScalarValue::Boolean(_) => "BOOL_FALSE",
            ScalarValue::Int8(_) => "INT8",
            ScalarValue::Int16(_) => "INT16",
            ScalarValue::Int32(_) => "INT32",
            ScalarValue::Int64(_) => "INT64",
            ScalarValue::UInt8(_) => "UINT8",
            ScalarValue::UInt16(_) => "UINT16",
            ScalarValue::UInt32(_) => "UINT32",
            ScalarValue::UInt64(_) => "UINT64",
            // Both types are one here: a number is of the other one where the first does not have it.
            ScalarValue::Decimal256(Some(number), _, 0) if number.to_i128().is_none() => "UINT128",
            ScalarValue::Decimal256(_, _, 0) => "INT128",
            ScalarValue::Decimal128(_, precision, scale) | ScalarValue::Decimal256(_, precision, scale)
                if is_whole =>
            {
                return Some(format!("DECIMAL({precision}, {scale})"));
            }
            ScalarValue::Decimal128(..) | ScalarValue::Decimal256(..) => "DECIMAL",
            ScalarValue::Float32(_) => "FLOAT",
            ScalarValue::Float64(_) => "DOUBLE",
            ScalarValue::Binary(_) => "BLOB",
            ScalarValue::Date32(_) => "DATE",
            ScalarValue::Time64Nanosecond(_) => "TIME_MICROS",
            ScalarValue::TimestampSecond(..) => "TIMESTAMP_SEC",
            ScalarValue::TimestampMillisecond(..) => "TIMESTAMP_MILIS",
            ScalarValue::TimestampMicrosecond(_, Some(_)) => "TIMESTAMP_MICROS_TZ",
            ScalarValue::TimestampMicrosecond(_, None) => "TIMESTAMP_MICROS",
            ScalarValue::TimestampNanosecond(_, Some(_)) => "TIMESTAMP_NANOS_TZ",
            ScalarValue::TimestampNanosecond(_, None) => "TIMESTAMP_NANOS",
            ScalarValue::IntervalMonthDayNano(_) => "INTERVAL",
            _ => "VARCHAR",
        },
    };
    Some(name.to_owned())
}

fn names(value: &Value) -> Value {
    match value {
        Value::Object(members) => Value::List(members.iter().map(|(name, _)| Value::text(name)).collect()),
        _ => Value::List(Vec::new()),
    }
}

fn length(value: &Value) -> Value {
    let length = if let Value::List(elements) = value { elements.len() } else { 0 };
    Value::Plain(ScalarValue::UInt64(Some(length as u64)))
}

fn text(value: &Value) -> Result<Value> {
    if *value == Value::Null {
        return Ok(Value::Null);
    }
    let mut text = String::new();
    texts::write(value, Form::PlainJson, &mut text)?;
    Ok(Value::text(&text))
}

/// A member by its name, or an element by its number.
fn extract(given: &[ArrayRef], _: &DataType) -> Result<ArrayRef> {
    let [values, places] = arguments(given)?;
    let values = variants(values)?;
    let place = |(row, value): (usize, &Value)| {
        if places.is_null(row) {
            return Ok(Value::Null);
        }
        let part = match places.data_type() {
            DataType::Int64 => match places.as_primitive::<Int64Type>().value(row) {
                number @ ..=0 => {
                    return exec_err!("there is no element {number} of a VARIANT; they are counted from 1");
                }
                number => value.element(usize::try_from(number).unwrap_or(usize::MAX)),
            },
            _ => value.member(as_string_view_array(places)?.value(row)),
        };
        Ok(part.cloned().unwrap_or(Value::Null))
    };
    encoded(values.iter().enumerate().map(place).collect::<Result<Vec<_>>>()?.iter())
}

fn contains(given: &[ArrayRef], _: &DataType) -> Result<ArrayRef> {
    let [values, wanted] = arguments(given)?;
    let (values, wanted) = (variants(values)?, variants(wanted)?);
    let answer = |(value, wanted): (&Value, &Value)| match *value == Value::Null || *wanted == Value::Null {
        true => Ok(Value::Null),
        false => is_in(value, wanted).map(boolean),
    };
    let answers = values.iter().zip(&wanted).map(answer).collect::<Result<Vec<_>>>()?;
    to_type(&answers.iter().collect::<Vec<_>>(), &DataType::Boolean, Failed::IsError)
}

/// Whether a value, or one inside of it, has another one.
fn is_in(value: &Value, wanted: &Value) -> Result<bool> {
    let mut inside: Box<dyn Iterator<Item = &Value>> = match value {
        Value::List(elements) => Box::new(elements.iter()),
        Value::Object(members) => Box::new(members.iter().map(|(_, value)| value)),
        _ => Box::new(std::iter::empty()),
    };
    if has(value, wanted)? {
        return Ok(true);
    }
    inside.try_fold(false, |is_found, value| Ok(is_found || is_in(value, wanted)?))
}

fn has(value: &Value, wanted: &Value) -> Result<bool> {
    match (value, wanted) {
        (Value::List(own), Value::List(wanted)) => wanted.iter().try_fold(true, |all, wanted| {
            let any = own.iter().try_fold(false, |any, value| {
                Ok::<_, datafusion::error::DataFusionError>(any || has(value, wanted)?)
            });
            Ok(all && any?)
        }),
        (value @ Value::Object(_), Value::Object(wanted)) => {
            wanted.iter().try_fold(true, |all, (name, wanted)| {
                let is_there = value.member(name).map_or(Ok(false), |value| has(value, wanted));
                Ok(all && is_there?)
            })
        }
        (value, wanted) => encoding::are_equal(value, wanted),
    }
}

/// Objects of lists of names and values, which are structs of both.
fn objects(given: &[ArrayRef], _: &DataType) -> Result<ArrayRef> {
    let [members] = arguments(given)?;
    let members: &ListArray = members.as_list();
    let object = |row: usize| {
        if members.is_null(row) {
            return Ok(Value::Null);
        }
        let of_row = members.value(row);
        let [names, values] = of_row.as_struct().columns() else {
            return internal_err!("members of objects are names and values");
        };
        let names = cast_array(names, &DataType::Utf8View, Failed::IsError)?;
        let mut members: Vec<(String, Value)> = Vec::new();
        for (name, value) in as_string_view_array(&names)?.iter().zip(variants(values)?) {
            let Some(name) = name else {
                return exec_err!("a name that variant_group_object was given is NULL");
            };
            members.push((name.to_owned(), value));
        }
        let object = Value::object(members);
        match &object {
            Value::Object(members) => match members.array_windows().find(|[one, other]| one.0 == other.0) {
                Some([(twice, _), _]) => exec_err!("variant_group_object was given the name '{twice}' twice"),
                None => Ok(object),
            },
            _ => Ok(object),
        }
    };
    encoded((0..members.len()).map(object).collect::<Result<Vec<_>>>()?.iter())
}
