//! `min` and `max` of texts, bytes, lists and structs.
//!
//! DataFusion's accumulator has an allocation of its own for every group, which costs more than all the rest where there
//! are tens of millions of them; that of lists and structs also looks at one row at a time. Here the values of all groups
//! lie in one heap ([`ByteViews`]), lists and structs in Arrow's row format, whose bytes have the order of the values.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray as _, BinaryArray, BooleanArray, new_null_array};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::{cast, not, nullif, prep_null_mask_filter};
use arrow::datatypes::DataType;
use arrow::row::RowConverter;
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;

use super::min_max::winner_of;
use super::nested_min_max::converter_of;
use crate::keys::floats::canonical;
use crate::keys::{BatchKey, ByteViews};

/// The least or greatest value of every group.
pub struct BytesMinMax {
    /// What a value is, compared with the one it takes the place of.
    wins: Ordering,
    data_type: DataType,
    /// For lists and structs.
    converter: Option<RowConverter>,
    values: ByteViews,
    /// Whether a group has a value.
    present: Vec<bool>,
}

impl BytesMinMax {
    /// The accumulator of a function, if it is one of these.
    pub fn of(function: &AggregateFunctionExpr) -> Option<Self> {
        let wins = winner_of(function)?;
        let data_type = function.field().data_type().clone();
        let converter = match views_of(&data_type) {
            Some(_) => None,
            None => Some(converter_of(&data_type)?),
        };
        Some(Self { wins, data_type, converter, values: ByteViews::default(), present: Vec::new() })
    }

    /// Values as bytes that have their order.
    fn as_bytes(&self, values: &ArrayRef) -> Result<BatchKey> {
        let bytes: ArrayRef = match &self.converter {
            None => cast(values, &views_of(&self.data_type).unwrap_or(DataType::BinaryView))?,
            Some(converter) => {
                let rows = converter.convert_columns(&[canonical(values)?])?.try_into_binary()?;
                let (offsets, bytes, _) = rows.into_parts();
                let rows = BinaryArray::new(offsets, bytes, values.logical_nulls());
                cast(&rows, &DataType::BinaryView)?
            }
        };
        Ok(BatchKey::of(&bytes))
    }

    fn push(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        self.present.resize(group_count, false);
        self.values.extend_to(group_count);
        let Some(values) = values.first() else { return Ok(()) };
        let batch = self.as_bytes(values)?;
        let Some(views) = batch.views() else { return Ok(()) };
        for (row, &group) in groups.iter().enumerate() {
            let counts = filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
            let Some(present) = self.present.get_mut(group).filter(|_| counts && batch.is_valid(row)) else {
                continue;
            };
            if !*present || self.values.compare(views, row, group) == self.wins {
                self.values.replace(group, views, row);
                *present = true;
            }
        }
        Ok(())
    }

    fn take(&mut self) -> Result<ArrayRef> {
        let present = BooleanBuffer::from(std::mem::take(&mut self.present));
        let nulls = Some(NullBuffer::new(present)).filter(|nulls| nulls.null_count() > 0);
        let views = views_of(&self.data_type).unwrap_or(DataType::BinaryView);
        let values = self.values.take(&views, nulls);
        let Some(converter) = &self.converter else { return Ok(cast(&values, &self.data_type)?) };
        let parser = converter.parser();
        let no_value = converter.convert_columns(&[new_null_array(&self.data_type, 1)])?;
        let rows = values.as_binary_view().iter().map(|row| match row {
            Some(row) => parser.parse(row),
            None => no_value.row(0),
        });
        let Some(column) = converter.convert_rows(rows)?.pop() else {
            unreachable!("a converter of one column gives one");
        };
        // Dictionaries inside have become plain.
        Ok(cast(&column, &self.data_type)?)
    }
}

/// Views of values of a type, if it is one of texts or bytes.
fn views_of(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Some(DataType::Utf8View),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Some(DataType::BinaryView),
        _ => None,
    }
}

impl GroupsAccumulator for BytesMinMax {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.push(values, group_indices, opt_filter, total_num_groups)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.push(values, group_indices, None, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        match emit_to {
            EmitTo::All => self.take(),
            // Tables of groups are emptied as a whole.
            EmitTo::First(_) => Err(DataFusionError::Internal("groups are emitted all at once".to_owned())),
        }
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emit_to)?])
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let Some(values) = values.first() else { return Ok(Vec::new()) };
        let Some(filter) = opt_filter else { return Ok(vec![Arc::clone(values)]) };
        // Rows for which the filter is not true have no value.
        let passes = if filter.null_count() > 0 { prep_null_mask_filter(filter) } else { filter.clone() };
        Ok(vec![nullif(values, &not(&passes)?)?])
    }

    fn size(&self) -> usize {
        self.values.memory_bytes() + self.present.capacity()
    }
}
