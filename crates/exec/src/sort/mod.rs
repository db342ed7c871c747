//! External sort and top k: in memory while the rows fit, in sorted runs on the device when they do not.
//!
//! ```text
//!  input ─► lane: rows and keys ─► sorted chunks ──────────────┐
//!  input ─► lane: rows and keys ─► sorted chunks ──────────────┼─► merge ─► output
//!                     │ no memory left, or others need it      │   (loser tree)
//!                     ▼                                        │
//!             sorted runs of PAX pages ─► merged, if they are ─┘
//!                                         too many to be read at once
//! ```
//!
//! Every input partition has a *lane*, which keeps its rows as they come and encodes their sort columns as keys that
//! compare as bytes (Arrow's row format), but for a text that comes last. A consumer that needs the memory has a lane sort
//! what it has and write it as a *run*; when the input has ended, chunks in memory and runs on the device are merged by a
//! tree of losers (Knuth, *The Art of Computer Programming* 3, section 5.4.1; Graefe, *Implementing Sorting in Database
//! Systems*, ACM Computing Surveys 2006). Rows move once: from the batches they came in to the output, or to the pages of
//! a run.
//!
//! With a limit of k rows, a lane keeps the k best and knows a *threshold*: the key that k rows of some lane are not
//! behind. Rows behind it are dropped, by scans already where they understand the filter.
//!
//! | file | subject |
//! |---|---|
//! | `exec` | the plan node |
//! | `spec` | what the plan fixes before the first row |
//! | `keys`, `shared_prefix` | what rows are compared by |
//! | `chunk` | rows in memory with their keys, and their order |
//! | `lane` | consuming one input |
//! | `threshold` | what a limit of rows lets drop |
//! | `volatile` | sort expressions that have another value each time |
//! | `loser_tree`, `merger` | which row comes next |
//! | `merge` | merging chunks and runs, giving memory back meanwhile |
//! | `run_sink`, `stored_run`, `reading` | runs on the device: writing them, and reading several at once |
//! | `forecast` | which of them is read next |
//! | `passes` | fewer runs out of many |
//! | `spooled` | columns that are written once, beside the runs, and fetched for the result |
//! | `output` | from inputs to the stream of results |
//! | `ordered_merge` | merging inputs that something else has sorted |
//! | `state`, `metrics` | what all of them share |
//!
//! Invariants
//! - A row that was consumed is in one lane, one run or one source of a merge, until it is emitted.
//! - The holder of the lock of a lane or of a merge neither waits for another task nor asks the governor for memory.
//! - Sort expressions that may be computed more than once have the same value each time.
//! - The order of equal keys is not defined.

mod chunk;
mod exec;
mod fence;
mod forecast;
mod keys;
mod lane;
mod loser_tree;
mod merge;
mod merger;
mod metrics;
mod ordered_merge;
mod output;
mod passes;
mod reading;
mod run_sink;
mod shared_prefix;
pub(crate) mod spec;
mod spooled;
mod state;
mod stored_run;
#[cfg(test)]
mod testing;
mod threshold;
mod volatile;

pub use exec::ExternalSortExec;
pub use fence::{FenceExec, Kept};
pub(crate) use metrics::SortMetrics;
pub use ordered_merge::OrderedMergeExec;
pub(crate) use output::output as sorted;
pub use reading::ExpectedMerges;
pub(crate) use spec::SortSpec;
pub use spooled::{PAGE_BYTES as SPOOL_PAGE_BYTES, SpooledColumns};
pub(crate) use state::SortState;
