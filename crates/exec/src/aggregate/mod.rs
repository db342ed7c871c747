//! Hash aggregation: in memory while the groups fit, partition by partition when they do not.
//!
//! ```text
//!  input ─► lane: table ──┐                       ┌─► merge: table ─► results
//!  input ─► lane: table ──┼── groups, as soon ──► partitions of PAX pages ─► merge: table ─► results
//!                         │   as a table is full  │      (one set, all lanes; by hash)
//!                         │                       └── spilled ──► files ─► merge ─► …
//!                         └── rows as they are, where a table makes hardly fewer groups of them
//! ```
//!
//! Every input partition has a table about as large as the processor's cache. If all groups fit into it, that is all
//! there is to it. Otherwise its groups, as keys and states of the aggregate functions, go to partitions by hash, which
//! are merged one by one when the input has ended: again in tables that fit into memory, and mostly into the cache. A
//! partition that turns out to have more groups than its share of memory holds is scattered by further bits of the same
//! hashes. The scheme is that of radix-partitioned aggregation (Leis et al., *Morsel-Driven Parallelism*, SIGMOD 2014,
//! section 4.4; Kuiper, Boncz, Mühleisen, *Robust External Hash Aggregation in the Solid State Age*, ICDE 2024);
//! partitions, pages and writes are those of the joins.
//!
//! Aggregate functions are DataFusion's own, but for those in files of their own: states are what its accumulators say
//! they are.
//!
//! | file | subject |
//! |---|---|
//! | `exec` | the plan node |
//! | `spec` | what the plan fixes before the first row; rows and groups in stored form |
//! | `key_sharing` | columns of keys that are in different grouping sets |
//! | `min_max`, `bytes_min_max` | `min` and `max` of floating-point numbers, and of texts |
//! | `nested_min_max` | `min` and `max` of the lists or structs of a window frame |
//! | `ordered_lists` | `array_agg` and `string_agg` with orders |
//! | `exact_sum` | `sum` and `avg` whose sums are exact or an error |
//! | `counted_xor` | `bit_xor`, which is null in a sliding frame without values |
//! | `groups` | the groups, by their keys in a `GroupTable`, and their states |
//! | `reduction`, `distinct_sketch`, `bounded` | when a table is full, and what then |
//! | `lane` | consuming one input partition |
//! | `sink`, `stored_partition` | partitions within a reservation, until they are merged |
//! | `merge`, `work_queue`, `output` | from partitions to results |
//! | `state`, `metrics` | what all of them share |
//!
//! Invariants
//! - All rows of a group meet in one merge: they have one hash, and partitions are made by its bits.
//! - A group's hash is computed once and travels with it.
//! - Only one group alone may take more memory than its share: its state is as large as it is.

mod bounded;
mod bytes_min_max;
mod counted_xor;
mod distinct_sketch;
mod exact_sum;
mod exec;
mod groups;
mod key_sharing;
mod lane;
mod merge;
mod metrics;
mod min_max;
mod nested_min_max;
mod ordered_lists;
mod output;
mod reduction;
mod sink;
mod spec;
mod state;
mod stored_partition;
mod work_queue;

pub use counted_xor::counted_xor;
pub use exact_sum::{exact_average, exact_sum};
pub use exec::HashAggregateExec;
pub use min_max::{maximum, minimum};
pub use ordered_lists::{joined_texts, list_of_values};
