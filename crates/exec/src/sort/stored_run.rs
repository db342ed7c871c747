//! Sorted runs on the device, which are read page by page.

use std::sync::Arc;

use datafusion::common::Result;
use nandina_spill::{PartitionReader, Run};

use super::chunk::Chunk;
use super::forecast::{Mark, Marks};
use super::metrics::SortMetrics;
use super::shared_prefix::SharedPrefix;
use super::spec::SortSpec;
use crate::batch::data_bytes;
use crate::error::{pages_error, spill_error};
use crate::memory::HeldMemory;

/// Room for the keys of a unit whose pages are used, in units. Those that are longer take more when they are made.
const UNITS_OF_KEYS: usize = 2;

/// A run that has been written.
#[derive(Debug)]
pub struct StoredRun {
    run: Run,
    /// What all of its keys begin with.
    pub prefix: SharedPrefix,
    marks: Marks,
    /// For the marks.
    memory: HeldMemory,
}

/// A run that is being read, a unit at a time unless more are asked for ahead.
pub struct RunPages {
    reader: Option<PartitionReader>,
    unit_bytes: usize,
    rows: u64,
    marks: Marks,
    /// For the marks.
    _memory: HeldMemory,
}

impl StoredRun {
    /// A run of rows whose keys all begin with `prefix`.
    pub fn new(run: Run, prefix: SharedPrefix, marks: Marks, memory: HeldMemory) -> Self {
        memory.resize(marks.bytes());
        Self { run, prefix, marks, memory }
    }

    /// Bytes of all pages.
    pub fn bytes(&self) -> u64 {
        self.run.bytes()
    }

    /// Memory that is held for it while it is on the device.
    pub fn held_bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Bytes of the largest page.
    pub fn largest_page_bytes(&self) -> usize {
        self.run.largest_page_bytes()
    }

    /// Begins to read, in units of about `unit_bytes`.
    pub fn read(self, spec: &SortSpec, unit_bytes: usize) -> RunPages {
        let Self { run, marks, memory, .. } = self;
        let rows = run.rows();
        let mut reader = run.read(Arc::clone(&spec.pages), unit_bytes);
        if let Some(reader) = &mut reader {
            reader.read_ahead();
        }
        RunPages { reader, unit_bytes, rows, marks, _memory: memory }
    }
}

/// Bytes that reading a run takes beside what is read ahead, in units of so many, while the keys of the buffered rows are of
/// so many.
pub fn run_bytes(unit_bytes: usize, key_bytes: usize) -> usize {
    unit_bytes + key_bytes.max(UNITS_OF_KEYS * unit_bytes)
}

impl RunPages {
    pub fn unit_bytes(&self) -> usize {
        self.unit_bytes
    }

    /// The last key of the rows that have been asked for, about; `None` if that are all.
    pub fn asked(&self) -> Option<Mark> {
        let asked = self.reader.as_ref()?.share_asked();
        self.marks.of_row((self.rows as f64 * asked) as u64)
    }

    /// Asks for the next unit ahead; whether there is one.
    pub fn read_next_unit(&mut self) -> bool {
        self.reader.as_mut().is_some_and(PartitionReader::read_next_unit)
    }

    /// Units that have been asked for ahead of the one whose pages are used.
    pub fn units_ahead(&self) -> usize {
        self.reader.as_ref().map_or(0, PartitionReader::units_ahead)
    }

    /// Makes `memory` what the run takes while `page` is buffered. Keys may be far longer than the values that they are
    /// made of; what they take is asked for, and taken if it is not granted: without them nothing can leave memory.
    pub fn hold(&self, page: &Chunk, memory: &HeldMemory) {
        let bytes = run_bytes(self.unit_bytes, page.key_bytes());
        if !memory.try_resize(bytes) {
            memory.resize(bytes);
        }
    }

    /// The rows of the next page with their keys; `None` after the last.
    pub async fn next(&mut self, spec: &SortSpec, metrics: &SortMetrics) -> Result<Option<Chunk>> {
        let Some(reader) = &mut self.reader else { return Ok(None) };
        let waiting = metrics.spill.time.timer();
        let page = reader.next().await.map_err(spill_error)?;
        drop(waiting);
        let Some(page) = page else {
            self.reader = None;
            return Ok(None);
        };
        let rows = page.batch(None).map_err(pages_error)?;
        let keys = spec.keys(&rows)?;
        let bytes = data_bytes(&rows);
        Ok(Some(Chunk::in_order(rows, bytes, keys)))
    }
}
