//! Aggregates that keep the values of a group, each once, and how often it is there.
//!
//! Values are keys in Arrow's row format, whose bytes are in the order of the values.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, BooleanBufferBuilder, Float64Array, ListArray, MapArray, StructArray, UInt64Array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use arrow::row::{RowConverter, SortField};
use datafusion::common::cast::{as_float64_array, as_list_array, as_uint64_array};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::EmitTo;

use super::folds::Fold;
use super::{States, continuous, state_of};
use crate::function::list_of;

/// What becomes of the values.
#[derive(Debug, Clone)]
pub(super) enum Finish {
    /// The most frequent one; the least of several.
    Mode,
    /// A map from values to their numbers.
    Histogram,
    /// Bits of information in a value.
    Entropy,
    /// The median distance from the median.
    Deviation,
    /// The values at these fractions of their order.
    Quantile { fractions: Vec<f64>, is_list: bool },
    /// The numbers or points in time between values at these fractions.
    Continuous { fractions: Vec<f64>, is_list: bool },
    /// A function of each value once.
    Fold(&'static Fold),
}

type Values = HashMap<Box<[u8]>, u64>;

pub(super) struct Counts {
    data_type: DataType,
    converter: Arc<RowConverter>,
    finish: Finish,
    is_distinct: bool,
    groups: Vec<Values>,
    /// Bytes of the keys, about.
    bytes: usize,
}

impl fmt::Debug for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "{:?} of {} groups", self.finish, self.groups.len())
    }
}

/// The type of a histogram of such values.
pub(super) fn histogram_type(of: &DataType) -> DataType {
    DataType::Map(entries(of), false)
}

pub(super) fn entries(of: &DataType) -> FieldRef {
    let key = Field::new("key", of.clone(), false);
    let fields = Fields::from(vec![key, Field::new("value", DataType::UInt64, true)]);
    Arc::new(Field::new("entries", DataType::Struct(fields), false))
}

/// A key, its count, the box around it and the place in the table.
fn key_bytes(key: &[u8]) -> usize {
    key.len() + 2 * size_of::<(Box<[u8]>, u64)>()
}

impl Counts {
    pub(super) fn new(data_type: &DataType, finish: Finish, is_distinct: bool) -> Result<Self> {
        let converter = Arc::new(RowConverter::new(vec![SortField::new(data_type.clone())])?);
        let data_type = data_type.clone();
        Ok(Counts { data_type, converter, finish, is_distinct, groups: Vec::new(), bytes: 0 })
    }

    fn with(&self, groups: Vec<Values>) -> Self {
        let bytes = groups.iter().flat_map(Values::keys).map(|key| key_bytes(key)).sum();
        Counts {
            data_type: self.data_type.clone(),
            converter: Arc::clone(&self.converter),
            finish: self.finish.clone(),
            is_distinct: self.is_distinct,
            groups,
            bytes,
        }
    }

    fn count(&mut self, group: usize, key: &[u8], times: u64) -> Result<()> {
        let values = state_of(&mut self.groups, group)?;
        if let Some(count) = values.get_mut(key) {
            *count += times;
            return Ok(());
        }
        if let Entry::Vacant(entry) = values.entry(key.into()) {
            self.bytes += key_bytes(key);
            entry.insert(times);
        }
        Ok(())
    }

    /// Keys as values again.
    fn values<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) -> Result<ArrayRef> {
        let parser = self.converter.parser();
        let columns = self.converter.convert_rows(keys.map(|key| parser.parse(key)))?;
        match columns.into_iter().next() {
            Some(values) if *values.data_type() == self.data_type => Ok(values),
            Some(values) => Ok(cast(&values, &self.data_type)?),
            None => exec_err!("values have no column"),
        }
    }

    /// The keys of each group in order, and how often each counts.
    fn sorted(&self) -> Vec<Vec<(&[u8], u64)>> {
        self.groups.iter().map(|values| self.sorted_values(values)).collect()
    }

    fn sorted_values<'a>(&self, values: &'a Values) -> Vec<(&'a [u8], u64)> {
        let times = |count: u64| if self.is_distinct { 1 } else { count };
        let mut values: Vec<_> = values.iter().map(|(key, &count)| (key.as_ref(), times(count))).collect();
        values.sort_unstable();
        values
    }

    /// One value or none for each group.
    fn chosen<'a>(&self, keys: impl Iterator<Item = Option<&'a [u8]>>) -> Result<ArrayRef> {
        let keys: Vec<_> = keys.collect();
        let values = self.values(keys.iter().copied().flatten())?;
        let mut number = 0;
        let places = keys.iter().map(|key| {
            key.is_some().then(|| {
                number += 1;
                number - 1
            })
        });
        Ok(arrow::compute::take(&values, &places.collect::<UInt64Array>(), None)?)
    }

    /// Lists of keys as lists of values, and null where a group has none.
    fn lists(&self, groups: &[Vec<&[u8]>]) -> Result<ArrayRef> {
        self.lists_where(groups, filled(groups))
    }

    fn lists_where(&self, groups: &[Vec<&[u8]>], is_there: Option<NullBuffer>) -> Result<ArrayRef> {
        let values = self.values(groups.iter().flatten().copied())?;
        let DataType::List(field) = list_of(self.data_type.clone()) else { return exec_err!("no list") };
        let offsets = OffsetBuffer::from_lengths(groups.iter().map(Vec::len));
        Ok(Arc::new(ListArray::try_new(field, offsets, values, is_there)?))
    }

    /// Values in order as numbers, with their counts.
    fn numbers(&self, values: &[(&[u8], u64)]) -> Result<Vec<(f64, u64)>> {
        let numbers = continuous::numbers(&self.values(values.iter().map(|(key, _)| *key))?)?;
        let counts = values.iter().map(|(_, count)| *count);
        Ok(numbers.values().iter().copied().zip(counts).collect())
    }

    fn floats<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) -> Result<Float64Array> {
        let values = cast(&self.values(keys)?, &DataType::Float64)?;
        Ok(as_float64_array(&values)?.clone())
    }
}

/// Which groups have values.
fn filled<T>(groups: &[Vec<T>]) -> Option<NullBuffer> {
    let mut is_filled = BooleanBufferBuilder::new(groups.len());
    groups.iter().for_each(|group| is_filled.append(!group.is_empty()));
    Some(NullBuffer::new(is_filled.finish()))
}

impl States for Counts {
    fn empty(&self) -> Box<dyn States> {
        Box::new(self.with(Vec::new()))
    }

    fn grow(&mut self, groups: usize) {
        if groups > self.groups.len() {
            self.groups.resize_with(groups, Values::default);
        }
    }

    fn update(&mut self, values: &[ArrayRef], groups: &mut dyn Iterator<Item = Option<usize>>) -> Result<()> {
        let [values, ..] = values else { return exec_err!("an aggregate lacks its argument") };
        let rows = self.converter.convert_columns(std::slice::from_ref(values))?;
        let nulls = values.logical_nulls();
        for (row, group) in (0..values.len()).zip(groups) {
            if let Some(group) = group
                && nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row))
            {
                self.count(group, rows.row(row).as_ref(), 1)?;
            }
        }
        Ok(())
    }

    fn merge(&mut self, states: &[ArrayRef], groups: &mut dyn Iterator<Item = Option<usize>>) -> Result<()> {
        let [values, counts] = states else { return exec_err!("counts lack their state") };
        let (values, counts) = (as_list_array(values)?, as_list_array(counts)?);
        let rows = self.converter.convert_columns(std::slice::from_ref(values.values()))?;
        let times = as_uint64_array(counts.values())?;
        let starts = values.value_offsets().iter().zip(counts.value_offsets());
        for ((row, (&value, &count)), group) in (0..values.len()).zip(starts).zip(groups) {
            let Some(group) = group.filter(|_| values.is_valid(row)) else { continue };
            for element in 0..values.value_length(row) as usize {
                let key = rows.row(value as usize + element);
                self.count(group, key.as_ref(), times.value(count as usize + element))?;
            }
        }
        Ok(())
    }

    fn split(&mut self, emit: EmitTo) -> Box<dyn States> {
        let groups = emit.take_needed(&mut self.groups);
        let taken = self.with(groups);
        self.bytes -= taken.bytes.min(self.bytes);
        Box::new(taken)
    }

    fn states(&self) -> Result<Vec<ArrayRef>> {
        let keys: Vec<Vec<&[u8]>> =
            self.groups.iter().map(|values| values.keys().map(AsRef::as_ref).collect()).collect();
        let times: UInt64Array =
            self.groups.iter().flat_map(Values::values).map(|count| Some(*count)).collect();
        let DataType::List(field) = list_of(DataType::UInt64) else { return exec_err!("no list") };
        let offsets = OffsetBuffer::from_lengths(keys.iter().map(Vec::len));
        let counts = ListArray::try_new(field, offsets, Arc::new(times), filled(&keys))?;
        Ok(vec![self.lists(&keys)?, Arc::new(counts)])
    }

    fn results(&self) -> Result<ArrayRef> {
        let groups = self.sorted();
        match &self.finish {
            Finish::Mode => self.chosen(groups.iter().map(|values| {
                // Of equals the last one is taken, which is the least from the end.
                values.iter().rev().max_by_key(|(_, count)| *count).map(|(key, _)| *key)
            })),
            Finish::Histogram => {
                let keys = self.values(groups.iter().flatten().map(|(key, _)| *key))?;
                let counts: UInt64Array = groups.iter().flatten().map(|(_, count)| Some(*count)).collect();
                let field = entries(&self.data_type);
                let DataType::Struct(fields) = field.data_type().clone() else {
                    return exec_err!("no struct");
                };
                let entries = StructArray::try_new(fields, vec![keys, Arc::new(counts)], None)?;
                let offsets = OffsetBuffer::from_lengths(groups.iter().map(Vec::len));
                Ok(Arc::new(MapArray::try_new(field, offsets, entries, filled(&groups), false)?))
            }
            Finish::Entropy => {
                let entropy = |values: &Vec<(&[u8], u64)>| {
                    let total: u64 = values.iter().map(|(_, count)| count).sum();
                    let share = |count: u64| count as f64 / total as f64;
                    Some(
                        values
                            .iter()
                            .map(|(_, count)| -share(*count) * share(*count).log2())
                            .sum::<f64>()
                            .abs(),
                    )
                };
                Ok(Arc::new(groups.iter().map(entropy).collect::<Float64Array>()))
            }
            Finish::Quantile { fractions, is_list } => {
                let quantiles: Vec<Vec<&[u8]>> = groups
                    .iter()
                    .map(|values| {
                        fractions.iter().filter_map(|fraction| at_fraction(values, *fraction)).collect()
                    })
                    .collect();
                match is_list {
                    true => self.lists_where(&quantiles, filled(&groups)),
                    false => self.chosen(quantiles.iter().map(|values| values.first().copied())),
                }
            }
            Finish::Deviation => {
                let deviations = groups.iter().map(|values| Ok(deviation(self.numbers(values)?)));
                continuous::distances(deviations.collect::<Result<Float64Array>>()?, &self.data_type)
            }
            Finish::Continuous { fractions, is_list } => {
                let mut quantiles = Vec::with_capacity(groups.len());
                for values in &groups {
                    let numbers = self.numbers(values)?;
                    quantiles.push(
                        fractions
                            .iter()
                            .filter_map(|fraction| continuous::at_fraction(&numbers, *fraction))
                            .collect::<Vec<_>>(),
                    );
                }
                if !is_list {
                    let first = quantiles.iter().map(|values| values.first().copied());
                    return continuous::values(first.collect(), &self.data_type);
                }
                let numbers = quantiles.iter().flatten().map(|number| Some(*number)).collect();
                let values = continuous::values(numbers, &self.data_type)?;
                let DataType::List(field) = list_of(self.data_type.clone()) else {
                    return exec_err!("no list");
                };
                let offsets = OffsetBuffer::from_lengths(quantiles.iter().map(Vec::len));
                Ok(Arc::new(ListArray::try_new(field, offsets, values, filled(&groups))?))
            }
            Finish::Fold(fold) => {
                let result = |values: &Vec<(&[u8], u64)>| {
                    let numbers = self.floats(values.iter().map(|(key, _)| *key))?;
                    Ok(fold.over(numbers.values().iter().copied()))
                };
                let results = groups.iter().map(result).collect::<Result<Vec<_>>>()?;
                Ok(fold.array(results.into_iter()))
            }
        }
    }

    fn size(&self) -> usize {
        self.groups.capacity() * size_of::<Values>() + self.bytes
    }
}

/// The value below or at which lies this share of all; of those in descending order where it is negative.
fn at_fraction<'a>(values: &[(&'a [u8], u64)], fraction: f64) -> Option<&'a [u8]> {
    let total: u64 = values.iter().map(|(_, count)| count).sum();
    let wanted = ((total as f64 * fraction.abs()).ceil() as u64).clamp(1, total.max(1));
    let mut passed = 0;
    let mut reaches = |(_, count): &&(&[u8], u64)| {
        passed += count;
        passed >= wanted
    };
    let found = match fraction.is_sign_negative() && fraction < 0.0 {
        true => values.iter().rev().find(&mut reaches),
        false => values.iter().find(&mut reaches),
    };
    found.map(|(key, _)| *key)
}

/// The median of the distances from the median.
fn deviation(mut values: Vec<(f64, u64)>) -> Option<f64> {
    let middle = median(&values)?;
    for (value, _) in &mut values {
        *value = (*value - middle).abs();
    }
    values.sort_by(|(first, _), (second, _)| first.total_cmp(second));
    median(&values)
}

/// The median of values in order, with their counts.
fn median(values: &[(f64, u64)]) -> Option<f64> {
    let total: u64 = values.iter().map(|(_, count)| count).sum();
    let at = |position: u64| {
        let mut passed = 0;
        let found = values.iter().find(|(_, count)| {
            passed += count;
            passed > position
        });
        found.map(|(value, _)| *value)
    };
    let (below, above) = (at(total.checked_sub(1)? / 2)?, at(total / 2)?);
    Some(if below == above { below } else { below + (above - below) / 2.0 })
}
