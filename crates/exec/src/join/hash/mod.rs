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
//! | `estimate` | what statistics say of rows and keys |
//! | `state` | consuming the build side, spilling, reclaim |
//! | `table`, `keys` | hash table over pages, key equality |
//! | `build_side`, `prober` | probing a batch |
//! | `side_rows` | build rows by themselves |
//! | `worker` | one output partition, from first batch to last spilled pair |
//! | `spilled_keys` | keeping probe rows without a match out of the spill |
//! | `spilled_pair`, `pair` | joining a spilled partition: load, split, or blocks |
//! | `spill_cost` | what spilling costs, for the governor |
//! | `dynamic_filter`, `single_key_filters` | what the build side tells the probe side's scan |
//! | `key_filter`, `key_bitmap` | whether a key is on the build side |
//! | `metrics` | what only this join reports |

mod build_side;
mod dynamic_filter;
mod estimate;
mod exec;
mod key_bitmap;
mod key_filter;
mod keys;
mod metrics;
mod pair;
mod prober;
mod side_rows;
mod single_key_filters;
mod spill_cost;
mod spilled_keys;
mod spilled_pair;
mod state;
mod table;
mod worker;

pub use estimate::BuildEstimate;
pub use exec::{HybridHashJoinExec, replace_hash_join};
pub use table::TABLE_BYTES_PER_ROW;
