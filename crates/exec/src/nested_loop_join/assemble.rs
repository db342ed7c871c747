//! Rows of the output, from pairs or from rows of one side.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array};
use arrow::compute::take;
use datafusion::common::Result;

use super::block::Block;
use crate::join::kind::{JoinKind, SideRows};
use crate::join::rows::{RowRef, row_ref};
use crate::join::spec::{JoinSpec, OutputColumn, SideOf};

/// Size beyond which an output batch is cut short. Rows of a kilobyte still fill a batch of 8192.
const MAX_OUTPUT_BYTES: usize = 16 << 20;

/// Rows in an output batch of rows of so many bytes.
pub fn output_rows(spec: &JoinSpec, row_bytes: usize) -> usize {
    (MAX_OUTPUT_BYTES / (row_bytes + 1)).clamp(1, spec.batch_rows)
}

/// Makes a batch from rows of either side; a side that is `None` gives nulls.
pub fn assemble(
    spec: &JoinSpec,
    build: Option<(&Block, &[RowRef])>,
    probe: Option<(&RecordBatch, &[u32])>,
    marks: Option<BooleanArray>,
) -> Result<RecordBatch> {
    let rows = build.map(|(_, refs)| refs.len()).or(probe.map(|(_, rows)| rows.len())).unwrap_or(0);
    let build = build.map(|(block, refs)| (block, BuildRefs::of(refs)));
    let probe = probe.map(|(batch, rows)| (batch, ProbeRows::of(rows)));
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(spec.output.len());
    for (place, field) in spec.output.iter().zip(spec.schema.fields()) {
        let nulls = || new_null_array(field.data_type(), rows);
        arrays.push(match (*place, &build, &probe) {
            (OutputColumn::Of(SideOf::Build, index), Some((block, refs)), _) => refs.column(block, index)?,
            (OutputColumn::Of(SideOf::Probe, index), _, Some((batch, rows))) => rows.column(batch, index)?,
            (OutputColumn::Of(..), ..) => nulls(),
            (OutputColumn::Mark, ..) => marks.clone().map_or_else(nulls, |marks| Arc::new(marks) as ArrayRef),
        });
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::clone(&spec.schema), arrays, &options)?)
}

/// Build rows of an output batch.
enum BuildRefs<'a> {
    Any(&'a [RowRef]),
    /// The same row every time: gathered once, its value repeated. Strings are then shared, not copied.
    Same(&'a [RowRef], UInt32Array),
}

impl<'a> BuildRefs<'a> {
    fn of(refs: &'a [RowRef]) -> Self {
        match refs.split_first() {
            Some((first, rest)) if !rest.is_empty() && rest.iter().all(|row| row == first) => {
                Self::Same(std::slice::from_ref(first), UInt32Array::from_value(0, refs.len()))
            }
            _ => Self::Any(refs),
        }
    }

    fn column(&self, block: &Block, index: usize) -> Result<ArrayRef> {
        match self {
            Self::Any(refs) => block.rows().gather(index, refs),
            Self::Same(row, zeros) => Ok(take(&block.rows().gather(index, row)?, zeros, None)?),
        }
    }
}

/// Probe rows of an output batch.
enum ProbeRows {
    /// Rows behind each other: nothing to copy.
    Run(Range<usize>),
    Any(UInt32Array),
}

impl ProbeRows {
    fn of(rows: &[u32]) -> Self {
        let first = rows.first().copied().unwrap_or(0);
        if (first..).zip(rows).all(|(expected, &row)| row == expected) {
            return Self::Run(first as usize..first as usize + rows.len());
        }
        Self::Any(UInt32Array::from(rows.to_vec()))
    }

    fn column(&self, batch: &RecordBatch, index: usize) -> Result<ArrayRef> {
        let column = batch.column(index);
        match self {
            Self::Run(rows) if *rows == (0..batch.num_rows()) => Ok(Arc::clone(column)),
            Self::Run(rows) => Ok(column.slice(rows.start, rows.len())),
            Self::Any(rows) => Ok(take(column, rows, None)?),
        }
    }
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
        assemble(spec, None, Some((&self.batch, &rows)), Some(BooleanArray::from(marks))).map(Some)
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
        let most = output_rows(&self.spec, self.block.row_bytes());
        let mut refs: Vec<RowRef> = Vec::new();
        let mut marks = Vec::new();
        while !self.pages.is_empty() && refs.len() < most {
            let page = self.pages.start;
            if self.slot == self.block.pages().get(page).map_or(0, |page| page.rows()) {
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
        let build = Some((&*self.block, &refs[..]));
        assemble(&self.spec, build, None, Some(BooleanArray::from(marks))).map(Some)
    }
}
