//! Arrays of any type as `VARIANT`s.
//!
//! | of | becomes |
//! |---|---|
//! | lists, structs without names | a list |
//! | structs | an object, whose members are in the order of their names |
//! | maps | a list of objects with a `key` and a `value` |
//! | an `ENUM` | its text |
//! | a `UNION` | the value that it has |
//! | texts that are known to be JSON | what they say |

use std::collections::BTreeMap;

use arrow::array::{Array as _, ArrayRef, AsArray as _, ListArray, MapArray, StringViewArray, StructArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use datafusion::common::cast::as_string_view_array;
use datafusion::common::{Result, ScalarValue};

use super::encoding::stands_for;
use super::{Value, decoded, encoded, is_variant};
use crate::casts::unions::is_union;
use crate::casts::{are_unnamed, bits, element_range, enum_texts, enums};
use crate::function::element;
use crate::json::{Json, is_json, parse};

/// The values of a column, of which `field` tells whether they are JSON.
pub(crate) fn of_values(field: &Field, values: &ArrayRef) -> Result<ArrayRef> {
    let source = Source::new(field, values)?;
    let values = (0..values.len()).map(|row| source.value(row)).collect::<Result<Vec<_>>>()?;
    encoded(values.iter())
}

/// Where values come from.
enum Source {
    Null,
    Plain(ArrayRef),
    Bits(StringViewArray),
    Json(StringViewArray),
    Variants(Vec<Value>),
    List(ListArray, Box<Source>),
    /// Fields, with their names if they have some.
    Struct(StructArray, Vec<(Option<String>, Source)>),
    Union(StructArray, Vec<Source>),
    Map(MapArray, Box<Source>, Box<Source>),
}

impl Source {
    fn new(field: &Field, values: &ArrayRef) -> Result<Self> {
        let of_fields = |structs: &StructArray| {
            let fields = structs.fields().iter().zip(structs.columns());
            fields.map(|(field, values)| Source::new(field, values)).collect::<Result<Vec<_>>>()
        };
        Ok(match values.data_type() {
            DataType::Null => Source::Null,
            of if is_variant(of) => Source::Variants(decoded(values)?),
            of if bits::is_bit(of) => Source::Bits(bits::texts_of(values)),
            of if enum_texts(of).is_some() => Source::Plain(std::sync::Arc::new(enums::texts_of(values))),
            of if is_union(of) => {
                let structs = values.as_struct();
                Source::Union(structs.clone(), of_fields(structs)?)
            }
            DataType::Struct(fields) => {
                let structs = values.as_struct();
                let is_unnamed = are_unnamed(fields.iter().map(AsRef::as_ref));
                let names = fields.iter().map(|field| (!is_unnamed).then(|| field.name().clone()));
                Source::Struct(structs.clone(), names.zip(of_fields(structs)?).collect())
            }
            DataType::Map(entries, _) => {
                let maps = values.as_map();
                let DataType::Struct(fields) = entries.data_type() else {
                    return datafusion::common::internal_err!("a map of no entries");
                };
                let [key, value] = fields.as_ref() else {
                    return datafusion::common::internal_err!("a map of {} fields", fields.len());
                };
                let key = Source::new(key, maps.keys())?;
                Source::Map(maps.clone(), Box::new(key), Box::new(Source::new(value, maps.values())?))
            }
            DataType::List(of) => {
                let lists = values.as_list::<i32>();
                Source::List(lists.clone(), Box::new(Source::new(of, lists.values())?))
            }
            DataType::LargeList(of) | DataType::FixedSizeList(of, _) | DataType::ListView(of) => {
                return Source::new(field, &cast(values, &DataType::List(of.clone()))?);
            }
            of if of.is_string() && is_json(field) => {
                Source::Json(as_string_view_array(&cast(values, &DataType::Utf8View)?)?.clone())
            }
            of => match stands_for(of) {
                Some(other) if element(&other).is_some() || other.is_nested() => {
                    return Source::new(field, &cast(values, &other)?);
                }
                Some(other) => Source::Plain(cast(values, &other)?),
                None => Source::Plain(ArrayRef::clone(values)),
            },
        })
    }

    fn value(&self, row: usize) -> Result<Value> {
        Ok(match self {
            Source::Null => Value::Null,
            Source::Variants(values) => values.get(row).cloned().unwrap_or(Value::Null),
            Source::Plain(values) if values.is_null(row) => Value::Null,
            Source::Plain(values) => Value::Plain(ScalarValue::try_from_array(values, row)?),
            Source::Bits(digits) if digits.is_null(row) => Value::Null,
            Source::Bits(digits) => Value::Bits(digits.value(row).to_owned()),
            Source::Json(texts) if texts.is_null(row) => Value::Null,
            Source::Json(texts) => of_json(parse(texts.value(row))?),
            Source::List(lists, _) if lists.is_null(row) => Value::Null,
            Source::List(lists, elements) => {
                let elements =
                    element_range(lists.value_offsets(), row).map(|element| elements.value(element));
                Value::List(elements.collect::<Result<_>>()?)
            }
            Source::Struct(structs, _) | Source::Union(structs, _) if structs.is_null(row) => Value::Null,
            Source::Struct(_, fields) => {
                let values = fields.iter().map(|(name, values)| Ok((name.clone(), values.value(row)?)));
                let values = values.collect::<Result<Vec<_>>>()?;
                match values.iter().all(|(name, _)| name.is_some()) && !values.is_empty() {
                    true => Value::object(
                        values.into_iter().map(|(name, value)| (name.unwrap_or_default(), value)).collect(),
                    ),
                    false => Value::List(values.into_iter().map(|(_, value)| value).collect()),
                }
            }
            Source::Union(_, members) => {
                // The first is the number of the member that is there.
                let number = match members.first().map(|tags| tags.value(row)).transpose()? {
                    Some(Value::Plain(ScalarValue::UInt8(Some(number)))) => usize::from(number),
                    _ => return Ok(Value::Null),
                };
                members.get(number + 1).map_or(Ok(Value::Null), |member| member.value(row))?
            }
            Source::Map(maps, _, _) if maps.is_null(row) => Value::Null,
            Source::Map(maps, keys, values) => {
                let entry = |entry| {
                    let (key, value) = (keys.value(entry)?, values.value(entry)?);
                    Ok(Value::Object(vec![("key".to_owned(), key), ("value".to_owned(), value)]))
                };
                Value::List(element_range(maps.value_offsets(), row).map(entry).collect::<Result<_>>()?)
            }
        })
    }
}

/// What a JSON text says.
fn of_json(json: Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Boolean(value) => Value::Plain(ScalarValue::Boolean(Some(value))),
        Json::Negative(number) => Value::Plain(ScalarValue::Int64(Some(number))),
        Json::Whole(number) => Value::Plain(ScalarValue::UInt64(Some(number))),
        Json::Float(number) => Value::Plain(ScalarValue::Float64(Some(number))),
        Json::Text(text) => Value::text(&text),
        Json::List(values) => Value::List(values.into_iter().map(of_json).collect()),
        Json::Object(members) => {
            // Of those with one name, the last.
            let members: BTreeMap<_, _> =
                members.into_iter().map(|(name, value)| (name, of_json(value))).collect();
            Value::Object(members.into_iter().collect())
        }
    }
}
