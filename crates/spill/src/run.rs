//! Sorted runs: rows that are written once in their order, and read once in the same order.
//!
//! ```text
//!   sorted rows ─► RunWriter: [page being filled] [full][full] ─► extents of temporary space
//!                                                                     │ given back as they are read
//!   merge ◄─ PartitionReader: pages in order, reads ahead ◄───────────┘
//! ```
//!
//! Pages are those of partitions, and a run is written as a partition that is alone: full pages go to the device in
//! groups while the next ones are filled.

use std::sync::Arc;

use arrow_array::RecordBatch;
use nandina_pages::PageSchema;

use crate::error::Result;
use crate::partition_file::{PartitionFile, PartitionReader};
use crate::partitioner::{Partitioner, PartitionerOptions};
use crate::scatter::Scatter;
use crate::temp_space::QuerySpace;

/// Writes one run.
pub struct RunWriter {
    partitioner: Partitioner,
    scatter: Scatter,
}

impl RunWriter {
    /// An empty run of pages as `options` describe them; it has one partition, whatever they say.
    pub fn new(
        schema: Arc<PageSchema>,
        options: &PartitionerOptions,
        space: Arc<QuerySpace>,
    ) -> Result<Self> {
        let options = PartitionerOptions { partition_bits: 0, ..options.clone() };
        let partitioner = Partitioner::new(schema, options, space);
        partitioner.spill(0)?;
        Ok(Self { partitioner, scatter: Scatter::default() })
    }

    /// Appends rows, which come behind all that were pushed before. Nothing waits: see [`Self::throttle`].
    pub fn push(&mut self, rows: &RecordBatch) -> Result<()> {
        self.scatter.to_partition(0, rows.num_rows(), 0);
        self.partitioner.push(rows, &self.scatter)
    }

    /// Waits until the bytes being written to the device are within [`PartitionerOptions::write_buffer_bytes`].
    pub async fn throttle(&self) -> Result<()> {
        self.partitioner.throttle().await
    }

    /// Ends the run when all of it is on the device.
    pub async fn finish(self) -> Result<Run> {
        let finished = self.partitioner.finish()?;
        self.partitioner.drain_to(0).await?;
        Ok(Run(finished.into_iter().find_map(|partition| partition.file)))
    }
}

/// A run on the device. Dropping it gives its space back.
#[derive(Debug)]
pub struct Run(Option<Arc<PartitionFile>>);

impl Run {
    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.0.as_ref().map_or(0, |file| file.rows())
    }

    /// Bytes of all pages.
    pub fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, |file| file.bytes())
    }

    /// Bytes of the largest page.
    pub fn largest_page_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |file| file.largest_page_bytes())
    }

    /// Reads the run once, in reads of about `unit_bytes`. One is under way before its pages are used, and more where
    /// they are [asked for](PartitionReader::read_next_unit). Space is given back as it has been read. `None` if the run has no
    /// rows.
    pub fn read(self, schema: Arc<PageSchema>, unit_bytes: usize) -> Option<PartitionReader> {
        let file = self.0?;
        Some(PartitionFile::read_in_units(file, schema, 0, unit_bytes))
    }
}
