//! `VARIANT`: a value of any type, which says itself what it is.
//!
//! A value is a string of bytes of two parts: its key, by which it is compared with others, byte by byte, and its shape, which
//! has what keys do not tell apart. So `1::TINYINT` and `1.0` are equal and stand together in an order, and are still what they
//! were.
//!
//! ```text
//!   {'a': 1::SMALLINT, 'b': ['x']}   key    object  a  number 1  b  list  text x  end  end
//!                                    shape  SMALLINT
//! ```
//!
//! The bytes stand in a list of one element that is called so: the type itself is the mark, as that of an `ENUM`, and storage
//! knows nothing of it. A null inside is a value; one that is alone is SQL's.

mod arrays;
mod decoding;
mod encoding;
mod functions;
mod numbers;
mod results;
mod texts;

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, BinaryArray, BinaryBuilder, FixedSizeListArray, NullBufferBuilder,
};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue};

pub(crate) use self::arrays::of_values;
pub(crate) use self::functions::FUNCTIONS;
pub use self::functions::variant_extract;
pub(crate) use self::results::to_values;
pub(crate) use self::texts::{Form, texts_of};

const ELEMENT: &str = "variant";
/// How deep values may stand in each other.
const MOST_LEVELS: usize = 500;

/// The type `VARIANT`.
pub fn variant_type() -> DataType {
    DataType::FixedSizeList(element_field(), 1)
}

fn element_field() -> FieldRef {
    Arc::new(Field::new(ELEMENT, DataType::Binary, true))
}

pub fn is_variant(data_type: &DataType) -> bool {
    matches!(data_type, DataType::FixedSizeList(field, 1)
        if field.name() == ELEMENT && *field.data_type() == DataType::Binary)
}

/// What a `VARIANT` is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    /// A value that is not null, of a type that [`encoding`] knows.
    Plain(ScalarValue),
    /// The digits of a string of bits.
    Bits(String),
    List(Vec<Value>),
    /// Names, none twice, in their order, and their values.
    Object(Vec<(String, Value)>),
}

impl Value {
    fn text(text: &str) -> Self {
        Value::Plain(ScalarValue::Utf8View(Some(text.to_owned())))
    }

    fn object(mut members: Vec<(String, Value)>) -> Self {
        members.sort_by(|(one, _), (other, _)| one.cmp(other));
        Value::Object(members)
    }

    fn member(&self, name: &str) -> Option<&Value> {
        match self {
            Value::Object(members) => members.iter().find(|(known, _)| known == name).map(|(_, value)| value),
            _ => None,
        }
    }

    /// What a field of a struct becomes, whose names are the same in any case.
    fn field(&self, name: &str) -> Option<&Value> {
        let is_field = |(known, _): &&(String, Value)| known.eq_ignore_ascii_case(name);
        match self {
            Value::Object(members) => {
                self.member(name).or_else(|| members.iter().find(is_field).map(|(_, value)| value))
            }
            _ => None,
        }
    }

    /// An element by its number, from 1.
    fn element(&self, number: usize) -> Option<&Value> {
        match self {
            Value::List(elements) => elements.get(number.checked_sub(1)?),
            _ => None,
        }
    }
}

/// The bytes of each row; null where the value is.
fn bytes_of(variants: &ArrayRef) -> BinaryArray {
    let lists = variants.as_fixed_size_list();
    let bytes = lists.values().as_binary::<i32>();
    (0..lists.len()).map(|row| lists.is_valid(row).then(|| bytes.value(row))).collect()
}

/// The value of each row.
fn decoded(variants: &ArrayRef) -> Result<Vec<Value>> {
    bytes_of(variants).iter().map(|bytes| bytes.map_or(Ok(Value::Null), decoding::value)).collect()
}

/// Values as an array, of which those that are null alone are SQL's null.
fn encoded<'a>(values: impl Iterator<Item = &'a Value>) -> Result<ArrayRef> {
    let mut bytes = BinaryBuilder::new();
    let mut nulls = NullBufferBuilder::new(0);
    for value in values {
        nulls.append(*value != Value::Null);
        match value {
            Value::Null => bytes.append_null(),
            value => bytes.append_value(encoding::bytes(value)?),
        }
    }
    let bytes = Arc::new(bytes.finish());
    Ok(Arc::new(FixedSizeListArray::try_new(element_field(), 1, bytes, nulls.finish())?))
}

/// What `VARIANT`s are compared by, as bytes; null where they are.
pub fn variant_keys(variants: &ArrayRef) -> Result<ArrayRef> {
    let bytes = bytes_of(variants);
    let mut keys = BinaryBuilder::with_capacity(bytes.len(), bytes.value_data().len());
    for bytes in &bytes {
        match bytes {
            Some(bytes) => keys.append_value(decoding::key(bytes)?),
            None => keys.append_null(),
        }
    }
    Ok(Arc::new(keys.finish()))
}

#[cfg(test)]
mod tests;
