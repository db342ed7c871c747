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
mod summand;

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{
    DataType, Decimal128Type, Decimal256Type, Field, FieldRef, Int32Type, Int64Type, UInt32Type, UInt64Type,
};
use datafusion::common::{Result, internal_err, plan_err};
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
use summand::{Function, Summand, Summands, sum_of};

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

fn of_rows<T: Summand>(summands: Summands<T>) -> Box<dyn Accumulator> {
    Box::new(RowSum::new(summands))
}

fn of_distinct<T: Summand>(summands: Summands<T>) -> Box<dyn Accumulator> {
    Box::new(DistinctSum::new(summands))
}

fn of_groups<T: Summand>(summands: Summands<T>) -> Box<dyn GroupsAccumulator> {
    Box::new(GroupSums::new(summands))
}
