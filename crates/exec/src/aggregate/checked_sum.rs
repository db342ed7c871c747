//! `sum` of integers that refuses a sum which does not fit, where DataFusion's wraps around.
//!
//! Sums of other types are DataFusion's. Partial sums are checked, too: numbers whose sum fits may be refused if those before
//! some of the others do not.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::mem::size_of_val;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray};
use arrow::datatypes::{ArrowNativeTypeOp, DataType, FieldRef, Int64Type, UInt64Type};
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, internal_err};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, Expr, GroupsAccumulator, Operator,
    ReversedUDAF, SetMonotonicity, Signature, StatisticsArgs,
};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::prim_op::PrimitiveGroupsAccumulator;

/// `sum`, in place of DataFusion's.
pub fn checked_sum() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(CheckedSum { unchecked: sum_udaf() }))
}

#[derive(Clone)]
struct CheckedSum {
    unchecked: Arc<AggregateUDF>,
}

impl CheckedSum {
    fn inner(&self) -> &dyn AggregateUDFImpl {
        self.unchecked.inner().as_ref()
    }
}

impl fmt::Debug for CheckedSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CheckedSum")
    }
}

// There is but one of them.
impl PartialEq for CheckedSum {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for CheckedSum {}

impl Hash for CheckedSum {
    fn hash<H: Hasher>(&self, state: &mut H) {
        "checked_sum".hash(state);
    }
}

impl AggregateUDFImpl for CheckedSum {
    fn name(&self) -> &str {
        self.inner().name()
    }

    fn signature(&self) -> &Signature {
        self.inner().signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner().return_type(arguments)
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match arguments.return_field.data_type() {
            DataType::Int64 if !arguments.is_distinct => Ok(Box::new(IntegerSum::<Int64Type>::default())),
            DataType::UInt64 if !arguments.is_distinct => Ok(Box::new(IntegerSum::<UInt64Type>::default())),
            _ => self.inner().accumulator(arguments),
        }
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.inner().state_fields(arguments)
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs) -> bool {
        self.inner().groups_accumulator_supported(arguments)
    }

    fn create_groups_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        match arguments.return_field.data_type() {
            DataType::Int64 => Ok(checked_groups::<Int64Type>()),
            DataType::UInt64 => Ok(checked_groups::<UInt64Type>()),
            _ => self.inner().create_groups_accumulator(arguments),
        }
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match arguments.return_field.data_type() {
            DataType::Int64 | DataType::UInt64 if !arguments.is_distinct => self.accumulator(arguments),
            _ => self.inner().create_sliding_accumulator(arguments),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner().order_sensitivity()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner().documentation()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.inner().set_monotonicity(data_type)
    }

    fn simplify_expr_op_literal(
        &self,
        function: &AggregateFunction,
        argument: &Expr,
        operator: Operator,
        literal: &Expr,
        argument_is_left: bool,
    ) -> Result<Option<Expr>> {
        self.inner().simplify_expr_op_literal(function, argument, operator, literal, argument_is_left)
    }

    fn value_from_stats(&self, statistics: &StatisticsArgs) -> Option<ScalarValue> {
        self.inner().value_from_stats(statistics)
    }
}

fn too_large(data_type: &DataType) -> datafusion::common::DataFusionError {
    exec_datafusion_err!(
        "a sum does not fit into {data_type}; sum a larger type, as CAST(… AS DECIMAL(38, 0))"
    )
}

/// The sum of all rows, or of those in a frame. It has room for the sum of 2^64 rows.
#[derive(Debug)]
struct IntegerSum<T: ArrowPrimitiveType> {
    sum: i128,
    /// Values in it: without any, there is no sum.
    values: u64,
    of: PhantomData<fn() -> T>,
}

impl<T: ArrowPrimitiveType> Default for IntegerSum<T> {
    fn default() -> Self {
        Self { sum: 0, values: 0, of: PhantomData }
    }
}

impl<T: ArrowPrimitiveType> IntegerSum<T>
where
    T::Native: Into<i128>,
{
    /// The sum of an array, and of how many values.
    fn of(values: &[ArrayRef]) -> Result<(i128, u64)> {
        let [values] = values else { return internal_err!("sum has one argument, not {}", values.len()) };
        let values = values.as_primitive::<T>();
        let present = (values.len() - values.null_count()) as u64;
        let sum = match values.null_count() {
            0 => values.values().iter().map(|&value| value.into()).sum(),
            _ => values.iter().flatten().map(Into::into).sum(),
        };
        Ok((sum, present))
    }
}

impl<T: ArrowPrimitiveType + fmt::Debug> Accumulator for IntegerSum<T>
where
    T::Native: Into<i128> + TryFrom<i128>,
{
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (sum, present) = Self::of(values)?;
        self.sum += sum;
        self.values += present;
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (sum, present) = Self::of(values)?;
        self.sum -= sum;
        self.values -= present;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.values == 0 {
            return ScalarValue::try_from(&T::DATA_TYPE);
        }
        let sum = T::Native::try_from(self.sum).map_err(|_| too_large(&T::DATA_TYPE))?;
        ScalarValue::new_primitive::<T>(Some(sum), &T::DATA_TYPE)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }
}

/// DataFusion's sums of groups, with an addition that remembers that one did not fit.
fn checked_groups<T: ArrowPrimitiveType + Send>() -> Box<dyn GroupsAccumulator> {
    let overflown = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&overflown);
    let add = move |sum: &mut T::Native, value: T::Native| match sum.add_checked(value) {
        Ok(added) => *sum = added,
        Err(_) => overflown.store(true, Ordering::Relaxed),
    };
    let sums = PrimitiveGroupsAccumulator::<T, _>::new(&T::DATA_TYPE, add);
    Box::new(CheckedGroups { sums, overflown: seen, data_type: T::DATA_TYPE })
}

struct CheckedGroups<G> {
    sums: G,
    overflown: Arc<AtomicBool>,
    data_type: DataType,
}

impl<G> CheckedGroups<G> {
    fn check(&self) -> Result<()> {
        match self.overflown.load(Ordering::Relaxed) {
            true => Err(too_large(&self.data_type)),
            false => Ok(()),
        }
    }
}

impl<G: GroupsAccumulator + 'static> GroupsAccumulator for CheckedGroups<G> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total_groups: usize,
    ) -> Result<()> {
        self.sums.update_batch(values, groups, filter, total_groups)?;
        self.check()
    }

    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], total_groups: usize) -> Result<()> {
        self.sums.merge_batch(values, groups, total_groups)?;
        self.check()
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        self.sums.evaluate(emit_to)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.sums.state(emit_to)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.sums.convert_to_state(values, filter)
    }

    fn size(&self) -> usize {
        self.sums.size()
    }
}
