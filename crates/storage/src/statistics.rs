//! Least and greatest values of columns, as Arrow arrays of one value, for the page index.
//!
//! Order is what Arrow's comparison kernels use: total order for floating point (−0 < 0, NaN above infinity), bytes
//! for strings. Long strings are cut: the least value to a prefix, which sorts before; the greatest to a prefix whose
//! last character is raised, which sorts after. A null bound means that nothing is known.

use std::sync::Arc;

use arrow_array::builder::{GenericByteBuilder, GenericByteViewBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    BinaryType, BinaryViewType, ByteArrayType, ByteViewType, LargeBinaryType, LargeUtf8Type, StringViewType,
    Utf8Type,
};
use arrow_array::{
    Array, ArrayRef, ArrowNativeTypeOp, ArrowPrimitiveType, BooleanArray, GenericByteArray,
    GenericByteViewArray, PrimitiveArray, downcast_primitive, new_null_array,
};
use arrow_schema::DataType;

/// Bounds of strings are at most this long: enough to tell words apart, little beside the page.
const MAX_BOUND_BYTES: usize = 32;

/// Whether columns of this type have bounds.
pub(crate) fn has_bounds(data_type: &DataType) -> bool {
    use DataType as T;
    match data_type {
        T::Boolean | T::Utf8 | T::LargeUtf8 | T::Utf8View | T::Binary | T::LargeBinary | T::BinaryView => {
            true
        }
        T::Interval(_) => false,
        other => other.is_primitive(),
    }
}

/// Whether bounds of this type are values that occur: not cut, and of an order in which MIN and MAX agree with us.
pub(crate) fn bounds_are_exact(data_type: &DataType) -> bool {
    has_bounds(data_type)
        && (data_type.is_integer()
            || data_type.is_temporal()
            || data_type.is_decimal()
            || *data_type == DataType::Boolean)
}

/// Type in which the bounds of a column are kept; `Null` for none.
pub(crate) fn bounds_type(data_type: &DataType) -> DataType {
    if has_bounds(data_type) { data_type.clone() } else { DataType::Null }
}

/// Bounds of the values of an array, of type [`bounds_type`]; null when it holds none, or none can be given.
pub(crate) fn bounds(array: &dyn Array) -> (ArrayRef, ArrayRef) {
    macro_rules! primitive {
        ($type:ty) => {
            primitive_bounds(array.as_primitive::<$type>())
        };
    }
    macro_rules! of_bytes {
        ($one_value:expr, $iterator:expr) => {{
            let (min, max) = extremes($iterator);
            let min = min.map(|min| cut_down(min, false));
            let max = max.and_then(|max| cut_up(max, false));
            ($one_value(min), $one_value(max))
        }};
    }
    /// Strings are handled as bytes; cutting respects characters.
    macro_rules! of_text {
        ($one_value:expr, $iterator:expr) => {{
            let (min, max) = extremes($iterator);
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).ok();
            let min = min.and_then(|min| text(cut_down(min, true)));
            let max = max.and_then(|max| text(cut_up(max, true)?));
            ($one_value(min), $one_value(max))
        }};
    }
    fn erased<A: Array + 'static>((min, max): (A, A)) -> (ArrayRef, ArrayRef) {
        (Arc::new(min), Arc::new(max))
    }
    downcast_primitive! {
        array.data_type() => (primitive),
        DataType::Boolean => {
            let array = array.as_boolean();
            let (any_true, any_false) = (array.true_count() > 0, array.false_count() > 0);
            let known = any_true || any_false;
            erased((
                BooleanArray::from(vec![known.then_some(!any_false)]),
                BooleanArray::from(vec![known.then_some(any_true)]),
            ))
        },
        DataType::Utf8 => erased(of_text!(
            one_value::<Utf8Type, _>,
            array.as_bytes::<Utf8Type>().iter().flatten().map(str::as_bytes)
        )),
        DataType::LargeUtf8 => erased(of_text!(
            one_value::<LargeUtf8Type, _>,
            array.as_bytes::<LargeUtf8Type>().iter().flatten().map(str::as_bytes)
        )),
        DataType::Utf8View => erased(of_text!(
            one_view::<StringViewType, _>,
            array.as_byte_view::<StringViewType>().iter().flatten().map(str::as_bytes)
        )),
        DataType::Binary => {
            erased(of_bytes!(one_value::<BinaryType, _>, array.as_bytes::<BinaryType>().iter().flatten()))
        },
        DataType::LargeBinary => {
            let values = array.as_bytes::<LargeBinaryType>().iter().flatten();
            erased(of_bytes!(one_value::<LargeBinaryType, _>, values))
        },
        DataType::BinaryView => {
            let values = array.as_byte_view::<BinaryViewType>().iter().flatten();
            erased(of_bytes!(one_view::<BinaryViewType, _>, values))
        },
        _ => unknown(&DataType::Null),
    }
}

/// An array of one value that takes what the value takes: collecting one reserves kilobytes.
fn one_value<T: ByteArrayType, V: AsRef<T::Native>>(value: Option<V>) -> GenericByteArray<T> {
    let bytes = value.as_ref().map_or(0, |value| AsRef::<[u8]>::as_ref(value.as_ref()).len());
    let mut builder = GenericByteBuilder::with_capacity(1, bytes);
    builder.append_option(value);
    builder.finish()
}

/// The same as a view.
fn one_view<T: ByteViewType, V: AsRef<T::Native>>(value: Option<V>) -> GenericByteViewArray<T> {
    let bytes = value.as_ref().map_or(0, |value| AsRef::<[u8]>::as_ref(value.as_ref()).len());
    let mut builder = GenericByteViewBuilder::with_capacity(1)
        .with_fixed_block_size(bytes.clamp(1, u32::MAX as usize) as u32);
    builder.append_option(value);
    builder.finish()
}

/// Bounds of which nothing is known.
pub(crate) fn unknown(bound_type: &DataType) -> (ArrayRef, ArrayRef) {
    (new_null_array(bound_type, 1), new_null_array(bound_type, 1))
}

fn primitive_bounds<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>) -> (ArrayRef, ArrayRef) {
    if matches!(T::DATA_TYPE, DataType::Interval(_)) {
        return unknown(&DataType::Null);
    }
    let lesser = |a: T::Native, b: T::Native| if b.is_lt(a) { b } else { a };
    let greater = |a: T::Native, b: T::Native| if b.is_gt(a) { b } else { a };
    let found = if array.null_count() == 0 {
        array.values().first().map(|&first| {
            let values = array.values().iter().copied();
            (values.clone().fold(first, lesser), values.fold(first, greater))
        })
    } else {
        array.iter().flatten().fold(None, |found, value| {
            let (min, max) = found.unwrap_or((value, value));
            Some((lesser(min, value), greater(max, value)))
        })
    };
    let typed = |value: Option<T::Native>| -> ArrayRef {
        let values = PrimitiveArray::<T>::from_iter([value]);
        Arc::new(values.with_data_type(array.data_type().clone()))
    };
    (typed(found.map(|(min, _)| min)), typed(found.map(|(_, max)| max)))
}

fn extremes<'a>(values: impl Iterator<Item = &'a [u8]>) -> (Option<&'a [u8]>, Option<&'a [u8]>) {
    values.fold((None, None), |(min, max), value| {
        (
            Some(min.map_or(value, |min: &[u8]| min.min(value))),
            Some(max.map_or(value, |max: &[u8]| max.max(value))),
        )
    })
}

/// Where to cut so that no character is divided.
fn cut_length(value: &[u8], text: bool) -> usize {
    let mut end = value.len().min(MAX_BOUND_BYTES);
    if text && end < value.len() {
        // Continuation bytes are 10xxxxxx: a character starts where one is not.
        while end > 0 && value[end] & 0xC0 == 0x80 {
            end -= 1;
        }
    }
    end
}

fn cut_down(value: &[u8], text: bool) -> Vec<u8> {
    value[..cut_length(value, text)].to_vec()
}

/// A short value that is not less than `value` and anything that starts with its prefix; none if all of it is maximal.
fn cut_up(value: &[u8], text: bool) -> Option<Vec<u8>> {
    let end = cut_length(value, text);
    if end == value.len() {
        return Some(value.to_vec());
    }
    let mut prefix = value[..end].to_vec();
    if !text {
        while let Some(last) = prefix.pop() {
            if last < u8::MAX {
                prefix.push(last + 1);
                return Some(prefix);
            }
        }
        return None;
    }
    let mut characters: Vec<char> = std::str::from_utf8(&prefix).ok()?.chars().collect();
    while let Some(last) = characters.pop() {
        if let Some(raised) = (last as u32 + 1..=char::MAX as u32).find_map(char::from_u32) {
            characters.push(raised);
            return Some(characters.into_iter().collect::<String>().into_bytes());
        }
    }
    None
}

/// Bounds of several containers together. A container of which nothing is known, though it has values, makes the whole
/// unknown.
pub(crate) fn joined(
    mins: &ArrayRef,
    maxes: &ArrayRef,
    has_values: impl Fn(usize) -> bool,
) -> (ArrayRef, ArrayRef) {
    let known = |array: &ArrayRef| {
        (0..array.len()).all(|container| array.is_valid(container) || !has_values(container))
    };
    let nothing = || new_null_array(mins.data_type(), 1);
    // A bound of bounds is a bound, also where a raised character made it long enough to be cut again.
    let min = if known(mins) { bounds(mins.as_ref()).0 } else { nothing() };
    let max = if known(maxes) { bounds(maxes.as_ref()).1 } else { nothing() };
    (min, max)
}

#[cfg(test)]
mod tests {
    use arrow_array::types::{Float64Type, Int32Type};
    use arrow_array::{Float64Array, Int32Array};

    use super::*;
    use arrow_array::{BinaryArray, StringArray, StringViewArray};

    fn integers(array: &ArrayRef) -> Option<i32> {
        array.is_valid(0).then(|| array.as_primitive::<Int32Type>().value(0))
    }

    #[test]
    fn bounds_take_what_their_values_take() {
        let texts = StringViewArray::from(vec!["somewhat longer than a view", "and another one of them"]);
        let (min, max) = bounds(&texts);
        assert!(min.get_array_memory_size() + max.get_array_memory_size() < 1_000);
        let (min, _) = bounds(&StringArray::from(vec!["a", "b"]));
        assert!(min.get_array_memory_size() < 500, "{}", min.get_array_memory_size());
    }

    #[test]
    fn integers_with_and_without_nulls() {
        let (min, max) = bounds(&Int32Array::from(vec![3, -7, 12]));
        assert_eq!((integers(&min), integers(&max)), (Some(-7), Some(12)));
        let (min, max) = bounds(&Int32Array::from(vec![None, Some(5), None, Some(4)]));
        assert_eq!((integers(&min), integers(&max)), (Some(4), Some(5)));
        let (min, max) = bounds(&Int32Array::from(vec![None, None]));
        assert_eq!((integers(&min), integers(&max)), (None, None));
        let (min, max) = bounds(&Int32Array::from(Vec::<i32>::new()));
        assert_eq!((integers(&min), integers(&max)), (None, None));
    }

    #[test]
    fn not_a_number_is_greatest() {
        let (min, max) = bounds(&Float64Array::from(vec![1.0, f64::NAN, -0.0, 0.0]));
        let value = |array: &ArrayRef| array.as_primitive::<Float64Type>().value(0);
        assert!(value(&max).is_nan());
        assert!(value(&min) == 0.0 && value(&min).is_sign_negative());
    }

    #[test]
    fn booleans() {
        let (min, max) = bounds(&BooleanArray::from(vec![Some(true), None]));
        assert!(min.as_boolean().value(0) && max.as_boolean().value(0));
        let (min, max) = bounds(&BooleanArray::from(vec![Some(true), Some(false)]));
        assert!(!min.as_boolean().value(0) && max.as_boolean().value(0));
    }

    #[test]
    fn long_strings_are_cut_outwards() {
        let long = "ž".repeat(40);
        let (min, max) = bounds(&StringViewArray::from(vec![long.as_str()]));
        let value = |array: &ArrayRef| array.as_string_view().value(0).to_owned();
        assert_eq!(value(&min), "ž".repeat(16));
        assert_eq!(value(&max), format!("{}ſ", "ž".repeat(15)));
        assert!(value(&min) <= long && long <= value(&max));
        let greatest = char::MAX.to_string().repeat(20);
        assert!(bounds(&StringArray::from(vec![greatest.as_str()])).1.is_null(0));
        let (_, max) = bounds(&BinaryArray::from(vec![[0xFFu8; 40].as_slice()]));
        assert!(max.is_null(0));
    }

    #[test]
    fn joining() {
        let mins: ArrayRef = Arc::new(Int32Array::from(vec![Some(3), None, Some(1)]));
        let maxes: ArrayRef = Arc::new(Int32Array::from(vec![Some(9), None, Some(4)]));
        let (min, max) = joined(&mins, &maxes, |container| container != 1);
        assert_eq!((integers(&min), integers(&max)), (Some(1), Some(9)));
        let (min, max) = joined(&mins, &maxes, |_| true);
        assert_eq!((integers(&min), integers(&max)), (None, None));
    }
}
