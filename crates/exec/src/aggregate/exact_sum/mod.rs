//! `sum` and `avg` whose sums of integers and decimals are exact, or an error; DataFusion's wrap around.
//!
//! | of | `sum` is a, as in Postgres | `avg`, as in DuckDB |
//! |---|---|---|
//! | integers of up to 32 bits | integer of 64 bits | `DOUBLE` |
//! | integers of 64 bits | `DECIMAL(38, 0)`, which 2^63 of them fit into | `DOUBLE` |
//! | decimals | decimal with ten more digits, 38 at most | `DOUBLE` |
//! | `REAL`, `DOUBLE` | `DOUBLE`, by DataFusion's function | the same |
//! | intervals and durations | the same type, by DataFusion's function | the same |

mod distinct;
mod groups;
mod rows;

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;

use arrow::array::ArrowNativeTypeOp;
use arrow::datatypes::{
    ArrowPrimitiveType, DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Decimal128Type,
    Decimal256Type, DecimalType, Field, FieldRef, Int32Type, Int64Type, UInt32Type, UInt64Type, i256,
};
use datafusion::common::{DataFusionError, Result, ScalarValue, exec_datafusion_err, internal_err, plan_err};
use datafusion::functions_aggregate::average::avg_udaf;
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
    exact(Function::Sum, sum_udaf())
}

/// `avg`, in place of DataFusion's.
pub fn exact_average() -> Arc<AggregateUDF> {
    exact(Function::Average, avg_udaf())
}

fn exact(function: Function, of_other_types: Arc<AggregateUDF>) -> Arc<AggregateUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(AggregateUDF::from(Exact { function, signature, of_other_types }))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Function {
    Sum,
    Average,
}

/// The digits that a sum of decimals has more than they have.
const MORE_DIGITS: u8 = 10;

#[derive(PartialEq, Eq, Hash)]
struct Exact {
    function: Function,
    signature: Signature,
    of_other_types: Arc<AggregateUDF>,
}

impl fmt::Debug for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exact({:?})", self.function)
    }
}

/// Expands to `$make` of what `$exact` sums up, if its sums are exact, else to `$otherwise`.
macro_rules! by_summand {
    ($exact:expr, $arguments:expr, $make:path, $otherwise:expr) => {{
        let argument = argument_of($arguments.expr_fields)?.data_type().clone();
        let function = $exact.function;
        match argument {
            DataType::Int32 => Ok($make(Summands::<Int32Type>::new(function, argument)?)),
            DataType::UInt32 => Ok($make(Summands::<UInt32Type>::new(function, argument)?)),
            DataType::Int64 => Ok($make(Summands::<Int64Type>::new(function, argument)?)),
            DataType::UInt64 => Ok($make(Summands::<UInt64Type>::new(function, argument)?)),
            DataType::Decimal128(..) => Ok($make(Summands::<Decimal128Type>::new(function, argument)?)),
            DataType::Decimal256(..) => Ok($make(Summands::<Decimal256Type>::new(function, argument)?)),
            _ => $otherwise,
        }
    }};
}

impl AggregateUDFImpl for Exact {
    fn name(&self) -> &str {
        self.of_other_types.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let [argument] = arguments else {
            return plan_err!("{} takes one argument, not {}", self.name(), arguments.len());
        };
        match summed_as(argument) {
            Some(summed_as) => Ok(vec![summed_as]),
            None => {
                plan_err!("{} takes numbers and intervals, not {argument}; cast its argument", self.name())
            }
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let [argument] = arguments else {
            return internal_err!("{} of {} arguments", self.name(), arguments.len());
        };
        match (sum_of(argument), self.function) {
            (Some(sum), Function::Sum) => Ok(sum),
            (Some(_), Function::Average) => Ok(DataType::Float64),
            (None, _) => self.of_other_types.return_type(arguments),
        }
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match arguments.is_distinct {
            true => by_summand!(self, arguments, of_distinct, self.of_other_types.accumulator(arguments)),
            false => by_summand!(self, arguments, of_rows, self.of_other_types.accumulator(arguments)),
        }
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let others = &self.of_other_types;
        match arguments.is_distinct {
            true => by_summand!(self, arguments, of_distinct, others.create_sliding_accumulator(arguments)),
            false => by_summand!(self, arguments, of_rows, others.create_sliding_accumulator(arguments)),
        }
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let argument = argument_of(arguments.input_fields)?.data_type();
        let Some(sum) = sum_of(argument) else { return self.of_other_types.state_fields(arguments) };
        let name = |part: &str| format_state_name(arguments.name, part);
        if arguments.is_distinct {
            let value = Field::new_list_field(argument.clone(), true);
            return Ok(vec![Arc::new(Field::new_list(name("distinct"), value, false))]);
        }
        let mut fields = vec![Arc::new(Field::new(name("sum"), sum, true))];
        if self.function == Function::Average {
            fields.push(Arc::new(Field::new(name("count"), DataType::UInt64, true)));
        }
        Ok(fields)
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs) -> bool {
        let is_exact = arguments.expr_fields.iter().all(|field| sum_of(field.data_type()).is_some());
        match is_exact {
            true => !arguments.is_distinct,
            false => self.of_other_types.groups_accumulator_supported(arguments),
        }
    }

    fn create_groups_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        by_summand!(self, arguments, of_groups, self.of_other_types.create_groups_accumulator(arguments))
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

fn argument_of(fields: &[FieldRef]) -> Result<&FieldRef> {
    match fields {
        [argument] => Ok(argument),
        _ => internal_err!("a sum or average of {} arguments", fields.len()),
    }
}

/// The type that values of another one are summed as, if they can be.
fn summed_as(argument: &DataType) -> Option<DataType> {
    Some(match argument {
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
        _ => return None,
    })
}

/// The type of the sum of integers or decimals.
fn sum_of(argument: &DataType) -> Option<DataType> {
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

fn of_rows<T: Summand>(summands: Summands<T>) -> Box<dyn Accumulator> {
    Box::new(RowSum::new(summands))
}

fn of_distinct<T: Summand>(summands: Summands<T>) -> Box<dyn Accumulator> {
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

    fn as_f64(sum: SumOf<Self>) -> f64;

    /// Whether a sum has no more digits than its type.
    fn is_valid(_: SumOf<Self>, _: &DataType) -> bool {
        true
    }
}

/// The native type of a sum.
type SumOf<T> = <<T as Summand>::Sum as ArrowPrimitiveType>::Native;

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

/// What is summed, and what becomes of the sum.
#[derive(Clone, Debug)]
struct Summands<T> {
    function: Function,
    argument: DataType,
    sum: DataType,
    of: PhantomData<fn() -> T>,
}

impl<T: Summand> Summands<T> {
    fn new(function: Function, argument: DataType) -> Result<Self> {
        match sum_of(&argument) {
            Some(sum) => Ok(Summands { function, argument, sum, of: PhantomData }),
            None => internal_err!("an exact sum of {argument}"),
        }
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

    fn average(&self, sum: SumOf<T>, values: u64) -> f64 {
        let scale = match self.sum {
            DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => scale,
            _ => 0,
        };
        T::as_f64(sum) / 10_f64.powi(scale.into()) / values as f64
    }

    /// The sum or average of so many values.
    fn result(&self, sum: SumOf<T>, values: u64) -> Result<ScalarValue> {
        let has_any = values > 0;
        match self.function {
            Function::Sum => {
                let sum = has_any.then(|| self.checked(sum)).transpose()?;
                ScalarValue::new_primitive::<T::Sum>(sum, &self.sum)
            }
            Function::Average => Ok(ScalarValue::Float64(has_any.then(|| self.average(sum, values)))),
        }
    }

    fn too_large(&self) -> DataFusionError {
        exec_datafusion_err!(
            "a sum of {} does not fit into {}; sum a larger type or an approximation, as CAST(… AS DOUBLE)",
            self.argument,
            self.sum
        )
    }
}
