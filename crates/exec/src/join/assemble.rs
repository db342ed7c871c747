//! Rows of the output, from pairs or from rows of one side.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use datafusion::common::{Result, ScalarValue};

use super::rows::{PageRows, RowRef};
use super::spec::{OutputColumn, SideOf};

/// Build rows of an output batch.
#[derive(Clone, Copy)]
pub enum BuildRows<'a> {
    Any(&'a [RowRef]),
    /// The same row so many times.
    Same(RowRef, usize),
}

/// Probe rows of an output batch.
pub enum ProbeRows<'a> {
    Any(&'a [u32]),
    /// Rows behind each other: nothing to copy.
    Run(Range<usize>),
}

/// Makes a batch of `columns` from rows of either side; a side that is `None` gives nulls.
pub fn assemble(
    columns: &[OutputColumn],
    schema: &SchemaRef,
    build: Option<(&PageRows, BuildRows<'_>)>,
    probe: Option<(&RecordBatch, ProbeRows<'_>)>,
    marks: Option<BooleanArray>,
) -> Result<RecordBatch> {
    let rows = match (&build, &probe) {
        (Some((_, BuildRows::Any(rows))), _) => rows.len(),
        (Some((_, BuildRows::Same(_, count))), _) => *count,
        (None, Some((_, ProbeRows::Any(rows)))) => rows.len(),
        (None, Some((_, ProbeRows::Run(rows)))) => rows.len(),
        (None, None) => 0,
    };
    // A foreign key that meets its primary key gives every probe row once, in order: nothing to copy.
    let probe = probe.map(|(batch, rows)| match rows {
        ProbeRows::Any(rows) if is_whole(rows, batch.num_rows()) => (batch, None, 0..rows.len()),
        ProbeRows::Any(rows) => (batch, Some(UInt32Array::from(rows.to_vec())), 0..0),
        ProbeRows::Run(run) => (batch, None, run),
    });
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(columns.len());
    for (column, field) in columns.iter().zip(schema.fields()) {
        let nulls = || new_null_array(field.data_type(), rows);
        arrays.push(match (*column, &build, &probe) {
            (OutputColumn::Of(SideOf::Build, index), Some((pages, BuildRows::Any(refs))), _) => {
                pages.gather(index, refs)?
            }
            (OutputColumn::Of(SideOf::Build, index), Some((pages, BuildRows::Same(row, count))), _) => {
                repeated(&pages.gather(index, &[*row])?, *count)?
            }
            (OutputColumn::Of(SideOf::Probe, index), _, Some((batch, Some(rows), _))) => {
                take(batch.column(index), rows, None)?
            }
            (OutputColumn::Of(SideOf::Probe, index), _, Some((batch, None, run))) => {
                batch.column(index).slice(run.start, run.len())
            }
            (OutputColumn::Of(..), ..) => nulls(),
            (OutputColumn::Mark, ..) => marks.clone().map_or_else(nulls, |marks| Arc::new(marks) as ArrayRef),
        });
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options)?)
}

/// Whether `rows` are all of a batch of so many, in order.
fn is_whole(rows: &[u32], of: usize) -> bool {
    rows.len() == of && rows.iter().enumerate().all(|(at, &row)| at == row as usize)
}

/// A single value `count` times. Strings are shared, not copied, where their layout allows it.
fn repeated(value: &ArrayRef, count: usize) -> Result<ArrayRef> {
    if value.data_type().is_primitive() {
        return ScalarValue::try_from_array(value, 0)?.to_array_of_size(count);
    }
    Ok(take(value, &UInt32Array::from_value(0, count), None)?)
}
