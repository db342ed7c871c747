//! `decimal_average`: the average of decimals in their own type, rounded to even where it lies between two.

use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray as _, Decimal128Array, Int64Array};
use arrow::datatypes::{DataType, Decimal128Type};
use datafusion::common::cast::as_int64_array;
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::EmitTo;

use super::{States, state_of};

/// The sums and numbers of values.
#[derive(Debug)]
pub(super) struct Averages {
    precision: u8,
    scale: i8,
    groups: Vec<(i128, i64)>,
}

impl Averages {
    pub(super) fn new(data_type: &DataType) -> Result<Self> {
        match data_type {
            DataType::Decimal128(precision, scale) => {
                Ok(Averages { precision: *precision, scale: *scale, groups: Vec::new() })
            }
            other => exec_err!("decimal_average of {}", crate::types::sql_type(other)),
        }
    }

    fn add(&mut self, group: usize, sum: i128, count: i64) -> Result<()> {
        let state = state_of(&mut self.groups, group)?;
        let Some(sum) = state.0.checked_add(sum) else {
            return exec_err!(
                "decimal_average: the sum of the values does not fit into a HUGEINT; avg has no such limit"
            );
        };
        *state = (sum, state.1 + count);
        Ok(())
    }
}

/// A quotient, rounded to the nearest number, and to an even one in the middle.
fn rounded(sum: i128, count: i64) -> i128 {
    let count = i128::from(count);
    let (quotient, rest) = (sum.div_euclid(count), sum.rem_euclid(count));
    match (rest * 2).cmp(&count) {
        std::cmp::Ordering::Less => quotient,
        std::cmp::Ordering::Greater => quotient + 1,
        std::cmp::Ordering::Equal => quotient + (quotient & 1),
    }
}

impl States for Averages {
    fn empty(&self) -> Box<dyn States> {
        Box::new(Averages { groups: Vec::new(), ..*self })
    }

    fn grow(&mut self, groups: usize) {
        if groups > self.groups.len() {
            self.groups.resize(groups, (0, 0));
        }
    }

    fn update(&mut self, values: &[ArrayRef], groups: &mut dyn Iterator<Item = Option<usize>>) -> Result<()> {
        let [values, ..] = values else { return exec_err!("an aggregate lacks its argument") };
        for (value, group) in values.as_primitive::<Decimal128Type>().iter().zip(groups) {
            if let Some((value, group)) = value.zip(group) {
                self.add(group, value, 1)?;
            }
        }
        Ok(())
    }

    fn merge(&mut self, states: &[ArrayRef], groups: &mut dyn Iterator<Item = Option<usize>>) -> Result<()> {
        let [sums, counts] = states else { return exec_err!("averages lack their state") };
        let (sums, counts) = (sums.as_primitive::<Decimal128Type>(), as_int64_array(counts)?);
        for (row, group) in (0..sums.len()).zip(groups) {
            if let Some(group) = group {
                self.add(group, sums.value(row), counts.value(row))?;
            }
        }
        Ok(())
    }

    fn split(&mut self, emit: EmitTo) -> Box<dyn States> {
        Box::new(Averages { groups: emit.take_needed(&mut self.groups), ..*self })
    }

    fn states(&self) -> Result<Vec<ArrayRef>> {
        let sums = Decimal128Array::from_iter_values(self.groups.iter().map(|(sum, _)| *sum));
        let sums = sums.with_precision_and_scale(38, self.scale)?;
        let counts = Int64Array::from_iter_values(self.groups.iter().map(|(_, count)| *count));
        Ok(vec![Arc::new(sums), Arc::new(counts)])
    }

    fn results(&self) -> Result<ArrayRef> {
        let average = |(sum, count): &(i128, i64)| (*count > 0).then(|| rounded(*sum, *count));
        let averages: Decimal128Array = self.groups.iter().map(average).collect();
        Ok(Arc::new(averages.with_precision_and_scale(self.precision, self.scale)?))
    }

    fn size(&self) -> usize {
        self.groups.capacity() * size_of::<(i128, i64)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_rounded_to_even() {
        for (sum, count, average) in
            [(7, 2, 4), (5, 2, 2), (-5, 2, -2), (-7, 2, -4), (10, 3, 3), (-11, 3, -4)]
        {
            assert_eq!(rounded(sum, count), average, "{sum} / {count}");
        }
    }
}
