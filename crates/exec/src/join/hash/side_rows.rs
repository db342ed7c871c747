//! Build rows by themselves: of outer, semi, anti and mark joins.

use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use datafusion::common::Result;

use super::build_side::BuildSide;
use crate::join::assemble::{BuildRows, assemble};
use crate::join::kind::SideRows;
use crate::join::rows::{RowRef, row_ref};
use crate::join::spec::JoinSpec;

/// What a null-aware anti join (`NOT IN`) knows of its inner side once that has been read.
#[derive(Clone, Copy, Debug, Default)]
pub struct InnerFacts {
    pub any_rows: bool,
    pub any_null: bool,
}

/// Emits the rows of a build partition that the join's kind asks for, when every probe row has been seen.
pub struct BuildSideRows {
    spec: Arc<JoinSpec>,
    build: Arc<BuildSide>,
    partition: usize,
    inner: InnerFacts,
    page: usize,
    slot: usize,
}

impl BuildSideRows {
    /// The rows of one partition of `build`.
    pub fn new(spec: Arc<JoinSpec>, build: Arc<BuildSide>, partition: usize, inner: InnerFacts) -> Self {
        Self { spec, build, partition, inner, page: 0, slot: 0 }
    }

    /// The next output batch, or `None` after the last.
    pub fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some(Some(table)) = self.build.tables().get(self.partition) else { return Ok(None) };
        if self.spec.null_aware && self.inner.any_null {
            return Ok(None);
        }
        let Some(visited) = self.build.visited() else { return Ok(None) };
        let (what, batch_rows) = (self.spec.kind.build_rows, self.build.output_rows(&self.spec, 0));
        loop {
            let mut refs: Vec<RowRef> = Vec::with_capacity(batch_rows);
            while let Some(page) = table.pages().get(self.page)
                && refs.len() < batch_rows
            {
                let first = row_ref(table.first_page() + self.page, 0);
                let until = page.rows().min(self.slot + batch_rows - refs.len());
                let rows = (first + self.slot as RowRef)..(first + until as RowRef);
                refs.extend(rows.filter(|&row| what.emits(visited.is_set(row as usize))));
                self.slot = until;
                if until == page.rows() {
                    self.page += 1;
                    self.slot = 0;
                }
            }
            if self.spec.null_aware && self.inner.any_rows {
                for &key in &self.spec.build.keys {
                    let column = self.build.rows().column(key);
                    refs.retain(|&row| column.is_valid(row));
                }
            }
            if refs.is_empty() && self.page < table.pages().len() {
                continue;
            }
            if refs.is_empty() {
                return Ok(None);
            }
            let marks = (what == SideRows::Marked)
                .then(|| BooleanArray::from_iter(refs.iter().map(|&row| Some(visited.is_set(row as usize)))));
            let build = Some((self.build.rows(), BuildRows::Any(&refs)));
            return assemble(&self.spec.output, &self.spec.schema, build, None, marks).map(Some);
        }
    }
}
