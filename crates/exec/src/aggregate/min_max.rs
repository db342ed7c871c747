//! `min` and `max` of floating-point numbers, of which NaN is the greatest, and of lists and structs, of which nulls inside
//! are, as in sorts.
//!
//! DataFusion's accumulator of many groups replaces a number by any that it cannot compare with it, so a NaN counts only
//! if it comes last; and it begins with the greatest finite number, so infinities are lost. Of nested values nulls inside are
//! the least for it. Everything else about the functions is DataFusion's.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use arrow::array::ArrowNativeTypeOp;
use arrow::datatypes::{ArrowPrimitiveType, DataType, FieldRef, Float16Type, Float32Type, Float64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_aggregate::min_max::{Max, Min, max_udaf, min_udaf};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF,
    SetMonotonicity, Signature, StatisticsArgs,
};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::prim_op::PrimitiveGroupsAccumulator;

use super::nested_min_max::NestedMinMax;

/// `min`, in place of DataFusion's.
pub fn minimum() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(MinMax { wins: Ordering::Less, of_other_types: min_udaf() }))
}

/// `max`, in place of DataFusion's.
pub fn maximum() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(MinMax { wins: Ordering::Greater, of_other_types: max_udaf() }))
}

/// What a value is, compared with the one it takes the place of, if a function is `min` or `max`, this one or DataFusion's.
pub fn winner_of(function: &AggregateFunctionExpr) -> Option<Ordering> {
    let function = function.fun().inner();
    if let Some(function) = function.downcast_ref::<MinMax>() {
        Some(function.wins)
    } else if function.downcast_ref::<Min>().is_some() {
        Some(Ordering::Less)
    } else {
        function.downcast_ref::<Max>().map(|_| Ordering::Greater)
    }
}

#[derive(PartialEq, Eq, Hash)]
struct MinMax {
    /// What a value is, compared with the one it takes the place of.
    wins: Ordering,
    of_other_types: Arc<AggregateUDF>,
}

impl fmt::Debug for MinMax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MinMax({:?})", self.wins)
    }
}

impl AggregateUDFImpl for MinMax {
    fn name(&self) -> &str {
        self.of_other_types.name()
    }

    fn signature(&self) -> &Signature {
        self.of_other_types.signature()
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.of_other_types.coerce_types(arguments)
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.of_other_types.return_type(arguments)
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match NestedMinMax::new(self.wins, arguments.return_field.data_type(), false) {
            Some(nested) => Ok(Box::new(nested)),
            None => self.of_other_types.accumulator(arguments),
        }
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match NestedMinMax::new(self.wins, arguments.return_field.data_type(), true) {
            Some(nested) => Ok(Box::new(nested)),
            None => self.of_other_types.create_sliding_accumulator(arguments),
        }
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.of_other_types.state_fields(arguments)
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs) -> bool {
        // DataFusion's of structs forgets the order of their nulls.
        let is_nested = NestedMinMax::new(self.wins, arguments.return_field.data_type(), false).is_some();
        !is_nested && self.of_other_types.groups_accumulator_supported(arguments)
    }

    fn create_groups_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(match arguments.return_field.data_type() {
            DataType::Float16 => self.of_floats::<Float16Type>(Half::NAN, Half::NEG_INFINITY),
            DataType::Float32 => self.of_floats::<Float32Type>(f32::NAN, f32::NEG_INFINITY),
            DataType::Float64 => self.of_floats::<Float64Type>(f64::NAN, f64::NEG_INFINITY),
            _ => self.of_other_types.create_groups_accumulator(arguments)?,
        })
    }

    fn is_descending(&self) -> Option<bool> {
        self.of_other_types.is_descending()
    }

    fn value_from_stats(&self, statistics: &StatisticsArgs) -> Option<ScalarValue> {
        self.of_other_types.value_from_stats(statistics)
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.of_other_types.inner().set_monotonicity(data_type)
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

type Half = <Float16Type as ArrowPrimitiveType>::Native;

impl MinMax {
    /// The accumulator of many groups, which begin with the number that every other one takes the place of.
    fn of_floats<T: ArrowPrimitiveType<Native: PartialOrd> + Send>(
        &self,
        greatest: T::Native,
        least: T::Native,
    ) -> Box<dyn GroupsAccumulator> {
        let wins = self.wins;
        let start = if wins == Ordering::Less { greatest } else { least };
        let replace = move |current: &mut T::Native, new: T::Native| {
            if compare(&new, current) == wins {
                *current = new;
            }
        };
        Box::new(PrimitiveGroupsAccumulator::<T, _>::new(&T::DATA_TYPE, replace).with_starting_value(start))
    }
}

/// The order of numbers, where all NaNs are equal and the greatest.
fn compare<N: ArrowNativeTypeOp + PartialOrd>(left: &N, right: &N) -> Ordering {
    let is_nan = |number: &N| number.partial_cmp(number).is_none();
    match (is_nan(left), is_nan(right)) {
        (false, false) => left.compare(*right),
        (is_left, is_right) => is_left.cmp(&is_right),
    }
}
