//! The sum of all rows, or of those in a frame.

use std::mem::size_of_val;

use arrow::array::{Array, ArrayRef, ArrowNativeTypeOp, ArrowPrimitiveType, AsArray, PrimitiveArray};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::Accumulator;

use super::{SumOf, Summand, Summands};

#[derive(Debug)]
pub(super) struct RowSum<T: Summand> {
    summands: Summands<T>,
    sum: SumOf<T>,
    /// Values in it: without any, there is no sum.
    values: usize,
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
        self.values += values.len() - values.null_count();
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = values else { return internal_err!("sum of {} columns", values.len()) };
        let sum = self.sum_of(values.as_primitive::<T>())?;
        self.sum = self.summands.subtract(self.sum, sum)?;
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
        let sum = (self.values > 0).then(|| self.summands.checked(self.sum)).transpose()?;
        ScalarValue::new_primitive::<T::Sum>(sum, &self.summands.sum)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let sum = (self.values > 0).then_some(self.sum);
        Ok(vec![ScalarValue::new_primitive::<T::Sum>(sum, &self.summands.sum)?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [sums] = states else { return internal_err!("sum has {} states", states.len()) };
        let sum = self.sum_of(sums.as_primitive::<T::Sum>())?;
        self.sum = self.summands.add(self.sum, sum)?;
        self.values += sums.len() - sums.null_count();
        Ok(())
    }
}
