//! How do bytes reach the medium?
//!
//! A [`Device`] is a directory on a medium together with the way requests get there. It opens [`File`]s for direct
//! I/O; requests are submitted in [`Batch`]es, each of which the device sees as one unit, and awaited whole or piece
//! by piece, from blocking threads and from async tasks.
//!
//! ```text
//!   File::submit ─► Operation ─► governor (slots by cost, fair among flows) ─► backend ─► medium
//!        │                                     ▲                                       │
//!        ▼                                     └──── admits next ◄── finish ◄──────────┘
//!      Batch ◄──────────────────────────── deliver ◄────────────────────┘
//!
//!   backends:  io_uring          one ring; blocking waiters empty it themselves, a reaper serves async tasks
//!              thread pool       preadv/pwritev, where io_uring is not permitted
//!              any other         that comes with a medium of its own, see [`Device::assemble`]
//! ```
//!
//! Invariants
//! - Offsets, lengths and addresses of requests are multiples of [`BLOCK_BYTES`], on every backend, also where the
//!   page cache is used; other requests fail without reaching the medium.
//! - A completion covers its whole request. Short transfers are continued; reading past the end is an error.
//! - An operation owns its buffers and its file until it ends: neither dropping a batch nor closing the device frees
//!   memory or descriptors that the kernel still uses.
//! - No more requests of one device are at the medium at once than its governor lets through, `max_depth` at most.
//! - A write is durable after a later [`File::sync`], a name after a later [`Device::sync_directory`].

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a broken invariant is loud, and named")]
#![allow(clippy::vec_box, reason = "an operation keeps its address from submission to completion")]

pub mod backend;
mod batch;
mod block_on;
mod buffer;
pub mod calibration;
mod clock;
mod completions;
mod counters;
mod device;
mod error;
mod external_file;
mod file;
mod flow;
pub mod governor;
pub mod medium;
mod operation;
pub mod profile;
mod random;
mod request;
mod slab;

pub use batch::Batch;
pub use block_on::block_on;
pub use buffer::{AlignedBuffer, BLOCK_BYTES, BufferPool, WriteBuffer, round_up_to_block};
pub use clock::{Clock, SystemClock, processor_time, thread_processor_time};
pub use counters::{Counters, FileClass, IoAccount, IoStatistics, LATENCY_BUCKETS};
pub use device::{Backend, Device, DeviceOptions, DirectoryLock};
pub use error::{Error, Result};
pub use external_file::{ExternalFile, Reading, without_read_ahead};
pub use file::File;
pub use flow::{FlowId, Priority};
pub use medium::OpenMode;
pub use profile::{DeviceIdentity, DeviceProfile, IoSizes, ProfileKind, ProfileStore};
pub use random::SplitMix64;
pub use request::{Completion, Request};
