//! Rows of one side by themselves: of outer, semi, anti and mark joins.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use datafusion::common::Result;

use super::block::Block;
use crate::join::assemble::{BuildRows, ProbeRows, assemble};
use crate::join::kind::JoinKind;
use crate::join::rows::{RowRef, row_ref};
use crate::join::spec::JoinSpec;

/// Emits rows of a probe batch, when all build rows have met it.
pub struct ProbeSideRows {
    batch: RecordBatch,
    matched: Vec<bool>,
    next: usize,
}

impl ProbeSideRows {
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
            if kind.probe_rows.emits(matched) {
                rows.push(self.next as u32);
                marks.push(matched);
            }
            self.next += 1;
        }
        if rows.is_empty() {
            return Ok(None);
        }
        let (probe, marks) = ((&self.batch, ProbeRows::Any(&rows)), BooleanArray::from(marks));
        assemble(&spec.output, &spec.schema, None, Some(probe), Some(marks)).map(Some)
    }
}

/// Emits rows of a block, when all probe rows have met it.
pub struct BuildSideRows {
    spec: Arc<JoinSpec>,
    block: Arc<Block>,
    pages: Range<usize>,
    slot: usize,
}

impl BuildSideRows {
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
            if self.spec.kind.build_rows.emits(is_matched) {
                refs.push(row_ref(page, self.slot));
                marks.push(is_matched);
            }
            self.slot += 1;
        }
        if refs.is_empty() {
            return Ok(None);
        }
        let (build, marks) = ((self.block.rows(), BuildRows::Any(&refs)), BooleanArray::from(marks));
        assemble(&self.spec.output, &self.spec.schema, Some(build), None, Some(marks)).map(Some)
    }
}
