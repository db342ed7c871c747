//! The sum or average of all rows, or of those in a frame.

use std::mem::size_of_val;

use arrow::array::{Array, ArrayRef, ArrowNativeTypeOp, ArrowPrimitiveType, AsArray, PrimitiveArray};
use arrow::datatypes::UInt64Type;
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::Accumulator;

use super::summand::{Function, SumOf, Summand, Summands};

#[derive(Debug)]
pub(super) struct RowSum<T: Summand> {
    summands: Summands<T>,
    sum: SumOf<T>,
    /// Values in it: without any, there is no sum.
    values: u64,
}

impl<T: Summand> RowSum<T> {
    pub(super) fn new(summands: Summands<T>) -> Self {
        RowSum { summands, sum: SumOf::<T>::ZERO, values: 0 }
    }

    /// The sum of an array of values, or of sums.
    fn sum_of<V>(&self, values: &PrimitiveArray<V>) -> Result<SumOf<T>>
    where
        V: ArrowPrimitiveType<Native: Into<SumOf<T>>>,
    {
        let zero = SumOf::<T>::ZERO;
        match values.null_count() {
            0 if T::FITS && V::DATA_TYPE == T::DATA_TYPE => {
                Ok(values.values().iter().fold(zero, |sum, &value| sum.add_wrapping(value.into())))
            }
            0 => values.values().iter().try_fold(zero, |sum, &value| self.summands.add(sum, value.into())),
            _ => values.iter().flatten().try_fold(zero, |sum, value| self.summands.add(sum, value.into())),
        }
    }
}

impl<T: Summand> Accumulator for RowSum<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = values else { return internal_err!("sum of {} columns", values.len()) };
        let sum = self.sum_of(values.as_primitive::<T>())?;
        self.sum = self.summands.add(self.sum, sum)?;
        self.values += present(values);
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = values else { return internal_err!("sum of {} columns", values.len()) };
        let sum = self.sum_of(values.as_primitive::<T>())?;
        self.sum = self.summands.subtract(self.sum, sum)?;
        let gone = present(values);
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
        self.summands.result(self.sum, self.values)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let sum = (self.values > 0).then_some(self.sum);
        let sum = ScalarValue::new_primitive::<T::Sum>(sum, &self.summands.sum)?;
        Ok(match self.summands.function {
            Function::Sum => vec![sum],
            Function::Average => vec![sum, ScalarValue::UInt64(Some(self.values))],
        })
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let Some(sums) = states.first() else { return internal_err!("a sum without state") };
        let sum = self.sum_of(sums.as_primitive::<T::Sum>())?;
        self.sum = self.summands.add(self.sum, sum)?;
        self.values += match states.get(1) {
            Some(counts) => counts.as_primitive::<UInt64Type>().iter().flatten().sum(),
            None => present(sums),
        };
        Ok(())
    }
}

fn present(values: &ArrayRef) -> u64 {
    (values.len() - values.null_count()) as u64
}
