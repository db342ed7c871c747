//! Where does what doesn't fit go?
//!
//! Temporary space, and what fills it: the hash partitioner and sorted runs, compressed where that saves time, and rows that
//! are read by their addresses.

#![allow(
    clippy::indexing_slicing,
    reason = "indices are made here, but for those of packed pages, which are checked: a wrong one must not lose pages"
)]

pub mod compression;
pub mod error;
mod extent_files;
mod partition_file;
mod partitioner;
mod ranges;
mod row_file;
mod run;
mod scatter;
mod sealed_page;
pub mod space_policy;
pub mod temp_space;

pub use compression::Compression;
pub use error::{Result, SpillError};
pub use partition_file::{MAX_READ_BYTES, MIN_READ_BYTES, PartitionFile, PartitionReader};
pub use partitioner::{Partition, Partitioner, PartitionerOptions, SpillObserver};
pub use row_file::{RowFile, RowFileWriter};
pub use run::{Run, RunWriter};
pub use scatter::{Scatter, partition_of};
pub use sealed_page::SealedPage;
pub use space_policy::{Discard, Preallocation};
pub use temp_space::{Extent, QuerySpace, TempOptions, TempSpace};
