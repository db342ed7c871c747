//! The sums or averages of groups.

use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, ArrowNativeTypeOp, ArrowPrimitiveType, AsArray, BooleanArray, Float64Array,
    PrimitiveArray, UInt64Array,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::UInt64Type;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::accumulate::NullState;
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::nulls::filtered_null_mask;

use super::summand::{Function, SumOf, Summand, Summands};

#[derive(Debug)]
pub(super) struct GroupSums<T: Summand> {
    summands: Summands<T>,
    sums: Vec<SumOf<T>>,
    /// Groups without values.
    nulls: NullState,
    /// The number of values in each sum, where an average is wanted.
    counts: Option<Vec<u64>>,
}

impl<T: Summand> GroupSums<T> {
    pub(super) fn new(summands: Summands<T>) -> Self {
        let counts = (summands.function == Function::Average).then(Vec::new);
        GroupSums { summands, sums: Vec::new(), nulls: NullState::new(), counts }
    }

    /// Adds values, or sums of them, to the groups that they are of, and has `count` count each.
    fn add<V>(
        &mut self,
        values: &PrimitiveArray<V>,
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total_groups: usize,
        mut count: impl FnMut(usize) + Send,
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
            count(group);
        });
        if fits { Ok(()) } else { Err(self.summands.too_large()) }
    }

    fn take(&mut self, emit_to: EmitTo) -> (Vec<SumOf<T>>, Option<NullBuffer>, Option<Vec<u64>>) {
        let counts = self.counts.as_mut().map(|counts| emit_to.take_needed(counts));
        (emit_to.take_needed(&mut self.sums), self.nulls.build(emit_to), counts)
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
        let values = values.as_primitive::<T>();
        // Out of its place while the sums are borrowed.
        let Some(mut counts) = self.counts.take() else {
            return self.add(values, groups, filter, total_groups, |_| {});
        };
        counts.resize(total_groups, 0);
        let added = self.add(values, groups, filter, total_groups, |group| counts[group] += 1);
        self.counts = Some(counts);
        added
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total_groups: usize) -> Result<()> {
        let Some(sums) = states.first() else { return internal_err!("a sum without state") };
        if let Some(counts) = &mut self.counts {
            let Some(added) = states.get(1) else { return internal_err!("an average without a count") };
            if added.null_count() > 0 {
                return internal_err!("the count of an average's values is null");
            }
            counts.resize(total_groups, 0);
            for (&group, &added) in groups.iter().zip(added.as_primitive::<UInt64Type>().values()) {
                counts[group] += added;
            }
        }
        self.add(sums.as_primitive::<T::Sum>(), groups, None, total_groups, |_| {})
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (sums, nulls, counts) = self.take(emit_to);
        if let Some(counts) = counts {
            let averages = sums.iter().zip(counts);
            let averages: Vec<f64> =
                averages.map(|(&sum, values)| self.summands.average(sum, values)).collect();
            return Ok(Arc::new(Float64Array::new(averages.into(), nulls)));
        }
        // Those of groups without values are zero.
        for &sum in &sums {
            self.summands.checked(sum)?;
        }
        Ok(self.array(sums, nulls))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (sums, nulls, counts) = self.take(emit_to);
        let counts = counts.map(|counts| Arc::new(UInt64Array::from(counts)) as ArrayRef);
        Ok(std::iter::once(self.array(sums, nulls)).chain(counts).collect())
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let [values] = values else { return internal_err!("sum of {} columns", values.len()) };
        let nulls = filtered_null_mask(filter, values.as_ref());
        let counts = self.counts.as_ref().map(|_| match &nulls {
            Some(nulls) => Arc::new(nulls.iter().map(u64::from).collect::<UInt64Array>()) as ArrayRef,
            None => Arc::new(UInt64Array::from_value(1, values.len())) as ArrayRef,
        });
        let sums = values.as_primitive::<T>().values().iter().map(|&value| value.into()).collect();
        Ok(std::iter::once(self.array(sums, nulls)).chain(counts).collect())
    }

    fn size(&self) -> usize {
        let counts = self.counts.as_ref().map_or(0, Vec::capacity);
        self.sums.capacity() * size_of::<SumOf<T>>() + counts * size_of::<u64>() + self.nulls.size()
    }
}
