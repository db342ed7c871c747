//! Rows of the output, from pairs or from rows of one side.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array};
use arrow::compute::take;
use datafusion::common::{Result, ScalarValue};

use super::block::Block;
use crate::join::kind::{JoinKind, SideRows};
use crate::join::rows::{RowRef, row_ref};
use crate::join::spec::{JoinSpec, OutputColumn, SideOf};

/// Build rows of an output batch.
#[derive(Clone, Copy)]
pub enum BuildRows<'a> {
    Any(&'a [RowRef]),
    /// The same row so many times.
    Same(RowRef, usize),
}

/// Probe rows of an output batch.
#[derive(Clone)]
pub enum ProbeRows<'a> {
    Any(&'a [u32]),
    /// Rows behind each other: nothing to copy.
    Run(Range<usize>),
}

/// Makes a batch from rows of either side; a side that is `None` gives nulls.
pub fn assemble(
    spec: &JoinSpec,
    build: Option<(&Block, BuildRows<'_>)>,
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
    let taken = match &probe {
        Some((_, ProbeRows::Any(rows))) => UInt32Array::from(rows.to_vec()),
        _ => UInt32Array::from(Vec::<u32>::new()),
    };
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(spec.output.len());
    for (place, field) in spec.output.iter().zip(spec.schema.fields()) {
        let nulls = || new_null_array(field.data_type(), rows);
        arrays.push(match (*place, &build, &probe) {
            (OutputColumn::Of(SideOf::Build, index), Some((block, BuildRows::Any(refs))), _) => {
                block.rows().gather(index, refs)?
            }
            (OutputColumn::Of(SideOf::Build, index), Some((block, BuildRows::Same(row, count))), _) => {
                repeated(&block.rows().gather(index, &[*row])?, *count)?
            }
            (OutputColumn::Of(SideOf::Probe, index), _, Some((batch, ProbeRows::Any(_)))) => {
                take(batch.column(index), &taken, None)?
            }
            (OutputColumn::Of(SideOf::Probe, index), _, Some((batch, ProbeRows::Run(rows)))) => {
                batch.column(index).slice(rows.start, rows.len())
            }
            (OutputColumn::Of(..), ..) => nulls(),
            (OutputColumn::Mark, ..) => marks.clone().map_or_else(nulls, |marks| Arc::new(marks) as ArrayRef),
        });
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::clone(&spec.schema), arrays, &options)?)
}

/// A single value `count` times. Strings are shared, not copied, where their layout allows it.
fn repeated(value: &ArrayRef, count: usize) -> Result<ArrayRef> {
    if value.data_type().is_primitive() {
        return ScalarValue::try_from_array(value, 0)?.to_array_of_size(count);
    }
    Ok(take(value, &UInt32Array::from_value(0, count), None)?)
}

/// Of rows by themselves, those that a join gives out.
fn chosen(what: SideRows, matched: bool) -> bool {
    match what {
        SideRows::Dropped => false,
        SideRows::Marked => true,
        SideRows::Matched => matched,
        SideRows::UnmatchedPadded | SideRows::Unmatched => !matched,
    }
}

/// Gives out rows of a probe batch by themselves, when all build rows have met it.
pub struct ProbeRowsOut {
    batch: RecordBatch,
    matched: Vec<bool>,
    next: usize,
}

impl ProbeRowsOut {
    pub fn new(batch: RecordBatch, matched: Vec<bool>) -> Self {
        Self { batch, matched, next: 0 }
    }

    /// The next output batch, or `None` after the last.
    pub fn next(&mut self, spec: &JoinSpec, kind: JoinKind) -> Result<Option<RecordBatch>> {
        let mut rows = Vec::new();
        let mut marks = Vec::new();
        while let Some(&matched) = self.matched.get(self.next)
            && rows.len() < spec.batch_rows
        {
            if chosen(kind.probe_rows, matched) {
                rows.push(self.next as u32);
                marks.push(matched);
            }
            self.next += 1;
        }
        if rows.is_empty() {
            return Ok(None);
        }
        assemble(spec, None, Some((&self.batch, ProbeRows::Any(&rows))), Some(BooleanArray::from(marks)))
            .map(Some)
    }
}

/// Gives out rows of a block by themselves, when all probe rows have met it.
pub struct BuildRowsOut {
    spec: Arc<JoinSpec>,
    block: Arc<Block>,
    pages: Range<usize>,
    slot: usize,
}

impl BuildRowsOut {
    /// The rows of some pages of `block`.
    pub fn new(spec: Arc<JoinSpec>, block: Arc<Block>, pages: Range<usize>) -> Self {
        Self { spec, block, pages, slot: 0 }
    }

    /// The next output batch, or `None` after the last.
    pub fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some(matched) = self.block.matched() else { return Ok(None) };
        let most = self.spec.output_rows(self.block.row_bytes());
        let mut refs: Vec<RowRef> = Vec::new();
        let mut marks = Vec::new();
        while !self.pages.is_empty() && refs.len() < most {
            let page = self.pages.start;
            if self.slot == self.block.pages()[page].rows() {
                self.pages.start += 1;
                self.slot = 0;
                continue;
            }
            let is_matched = matched.is_set(self.block.number(page, self.slot));
            if chosen(self.spec.kind.build_rows, is_matched) {
                refs.push(row_ref(page, self.slot));
                marks.push(is_matched);
            }
            self.slot += 1;
        }
        if refs.is_empty() {
            return Ok(None);
        }
        let build = Some((&*self.block, BuildRows::Any(&refs)));
        assemble(&self.spec, build, None, Some(BooleanArray::from(marks))).map(Some)
    }
}
