//! What exact sums are made of, and what becomes of them.

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;

use arrow::array::ArrowNativeTypeOp;
use arrow::datatypes::{
    ArrowPrimitiveType, DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Decimal128Type,
    Decimal256Type, DecimalType, Int32Type, Int64Type, UInt32Type, UInt64Type, i256,
};
use datafusion::common::{DataFusionError, Result, ScalarValue, exec_datafusion_err, internal_err};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    Sum,
    Average,
}

/// The digits that a sum of decimals has more than they have.
const MORE_DIGITS: u8 = 10;

/// The type of the sum of integers or decimals.
pub fn sum_of(argument: &DataType) -> Option<DataType> {
    let longer = |digits: u8, most: u8| most.min(digits.saturating_add(MORE_DIGITS));
    Some(match argument {
        DataType::Int32 => DataType::Int64,
        DataType::UInt32 => DataType::UInt64,
        DataType::Int64 | DataType::UInt64 => DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0),
        DataType::Decimal128(digits, scale) => {
            DataType::Decimal128(longer(*digits, DECIMAL128_MAX_PRECISION), *scale)
        }
        DataType::Decimal256(digits, scale) => {
            DataType::Decimal256(longer(*digits, DECIMAL256_MAX_PRECISION), *scale)
        }
        _ => return None,
    })
}

/// A type whose sums are exact.
pub trait Summand: ArrowPrimitiveType<Native: Into<SumOf<Self>> + Hash + Eq> + fmt::Debug + Send {
    type Sum: ArrowPrimitiveType + fmt::Debug + Send;

    /// Whether the sum of all values of an array fits into the type of the sum, whatever they are. An array has fewer than
    /// 2^32 values.
    const FITS: bool;

    fn as_f64(sum: SumOf<Self>) -> f64;

    /// Whether a sum has no more digits than its type.
    fn is_valid(_: SumOf<Self>, _: &DataType) -> bool {
        true
    }
}

/// The native type of a sum.
pub type SumOf<T> = <<T as Summand>::Sum as ArrowPrimitiveType>::Native;

/// Integers, whose sums fit into a wider type.
macro_rules! summand {
    ($integer:ty, $sum:ty) => {
        impl Summand for $integer {
            type Sum = $sum;
            const FITS: bool = true;

            fn as_f64(sum: SumOf<Self>) -> f64 {
                sum as f64
            }
        }
    };
}

summand!(Int32Type, Int64Type);
summand!(UInt32Type, UInt64Type);
summand!(Int64Type, Decimal128Type);
summand!(UInt64Type, Decimal128Type);

impl Summand for Decimal128Type {
    type Sum = Decimal128Type;
    const FITS: bool = false;

    fn as_f64(sum: i128) -> f64 {
        sum as f64
    }

    fn is_valid(sum: i128, data_type: &DataType) -> bool {
        matches!(data_type, DataType::Decimal128(digits, _) if Self::is_valid_decimal_precision(sum, *digits))
    }
}

impl Summand for Decimal256Type {
    type Sum = Decimal256Type;
    const FITS: bool = false;

    fn as_f64(sum: i256) -> f64 {
        let (low, high) = sum.to_parts();
        (high as f64).mul_add(2_f64.powi(128), low as f64)
    }

    fn is_valid(sum: i256, data_type: &DataType) -> bool {
        matches!(data_type, DataType::Decimal256(digits, _) if Self::is_valid_decimal_precision(sum, *digits))
    }
}

/// The function, and the types of its argument and of the sum.
#[derive(Clone, Debug)]
pub struct Summands<T> {
    pub function: Function,
    pub argument: DataType,
    pub sum: DataType,
    of: PhantomData<fn() -> T>,
}

impl<T: Summand> Summands<T> {
    pub fn new(function: Function, argument: DataType) -> Result<Self> {
        match sum_of(&argument) {
            Some(sum) => Ok(Summands { function, argument, sum, of: PhantomData }),
            None => internal_err!("an exact sum of {argument}"),
        }
    }

    pub fn add(&self, sum: SumOf<T>, value: SumOf<T>) -> Result<SumOf<T>> {
        sum.add_checked(value).map_err(|_| self.too_large())
    }

    pub fn subtract(&self, sum: SumOf<T>, value: SumOf<T>) -> Result<SumOf<T>> {
        sum.sub_checked(value).map_err(|_| self.too_large())
    }

    /// The sum, if it has no more digits than its type.
    pub fn checked(&self, sum: SumOf<T>) -> Result<SumOf<T>> {
        if T::is_valid(sum, &self.sum) { Ok(sum) } else { Err(self.too_large()) }
    }

    pub fn average(&self, sum: SumOf<T>, values: u64) -> f64 {
        let scale = match self.sum {
            DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => scale,
            _ => 0,
        };
        T::as_f64(sum) / 10_f64.powi(scale.into()) / values as f64
    }

    /// The sum or average of so many values.
    pub fn result(&self, sum: SumOf<T>, values: u64) -> Result<ScalarValue> {
        let has_any = values > 0;
        match self.function {
            Function::Sum => {
                let sum = has_any.then(|| self.checked(sum)).transpose()?;
                ScalarValue::new_primitive::<T::Sum>(sum, &self.sum)
            }
            Function::Average => Ok(ScalarValue::Float64(has_any.then(|| self.average(sum, values)))),
        }
    }

    pub fn too_large(&self) -> DataFusionError {
        exec_datafusion_err!(
            "a sum of {} does not fit into {}; sum a larger type or an approximation, as CAST(… AS DOUBLE)",
            self.argument,
            self.sum
        )
    }
}
