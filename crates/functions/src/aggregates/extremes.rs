//! `arg_min` and `arg_max`: the value that stands beside the least or greatest key.
//!
//! Keys and values are kept in Arrow's row format, whose bytes are in their order. Of several rows with the same key
//! the one with the least value counts, so that the result does not depend on the order of rows.

use std::cmp::Ordering;
use std::fmt;
use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, BooleanArray, UInt64Array};
use arrow::buffer::NullBuffer;
use arrow::compute::{cast, take};
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, SortField};
use datafusion::common::cast::as_boolean_array;
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::EmitTo;

use super::{States, state_of};

/// A key and its value.
type Pair = (Box<[u8]>, Box<[u8]>);

pub(super) struct Extremes {
    value: Encoded,
    key: Encoded,
    greatest: bool,
    /// Whether a value that is null counts.
    with_nulls: bool,
    groups: Vec<Option<Pair>>,
    bytes: usize,
}

/// Values of one type, as rows.
#[derive(Clone)]
struct Encoded {
    data_type: DataType,
    converter: Arc<RowConverter>,
}

impl Encoded {
    fn new(data_type: &DataType) -> Result<Self> {
        let converter = Arc::new(RowConverter::new(vec![SortField::new(data_type.clone())])?);
        Ok(Encoded { data_type: data_type.clone(), converter })
    }

    /// The values of these rows; null where there is none.
    fn decode<'a>(&self, rows: impl Iterator<Item = Option<&'a [u8]>>) -> Result<ArrayRef> {
        let rows: Vec<_> = rows.collect();
        let parser = self.converter.parser();
        let columns = self.converter.convert_rows(rows.iter().flatten().map(|row| parser.parse(row)))?;
        let Some(values) = columns.into_iter().next() else { return exec_err!("rows have no column") };
        let values =
            if *values.data_type() == self.data_type { values } else { cast(&values, &self.data_type)? };
        let mut number = 0;
        let places = rows.iter().map(|row| {
            row.is_some().then(|| {
                number += 1;
                number - 1
            })
        });
        Ok(take(&values, &places.collect::<UInt64Array>(), None)?)
    }
}

impl fmt::Debug for Extremes {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "extremes of {} groups", self.groups.len())
    }
}

impl Extremes {
    pub(super) fn new(value: &DataType, key: &DataType, greatest: bool, with_nulls: bool) -> Result<Self> {
        let (value, key) = (Encoded::new(value)?, Encoded::new(key)?);
        Ok(Extremes { value, key, greatest, with_nulls, groups: Vec::new(), bytes: 0 })
    }

    fn with(&self, groups: Vec<Option<Pair>>) -> Self {
        let (value, key) = (self.value.clone(), self.key.clone());
        let bytes = groups.iter().flatten().map(|(key, value)| key.len() + value.len()).sum();
        Extremes { value, key, greatest: self.greatest, with_nulls: self.with_nulls, groups, bytes }
    }

    /// Takes rows in for which `counts` holds.
    fn take_in(
        &mut self,
        values: &ArrayRef,
        keys: &ArrayRef,
        groups: &mut dyn Iterator<Item = Option<usize>>,
        counts: impl Fn(usize) -> bool,
    ) -> Result<()> {
        let key_rows = self.key.converter.convert_columns(std::slice::from_ref(keys))?;
        let value_rows = self.value.converter.convert_columns(std::slice::from_ref(values))?;
        for (row, group) in (0..keys.len()).zip(groups) {
            let Some(group) = group.filter(|_| counts(row)) else { continue };
            let best = state_of(&mut self.groups, group)?;
            let (key, value) = (key_rows.row(row), value_rows.row(row));
            let is_better = match best {
                Some((best_key, best_value)) => match key.as_ref().cmp(best_key) {
                    Ordering::Equal => value.as_ref() < best_value.as_ref(),
                    Ordering::Less => !self.greatest,
                    Ordering::Greater => self.greatest,
                },
                None => true,
            };
            if is_better {
                let replaced = best.as_ref().map_or(0, |(key, value)| key.len() + value.len());
                self.bytes = self.bytes + key.as_ref().len() + value.as_ref().len() - replaced;
                *best = Some((key.as_ref().into(), value.as_ref().into()));
            }
        }
        Ok(())
    }
}

impl States for Extremes {
    fn empty(&self) -> Box<dyn States> {
        Box::new(self.with(Vec::new()))
    }

    fn grow(&mut self, groups: usize) {
        if groups > self.groups.len() {
            self.groups.resize(groups, None);
        }
    }

    fn update(&mut self, values: &[ArrayRef], groups: &mut dyn Iterator<Item = Option<usize>>) -> Result<()> {
        let [values, keys, ..] = values else { return exec_err!("an aggregate lacks an argument") };
        let with_nulls = self.with_nulls;
        let (no_values, no_keys) = (values.logical_nulls(), keys.logical_nulls());
        let is_valid =
            |nulls: &Option<NullBuffer>, row| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        self.take_in(values, keys, groups, |row| {
            is_valid(&no_keys, row) && (with_nulls || is_valid(&no_values, row))
        })
    }

    fn merge(&mut self, states: &[ArrayRef], groups: &mut dyn Iterator<Item = Option<usize>>) -> Result<()> {
        let [values, keys, is_set] = states else { return exec_err!("an extreme lacks its state") };
        let is_set = as_boolean_array(is_set)?;
        self.take_in(values, keys, groups, |row| is_set.value(row))
    }

    fn split(&mut self, emit: EmitTo) -> Box<dyn States> {
        let groups = emit.take_needed(&mut self.groups);
        let taken = self.with(groups);
        self.bytes -= taken.bytes.min(self.bytes);
        Box::new(taken)
    }

    fn states(&self) -> Result<Vec<ArrayRef>> {
        let keys = self.groups.iter().map(|best| best.as_ref().map(|(key, _)| key.as_ref()));
        let is_set: BooleanArray = self.groups.iter().map(|best| Some(best.is_some())).collect();
        Ok(vec![self.results()?, self.key.decode(keys)?, Arc::new(is_set)])
    }

    fn results(&self) -> Result<ArrayRef> {
        self.value.decode(self.groups.iter().map(|best| best.as_ref().map(|(_, value)| value.as_ref())))
    }

    fn size(&self) -> usize {
        self.groups.capacity() * size_of::<Option<Pair>>() + self.bytes
    }
}
