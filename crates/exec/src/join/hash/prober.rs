//! Probing: one batch of the probe side against a build side in memory.
//!
//! ```text
//!  hashes ─► candidates ─► pairs ─► equal keys ─► residual filter ─┬─► pairs of the output
//!           (directory)   (entries)  (columns)     (expression)    ├─► visited bits of build rows
//!                                                                  └─► matched flags of probe rows
//! ```
//!
//! Every arrow is a loop over a few thousand rows, so that cache misses of different rows overlap. A batch is
//! probed in steps of at most `batch_rows` pairs: duplicates on both sides make an output of any size, never
//! a batch of any size.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::SchemaRef;
use datafusion::common::{NullEquality, Result};

use super::build_side::BuildSide;
use super::keys::{Pairs, retain_equal};
use super::table::{GROUP, PartitionTable};
use crate::batch::data_bytes;
use crate::join::assemble::{BuildRows, ProbeRows, assemble};
use crate::join::kind::SideRows;
use crate::join::spec::{JoinSpec, OutputColumn};
use nandina_pages::prefetch::AHEAD;

/// A probe row and the entries it still has to look at.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    row: u32,
    /// Entries of a partition have numbers of 32 bits, like rows.
    next: u32,
    end: u32,
}

/// What the pairs of a step are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Every pair counts.
    Pairs,
    /// A probe row needs one match.
    ProbeExistence,
    /// A build row needs one match.
    BuildExistence,
}

/// Probes batches against a build side. Reused from batch to batch, with its buffers.
pub struct Prober {
    spec: Arc<JoinSpec>,
    purpose: Purpose,
    /// Whether probe rows are emitted by this prober, or by a later pass over all blocks of a build side.
    defers_probe_rows: bool,
    build: Option<Arc<BuildSide>>,
    batch: RecordBatch,
    keys: Vec<ArrayRef>,
    hashes: Vec<u64>,
    /// Rows of the batch that this prober answers for.
    active: Vec<u32>,
    cursors: Vec<Cursor>,
    next_cursor: usize,
    pairs: Pairs,
    matched: Vec<bool>,
    /// Rows that walk the duplicates of their key for all rows of that key (see `settle_build_existence`).
    walking: Vec<bool>,
    emitted_probe_rows: bool,
    /// Most pairs in a step.
    step_rows: usize,
}

impl Prober {
    /// A prober for `spec`.
    pub fn new(spec: Arc<JoinSpec>) -> Self {
        let purpose = match (spec.kind.pairs, spec.kind.probe_rows) {
            (true, _) => Purpose::Pairs,
            (false, SideRows::Dropped) => Purpose::BuildExistence,
            (false, _) => Purpose::ProbeExistence,
        };
        let batch = RecordBatch::new_empty(Arc::clone(spec.probe.pages.arrow()));
        Self {
            spec,
            purpose,
            defers_probe_rows: false,
            build: None,
            batch,
            keys: Vec::new(),
            hashes: Vec::new(),
            active: Vec::new(),
            cursors: Vec::new(),
            next_cursor: 0,
            pairs: Pairs::default(),
            matched: Vec::new(),
            walking: Vec::new(),
            emitted_probe_rows: true,
            step_rows: 1,
        }
    }

    /// Leaves the probe rows themselves to [`Prober::probe_rows`]: the build side comes in several blocks.
    pub fn deferring_probe_rows(mut self) -> Self {
        self.defers_probe_rows = true;
        self
    }

    /// Starts a batch in stored form whose rows hash to `hashes`; rows of partitions that `build` does not
    /// hold are put into `spilled` and left to the caller, unless it is known that nothing matches them: by
    /// `on_build_side`, if that is known of every row, or else by the build side's filter. Returns how many rows that
    /// kept out of `spilled`.
    pub fn start(
        &mut self,
        build: Arc<BuildSide>,
        batch: RecordBatch,
        keys: Vec<ArrayRef>,
        hashes: &[u64],
        on_build_side: Option<&BooleanBuffer>,
        spilled: &mut Vec<u32>,
    ) -> usize {
        self.cursors.clear();
        self.active.clear();
        spilled.clear();
        let matchable = self.spec.matchable(&keys);
        let emits_probe_rows = self.spec.kind.probe_rows != SideRows::Dropped;
        let mut filtered = 0;
        let rows = batch.num_rows() as u32;
        self.cursors.resize(rows as usize, Cursor::default());
        let mut cursors = 0;
        let prefetches = build.exceeds_caches();
        for (row, &hash) in (0..rows).zip(hashes) {
            if prefetches && let Some(&ahead) = hashes.get(row as usize + AHEAD) {
                build.prefetch(ahead);
            }
            if matchable.as_ref().is_some_and(|nulls| nulls.is_null(row as usize)) {
                // No partition can hold a match: the row is answered here, wherever its hash points.
                self.active.push(row);
                continue;
            }
            let Some(table) = build.table(hash) else {
                let may_match = match on_build_side {
                    Some(held) => held.value(row as usize),
                    None => build.spilled_keys().is_none_or(|keys| keys.may_hold(hash)),
                };
                if !may_match {
                    filtered += 1;
                    self.active.push(row);
                } else {
                    spilled.push(row);
                }
                continue;
            };
            if emits_probe_rows {
                self.active.push(row);
            }
            // Written in any case, counted if there is something to look at.
            let candidates = table.candidates(hash);
            self.cursors[cursors] = Cursor { row, next: candidates.start as u32, end: candidates.end as u32 };
            cursors += usize::from(!candidates.is_empty());
        }
        self.cursors.truncate(cursors);
        self.next_cursor = 0;
        self.matched.clear();
        self.matched.resize(rows as usize, false);
        self.walking.clear();
        if self.purpose == Purpose::BuildExistence {
            self.walking.resize(rows as usize, false);
        }
        self.hashes.clear();
        self.hashes.extend_from_slice(hashes);
        self.emitted_probe_rows = false;
        let probe_row_bytes = data_bytes(&batch) / batch.num_rows().max(1);
        self.step_rows = build.output_rows(&self.spec, probe_row_bytes);
        if let Some(keys) = build.spilled_keys() {
            keys.note(filtered + spilled.len(), spilled.len());
        }
        self.build = Some(build);
        self.batch = batch;
        self.keys = keys;
        filtered
    }

    /// The next output batch, or `None` when the probe batch is done.
    pub fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some(build) = self.build.clone() else { return Ok(None) };
        while self.next_cursor < self.cursors.len() {
            self.expand(&build);
            self.confirm(&build)?;
            self.settle(&build);
            if self.purpose == Purpose::Pairs && !self.pairs.is_empty() {
                return self.pairs_of(&build, &self.spec.output, &self.spec.schema).map(Some);
            }
        }
        self.build = None;
        if self.emitted_probe_rows || self.defers_probe_rows {
            return Ok(None);
        }
        self.emitted_probe_rows = true;
        let active = std::mem::take(&mut self.active);
        let output = self.probe_rows_of(&active);
        self.active = active;
        output
    }

    /// Which rows of the batch have matched so far.
    pub fn matched(&self) -> &[bool] {
        &self.matched
    }

    /// What becomes of the rows of a probe batch, given which of them have matched in any block.
    pub fn probe_rows(&mut self, batch: RecordBatch, matched: Vec<bool>) -> Result<Option<RecordBatch>> {
        let rows: Vec<u32> = (0..batch.num_rows() as u32).collect();
        self.batch = batch;
        self.matched = matched;
        self.probe_rows_of(&rows)
    }

    /// Turns cursors into candidate pairs: all of them up to the size of a batch, or, where one match is
    /// enough, a few of every row at a time.
    fn expand(&mut self, build: &BuildSide) {
        self.pairs.clear();
        let batch_rows = self.step_rows;
        let existence = self.purpose == Purpose::ProbeExistence
            || (self.purpose == Purpose::BuildExistence && self.spec.filter.is_none());
        if existence {
            let quota = (batch_rows / self.cursors.len().max(1)).max(1);
            self.pairs.reserve(quota * self.cursors.len() + GROUP);
            for at in 0..self.cursors.len() {
                self.prefetch_entry(build, at + AHEAD);
                let cursor = &mut self.cursors[at];
                let hash = self.hashes[cursor.row as usize];
                if let Some(table) = build.table(hash) {
                    take_entries(table, cursor, hash, quota, &mut self.pairs);
                }
            }
            return;
        }
        self.pairs.reserve(batch_rows + GROUP);
        while self.next_cursor < self.cursors.len() {
            self.prefetch_entry(build, self.next_cursor + AHEAD);
            let cursor = &mut self.cursors[self.next_cursor];
            let room = batch_rows - self.pairs.len().min(batch_rows);
            if room == 0 {
                return;
            }
            let hash = self.hashes[cursor.row as usize];
            if let Some(table) = build.table(hash) {
                take_entries(table, cursor, hash, room, &mut self.pairs);
            }
            if cursor.next < cursor.end {
                return;
            }
            self.next_cursor += 1;
        }
    }

    /// Asks for the entry that a cursor, if there is one, will look at.
    #[inline]
    fn prefetch_entry(&self, build: &BuildSide, cursor: usize) {
        if build.exceeds_caches()
            && let Some(ahead) = self.cursors.get(cursor)
            && let Some(table) = build.table(self.hashes[ahead.row as usize])
        {
            table.prefetch_entry(ahead.next as usize);
        }
    }

    /// Keeps the pairs with equal keys that the residual filter accepts.
    fn confirm(&mut self, build: &BuildSide) -> Result<()> {
        let nulls_equal = self.spec.null_equality == NullEquality::NullEqualsNull;
        for (&column, key) in self.spec.build.keys.iter().zip(&self.keys) {
            retain_equal(build.rows(), column, key, nulls_equal, &mut self.pairs)?;
        }
        let Some(filter) = self.spec.filter.as_ref().filter(|_| !self.pairs.is_empty()) else {
            return Ok(());
        };
        let input = self.pairs_of(build, &filter.columns, &filter.schema)?;
        let verdict = filter.expression.evaluate(&input)?.into_array(input.num_rows())?;
        let verdict = verdict.as_boolean();
        if verdict.true_count() < self.pairs.len() {
            self.pairs.retain_positions(|at| verdict.is_valid(at) && verdict.value(at));
        }
        Ok(())
    }

    /// Records what the confirmed pairs say about the rows of each side, and drops settled cursors.
    fn settle(&mut self, build: &BuildSide) {
        if self.purpose != Purpose::BuildExistence && self.spec.kind.probe_rows != SideRows::Dropped {
            for &row in &self.pairs.probe {
                self.matched[row as usize] = true;
            }
        }
        match self.purpose {
            Purpose::Pairs => {
                if let Some(visited) = build.visited() {
                    for &row in &self.pairs.build {
                        visited.set(row as usize);
                    }
                }
            }
            Purpose::ProbeExistence => {
                let matched = &self.matched;
                self.cursors.retain(|cursor| cursor.next < cursor.end && !matched[cursor.row as usize]);
            }
            Purpose::BuildExistence => self.settle_build_existence(build),
        }
    }

    /// A probe row that finds the first build row of its key visited need not look further: the probe row that
    /// visited it walks the others of that key, to the end. A hot key is thus walked once, not once per probe row.
    /// Only the first row decides: further on, a walk may find rows that were visited by a probe row which then
    /// stopped. With a residual filter a visited row says nothing about its equals.
    fn settle_build_existence(&mut self, build: &BuildSide) {
        let Some(visited) = build.visited() else { return };
        let decisive = self.spec.filter.is_none();
        for (&row, &probe) in self.pairs.build.iter().zip(&self.pairs.probe) {
            let visited_before = visited.set(row as usize);
            let probe = probe as usize;
            if decisive && !self.matched[probe] && !self.walking[probe] {
                self.matched[probe] = visited_before;
                self.walking[probe] = !visited_before;
            }
        }
        if decisive {
            let settled = &self.matched;
            self.cursors.retain(|cursor| cursor.next < cursor.end && !settled[cursor.row as usize]);
        }
    }

    /// The output that `rows` of the batch make by themselves.
    fn probe_rows_of(&self, rows: &[u32]) -> Result<Option<RecordBatch>> {
        let what = self.spec.kind.probe_rows;
        let matched = |row: &u32| self.matched[*row as usize];
        let chosen: Vec<u32> = rows.iter().copied().filter(|row| what.emits(matched(row))).collect();
        if chosen.is_empty() {
            return Ok(None);
        }
        let marks = (what == SideRows::Marked)
            .then(|| BooleanArray::from_iter(chosen.iter().map(|row| Some(matched(row)))));
        let probe = Some((&self.batch, ProbeRows::Any(&chosen)));
        assemble(&self.spec.output, &self.spec.schema, None, probe, marks).map(Some)
    }

    /// The current pairs as rows of `columns`.
    fn pairs_of(
        &self,
        build: &BuildSide,
        columns: &[OutputColumn],
        schema: &SchemaRef,
    ) -> Result<RecordBatch> {
        let build = Some((build.rows(), BuildRows::Any(&self.pairs.build)));
        assemble(columns, schema, build, Some((&self.batch, ProbeRows::Any(&self.pairs.probe))), None)
    }
}

/// Moves up to `most` matching entries of a cursor into pairs, which must have room for them and a group more.
#[inline(always)]
fn take_entries(table: &PartitionTable, cursor: &mut Cursor, hash: u64, most: usize, pairs: &mut Pairs) {
    let until = pairs.len() + most;
    while cursor.next < cursor.end && pairs.len() < until {
        let (rows, same) = table.group(cursor.next as usize, cursor.end as usize, hash);
        if pairs.len() + GROUP <= until {
            for (number, row) in rows.into_iter().enumerate() {
                pairs.push_if(row, cursor.row, same >> number & 1 == 1);
            }
            cursor.next = cursor.end.min(cursor.next.saturating_add(GROUP as u32));
        } else {
            // Only one: there is not room for all of them.
            let first = same.trailing_zeros().min(GROUP as u32 - 1);
            pairs.push_if(rows[first as usize], cursor.row, same != 0);
            cursor.next = cursor.end.min(cursor.next + first + 1);
        }
    }
}
