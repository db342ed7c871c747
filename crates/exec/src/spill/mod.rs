//! Rows that leave memory: what operators do with temporary space.
//!
//! ```text
//!   SpillContext ─► SpillWriter ── push ──► partitions of pages ── finish ──► SpillFile ── read ──► SpillReader
//!   (an operator's       (one partition, or scattered by hash)      (read any number         (batches, in the
//!    shape and metrics)                                              of times)                order of pushing)
//! ```
//!
//! A [`RowQueue`] keeps rows that wait in memory while there is some, and in spill files else.
//!
//! [`ResidentPartitions`] are in memory until another operator needs it: build sides of joins, groups of aggregations.

mod batch_reader;
mod context;
mod destage;
mod file;
mod hash_filter;
mod metrics;
mod resident_partitions;
mod row_queue;
mod spilled_hashes;
mod temp;
mod writer;

pub(crate) use batch_reader::BatchReader;
pub(crate) use context::{SpillContext, SpillShape};
pub use destage::DestagePolicy;
pub(crate) use file::{SpillFile, SpillReader};
pub(crate) use hash_filter::HashFilter;
pub use metrics::SpillMetrics;
pub(crate) use resident_partitions::{Destination, PartitionsMetrics, ResidentPartitions};
pub(crate) use row_queue::RowQueue;
pub(crate) use spilled_hashes::SpilledHashes;
pub use temp::SessionTempSpace;
pub(crate) use temp::operator_space;
pub(crate) use writer::SpillWriter;
