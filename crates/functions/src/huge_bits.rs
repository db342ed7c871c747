//! Bits and whole quotients of `HUGEINT`s, which DataFusion would compute in 64 bits, or as decimals.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray as _, Decimal256Array};
use arrow::datatypes::{DataType, Decimal256Type, i256};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, cast};

use crate::casts::huge_integers::HUGE;
use crate::casts::{Failed, cast_array};
use crate::function::Kind::Any;
use crate::function::{Kernel, arguments};

pub(crate) static FUNCTIONS: &[Kernel] = &[
    Kernel::new(&["huge_and"], &[&[Any, Any]], huge, |given, _| of_bits(given, |a, b| Ok(Some(a & b)))),
    Kernel::new(&["huge_or"], &[&[Any, Any]], huge, |given, _| of_bits(given, |a, b| Ok(Some(a | b)))),
    Kernel::new(&["huge_xor"], &[&[Any, Any]], huge, |given, _| of_bits(given, |a, b| Ok(Some(a ^ b)))),
    Kernel::new(&["huge_shift_left"], &[&[Any, Any]], huge, |given, _| {
        of_bits(given, |value, by| match (u32::try_from(by), value) {
            (Err(_), _) => exec_err!("bits cannot be shifted by {by}"),
            (_, ..0) => exec_err!("{value} is negative, and cannot be shifted to the left"),
            (Ok(by), 0) => Ok(Some(0).filter(|_| by < u32::MAX)),
            (Ok(by), _) if by < value.leading_zeros() => Ok(Some(value << by)),
            _ => exec_err!("{value} << {by} is out of the range of HUGEINT"),
        })
    }),
    Kernel::new(&["huge_shift_right"], &[&[Any, Any]], huge, |given, _| {
        of_bits(given, |value, by| {
            Ok(Some(u32::try_from(by).ok().and_then(|by| value.checked_shr(by)).unwrap_or(0)))
        })
    }),
    Kernel::new(&["huge_quotient"], &[&[Any, Any]], huge, |given, _| {
        pairs(given, |dividend, divisor| match dividend.checked_div(divisor) {
            Some(quotient) if dividend < i256::ZERO && quotient > i256::from_i128(i128::MAX) => {
                exec_err!("{dividend} // {divisor} is out of the range of HUGEINT")
            }
            Some(quotient) => Ok(Some(quotient)),
            None => exec_err!("{dividend} // {divisor}: a division by zero"),
        })
    }),
];

fn huge(_: &[DataType]) -> Result<DataType> {
    Ok(HUGE)
}

/// An operator, of which an operand is a `HUGEINT` and the others are whole numbers.
pub fn huge_operation(operator: &str, operands: [(&Expr, &DataType); 2]) -> Option<Expr> {
    let is_whole = |of: &DataType| {
        of.is_integer()
            || of.is_null()
            || matches!(of, DataType::Decimal128(_, 0) | DataType::Decimal256(_, 0))
    };
    let is_huge = |of: &DataType| matches!(of, DataType::Decimal256(39.., 0));
    if !operands.iter().any(|(_, of)| is_huge(of)) || !operands.iter().all(|(_, of)| is_whole(of)) {
        return None;
    }
    let name = match operator {
        "&" => "huge_and",
        "|" => "huge_or",
        "xor" => "huge_xor",
        "<<" => "huge_shift_left",
        ">>" => "huge_shift_right",
        "//" => "huge_quotient",
        _ => return None,
    };
    let kernel = FUNCTIONS.iter().find(|kernel| kernel.name() == name)?;
    let operands = operands.map(|(operand, _)| cast(operand.clone(), HUGE)).to_vec();
    Some(Expr::ScalarFunction(ScalarFunction::new_udf(kernel.function(), operands)))
}

/// The bits that one of two numbers has.
pub(crate) fn xor(given: &[ArrayRef]) -> Result<ArrayRef> {
    let wide = given.iter().map(|numbers| cast_array(numbers, &HUGE, Failed::IsError));
    of_bits(&wide.collect::<Result<Vec<_>>>()?, |a, b| Ok(Some(a ^ b)))
}

fn pairs(given: &[ArrayRef], of: impl Fn(i256, i256) -> Result<Option<i256>>) -> Result<ArrayRef> {
    let [left, right] = arguments(given)?;
    let pairs =
        left.as_primitive::<Decimal256Type>().iter().zip(right.as_primitive::<Decimal256Type>().iter());
    let results = pairs.map(|(left, right)| match (left, right) {
        (Some(left), Some(right)) => of(left, right),
        _ => Ok(None),
    });
    let results = results.collect::<Result<Decimal256Array>>()?;
    Ok(Arc::new(results.with_precision_and_scale(39, 0)?))
}

/// Of operands that 128 bits hold.
fn of_bits(given: &[ArrayRef], of: impl Fn(i128, i128) -> Result<Option<i128>>) -> Result<ArrayRef> {
    pairs(given, |left, right| match (left.to_i128(), right.to_i128()) {
        (Some(left), Some(right)) => Ok(of(left, right)?.map(i256::from_i128)),
        _ => exec_err!("the bits of {left} and {right} are not those of HUGEINT"),
    })
}
