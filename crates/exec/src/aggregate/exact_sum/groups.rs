//! The sums of groups.

use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{ArrayRef, ArrowNativeTypeOp, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray};
use arrow::buffer::NullBuffer;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::accumulate::NullState;
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::nulls::filtered_null_mask;

use super::{SumOf, Summand, Summands};

#[derive(Debug)]
pub(super) struct GroupSums<T: Summand> {
    summands: Summands<T>,
    sums: Vec<SumOf<T>>,
    /// Groups without values.
    nulls: NullState,
}

impl<T: Summand> GroupSums<T> {
    pub(super) fn new(summands: Summands<T>) -> Self {
        GroupSums { summands, sums: Vec::new(), nulls: NullState::new() }
    }

    /// Adds values, or sums of them, to the groups that they are of.
    fn add<V>(
        &mut self,
        values: &PrimitiveArray<V>,
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total_groups: usize,
    ) -> Result<()>
    where
        V: ArrowPrimitiveType<Native: Into<SumOf<T>>> + Send,
    {
        self.sums.resize(total_groups, SumOf::<T>::ZERO);
        let sums = self.sums.as_mut_slice();
        let mut fits = true;
        self.nulls.accumulate(groups, values, filter, total_groups, |group, value| {
            match sums[group].add_checked(value.into()) {
                Ok(sum) => sums[group] = sum,
                Err(_) => fits = false,
            }
        });
        if fits { Ok(()) } else { Err(self.summands.too_large()) }
    }

    fn take(&mut self, emit_to: EmitTo) -> (Vec<SumOf<T>>, Option<NullBuffer>) {
        (emit_to.take_needed(&mut self.sums), self.nulls.build(emit_to))
    }

    fn array(&self, sums: Vec<SumOf<T>>, nulls: Option<NullBuffer>) -> ArrayRef {
        let sums = PrimitiveArray::<T::Sum>::new(sums.into(), nulls);
        Arc::new(sums.with_data_type(self.summands.sum.clone()))
    }
}

impl<T: Summand> GroupsAccumulator for GroupSums<T> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total_groups: usize,
    ) -> Result<()> {
        let [values] = values else { return internal_err!("sum of {} columns", values.len()) };
        self.add(values.as_primitive::<T>(), groups, filter, total_groups)
    }

    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], total_groups: usize) -> Result<()> {
        let [sums] = values else { return internal_err!("sum has {} states", values.len()) };
        self.add(sums.as_primitive::<T::Sum>(), groups, None, total_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (sums, nulls) = self.take(emit_to);
        // Those of groups without values are zero.
        for &sum in &sums {
            self.summands.checked(sum)?;
        }
        Ok(self.array(sums, nulls))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (sums, nulls) = self.take(emit_to);
        Ok(vec![self.array(sums, nulls)])
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let [values] = values else { return internal_err!("sum of {} columns", values.len()) };
        let nulls = filtered_null_mask(filter, values.as_ref());
        let sums = values.as_primitive::<T>().values().iter().map(|&value| value.into()).collect();
        Ok(vec![self.array(sums, nulls)])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<SumOf<T>>() + self.nulls.size()
    }
}
