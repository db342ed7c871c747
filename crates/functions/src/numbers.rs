//! Numbers: signs, bits, and quotients of floating-point numbers; hashes of anything.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, BooleanArray, Float64Array, Int8Array, Int64Array, UInt64Array, new_null_array,
};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::cast::{
    as_boolean_array, as_float64_array, as_int64_array, as_string_view_array, as_timestamp_microsecond_array,
};
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::common::{Result, exec_err};

use crate::casts::bits::is_bit;
use crate::casts::huge_integers::HUGE;
use crate::casts::is_infinite_time;
use crate::function::Kind::{Any, Boolean, Float, Integer, Text, Timestamp};
use crate::function::{Kernel, arguments};

pub(crate) static FUNCTIONS: &[Kernel] = &[
    Kernel::new(&["even"], &[&[Float]], double, |given, _| {
        floats(given, |value| {
            let halves = (value.abs() / 2.0).ceil() * 2.0;
            halves.copysign(value)
        })
    }),
    Kernel::new(&["fdiv"], &[&[Float, Float]], double, |given, _| {
        float_pairs(given, |dividend, divisor| (dividend / divisor).floor())
    }),
    Kernel::new(&["fmod"], &[&[Float, Float]], double, |given, _| {
        float_pairs(given, |dividend, divisor| dividend - divisor * (dividend / divisor).floor())
    }),
    Kernel::new(&["nextafter"], &[&[Float, Float]], double, |given, _| {
        float_pairs(given, |value, towards| match value.partial_cmp(&towards) {
            Some(std::cmp::Ordering::Less) => value.next_up(),
            Some(std::cmp::Ordering::Greater) => value.next_down(),
            Some(std::cmp::Ordering::Equal) => towards,
            None => f64::NAN,
        })
    }),
    Kernel::new(
        &["sign"],
        &[&[Float]],
        |_| Ok(DataType::Int8),
        |given, _| {
            let [values] = arguments(given)?;
            let sign = |value: f64| i8::from(value > 0.0) - i8::from(value < 0.0);
            let signs = as_float64_array(values)?.iter().map(|value| value.map(sign));
            Ok(Arc::new(signs.collect::<Int8Array>()))
        },
    ),
    Kernel::new(&["signbit"], &[&[Float]], boolean, |given, _| float_answers(given, f64::is_sign_negative)),
    Kernel::new(&["isinf"], &[&[Float], &[Timestamp]], boolean, |given, _| {
        float_answers(given, f64::is_infinite)
    }),
    Kernel::new(&["isfinite"], &[&[Float], &[Timestamp]], boolean, |given, _| {
        float_answers(given, f64::is_finite)
    }),
    Kernel::new(&["bit_count"], &[&[Any]], |_| Ok(DataType::Int8), bit_count),
    Kernel::new(&["gamma"], &[&[Float]], double, |given, _| floats(given, libm::tgamma)),
    Kernel::new(&["lgamma"], &[&[Float]], double, |given, _| floats(given, libm::lgamma)),
    Kernel::new(
        &["error"],
        &[&[Text]],
        |_| Ok(DataType::Null),
        |given, _| {
            let [messages] = arguments(given)?;
            match as_string_view_array(messages)?.iter().flatten().next() {
                Some(message) => exec_err!("{message}"),
                None => Ok(new_null_array(&DataType::Null, messages.len())),
            }
        },
    ),
    Kernel::new(
        &["assert_true"],
        &[&[Boolean], &[Boolean, Text]],
        |_| Ok(DataType::Null),
        |given, _| {
            let [conditions] = arguments(given)?;
            let conditions = as_boolean_array(conditions)?;
            let failed = conditions.iter().position(|holds| holds != Some(true));
            let message = match (failed, given.get(1)) {
                (None, _) => return Ok(new_null_array(&DataType::Null, conditions.len())),
                (Some(row), Some(messages)) => {
                    let messages = as_string_view_array(messages)?;
                    messages.is_valid(row).then(|| messages.value(row))
                }
                (Some(_), None) => None,
            };
            match message {
                Some(message) => exec_err!("an assertion does not hold: {message}"),
                None => exec_err!("an assertion does not hold"),
            }
        },
    ),
    Kernel::new(
        &["xor"],
        &[&[Integer, Integer], &[Any, Any]],
        |given| match given {
            [first, _] if is_bit(first) => Ok(first.clone()),
            [DataType::Int64, _] => Ok(DataType::Int64),
            _ => Ok(HUGE),
        },
        |given, _| {
            let [first, second] = arguments(given)?;
            if *first.data_type() != DataType::Int64 {
                return crate::bit_strings::xor(given);
            }
            let pairs = as_int64_array(first)?.iter().zip(as_int64_array(second)?.iter());
            let bits = pairs.map(|(first, second)| Some(first? ^ second?));
            Ok(Arc::new(bits.collect::<Int64Array>()))
        },
    ),
    Kernel::new(
        &["hash"],
        &[&[Any]],
        |_| Ok(DataType::UInt64),
        |given, _| {
            let [first] = arguments(given)?;
            let mut hashes = vec![0; first.len()];
            create_hashes(given, &RandomState::with_seed(0), &mut hashes)?;
            Ok(Arc::new(UInt64Array::from(hashes)))
        },
    )
    .repeating(),
];

fn double(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Float64)
}

fn boolean(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Boolean)
}

fn floats(given: &[ArrayRef], of: impl Fn(f64) -> f64) -> Result<ArrayRef> {
    let [values] = arguments(given)?;
    Ok(Arc::new(as_float64_array(values)?.unary::<_, arrow::datatypes::Float64Type>(of)))
}

fn float_pairs(given: &[ArrayRef], of: impl Fn(f64, f64) -> f64) -> Result<ArrayRef> {
    let [first, second] = arguments(given)?;
    let pairs = as_float64_array(first)?.iter().zip(as_float64_array(second)?.iter());
    Ok(Arc::new(pairs.map(|(first, second)| Some(of(first?, second?))).collect::<Float64Array>()))
}

/// Points in time are all finite, and answer as zero does.
fn float_answers(given: &[ArrayRef], holds: impl Fn(f64) -> bool) -> Result<ArrayRef> {
    let [values] = arguments(given)?;
    let answers: BooleanArray = match values.data_type() {
        DataType::Float64 => as_float64_array(values)?.iter().map(|value| value.map(&holds)).collect(),
        _ => {
            let of_time = |time: i64| match is_infinite_time(time) {
                true => f64::INFINITY,
                false => 0.0,
            };
            let times = as_timestamp_microsecond_array(values)?.iter();
            times.map(|time| time.map(|time| holds(of_time(time)))).collect()
        }
    };
    Ok(Arc::new(answers))
}

/// The bits that are set; negative numbers have as many as their type.
fn bit_count(given: &[ArrayRef], _: &DataType) -> Result<ArrayRef> {
    let [values] = arguments(given)?;
    let bits = match values.data_type() {
        DataType::Int8 | DataType::UInt8 => 8,
        DataType::Int16 | DataType::UInt16 => 16,
        DataType::Int32 | DataType::UInt32 => 32,
        _ => 64,
    };
    let mask = u64::MAX >> (64 - bits);
    let counts: Int8Array = match values.data_type() {
        DataType::UInt64 => {
            let values = datafusion::common::cast::as_uint64_array(values)?;
            values.iter().map(|value| value.map(|value| value.count_ones() as i8)).collect()
        }
        data_type if data_type.is_integer() || data_type.is_null() => {
            let values = cast(values, &DataType::Int64)?;
            let count = |value: i64| (value as u64 & mask).count_ones() as i8;
            as_int64_array(&values)?.iter().map(|value| value.map(count)).collect()
        }
        other => {
            return datafusion::common::exec_err!(
                "bit_count({}) does not exist; write bit_count(BIGINT)",
                crate::types::sql_type(other)
            );
        }
    };
    Ok(Arc::new(counts))
}
