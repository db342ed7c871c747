//! `histogram(x, bins)`: how many values are up to each bound, and above the one before it.

use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, ListArray, MapArray, StructArray, UInt64Array};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use arrow::row::{RowConverter, SortField};
use datafusion::common::cast::{as_list_array, as_uint64_array};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::EmitTo;

use super::counts::entries;
use super::{States, state_of};
use crate::casts::{Failed, cast_array};
use crate::function::list_of;

/// The bounds of a group in order, each with its number of values, and how many are above all.
type Group = (Vec<(Box<[u8]>, u64)>, u64);

pub(super) struct Bins {
    data_type: DataType,
    converter: Arc<RowConverter>,
    /// None until a group has had a value.
    groups: Vec<Option<Group>>,
}

impl std::fmt::Debug for Bins {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(formatter, "bins of {} groups", self.groups.len())
    }
}

impl Bins {
    pub(super) fn new(data_type: &DataType) -> Result<Self> {
        let converter = Arc::new(RowConverter::new(vec![SortField::new(data_type.clone())])?);
        Ok(Bins { data_type: data_type.clone(), converter, groups: Vec::new() })
    }

    fn with(&self, groups: Vec<Option<Group>>) -> Self {
        Bins { data_type: self.data_type.clone(), converter: Arc::clone(&self.converter), groups }
    }

    /// What stands for all values above the bounds: the largest of the type.
    fn beyond(&self) -> Result<ArrayRef> {
        let largest = match &self.data_type {
            DataType::Float32 | DataType::Float64 => {
                let infinite =
                    ScalarValue::new_primitive::<Float64Type>(Some(f64::INFINITY), &DataType::Float64)?;
                return Ok(cast(&infinite.to_array()?, &self.data_type)?);
            }
            DataType::Int8 => ScalarValue::from(i8::MAX),
            DataType::Int16 => ScalarValue::from(i16::MAX),
            DataType::Int32 => ScalarValue::from(i32::MAX),
            DataType::Int64 => ScalarValue::from(i64::MAX),
            DataType::UInt8 => ScalarValue::from(u8::MAX),
            DataType::UInt16 => ScalarValue::from(u16::MAX),
            DataType::UInt32 => ScalarValue::from(u32::MAX),
            DataType::UInt64 => ScalarValue::from(u64::MAX),
            DataType::Date32 | DataType::Timestamp(..) => {
                let text = ScalarValue::from("infinity").to_array()?;
                return cast_array(&text, &self.data_type, Failed::IsError);
            }
            other => {
                return exec_err!(
                    "a value is above all bins, and {} has none to put it in; add a larger bound",
                    crate::types::sql_type(other)
                );
            }
        };
        largest.to_array()
    }

    fn values<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) -> Result<ArrayRef> {
        let parser = self.converter.parser();
        match self.converter.convert_rows(keys.map(|key| parser.parse(key)))?.into_iter().next() {
            Some(values) => Ok(cast(&values, &self.data_type)?),
            None => exec_err!("values have no column"),
        }
    }

    fn is_there(&self) -> Option<NullBuffer> {
        Some(self.groups.iter().map(Option::is_some).collect())
    }

    fn bounds(&self) -> impl Iterator<Item = &(Box<[u8]>, u64)> {
        self.groups.iter().flatten().flat_map(|(bounds, _)| bounds)
    }

    fn lengths(&self) -> impl Iterator<Item = usize> {
        self.groups.iter().map(|group| group.as_ref().map_or(0, |(bounds, _)| bounds.len()))
    }
}

impl States for Bins {
    fn empty(&self) -> Box<dyn States> {
        Box::new(self.with(Vec::new()))
    }

    fn grow(&mut self, groups: usize) {
        if groups > self.groups.len() {
            self.groups.resize(groups, None);
        }
    }

    fn update(&mut self, values: &[ArrayRef], groups: &mut dyn Iterator<Item = Option<usize>>) -> Result<()> {
        let [values, lists] = values else { return exec_err!("histogram takes values and bounds") };
        let lists = as_list_array(lists)?;
        let keys = self.converter.convert_columns(std::slice::from_ref(values))?;
        let bounds = self.converter.convert_columns(std::slice::from_ref(lists.values()))?;
        let (nulls, no_bounds) = (values.logical_nulls(), lists.values().logical_nulls());
        for (row, group) in (0..values.len()).zip(groups) {
            let Some(group) = group.filter(|_| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row))) else {
                continue;
            };
            let state = state_of(&mut self.groups, group)?;
            if state.is_none() {
                let from = lists.value_offsets().get(row).copied().unwrap_or_default() as usize;
                let elements = from..from + lists.value_length(row) as usize;
                if lists.is_null(row) {
                    return exec_err!("the bounds of a histogram are NULL");
                }
                if no_bounds
                    .as_ref()
                    .is_some_and(|nulls| elements.clone().any(|element| nulls.is_null(element)))
                {
                    return exec_err!("a bound of a histogram is NULL");
                }
                let mut sorted: Vec<Box<[u8]>> =
                    elements.map(|element| bounds.row(element).as_ref().into()).collect();
                sorted.sort_unstable();
                sorted.dedup();
                *state = Some((sorted.into_iter().map(|bound| (bound, 0)).collect(), 0));
            }
            let Some((bounds, beyond)) = state else {
                unreachable!("a group has bounds from its first value on")
            };
            let key = keys.row(row);
            let place = bounds.partition_point(|(bound, _)| bound.as_ref() < key.as_ref());
            match bounds.get_mut(place) {
                Some((_, count)) => *count += 1,
                None => *beyond += 1,
            }
        }
        Ok(())
    }

    fn merge(&mut self, states: &[ArrayRef], groups: &mut dyn Iterator<Item = Option<usize>>) -> Result<()> {
        let [bounds, counts, beyond] = states else { return exec_err!("bins lack their state") };
        let (bounds, counts, beyond) =
            (as_list_array(bounds)?, as_list_array(counts)?, as_uint64_array(beyond)?);
        let keys = self.converter.convert_columns(std::slice::from_ref(bounds.values()))?;
        let numbers = as_uint64_array(counts.values())?;
        let starts = bounds.value_offsets().iter().zip(counts.value_offsets());
        for ((row, (&key, &count)), group) in (0..bounds.len()).zip(starts).zip(groups) {
            let Some(group) = group.filter(|_| bounds.is_valid(row)) else { continue };
            let (known, above) = state_of(&mut self.groups, group)?.get_or_insert_default();
            *above += beyond.value(row);
            for element in 0..bounds.value_length(row) as usize {
                let key = keys.row(key as usize + element);
                let number = numbers.value(count as usize + element);
                match known.binary_search_by(|(bound, _)| bound.as_ref().cmp(key.as_ref())) {
                    Ok(place) => match known.get_mut(place) {
                        Some((_, count)) => *count += number,
                        None => unreachable!("a bound that was found is at its place"),
                    },
                    Err(place) => known.insert(place, (key.as_ref().into(), number)),
                }
            }
        }
        Ok(())
    }

    fn split(&mut self, emit: EmitTo) -> Box<dyn States> {
        let groups = emit.take_needed(&mut self.groups);
        Box::new(self.with(groups))
    }

    fn states(&self) -> Result<Vec<ArrayRef>> {
        let list = |values: ArrayRef| -> Result<ArrayRef> {
            let DataType::List(field) = list_of(values.data_type().clone()) else {
                return exec_err!("no list");
            };
            let offsets = OffsetBuffer::from_lengths(self.lengths());
            Ok(Arc::new(ListArray::try_new(field, offsets, values, self.is_there())?))
        };
        let counts = UInt64Array::from_iter_values(self.bounds().map(|(_, count)| *count));
        let beyond = self.groups.iter().map(|group| group.as_ref().map_or(0, |(_, beyond)| *beyond));
        Ok(vec![
            list(self.values(self.bounds().map(|(bound, _)| bound.as_ref()))?)?,
            list(Arc::new(counts))?,
            Arc::new(UInt64Array::from_iter_values(beyond)),
        ])
    }

    fn results(&self) -> Result<ArrayRef> {
        let has_more = |group: &Option<Group>| group.as_ref().map_or(0, |(_, beyond)| *beyond) > 0;
        let beyond = match self.groups.iter().any(has_more) {
            true => Some(self.converter.convert_columns(&[self.beyond()?])?),
            false => None,
        };
        let (mut keys, mut counts, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
        for group in &self.groups {
            let begins = keys.len();
            if let Some((bounds, above)) = group {
                keys.extend(bounds.iter().map(|(bound, _)| bound.as_ref()));
                counts.extend(bounds.iter().map(|(_, count)| *count));
                if let Some(beyond) = beyond.as_ref().filter(|_| *above > 0) {
                    keys.push(beyond.row(0).data());
                    counts.push(*above);
                }
            }
            lengths.push(keys.len() - begins);
        }
        let field = entries(&self.data_type);
        let DataType::Struct(fields) = field.data_type().clone() else { return exec_err!("no struct") };
        let columns = vec![self.values(keys.into_iter())?, Arc::new(UInt64Array::from(counts)) as ArrayRef];
        let entries = StructArray::try_new(fields, columns, None)?;
        let offsets = OffsetBuffer::from_lengths(lengths);
        Ok(Arc::new(MapArray::try_new(field, offsets, entries, self.is_there(), false)?))
    }

    fn size(&self) -> usize {
        let bound_bytes = |(bound, _): &(Box<[u8]>, u64)| bound.len() + size_of::<(Box<[u8]>, u64)>();
        self.groups.capacity() * size_of::<Option<Group>>() + self.bounds().map(bound_bytes).sum::<usize>()
    }
}
