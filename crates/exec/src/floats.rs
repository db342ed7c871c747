//! Floating-point numbers as keys, which are compared by their bits: SQL has one zero and one NaN.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float32Array, Float64Array};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::common::utils::normalize_float_zero;

/// An array with `0.0` for `-0.0`, and one NaN for all. Arrays of other types stay as they are.
pub fn canonical(array: &ArrayRef) -> ArrayRef {
    let array = normalize_float_zero(array);
    // What 0.0 / 0.0 gives has its sign bit set on some processors.
    match array.data_type() {
        DataType::Float32 => {
            let values = array.as_primitive::<Float32Type>();
            if values.values().iter().any(|value| value.is_nan()) {
                let canonical: Float32Array =
                    values.unary(|value| if value.is_nan() { f32::NAN } else { value });
                return Arc::new(canonical);
            }
        }
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>();
            if values.values().iter().any(|value| value.is_nan()) {
                let canonical: Float64Array =
                    values.unary(|value| if value.is_nan() { f64::NAN } else { value });
                return Arc::new(canonical);
            }
        }
        _ => {}
    }
    array
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_zero_and_one_nan() {
        let nan = f64::NAN;
        let array: ArrayRef =
            Arc::new(Float64Array::from(vec![Some(-0.0), Some(-nan), None, Some(nan), Some(-1.5)]));
        let canonical = canonical(&array);
        let bits: Vec<Option<u64>> =
            canonical.as_primitive::<Float64Type>().iter().map(|value| value.map(f64::to_bits)).collect();
        let nan = Some(nan.to_bits());
        assert_eq!(bits, [Some(0), nan, None, nan, Some((-1.5_f64).to_bits())]);
    }
}
