//! `HUGEINT` and `UHUGEINT`: whole decimals of 39 digits, which casts keep within 128 bits.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray as _, Decimal256Array};
use arrow::datatypes::{DataType, Decimal256Type, i256};
use datafusion::common::{Result, exec_err};

use super::{CANNOT_BE_CAST, Failed};
use crate::function::Kind::Any;
use crate::function::{Kernel, arguments};

/// The type `HUGEINT`.
pub(crate) const HUGE: DataType = DataType::Decimal256(39, 0);

/// The functions that statements with casts to these types call.
pub(crate) static FUNCTIONS: &[Kernel] = &[
    Kernel::new(&["hugeint_of"], &[&[Any]], huge, |given, _| within(given, "HUGEINT", Failed::IsError)),
    Kernel::new(&["try_hugeint_of"], &[&[Any]], huge, |given, _| within(given, "HUGEINT", Failed::IsNull)),
    Kernel::new(&["uhugeint_of"], &[&[Any]], huge, |given, _| within(given, "UHUGEINT", Failed::IsError)),
    Kernel::new(&["try_uhugeint_of"], &[&[Any]], huge, |given, _| within(given, "UHUGEINT", Failed::IsNull)),
];

fn huge(_: &[DataType]) -> Result<DataType> {
    Ok(HUGE)
}

/// The numbers that the type has.
fn within(given: &[ArrayRef], name: &str, failed: Failed) -> Result<ArrayRef> {
    let [numbers] = arguments(given)?;
    let range = match name {
        "UHUGEINT" => i256::ZERO..=i256::from_parts(u128::MAX, 0),
        _ => i256::from_i128(i128::MIN)..=i256::from_i128(i128::MAX),
    };
    let numbers = super::cast_array(numbers, &HUGE, failed)?;
    let numbers = numbers.as_primitive::<Decimal256Type>();
    if failed == Failed::IsError
        && let Some(beyond) = numbers.iter().flatten().find(|number| !range.contains(number))
    {
        return exec_err!("'{beyond}'{CANNOT_BE_CAST}{name}");
    }
    let kept = numbers.iter().map(|number| number.filter(|number| range.contains(number)));
    Ok(Arc::new(kept.collect::<Decimal256Array>().with_precision_and_scale(39, 0)?))
}
