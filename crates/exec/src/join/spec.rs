//! Everything about a join that is known before its first row.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::{JoinSide, JoinType, NullEquality, Result};
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::joins::JoinOn;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter, build_join_schema};
use nandina_pages::PageSchema;

use super::kind::JoinKind;
use crate::error::pages_error;

/// Build or probe side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SideOf {
    Build,
    Probe,
}

impl SideOf {
    fn other(self) -> Self {
        match self {
            Self::Build => Self::Probe,
            Self::Probe => Self::Build,
        }
    }
}

/// One input of the join: which of its columns are kept, and where its keys are.
///
/// Rows travel through the operator in *stored* form: the input columns that the output or the residual
/// filter needs, then the key columns. That is the form of the pages in memory and on the device.
#[derive(Debug)]
pub struct Side {
    /// The layout of stored rows.
    pub pages: Arc<PageSchema>,
    /// Input column of the leading stored columns.
    kept: Vec<usize>,
    /// Key expressions that are not plain columns; their values are stored behind the kept columns.
    computed: Vec<PhysicalExprRef>,
    /// Stored column of every key.
    pub keys: Vec<usize>,
}

impl Side {
    fn try_new(input: &SchemaRef, keys: Vec<PhysicalExprRef>, needed: &[bool]) -> Result<Self> {
        let mut needed = needed.to_vec();
        for key in &keys {
            if let Some(slot) = key.downcast_ref::<Column>().and_then(|column| needed.get_mut(column.index()))
            {
                *slot = true;
            }
        }
        let kept: Vec<usize> =
            needed.iter().enumerate().filter(|(_, needed)| **needed).map(|(index, _)| index).collect();
        let mut fields: Vec<Arc<Field>> =
            kept.iter().map(|&index| Arc::new(input.field(index).clone())).collect();
        let mut computed = Vec::new();
        let mut key_columns = Vec::with_capacity(keys.len());
        for key in keys {
            let plain = key
                .downcast_ref::<Column>()
                .and_then(|column| kept.iter().position(|&kept_index| kept_index == column.index()));
            if let Some(position) = plain {
                key_columns.push(position);
            } else {
                key_columns.push(fields.len());
                let name = format!("key {}", computed.len());
                fields.push(Arc::new(Field::new(name, key.data_type(input)?, true)));
                computed.push(key);
            }
        }
        let pages = PageSchema::try_new(Arc::new(Schema::new(fields))).map_err(pages_error)?;
        Ok(Self { pages, kept, computed, keys: key_columns })
    }

    /// An input batch in stored form.
    pub fn store(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.kept.len() + self.computed.len());
        columns.extend(self.kept.iter().map(|&index| Arc::clone(batch.column(index))));
        for key in &self.computed {
            columns.push(key.evaluate(batch)?.into_array(batch.num_rows())?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(self.pages.arrow()), columns, &options)?)
    }

    /// The key columns of a stored batch.
    pub fn key_arrays(&self, stored: &RecordBatch) -> Vec<ArrayRef> {
        self.keys.iter().map(|&column| Arc::clone(stored.column(column))).collect()
    }

    /// The stored column of an input column that was declared needed.
    fn stored_column(&self, input_column: usize) -> usize {
        self.kept.iter().position(|&kept| kept == input_column).unwrap_or(0)
    }
}

/// A column of the join's output or of the residual filter's input.
#[derive(Clone, Copy, Debug)]
pub enum OutputColumn {
    /// Stored column of one side.
    Of(SideOf, usize),
    /// The mark column of a mark join.
    Mark,
}

/// A condition on pairs beyond key equality.
#[derive(Clone, Debug)]
pub struct ResidualFilter {
    pub expression: PhysicalExprRef,
    pub schema: SchemaRef,
    pub columns: Vec<OutputColumn>,
}

/// Where each column of the output of a planned join comes from.
pub fn output_columns(
    left: &Schema,
    right: &Schema,
    join_type: JoinType,
    projection: Option<&[usize]>,
) -> Vec<ColumnIndex> {
    let (_, all) = build_join_schema(left, right, &join_type);
    match projection {
        None => all,
        Some(projection) => projection.iter().map(|&index| all[index].clone()).collect(),
    }
}

/// The join as the operator's parts see it.
#[derive(Clone, Debug)]
pub struct JoinSpec {
    pub build: Arc<Side>,
    pub probe: Arc<Side>,
    pub kind: JoinKind,
    pub null_equality: NullEquality,
    /// `NOT IN`: a null among the probe keys empties the result, a null build key is never "not in" anything.
    pub null_aware: bool,
    pub filter: Option<ResidualFilter>,
    pub output: Vec<OutputColumn>,
    pub schema: SchemaRef,
    /// Most rows in an output batch.
    pub batch_rows: usize,
    /// Bytes at which it is full, however few its rows are.
    pub batch_bytes: usize,
}

impl JoinSpec {
    /// Rows in an output batch of rows of so many bytes.
    pub fn output_rows(&self, row_bytes: usize) -> usize {
        (self.batch_bytes / (row_bytes + 1)).clamp(1, self.batch_rows)
    }

    /// The join of two inputs; `columns` are the output columns after projection, `schema` their schema.
    #[expect(clippy::too_many_arguments, reason = "these are the parts of DataFusion's hash join node")]
    pub fn try_new(
        left: &SchemaRef,
        right: &SchemaRef,
        on: &JoinOn,
        filter: Option<&JoinFilter>,
        join_type: JoinType,
        columns: &[ColumnIndex],
        schema: SchemaRef,
        null_equality: NullEquality,
        null_aware: bool,
        batch_rows: usize,
        batch_bytes: usize,
    ) -> Result<Self> {
        let filter_columns = filter.map_or(&[][..], |filter| filter.column_indices());
        let needed = |side: JoinSide, width: usize| {
            let mut needed = vec![false; width];
            for column in columns.iter().chain(filter_columns).filter(|column| column.side == side) {
                if let Some(slot) = needed.get_mut(column.index) {
                    *slot = true;
                }
            }
            needed
        };
        let (left_keys, right_keys) = on.iter().cloned().unzip();
        let build = Side::try_new(left, left_keys, &needed(JoinSide::Left, left.fields().len()))?;
        let probe = Side::try_new(right, right_keys, &needed(JoinSide::Right, right.fields().len()))?;
        let locate = |column: &ColumnIndex| match column.side {
            JoinSide::Left => OutputColumn::Of(SideOf::Build, build.stored_column(column.index)),
            JoinSide::Right => OutputColumn::Of(SideOf::Probe, probe.stored_column(column.index)),
            JoinSide::None => OutputColumn::Mark,
        };
        let output = columns.iter().map(locate).collect();
        let filter = filter.map(|filter| ResidualFilter {
            expression: Arc::clone(filter.expression()),
            schema: Arc::clone(filter.schema()),
            columns: filter_columns.iter().map(locate).collect(),
        });
        Ok(Self {
            build: Arc::new(build),
            probe: Arc::new(probe),
            kind: JoinKind::from(join_type),
            null_equality,
            null_aware,
            filter,
            output,
            schema,
            batch_rows,
            batch_bytes,
        })
    }

    /// The same join with the sides exchanged; the output stays the same.
    pub fn swapped(&self) -> Self {
        let swap = |columns: &[OutputColumn]| {
            columns
                .iter()
                .map(|column| match *column {
                    OutputColumn::Of(side, index) => OutputColumn::Of(side.other(), index),
                    OutputColumn::Mark => OutputColumn::Mark,
                })
                .collect()
        };
        let filter = self.filter.as_ref().map(|filter| ResidualFilter {
            expression: Arc::clone(&filter.expression),
            schema: Arc::clone(&filter.schema),
            columns: swap(&filter.columns),
        });
        Self {
            build: Arc::clone(&self.probe),
            probe: Arc::clone(&self.build),
            kind: self.kind.swapped(),
            output: swap(&self.output),
            filter,
            schema: Arc::clone(&self.schema),
            ..*self
        }
    }

    /// Which rows can match at all: `None` if all can, else the rows whose keys are all valid.
    pub fn matchable(&self, keys: &[ArrayRef]) -> Option<NullBuffer> {
        if self.null_equality == NullEquality::NullEqualsNull {
            return None;
        }
        let nulls: Vec<Option<NullBuffer>> = keys.iter().map(|key| key.logical_nulls()).collect();
        NullBuffer::union_many(nulls.iter().map(Option::as_ref)).filter(|nulls| nulls.null_count() > 0)
    }
}
