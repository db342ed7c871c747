//! `bit_xor` over sliding frames, which is null where a frame has no values; DataFusion's is 0 once values have left it.
//!
//! Everything else about it is DataFusion's.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::mem::size_of_val;
use std::ops::BitXor;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowNativeTypeOp, ArrowNumericType, AsArray};
use arrow::datatypes::{
    DataType, FieldRef, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::functions_aggregate::bit_and_or_xor::bit_xor_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF, Signature,
};

/// `bit_xor`, in place of DataFusion's.
pub fn counted_xor() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(CountedXor { uncounted: bit_xor_udaf() }))
}

struct CountedXor {
    uncounted: Arc<AggregateUDF>,
}

impl fmt::Debug for CountedXor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CountedXor")
    }
}

// There is but one of them.
impl PartialEq for CountedXor {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for CountedXor {}

impl Hash for CountedXor {
    fn hash<H: Hasher>(&self, state: &mut H) {
        "counted_xor".hash(state);
    }
}

impl AggregateUDFImpl for CountedXor {
    fn name(&self) -> &str {
        self.uncounted.name()
    }

    fn signature(&self) -> &Signature {
        self.uncounted.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.uncounted.return_type(arguments)
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.uncounted.accumulator(arguments)
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.uncounted.state_fields(arguments)
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs) -> bool {
        // DataFusion's says so of `bit_xor(NULL)`, too, and then refuses it.
        !arguments.return_field.data_type().is_null()
            && self.uncounted.groups_accumulator_supported(arguments)
    }

    fn create_groups_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        self.uncounted.create_groups_accumulator(arguments)
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if arguments.is_distinct {
            return self.uncounted.create_sliding_accumulator(arguments);
        }
        Ok(match arguments.return_field.data_type() {
            DataType::Int8 => Box::new(FrameXor::<Int8Type>::default()),
            DataType::Int16 => Box::new(FrameXor::<Int16Type>::default()),
            DataType::Int32 => Box::new(FrameXor::<Int32Type>::default()),
            DataType::Int64 => Box::new(FrameXor::<Int64Type>::default()),
            DataType::UInt8 => Box::new(FrameXor::<UInt8Type>::default()),
            DataType::UInt16 => Box::new(FrameXor::<UInt16Type>::default()),
            DataType::UInt32 => Box::new(FrameXor::<UInt32Type>::default()),
            DataType::UInt64 => Box::new(FrameXor::<UInt64Type>::default()),
            _ => self.uncounted.create_sliding_accumulator(arguments)?,
        })
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.uncounted.documentation()
    }
}

/// The values of a frame.
struct FrameXor<T: ArrowNumericType> {
    xor: T::Native,
    values: usize,
}

impl<T: ArrowNumericType> Default for FrameXor<T> {
    fn default() -> Self {
        FrameXor { xor: T::Native::ZERO, values: 0 }
    }
}

impl<T: ArrowNumericType> fmt::Debug for FrameXor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FrameXor({:?} of {} values)", self.xor, self.values)
    }
}

impl<T> FrameXor<T>
where
    T: ArrowNumericType,
    T::Native: BitXor<Output = T::Native>,
{
    /// Adds values, or removes them, which is the same.
    fn flip(&mut self, values: &ArrayRef) {
        self.xor = values.as_primitive::<T>().iter().flatten().fold(self.xor, |xor, value| xor ^ value);
    }
}

impl<T> Accumulator for FrameXor<T>
where
    T: ArrowNumericType,
    T::Native: BitXor<Output = T::Native>,
{
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = values else { return internal_err!("bit_xor of {} columns", values.len()) };
        self.flip(values);
        self.values += values.len() - values.null_count();
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = values else { return internal_err!("bit_xor of {} columns", values.len()) };
        self.flip(values);
        let gone = values.len() - values.null_count();
        match self.values.checked_sub(gone) {
            Some(left) => self.values = left,
            None => return internal_err!("{gone} values leave a frame of {}", self.values),
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        ScalarValue::new_primitive::<T>((self.values > 0).then_some(self.xor), &T::DATA_TYPE)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, _states: &[ArrayRef]) -> Result<()> {
        internal_err!("a frame is not merged with another")
    }
}
