//! The sum or average of different values, of all rows or of those in a frame.

use std::collections::HashMap;
use std::mem::{size_of, size_of_val};

use arrow::array::{ArrayRef, ArrowNativeTypeOp, AsArray};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::Accumulator;

use super::summand::{SumOf, Summand, Summands};

#[derive(Debug)]
pub(super) struct DistinctSum<T: Summand> {
    summands: Summands<T>,
    sum: SumOf<T>,
    /// How often each value is among the rows.
    rows: HashMap<T::Native, usize>,
}

impl<T: Summand> DistinctSum<T> {
    pub(super) fn new(summands: Summands<T>) -> Self {
        DistinctSum { summands, sum: SumOf::<T>::ZERO, rows: HashMap::new() }
    }
}

impl<T: Summand> Accumulator for DistinctSum<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = values else { return internal_err!("sum of {} columns", values.len()) };
        for value in values.as_primitive::<T>().iter().flatten() {
            let rows = self.rows.entry(value).or_default();
            *rows += 1;
            if *rows == 1 {
                self.sum = self.summands.add(self.sum, value.into())?;
            }
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = values else { return internal_err!("sum of {} columns", values.len()) };
        for value in values.as_primitive::<T>().iter().flatten() {
            match self.rows.get_mut(&value) {
                Some(rows) if *rows > 1 => *rows -= 1,
                Some(_) => {
                    self.rows.remove(&value);
                    self.sum = self.summands.subtract(self.sum, value.into())?;
                }
                None => return internal_err!("{value:?} leaves a frame that it is not in"),
            }
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.summands.result(self.sum, self.rows.len() as u64)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.rows.capacity() * size_of::<(T::Native, usize)>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let data_type = &self.summands.argument;
        let values = self.rows.keys().map(|&value| ScalarValue::new_primitive::<T>(Some(value), data_type));
        let values = values.collect::<Result<Vec<_>>>()?;
        Ok(vec![ScalarValue::List(ScalarValue::new_list(&values, data_type, true))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [values] = states else { return internal_err!("sum has {} states", states.len()) };
        values.as_list::<i32>().iter().flatten().try_for_each(|values| self.update_batch(&[values]))
    }
}
