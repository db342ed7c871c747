//! One memory limit per session, shared by everything that grows with data.
//!
//! ```text
//!   our operators ──┐                      ┌── reclaim(bytes) ──► join, …: spill, free
//!   DataFusion's  ──┼── try_grow(bytes) ──► MemoryGovernor
//!   scan buffers  ──┘                      └── grants, or a clear error
//! ```

mod governor;

pub use governor::{MemoryGovernor, Reclaim, ReclaimHandle};
