//! Where does what doesn't fit go?
//!
//! Temporary space, and the hash partitioner that fills it.

pub mod error;
mod partition_file;
mod partitioner;
mod scatter;
pub mod temp_space;

pub use error::{Result, SpillError};
pub use partition_file::{MAX_READ_BYTES, MIN_READ_BYTES, PartitionFile, PartitionReader, SealedPage};
pub use partitioner::{Algorithm, Partition, Partitioner, PartitionerOptions, SpillObserver, WriteUnit};
pub use scatter::{Scatter, partition_of};
pub use temp_space::{Extent, QuerySpace, TempOptions, TempSpace};
