//! A probe batch against a block.
//!
//! ```text
//!   page of the block × batch:   the smaller of both row by row, the filter over all of the larger one at once
//!                                    │
//!                                    └─► accepted ─┬─► pairs of the output, cut into batches
//!                                                  ├─► bits of build rows
//!                                                  └─► flags of probe rows
//! ```
//!
//! Where only flags are wanted, rows that have matched are not compared again.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::take;
use datafusion::common::Result;
use datafusion::physical_plan::metrics::Time;

use super::block::Block;
use super::pair_filter::{OneAgainstMany, PairFilter};
use super::side_rows::ProbeSideRows;
use crate::batch::data_bytes;
use crate::error::pages_error;
use crate::execution::Progress;
use crate::join::assemble::{BuildRows, ProbeRows, assemble};
use crate::join::kind::{JoinKind, SideRows};
use crate::join::rows::{RowRef, row_ref};
use crate::join::spec::JoinSpec;

/// Comparisons after which other tasks get their turn, and a cancelled query ends: a few milliseconds.
const PAIRS_PER_TURN: usize = 1 << 21;

/// What a step of a prober came to.
enum Step {
    Output(RecordBatch),
    /// Nothing yet; others should get their turn.
    Pause,
    /// The block has met the batch.
    Done,
}

/// The rows of a probe batch that are still compared.
struct OpenRows {
    /// Their numbers in the batch.
    rows: Vec<u32>,
    /// Their columns that the filter looks at.
    columns: Vec<ArrayRef>,
    /// The same as the many rows of a comparison.
    many: RecordBatch,
    /// How many of them have matched, where that closes them.
    settled: usize,
}

/// A page of the block as the filter sees it.
struct OpenPage {
    columns: Vec<ArrayRef>,
    many: RecordBatch,
    rows: usize,
    /// Whether it is gone through row by row, the filter running over the probe rows.
    one_build: bool,
    /// The next row to hold fixed: a slot of the page, or a place among the open rows.
    next: usize,
}

/// Probes batches against blocks. Reused from batch to batch, with its buffers.
pub struct Prober {
    spec: Arc<JoinSpec>,
    /// What to emit: the join's kind, or half of a full join.
    kind: JoinKind,
    filter: Option<PairFilter>,
    block: Option<Arc<Block>>,
    batch: RecordBatch,
    matched: Vec<bool>,
    open: Option<OpenRows>,
    /// Number of the current page.
    page: usize,
    open_page: Option<OpenPage>,
    /// Without a filter: the next build row of the page, and the next probe row to pair it with.
    next_slot: usize,
    next_row: usize,
    build: Vec<RowRef>,
    probe: Vec<u32>,
    /// How many of the pairs have been emitted.
    emitted: usize,
    /// Most rows in an output batch.
    output_rows: usize,
}

impl Prober {
    /// A prober that emits pairs and notes matches as `kind` asks for.
    pub fn new(spec: &Arc<JoinSpec>, kind: JoinKind) -> Result<Self> {
        Ok(Self {
            spec: Arc::clone(spec),
            kind,
            filter: spec.filter.as_ref().map(PairFilter::new).transpose()?,
            block: None,
            batch: RecordBatch::new_empty(Arc::clone(spec.probe.pages.arrow())),
            matched: Vec::new(),
            open: None,
            page: 0,
            open_page: None,
            next_slot: 0,
            next_row: 0,
            build: Vec::new(),
            probe: Vec::new(),
            emitted: 0,
            output_rows: 1,
        })
    }

    /// Starts a batch in stored form, whose `matched` rows have met their match in other blocks.
    pub fn start(&mut self, block: Arc<Block>, batch: RecordBatch, matched: Vec<bool>) -> Result<()> {
        let rows = batch.num_rows();
        let probe_row_bytes = data_bytes(&batch) / rows.max(1);
        self.output_rows = self.spec.output_rows(block.row_bytes() + probe_row_bytes);
        self.matched = matched;
        self.open = None;
        (self.page, self.open_page, self.next_slot, self.next_row) = (0, None, 0, 0);
        match &self.filter {
            Some(filter) => {
                let open: Vec<u32> =
                    (0..rows as u32).filter(|&row| self.kind.pairs || !self.matched[row as usize]).collect();
                let columns = filter.probe_columns.iter();
                let columns: Vec<ArrayRef> =
                    columns.map(|&column| Arc::clone(batch.column(column))).collect();
                let all = open.len() == rows;
                self.open = Some(OpenRows::new(&filter.one_build, columns, open, all)?);
            }
            None if rows > 0 && block.row_count() > 0 => {
                self.matched.fill(true);
                if let Some(bits) = block.matched() {
                    bits.set_all();
                }
            }
            None => {}
        }
        self.block = Some(block);
        self.batch = batch;
        Ok(())
    }

    /// The next output batch, or `None` when the block has met the batch. Comparing takes `time`, and is `progress` for
    /// others that wait.
    pub async fn next(&mut self, time: &Time, progress: &Progress) -> Result<Option<RecordBatch>> {
        loop {
            let timer = time.timer();
            let step = self.step()?;
            drop(timer);
            match step {
                Step::Output(batch) => return Ok(Some(batch)),
                Step::Pause => {
                    progress.note();
                    tokio::task::yield_now().await;
                }
                Step::Done => return Ok(None),
            }
        }
    }

    /// Which rows of the batch have matched so far.
    pub fn matched(&self) -> &[bool] {
        &self.matched
    }

    /// Lets go of the batch, for its rows by themselves.
    pub fn take_probe_rows(&mut self) -> ProbeSideRows {
        let empty = RecordBatch::new_empty(Arc::clone(self.spec.probe.pages.arrow()));
        ProbeSideRows::new(std::mem::replace(&mut self.batch, empty), std::mem::take(&mut self.matched))
    }

    fn step(&mut self) -> Result<Step> {
        let Some(block) = self.block.clone() else { return Ok(Step::Done) };
        let mut compared = 0;
        loop {
            let waiting = self.build.len() - self.emitted;
            let done = self.is_done(&block);
            if waiting > 0 && (done || waiting >= self.output_rows) {
                return self.output(&block).map(Step::Output);
            }
            if done {
                self.block = None;
                return Ok(Step::Done);
            }
            if compared >= PAIRS_PER_TURN {
                return Ok(Step::Pause);
            }
            if self.open.is_none() && self.batch.num_rows() * 2 > self.output_rows {
                return self.product(&block).map(Step::Output);
            }
            self.forget_emitted();
            compared += match self.open {
                None => self.combine(&block),
                Some(_) => self.compare(&block, PAIRS_PER_TURN - compared)?,
            };
        }
    }

    /// Whether no pair is to be looked at any more.
    fn is_done(&self, block: &Block) -> bool {
        let flags_known = !self.kind.pairs && self.open.as_ref().is_none_or(|open| open.rows.is_empty());
        flags_known || self.batch.num_rows() == 0 || self.page >= block.pages().len()
    }

    /// Emits pairs up to the size of a batch.
    fn output(&mut self, block: &Block) -> Result<RecordBatch> {
        let until = self.build.len().min(self.emitted + self.output_rows);
        let pairs = self.emitted..until;
        self.emitted = until;
        self.pairs_of(block, BuildRows::Any(&self.build[pairs.clone()]), ProbeRows::Any(&self.probe[pairs]))
    }

    fn pairs_of(&self, block: &Block, build: BuildRows<'_>, probe: ProbeRows<'_>) -> Result<RecordBatch> {
        let (build, probe) = (Some((block.rows(), build)), Some((&self.batch, probe)));
        assemble(&self.spec.output, &self.spec.schema, build, probe, None)
    }

    /// Without a filter, and with enough probe rows for a batch: one build row with them, whose columns need no copy.
    fn product(&mut self, block: &Block) -> Result<RecordBatch> {
        let rows = self.next_row..self.batch.num_rows().min(self.next_row + self.output_rows);
        let build = BuildRows::Same(row_ref(self.page, self.next_slot), rows.len());
        self.next_row = rows.end;
        if self.next_row == self.batch.num_rows() {
            self.next_row = 0;
            self.next_build_row(block);
        }
        self.pairs_of(block, build, ProbeRows::Run(rows))
    }

    fn next_build_row(&mut self, block: &Block) {
        self.next_slot += 1;
        if self.next_slot >= block.pages()[self.page].rows() {
            self.page += 1;
            self.next_slot = 0;
        }
    }

    fn forget_emitted(&mut self) {
        if self.emitted > 0 {
            self.build.drain(..self.emitted);
            self.probe.drain(..self.emitted);
            self.emitted = 0;
        }
    }

    /// Without a filter: pairs the next build row with every probe row. Returns their number.
    fn combine(&mut self, block: &Block) -> usize {
        let rows = self.batch.num_rows();
        self.build.extend(std::iter::repeat_n(row_ref(self.page, self.next_slot), rows));
        self.probe.extend(0..rows as u32);
        self.next_build_row(block);
        rows
    }

    /// Compares rows of the current page with the open rows, until about `most` pairs have been compared, enough of
    /// them are accepted, or the page is done. Returns how many were compared.
    fn compare(&mut self, block: &Block, most: usize) -> Result<usize> {
        let (Some(filter), Some(open)) = (&self.filter, &mut self.open) else { return Ok(0) };
        let page = match &mut self.open_page {
            Some(page) => page,
            none => none.insert(OpenPage::new(filter, block, self.page, open.rows.len())?),
        };
        let emits_probe_rows = self.kind.probe_rows != SideRows::Dropped;
        let mut compared = 0;
        while compared < most && self.build.len() < self.output_rows {
            let next = page.next;
            if next >= if page.one_build { page.rows } else { open.rows.len() } {
                self.page += 1;
                self.open_page = None;
                break;
            }
            page.next += 1;
            if page.one_build {
                let number = block.number(self.page, next);
                // Only the first match of a build row counts where nothing else is asked.
                let is_known = !self.kind.pairs && !emits_probe_rows;
                if is_known && block.matched().is_some_and(|bits| bits.is_set(number)) {
                    continue;
                }
                compared += open.rows.len();
                let accepted = filter.one_build.matches(&page.columns, next, &open.many)?;
                let Some(accepted) = accepted else { continue };
                if let Some(bits) = block.matched() {
                    bits.set(number);
                }
                if emits_probe_rows {
                    open.note(&accepted, &mut self.matched);
                }
                if self.kind.pairs {
                    let before = self.probe.len();
                    self.probe.extend(accepted.set_indices().map(|place| open.rows[place]));
                    let count = self.probe.len() - before;
                    self.build.extend(std::iter::repeat_n(row_ref(self.page, next), count));
                } else if open.close_matched(&filter.one_build, &self.matched)? && open.rows.is_empty() {
                    break;
                }
            } else {
                let row = open.rows[next];
                if !self.kind.pairs && self.matched[row as usize] {
                    continue;
                }
                compared += page.rows;
                let accepted = filter.one_probe.matches(&open.columns, next, &page.many)?;
                let Some(accepted) = accepted else { continue };
                if let Some(bits) = block.matched() {
                    for slot in accepted.set_indices() {
                        bits.set(block.number(self.page, slot));
                    }
                }
                if emits_probe_rows {
                    self.matched[row as usize] = true;
                }
                if self.kind.pairs {
                    let before = self.build.len();
                    self.build.extend(accepted.set_indices().map(|slot| row_ref(self.page, slot)));
                    let count = self.build.len() - before;
                    self.probe.extend(std::iter::repeat_n(row, count));
                }
            }
        }
        Ok(compared)
    }
}

impl OpenRows {
    /// The columns of a batch that the filter looks at, cut down to `rows` of it unless those are `all`.
    fn new(filter: &OneAgainstMany, columns: Vec<ArrayRef>, rows: Vec<u32>, all: bool) -> Result<Self> {
        let columns = if all { columns } else { taken(&columns, &rows)? };
        let many = filter.many(columns.clone(), rows.len())?;
        Ok(Self { rows, columns, many, settled: 0 })
    }

    /// Notes a match of the `accepted` rows.
    fn note(&mut self, accepted: &BooleanBuffer, matched: &mut [bool]) {
        for place in accepted.set_indices() {
            let flag = &mut matched[self.rows[place] as usize];
            self.settled += usize::from(!*flag);
            *flag = true;
        }
    }

    /// Leaves out the rows that have matched, once they are half of all. Whether it did.
    fn close_matched(&mut self, filter: &OneAgainstMany, matched: &[bool]) -> Result<bool> {
        if self.settled * 2 < self.rows.len().max(1) {
            return Ok(false);
        }
        let places: Vec<u32> = (0..self.rows.len() as u32)
            .filter(|&place| !matched[self.rows[place as usize] as usize])
            .collect();
        let columns = taken(&self.columns, &places)?;
        let rows = places.iter().map(|&place| self.rows[place as usize]).collect();
        *self = Self::new(filter, columns, rows, true)?;
        Ok(true)
    }
}

fn taken(columns: &[ArrayRef], rows: &[u32]) -> Result<Vec<ArrayRef>> {
    let rows = UInt32Array::from(rows.to_vec());
    columns.iter().map(|column| Ok(take(column, &rows, None)?)).collect()
}

impl OpenPage {
    fn new(filter: &PairFilter, block: &Block, number: usize, open_rows: usize) -> Result<Self> {
        let page = &block.pages()[number];
        let columns = filter.build_columns.iter().map(|&column| page.column(column));
        let columns = columns.collect::<Result<Vec<ArrayRef>, _>>().map_err(pages_error)?;
        let many = filter.one_probe.many(columns.clone(), page.rows())?;
        Ok(Self { columns, many, rows: page.rows(), one_build: open_rows >= page.rows(), next: 0 })
    }
}
