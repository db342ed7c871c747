//! The rows of several sources, one after the other in order, as long as all of them are buffered.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;

use super::chunk::{Chunk, Position, gather};
use super::keys::{Head, Key};
use super::loser_tree::LoserTree;
use super::shared_prefix::SharedPrefix;

/// What a merge came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// As many rows as one batch is to have.
    Full,
    /// The buffered rows of this source are consumed.
    Exhausted(usize),
    /// All rows are through.
    End,
}

/// The merge of some sources, which are known by their numbers.
#[derive(Debug)]
pub struct Merger {
    cursors: Vec<Cursor>,
    heads: Vec<Place>,
    tree: LoserTree,
    /// Bytes that all keys of all sources begin with, and whether those behind them decide.
    skipped_bytes: usize,
    heads_decide: bool,
    /// Rows that are still to be emitted.
    left: usize,
}

/// Rows of a source, and which of them comes next.
#[derive(Debug, Default)]
struct Cursor {
    chunk: Arc<Chunk>,
    at: usize,
    position: Option<Position>,
    /// Where each of the chunk's batches stands among those of the output, and of which one.
    slots: Vec<(u32, u32)>,
}

/// What sources are compared by first: those that have ended come last.
type Place = (bool, Head);

/// Rows that have been merged but not been copied yet.
#[derive(Debug, Default)]
pub struct Outgoing {
    batches: Vec<RecordBatch>,
    places: Vec<(usize, usize)>,
    bytes: usize,
    number: u32,
}

impl Merger {
    /// A merge of `chunks`, each from its row of this number on, of which at most `limit` rows are wanted. All keys,
    /// those of chunks that come later included, are among those that `prefix` knows.
    pub fn new(chunks: Vec<(Arc<Chunk>, usize)>, prefix: &SharedPrefix, limit: usize) -> Self {
        let sources = chunks.len();
        let mut merger = Self {
            cursors: (0..sources).map(|_| Cursor::default()).collect(),
            heads: vec![(true, [0; 2]); sources],
            tree: LoserTree::default(),
            skipped_bytes: prefix.len_bytes(),
            heads_decide: prefix.heads_decide(),
            left: limit,
        };
        for (source, (chunk, at)) in chunks.into_iter().enumerate() {
            merger.place(source, chunk, at);
        }
        merger.tree = LoserTree::new(sources, |a, b| merger.beats(a, b));
        merger
    }

    /// Gives a source whose rows are through the next ones: none if it has ended.
    pub fn supply(&mut self, source: usize, chunk: Option<Chunk>) {
        self.place(source, Arc::new(chunk.unwrap_or_default()), 0);
        self.replay();
    }

    /// The buffered rows of a source, and how many of them are consumed.
    pub fn buffered(&self, source: usize) -> (&Arc<Chunk>, usize) {
        let cursor = &self.cursors[source];
        (&cursor.chunk, cursor.at)
    }

    /// Replaces the buffered rows by copies of them, as far as those go.
    pub fn swap(&mut self, source: usize, chunk: Chunk) {
        self.place(source, Arc::new(chunk), 0);
    }

    fn place(&mut self, source: usize, chunk: Arc<Chunk>, at: usize) {
        let position = chunk.position(at);
        self.cursors[source] = Cursor { slots: vec![(0, 0); chunk.batches()], chunk, at, position };
        self.read_head(source);
    }

    #[inline]
    fn read_head(&mut self, source: usize) {
        let cursor = &self.cursors[source];
        self.heads[source] = match cursor.position {
            None => (true, [0; 2]),
            Some(position) if cursor.chunk.skipped_bytes() == Some(self.skipped_bytes) => {
                (false, position.head)
            }
            Some(position) => (false, cursor.chunk.key(position).head(self.skipped_bytes)),
        };
    }

    fn replay(&mut self) {
        let mut tree = std::mem::take(&mut self.tree);
        tree.replay(|a, b| self.beats(a, b));
        self.tree = tree;
    }

    #[inline]
    fn beats(&self, a: usize, b: usize) -> bool {
        match self.heads[a].cmp(&self.heads[b]) {
            std::cmp::Ordering::Equal if !self.heads_decide => (self.key(a), a) < (self.key(b), b),
            std::cmp::Ordering::Equal => a < b,
            ordering => ordering.is_lt(),
        }
    }

    fn key(&self, source: usize) -> Key<'_> {
        let cursor = &self.cursors[source];
        cursor.position.map(|position| cursor.chunk.key(position)).unwrap_or_default()
    }

    /// Adds rows to `output` until it is full, or rows are needed that are not buffered.
    pub fn fill(&mut self, output: &mut Outgoing, most_rows: usize, most_bytes: usize) -> Step {
        while self.left > 0 {
            if output.places.len() >= most_rows || output.bytes >= most_bytes {
                return Step::Full;
            }
            let Some(winner) = self.tree.winner() else { break };
            let cursor = &mut self.cursors[winner];
            let Some(position) = cursor.position else { break };
            cursor.emit(position, output);
            self.left -= 1;
            cursor.at += 1;
            cursor.position = cursor.chunk.position(cursor.at);
            if cursor.position.is_none() {
                return Step::Exhausted(winner);
            }
            self.read_head(winner);
            self.replay();
        }
        Step::End
    }
}

impl Cursor {
    #[inline]
    fn emit(&mut self, position: Position, output: &mut Outgoing) {
        let slot = &mut self.slots[position.batch as usize];
        if slot.0 != output.number + 1 {
            let batch = self.chunk.batch(position.batch);
            *slot = (output.number + 1, output.batches.len() as u32);
            output.batches.push(batch.clone());
        }
        output.places.push((slot.1 as usize, position.row as usize));
        output.bytes += self.chunk.row_bytes(position.batch);
    }
}

impl Outgoing {
    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Bytes of the rows.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes the rows out; those that follow are another batch.
    pub fn take(&mut self) -> Self {
        let number = self.number.wrapping_add(1);
        std::mem::replace(self, Self { number, ..Self::default() })
    }

    /// Copies the rows into one batch.
    pub fn gather(&self, schema: &SchemaRef) -> Result<RecordBatch> {
        let batches: Vec<&RecordBatch> = self.batches.iter().collect();
        gather(schema, &batches, &self.places)
    }
}
