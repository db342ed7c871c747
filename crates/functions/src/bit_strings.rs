//! Strings of bits: padded, read and changed bit by bit, and combined.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, Int32Array, Int64Array, ListArray};
use arrow::datatypes::DataType;
use datafusion::common::cast::as_int64_array;
use datafusion::common::{Result, exec_datafusion_err, exec_err, plan_err};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::ScalarFunction;

use crate::casts::bits::{bit_type, is_bit, lists};
use crate::casts::{Failed, cast_array};
use crate::function::Kind::{Any, Integer};
use crate::function::{Kernel, arguments};
use crate::types::sql_type;

const MOST_BITS: usize = 1 << 27;

pub(crate) static FUNCTIONS: &[Kernel] = &[
    Kernel::new(
        &["bitstring"],
        &[&[Any, Integer]],
        |_| Ok(bit_type()),
        |given, _| {
            let [strings, lengths] = arguments(given)?;
            let strings = bits_of(strings)?;
            rows_with_number(&strings, lengths, |bits, length| match usize::try_from(length) {
                Ok(length) if length > MOST_BITS => {
                    exec_err!("bitstring: {length} bits; there are up to {MOST_BITS}")
                }
                Ok(length) if length >= bits.len() => {
                    Ok(std::iter::repeat_n(false, length - bits.len()).chain(bits).collect())
                }
                _ => exec_err!("bitstring: {} bits do not become {length}", bits.len()),
            })
        },
    ),
    Kernel::new(
        &["get_bit"],
        &[&[Any, Integer]],
        |_| Ok(DataType::Int32),
        |given, _| {
            let [strings, numbers] = arguments(given)?;
            let strings = bits_of(strings)?;
            let numbers = as_int64_array(numbers)?;
            let rows = strings.iter().zip(numbers.iter()).map(|(bits, number)| {
                let (Some(bits), Some(number)) = (bits, number) else { return Ok(None) };
                Ok(Some(i32::from(bits.as_boolean().value(place(number, bits.len())?))))
            });
            Ok(Arc::new(rows.collect::<Result<Int32Array>>()?))
        },
    ),
    Kernel::new(
        &["set_bit"],
        &[&[Any, Integer, Integer]],
        |_| Ok(bit_type()),
        |given, _| {
            let [strings, numbers, values] = arguments(given)?;
            let strings = bits_of(strings)?;
            let (numbers, values) = (as_int64_array(numbers)?, as_int64_array(values)?);
            let rows =
                strings.iter().zip(numbers.iter().zip(values.iter())).map(|(bits, (number, value))| {
                    let (Some(bits), Some(number), Some(value)) = (bits, number, value) else {
                        return Ok(None);
                    };
                    let mut bits: Vec<bool> = bits.as_boolean().values().iter().collect();
                    let place = place(number, bits.len())?;
                    let value = match value {
                        0 => false,
                        1 => true,
                        other => return exec_err!("a bit is 0 or 1, and not {other}"),
                    };
                    bits.iter_mut().skip(place).take(1).for_each(|bit| *bit = value);
                    Ok(Some(bits.into_iter()))
                });
            lists(rows.collect::<Result<Vec<_>>>()?.into_iter())
        },
    ),
    Kernel::new(
        &["bit_position"],
        &[&[Any, Any]],
        |_| Ok(DataType::Int32),
        |given, _| {
            let [wanted, strings] = arguments(given)?;
            let (wanted, strings) = (bits_of(wanted)?, bits_of(strings)?);
            let rows = wanted.iter().zip(strings.iter()).map(|(wanted, bits)| {
                let wanted: Vec<bool> = wanted?.as_boolean().values().iter().collect();
                let bits: Vec<bool> = bits?.as_boolean().values().iter().collect();
                let place = bits.windows(wanted.len().max(1)).position(|window| window == wanted);
                Some(place.map_or(0, |place| place as i32 + 1))
            });
            Ok(Arc::new(rows.collect::<Int32Array>()))
        },
    ),
    Kernel::new(&["bits_and"], &[&[Any, Any]], |_| Ok(bit_type()), |given, _| pairs(given, |a, b| a & b)),
    Kernel::new(&["bits_or"], &[&[Any, Any]], |_| Ok(bit_type()), |given, _| pairs(given, |a, b| a | b)),
    Kernel::new(&["bits_xor"], &[&[Any, Any]], |_| Ok(bit_type()), |given, _| pairs(given, |a, b| a ^ b)),
    Kernel::new(&["bits_not"], &[&[Any]], inverse_type, |given, returned| {
        let [strings] = arguments(given)?;
        if returned.is_signed_integer() {
            let bits = arrow::compute::cast(strings, &DataType::Int64)?;
            let inverse: Int64Array = as_int64_array(&bits)?.unary(|number| !number);
            return Ok(arrow::compute::cast(&inverse, returned)?);
        }
        let strings = bits_of(strings)?;
        let rows = strings.iter().map(|bits| {
            Some(bits?.as_boolean().values().iter().map(|bit| !bit).collect::<Vec<_>>().into_iter())
        });
        lists(rows)
    }),
    Kernel::new(
        &["bits_shift_left"],
        &[&[Any, Integer]],
        |_| Ok(bit_type()),
        |given, _| shifted(given, true),
    ),
    Kernel::new(
        &["bits_shift_right"],
        &[&[Any, Integer]],
        |_| Ok(bit_type()),
        |given, _| shifted(given, false),
    ),
];

/// What `~` gives.
fn inverse_type(given: &[DataType]) -> Result<DataType> {
    match given {
        [number] if number.is_signed_integer() => Ok(number.clone()),
        [other] if other.is_numeric() => {
            plan_err!("~{} does not exist; cast the number to BIGINT", sql_type(other))
        }
        _ => Ok(bit_type()),
    }
}

/// An operator of strings of bits, if these are the types of its operands.
pub fn bit_operation(operator: &str, operands: [(&Expr, &DataType); 2]) -> Option<Expr> {
    let [(_, first), _] = operands;
    if !is_bit(first) {
        return None;
    }
    let name = match operator {
        "&" => "bits_and",
        "|" => "bits_or",
        "xor" => "bits_xor",
        "<<" => "bits_shift_left",
        ">>" => "bits_shift_right",
        _ => return None,
    };
    let kernel = FUNCTIONS.iter().find(|kernel| kernel.name() == name)?;
    let operands = operands.map(|(operand, _)| operand.clone()).to_vec();
    Some(Expr::ScalarFunction(ScalarFunction::new_udf(kernel.function(), operands)))
}

/// The bits that one of two strings of them has, or one of two `HUGEINT`s.
pub(crate) fn xor(given: &[ArrayRef]) -> Result<ArrayRef> {
    let [first, _] = arguments(given)?;
    if is_bit(first.data_type()) { pairs(given, |a, b| a ^ b) } else { crate::huge_bits::xor(given) }
}

/// Strings of bits, of texts too.
fn bits_of(values: &ArrayRef) -> Result<ListArray> {
    if values.data_type().is_string() || values.data_type().is_null() || is_bit(values.data_type()) {
        return Ok(cast_array(values, &bit_type(), Failed::IsError)?.as_list::<i32>().clone());
    }
    plan_err!("{} is no string of bits; cast it to BIT", sql_type(values.data_type()))
}

fn place(number: i64, length: usize) -> Result<usize> {
    let place = usize::try_from(number).ok().filter(|place| *place < length);
    place.ok_or_else(|| {
        exec_datafusion_err!("there is no bit {number} in {length} bits, which are counted from 0")
    })
}

fn rows_with_number(
    strings: &ListArray,
    numbers: &ArrayRef,
    of: impl Fn(Vec<bool>, i64) -> Result<Vec<bool>>,
) -> Result<ArrayRef> {
    let rows = strings.iter().zip(as_int64_array(numbers)?.iter()).map(|(bits, number)| {
        let (Some(bits), Some(number)) = (bits, number) else { return Ok(None) };
        Ok(Some(of(bits.as_boolean().values().iter().collect(), number)?.into_iter()))
    });
    lists(rows.collect::<Result<Vec<_>>>()?.into_iter())
}

fn pairs(given: &[ArrayRef], of: impl Fn(bool, bool) -> bool) -> Result<ArrayRef> {
    let [left, right] = arguments(given)?;
    let (left, right) = (bits_of(left)?, bits_of(right)?);
    let rows = left.iter().zip(right.iter()).map(|(left, right)| {
        let (Some(left), Some(right)) = (left, right) else { return Ok(None) };
        if left.len() != right.len() {
            return exec_err!("strings of {} and {} bits cannot be combined", left.len(), right.len());
        }
        let (left, right) = (left.as_boolean().values(), right.as_boolean().values());
        let bits: Vec<bool> = left.iter().zip(right.iter()).map(|(left, right)| of(left, right)).collect();
        Ok(Some(bits.into_iter()))
    });
    lists(rows.collect::<Result<Vec<_>>>()?.into_iter())
}

fn shifted(given: &[ArrayRef], to_left: bool) -> Result<ArrayRef> {
    let [strings, numbers] = arguments(given)?;
    rows_with_number(&bits_of(strings)?, numbers, |bits, by| {
        let Ok(by) = usize::try_from(by) else { return exec_err!("bits cannot be shifted by {by}") };
        let by = by.min(bits.len());
        let zeros = std::iter::repeat_n(false, by);
        Ok(match to_left {
            true => bits.iter().copied().skip(by).chain(zeros).collect(),
            false => zeros.chain(bits.iter().copied().take(bits.len() - by)).collect(),
        })
    })
}
