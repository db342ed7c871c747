//! Hybrid hash join: in memory while it fits, spilling partition by partition when it does not.
//!
//! ```text
//!  build input ──► hash ──► partitions of PAX pages ──┬── resident ──► hash tables ◄── probe ◄── probe input
//!  (left, all streams)      (one set, all workers)    │                                │  (right)
//!                                                     └── spilled ──► files    files ◄─┘ rows of spilled
//!                                                                       │        │       partitions
//!                                                                       └─ pairs ┘  joined one by one
//! ```
//!
//! Partitioning is N-Hash (Shin et al., SAC 2016), whose full sub-buffers are PAX pages: the same bytes in
//! memory, where the join gathers from them, and on the device, where they are written without another copy.
//! Hybrid hashing with destaging on demand follows DeWitt et al. (SIGMOD 1984) and Nakayama, Kitsuregawa and
//! Takagi (VLDB 1988), who were first to choose the spilled partitions while the join runs.
//!
//! | file | subject |
//! |---|---|
//! | `exec` | the plan node |
//! | `spec`, `kind` | what is known before the first row |
//! | `state` | taking in the build side, spilling, reclaim |
//! | `table`, `rows`, `keys` | hash table over pages, gathering, key equality |
//! | `build_side`, `prober` | probing a batch |
//! | `worker` | one output partition, from first batch to last spilled pair |
//! | `spilled_keys` | keeping probe rows without a match out of the spill |
//! | `pair` | joining a spilled partition: load, split, or blocks |
//! | `dynamic_filter` | what the build side tells the probe side's scan |

mod build_side;
mod dynamic_filter;
mod estimate;
mod exec;
mod filters_of_keys;
mod key_bitmap;
mod key_filter;
mod keys;
pub(crate) mod kind;
mod metrics;
mod pair;
mod prober;
pub(crate) mod rows;
pub(crate) mod spec;
mod spill_cost;
mod spilled_keys;
mod state;
mod table;
mod worker;

pub use exec::{BuildEstimate, HybridHashJoinExec, replace_hash_join};
pub use table::TABLE_BYTES_PER_ROW;
