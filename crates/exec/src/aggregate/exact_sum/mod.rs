//! `sum` that is exact for integers and decimals, or an error; DataFusion's wraps around.
//!
//! The types are those of Postgres:
//!
//! | sum of | is a |
//! |---|---|
//! | integers of up to 32 bits | integer of 64 bits |
//! | integers of 64 bits | `DECIMAL(38, 0)`, which 2^63 of them fit into |
//! | decimals | decimal with ten more digits, 38 at most |
//! | `REAL`, `DOUBLE` | `DOUBLE`, by DataFusion's `sum` |
//! | intervals and durations | the same type, by DataFusion's `sum` |

mod distinct;
mod groups;
mod rows;

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use arrow::array::ArrowNativeTypeOp;
use arrow::datatypes::{
    ArrowPrimitiveType, DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Decimal128Type,
    Decimal256Type, DecimalType, Field, FieldRef, Int32Type, Int64Type, UInt32Type, UInt64Type,
};
use datafusion::common::{DataFusionError, Result, exec_datafusion_err, internal_err, plan_err};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF, Signature,
    Volatility,
};

use distinct::DistinctSum;
use groups::GroupSums;
use rows::RowSum;

/// `sum`, in place of DataFusion's.
pub fn exact_sum() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(ExactSum {
        signature: Signature::user_defined(Volatility::Immutable),
        of_other_types: sum_udaf(),
    }))
}

/// The digits that a sum of decimals has more than they have.
const MORE_DIGITS: u8 = 10;

#[derive(PartialEq, Eq, Hash)]
struct ExactSum {
    signature: Signature,
    of_other_types: Arc<AggregateUDF>,
}

impl fmt::Debug for ExactSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExactSum")
    }
}

/// Expands to `$make` of the type of `$arguments`, if its sums are exact, else to `$otherwise`.
macro_rules! by_summand {
    ($data_type:expr, $make:path, $sum_type:expr, $otherwise:expr) => {
        match $data_type {
            DataType::Int32 => Ok($make(Summands::<Int32Type>::new($data_type, $sum_type))),
            DataType::UInt32 => Ok($make(Summands::<UInt32Type>::new($data_type, $sum_type))),
            DataType::Int64 => Ok($make(Summands::<Int64Type>::new($data_type, $sum_type))),
            DataType::UInt64 => Ok($make(Summands::<UInt64Type>::new($data_type, $sum_type))),
            DataType::Decimal128(..) => Ok($make(Summands::<Decimal128Type>::new($data_type, $sum_type))),
            DataType::Decimal256(..) => Ok($make(Summands::<Decimal256Type>::new($data_type, $sum_type))),
            _ => $otherwise,
        }
    };
}

impl AggregateUDFImpl for ExactSum {
    fn name(&self) -> &str {
        "sum"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let [argument] = arguments else {
            return plan_err!("sum takes one argument, not {}", arguments.len());
        };
        Ok(vec![summed_as(argument)?])
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let [argument] = arguments else { return internal_err!("sum of {} arguments", arguments.len()) };
        let longer = |digits: u8, most: u8| most.min(digits.saturating_add(MORE_DIGITS));
        Ok(match argument {
            DataType::Int32 => DataType::Int64,
            DataType::UInt32 => DataType::UInt64,
            DataType::Int64 | DataType::UInt64 => DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0),
            DataType::Decimal128(digits, scale) => {
                DataType::Decimal128(longer(*digits, DECIMAL128_MAX_PRECISION), *scale)
            }
            DataType::Decimal256(digits, scale) => {
                DataType::Decimal256(longer(*digits, DECIMAL256_MAX_PRECISION), *scale)
            }
            other => self.of_other_types.return_type(&[other.clone()])?,
        })
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let (argument, sum) = types_of(&arguments)?;
        match arguments.is_distinct {
            true => by_summand!(&argument, distinct, &sum, self.of_other_types.accumulator(arguments)),
            false => by_summand!(&argument, of_rows, &sum, self.of_other_types.accumulator(arguments)),
        }
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let (argument, sum) = types_of(&arguments)?;
        let others = || self.of_other_types.create_sliding_accumulator(arguments.clone());
        match arguments.is_distinct {
            true => by_summand!(&argument, distinct, &sum, others()),
            false => by_summand!(&argument, of_rows, &sum, others()),
        }
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let [argument] = arguments.input_fields else {
            return internal_err!("sum of {} arguments", arguments.input_fields.len());
        };
        if !arguments.is_distinct || !is_exact(argument.data_type()) {
            return self.of_other_types.state_fields(arguments);
        }
        let value = Field::new_list_field(argument.data_type().clone(), true);
        let name = format_state_name(arguments.name, "sum distinct");
        Ok(vec![Arc::new(Field::new_list(name, value, false))])
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs) -> bool {
        !arguments.is_distinct
    }

    fn create_groups_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        let (argument, sum) = types_of(&arguments)?;
        by_summand!(&argument, of_groups, &sum, self.of_other_types.create_groups_accumulator(arguments))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.of_other_types.documentation()
    }
}

/// The type that values of another one are summed as.
fn summed_as(argument: &DataType) -> Result<DataType> {
    Ok(match argument {
        DataType::Int8 | DataType::Int16 | DataType::Int32 => DataType::Int32,
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 => DataType::UInt32,
        DataType::Null => DataType::Int64,
        DataType::Decimal32(digits, scale) | DataType::Decimal64(digits, scale) => {
            DataType::Decimal128(*digits, *scale)
        }
        DataType::Float16 | DataType::Float32 => DataType::Float64,
        DataType::Int64
        | DataType::UInt64
        | DataType::Decimal128(..)
        | DataType::Decimal256(..)
        | DataType::Float64
        | DataType::Duration(_)
        | DataType::Interval(_) => argument.clone(),
        DataType::Dictionary(_, values) => summed_as(values)?,
        DataType::RunEndEncoded(_, values) => summed_as(values.data_type())?,
        other => return plan_err!("sum adds numbers and intervals, not {other}; cast its argument"),
    })
}

fn is_exact(data_type: &DataType) -> bool {
    data_type.is_integer() || data_type.is_decimal()
}

/// The types of the argument and of the sum.
fn types_of(arguments: &AccumulatorArgs) -> Result<(DataType, DataType)> {
    let [argument] = arguments.expr_fields else {
        return internal_err!("sum of {} arguments", arguments.expr_fields.len());
    };
    Ok((argument.data_type().clone(), arguments.return_field.data_type().clone()))
}

fn of_rows<T: Summand>(summands: Summands<T>) -> Box<dyn Accumulator> {
    Box::new(RowSum::new(summands))
}

fn distinct<T: Summand>(summands: Summands<T>) -> Box<dyn Accumulator> {
    Box::new(DistinctSum::new(summands))
}

fn of_groups<T: Summand>(summands: Summands<T>) -> Box<dyn GroupsAccumulator> {
    Box::new(GroupSums::new(summands))
}

/// A type whose sums are exact.
trait Summand: ArrowPrimitiveType<Native: Into<SumOf<Self>> + Hash + Eq> + fmt::Debug + Send {
    type Sum: ArrowPrimitiveType + fmt::Debug + Send;

    /// Whether the sum of all values of an array fits into the type of the sum, whatever they are. An array has fewer than
    /// 2^32 values.
    const FITS: bool;

    /// Whether a sum has no more digits than its type.
    fn is_valid(_: SumOf<Self>, _: &DataType) -> bool {
        true
    }
}

/// The native type of a sum.
type SumOf<T> = <<T as Summand>::Sum as ArrowPrimitiveType>::Native;

impl Summand for Int32Type {
    type Sum = Int64Type;
    const FITS: bool = true;
}

impl Summand for UInt32Type {
    type Sum = UInt64Type;
    const FITS: bool = true;
}

impl Summand for Int64Type {
    type Sum = Decimal128Type;
    const FITS: bool = true;
}

impl Summand for UInt64Type {
    type Sum = Decimal128Type;
    const FITS: bool = true;
}

impl Summand for Decimal128Type {
    type Sum = Decimal128Type;
    const FITS: bool = false;

    fn is_valid(sum: i128, data_type: &DataType) -> bool {
        matches!(data_type, DataType::Decimal128(digits, _) if Self::is_valid_decimal_precision(sum, *digits))
    }
}

impl Summand for Decimal256Type {
    type Sum = Decimal256Type;
    const FITS: bool = false;

    fn is_valid(sum: arrow::datatypes::i256, data_type: &DataType) -> bool {
        matches!(data_type, DataType::Decimal256(digits, _) if Self::is_valid_decimal_precision(sum, *digits))
    }
}

/// The types of what is summed and of its sum.
#[derive(Clone, Debug)]
struct Summands<T> {
    argument: DataType,
    sum: DataType,
    of: std::marker::PhantomData<fn() -> T>,
}

impl<T: Summand> Summands<T> {
    fn new(argument: &DataType, sum: &DataType) -> Self {
        Summands { argument: argument.clone(), sum: sum.clone(), of: std::marker::PhantomData }
    }

    fn add(&self, sum: SumOf<T>, value: SumOf<T>) -> Result<SumOf<T>> {
        sum.add_checked(value).map_err(|_| self.too_large())
    }

    fn subtract(&self, sum: SumOf<T>, value: SumOf<T>) -> Result<SumOf<T>> {
        sum.sub_checked(value).map_err(|_| self.too_large())
    }

    /// The sum, if it has no more digits than its type.
    fn checked(&self, sum: SumOf<T>) -> Result<SumOf<T>> {
        if T::is_valid(sum, &self.sum) { Ok(sum) } else { Err(self.too_large()) }
    }

    fn too_large(&self) -> DataFusionError {
        exec_datafusion_err!(
            "a sum of {} does not fit into {}; sum a larger type or an approximation, as CAST(… AS DOUBLE)",
            self.argument,
            self.sum
        )
    }
}
