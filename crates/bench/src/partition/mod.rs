//! Hash partitioning by its writing algorithms: classic, N-Hash, overlapped N-Hash.
//!
//! Repeats the experiments of Shin et al., *Optimizing Hash Partitioning for Solid State Drives*, SAC 2016:
//! TPC-H `ORDERS` is read by direct I/O, one input buffer at a time, and partitioned by `O_CUSTKEY`.
//!
//! ```text
//!   input file ──► input buffer ──► hash(O_CUSTKEY) ──► Partitioner ──► temporary space
//!   64 KB pages    one request,      scattered by         rings of sub-buffers,
//!                  waited for        partition            written by the algorithm under test
//! ```
//!
//! - [`device_grid`]: section 2.4, write bandwidth over I/O size and outstanding level.
//! - [`trial`]: one setting, measured; section 4.2 (fixed partitions) and 4.4 (page-sized I/O).
//! - [`allocation`]: how memory becomes rings, and section 4.3's formulas for the Grace join.
//! - [`waiting`]: the paper's two algorithms, which nothing but this comparison uses.
//! - [`input`]: the relation.
//! - [`report`]: tables and plots.

pub mod allocation;
pub mod device_grid;
pub mod input;
pub mod report;
pub mod trial;
pub mod waiting;

pub use allocation::{GraceAllocation, RingShape, Unit};
pub use device_grid::DeviceGrid;
pub use input::Input;
pub use report::{Measured, Setting, Study};
pub use trial::{Trial, Workbench};

/// How full sub-buffers of spilled partitions are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// One output buffer per partition, written alone when full; the writer waits.
    Classic,
    /// All full sub-buffers of all partitions, submitted together; the writer waits (SAC 2016).
    NHash,
    /// As N-Hash, but filling goes on while the batch is in flight: Nandina's own [`nandina_spill::Partitioner`].
    OverlappedNHash,
}

impl Algorithm {
    /// The competitors; the first is what the others are compared with.
    pub const ALL: [Algorithm; 3] = [Algorithm::Classic, Algorithm::NHash, Algorithm::OverlappedNHash];

    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Classic => "classic",
            Algorithm::NHash => "N-Hash",
            Algorithm::OverlappedNHash => "overlapped N-Hash",
        }
    }

    /// Whether there is a variant that writes so: Nandina's own writes as much as it can by one request.
    pub fn writes(self, unit: Unit) -> bool {
        self != Algorithm::OverlappedNHash || unit == Unit::Blocked
    }
}
