//! Floating-point numbers as keys, which are compared by their bits: SQL has one zero and one NaN.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, OffsetSizeTrait, UInt64Array, make_array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::take;
use arrow::datatypes::{ArrowPrimitiveType, DataType, Float16Type, Float32Type, Float64Type};
use datafusion::common::Result;
use datafusion::common::utils::normalize_float_zero;

/// Whether values of a type are floating-point numbers, or hold some.
pub fn holds_floats(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => holds_floats(field.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| holds_floats(field.data_type())),
        DataType::Union(fields, _) => fields.iter().any(|(_, field)| holds_floats(field.data_type())),
        DataType::Dictionary(_, values) => holds_floats(values),
        DataType::RunEndEncoded(_, values) => holds_floats(values.data_type()),
        other => other.is_floating(),
    }
}

/// An array with `0.0` for `-0.0`, and one NaN for all, also inside of its values. Without floating-point numbers it stays
/// as it is.
pub fn canonical(array: &ArrayRef) -> Result<ArrayRef> {
    match array.data_type() {
        // What 0.0 / 0.0 gives has its sign bit set on some processors.
        DataType::Float16 => Ok(with_one_nan::<Float16Type>(normalize_float_zero(array), Half::NAN)),
        DataType::Float32 => Ok(with_one_nan::<Float32Type>(normalize_float_zero(array), f32::NAN)),
        DataType::Float64 => Ok(with_one_nan::<Float64Type>(normalize_float_zero(array), f64::NAN)),
        nested if holds_floats(nested) => {
            // A few lists out of many have the values of all behind them.
            let data = match is_cut_out(array) {
                true => take(array, &UInt64Array::from_iter_values(0..array.len() as u64), None)?.to_data(),
                false => array.to_data(),
            };
            let of_child = |child| Ok(canonical(&make_array(child))?.to_data());
            let children = data.child_data().iter().cloned().map(of_child).collect::<Result<_>>()?;
            Ok(make_array(data.into_builder().child_data(children).build()?))
        }
        _ => Ok(Arc::clone(array)),
    }
}

/// Whether lists or maps have only some of the values that lie behind them.
fn is_cut_out(array: &ArrayRef) -> bool {
    match array.data_type() {
        DataType::List(_) => {
            are_some(array.as_list::<i32>().offsets(), array.as_list::<i32>().values().len())
        }
        DataType::LargeList(_) => {
            are_some(array.as_list::<i64>().offsets(), array.as_list::<i64>().values().len())
        }
        DataType::Map(..) => are_some(array.as_map().offsets(), array.as_map().entries().len()),
        _ => false,
    }
}

fn are_some<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>, values: usize) -> bool {
    let ends = offsets.first().zip(offsets.last());
    ends.is_some_and(|(from, to)| from.as_usize() != 0 || to.as_usize() != values)
}

type Half = <Float16Type as ArrowPrimitiveType>::Native;

fn with_one_nan<T: ArrowPrimitiveType>(array: ArrayRef, nan: T::Native) -> ArrayRef {
    let is_nan = |value: &T::Native| value.partial_cmp(value).is_none();
    let values = array.as_primitive::<T>();
    if !values.values().iter().any(is_nan) {
        return array;
    }
    Arc::new(values.unary::<_, T>(|value| if is_nan(&value) { nan } else { value }))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, ListArray, StructArray};
    use arrow::datatypes::Field;

    use super::*;

    #[test]
    fn there_is_one_zero_and_one_nan() {
        let nan = f64::NAN;
        let array: ArrayRef =
            Arc::new(Float64Array::from(vec![Some(-0.0), Some(-nan), None, Some(nan), Some(-1.5)]));
        let canonical = canonical(&array).unwrap();
        let bits: Vec<Option<u64>> =
            canonical.as_primitive::<Float64Type>().iter().map(|value| value.map(f64::to_bits)).collect();
        let nan = Some(nan.to_bits());
        assert_eq!(bits, [Some(0), nan, None, nan, Some((-1.5_f64).to_bits())]);
    }

    #[test]
    fn numbers_inside_of_values_too() {
        let item = |value: f64| Some(vec![Some(value), None]);
        let lists = |zero: f64, nan: f64| -> ArrayRef {
            let rows = [item(zero), None, item(nan)];
            Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>(rows))
        };
        let structs = |lists: ArrayRef| -> ArrayRef {
            let field = Arc::new(Field::new("list", lists.data_type().clone(), true));
            Arc::new(StructArray::from(vec![(field, lists)]))
        };
        let (found, expected) = (structs(lists(-0.0, -f64::NAN)), structs(lists(0.0, f64::NAN)));
        assert_eq!(&canonical(&found).unwrap(), &expected);
        for row in 0..3 {
            assert_eq!(&canonical(&found.slice(row, 1)).unwrap(), &expected.slice(row, 1));
        }
        assert_ne!(&found, &expected);
    }
}
