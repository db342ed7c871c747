//! `BIT`: strings of bits, as lists of truth values whose element is called so.
//!
//! Numbers become the bits that they have in two's complement or IEEE 754, the highest first, and bytes theirs; the other way
//! round, bits that are missing in front are zeros.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, BinaryBuilder, BooleanArray, BooleanBufferBuilder, Float32Array,
    Float64Array, Int64Array, ListArray, NullBufferBuilder, StringViewArray, UInt64Array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal256Type, Field, Float32Type, Float64Type, Int64Type, UInt64Type};
use datafusion::common::Result;
use datafusion::common::cast::{as_binary_array, as_string_view_array};

use super::huge_integers::HUGE;
use super::{Failed, cast_array};

const ELEMENT: &str = "bit";
const BITS_OF_BYTE: usize = 8;

/// The type `BIT`.
pub(crate) fn bit_type() -> DataType {
    DataType::List(Arc::new(Field::new(ELEMENT, DataType::Boolean, false)))
}

pub(crate) fn is_bit(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(field) if field.name() == ELEMENT && *field.data_type() == DataType::Boolean)
}

/// Values as strings of bits; none if they are of a type that has none.
pub(super) fn of_values(values: &ArrayRef, failed: Failed) -> Result<Option<ArrayRef>> {
    if values.data_type().is_string() {
        let views = cast(values, &DataType::Utf8View)?;
        return of_texts(as_string_view_array(&views)?, failed).map(Some);
    }
    if values.data_type().is_binary() {
        let bytes = cast(values, &DataType::Binary)?;
        let bits = as_binary_array(&bytes)?.iter().map(|bytes| {
            bytes.map(|bytes| bytes.iter().flat_map(|byte| bits_of((*byte).into(), BITS_OF_BYTE)))
        });
        return lists(bits).map(Some);
    }
    let Some((width, numbers)) = numbers(values)? else { return Ok(None) };
    lists(numbers.into_iter().map(|number| number.map(|number| bits_of(number, width)))).map(Some)
}

fn of_texts(texts: &StringViewArray, failed: Failed) -> Result<ArrayRef> {
    let to = bit_type();
    let is_bits = |text: &str| text.bytes().all(|byte| matches!(byte, b'0' | b'1'));
    let read = |text| failed.read(text, &to, |text: &str| is_bits(text).then_some(text));
    let texts = texts.iter().map(read).collect::<Result<Vec<_>>>()?;
    // There is no empty string of bits.
    let texts = texts.into_iter().map(|text| text.map(|text| if text.is_empty() { "0" } else { text }));
    lists(texts.map(|text| text.map(|text| text.bytes().map(|byte| byte == b'1'))))
}

/// The bits of a number, the highest first.
fn bits_of(number: i128, width: usize) -> impl Iterator<Item = bool> {
    (0..width).rev().map(move |bit| number >> bit & 1 == 1)
}

pub(crate) fn lists<B: Iterator<Item = bool>>(rows: impl Iterator<Item = Option<B>>) -> Result<ArrayRef> {
    let (mut bits, mut lengths) = (BooleanBufferBuilder::new(0), Vec::new());
    let mut nulls = NullBufferBuilder::new(0);
    for row in rows {
        nulls.append(row.is_some());
        let before = bits.len();
        row.into_iter().flatten().for_each(|bit| bits.append(bit));
        lengths.push(bits.len() - before);
    }
    let DataType::List(field) = bit_type() else { unreachable!("bits are a list") };
    let offsets = OffsetBuffer::from_lengths(lengths);
    let elements = Arc::new(BooleanArray::new(bits.finish(), None));
    Ok(Arc::new(ListArray::try_new(field, offsets, elements, nulls.finish())?))
}

/// Numbers with their bits at the end, and how many bits they have.
fn numbers(values: &ArrayRef) -> Result<Option<(usize, Vec<Option<i128>>)>> {
    let width = |of: &DataType| of.primitive_width().unwrap_or(0) * BITS_OF_BYTE;
    Ok(Some(match values.data_type() {
        DataType::Boolean => return numbers(&cast(values, &DataType::UInt8)?),
        DataType::UInt64 => {
            (64, values.as_primitive::<UInt64Type>().iter().map(|value| value.map(i128::from)).collect())
        }
        of if of.is_integer() => {
            let wide = cast(values, &DataType::Int64)?;
            let wide = wide.as_primitive::<Int64Type>().iter().map(|value| value.map(i128::from));
            (width(of), wide.collect())
        }
        DataType::Float32 => {
            let bits = values.as_primitive::<Float32Type>().iter();
            (32, bits.map(|value| value.map(|value| value.to_bits().into())).collect())
        }
        DataType::Float64 => {
            let bits = values.as_primitive::<Float64Type>().iter();
            (64, bits.map(|value| value.map(|value| value.to_bits().into())).collect())
        }
        of if *of == HUGE => {
            let numbers = values.as_primitive::<Decimal256Type>().iter();
            (128, numbers.map(|number| number.map(|number| number.as_i128())).collect())
        }
        _ => return Ok(None),
    }))
}

/// Strings of bits as values of another type; none if it has no bits.
pub(super) fn to_values(values: &ArrayRef, to: &DataType, failed: Failed) -> Result<Option<ArrayRef>> {
    let strings = values.as_list::<i32>();
    let numbers = |width: usize| {
        let rows = strings.iter().map(|bits| match bits {
            Some(bits) if bits.len() <= width => Ok(Some(number(bits.as_boolean()))),
            Some(bits) => failed.check(&text(bits.as_boolean()), to).map(|()| None),
            None => Ok(None),
        });
        rows.collect::<Result<Vec<Option<u128>>>>()
    };
    let width = to.primitive_width().unwrap_or(1) * BITS_OF_BYTE;
    let converted: ArrayRef = match to {
        DataType::Boolean => {
            let rows = numbers(width)?.into_iter();
            Arc::new(rows.map(|number| number.map(|number| number != 0)).collect::<BooleanArray>())
        }
        of if of.is_unsigned_integer() => {
            let rows = numbers(width)?.into_iter();
            Arc::new(rows.map(|number| number.map(|number| number as u64)).collect::<UInt64Array>())
        }
        of if of.is_integer() => {
            let signed = |number: u128| ((number << (128 - width)) as i128 >> (128 - width)) as i64;
            Arc::new(numbers(width)?.into_iter().map(|number| number.map(signed)).collect::<Int64Array>())
        }
        DataType::Float32 => {
            let rows = numbers(width)?.into_iter();
            let float = |number| f32::from_bits(number as u32);
            Arc::new(rows.map(|number| number.map(float)).collect::<Float32Array>())
        }
        DataType::Float64 => {
            let rows = numbers(width)?.into_iter();
            let float = |number| f64::from_bits(number as u64);
            Arc::new(rows.map(|number| number.map(float)).collect::<Float64Array>())
        }
        of if of.is_binary() => {
            let mut bytes = BinaryBuilder::new();
            strings.iter().for_each(|bits| bytes.append_option(bits.map(|bits| bytes_of(bits.as_boolean()))));
            Arc::new(bytes.finish())
        }
        of if *of == HUGE => {
            let rows = numbers(128)?.into_iter();
            let numbers = rows.map(|number| number.map(|number| (number as i128).to_string()));
            return cast_array(&(Arc::new(numbers.collect::<StringViewArray>()) as ArrayRef), to, failed)
                .map(Some);
        }
        _ => return Ok(None),
    };
    Ok(Some(cast(&converted, to)?))
}

fn number(bits: &BooleanArray) -> u128 {
    bits.values().iter().fold(0, |number, bit| number << 1 | u128::from(bit))
}

/// Bytes whose first may have zeros in front.
fn bytes_of(bits: &BooleanArray) -> Vec<u8> {
    let missing = bits.len().next_multiple_of(BITS_OF_BYTE) - bits.len();
    let filled: Vec<bool> = std::iter::repeat_n(false, missing).chain(bits.values().iter()).collect();
    let byte = |bits: &[bool]| bits.iter().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
    filled.chunks(BITS_OF_BYTE).map(byte).collect()
}

fn text(bits: &BooleanArray) -> String {
    bits.values().iter().map(|bit| if bit { '1' } else { '0' }).collect()
}

pub(super) fn texts_of(values: &ArrayRef) -> StringViewArray {
    let strings = values.as_list::<i32>();
    strings.iter().map(|bits| bits.map(|bits| text(bits.as_boolean()))).collect()
}
