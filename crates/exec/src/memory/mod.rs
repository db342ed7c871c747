//! One memory limit per session, shared by everything that grows with data.
//!
//! ```text
//!   our operators ──┐                      ┌── reclaim(bytes) ──► join, …: spill, free
//!   DataFusion's  ──┼── try_grow(bytes) ──► MemoryGovernor
//!   scan buffers  ──┘                      └── grants, or a clear error
//!                                    ▲
//!   resident memory of the process ──┘ what is not reserved: batches, decoders, what the allocator keeps
//! ```

mod governor;
mod held;
mod resident;
mod shares;
mod unrefused;

pub use governor::{MemoryGovernor, Reclaim, ReclaimHandle, ReclaimOrder};
pub(crate) use held::HeldMemory;
pub use resident::ResidentBound;
pub(crate) use shares::{
    MAX_PAGE_ROWS, has_room, output_bytes, partitioner_options, pool_limit, portion_rows, read_window_bytes,
};
pub(crate) use unrefused::Unrefused;
