//! Spool: a part of a plan that several others read, computed once.
//!
//! ```text
//!                                ┌─► queue of reader 0 ─► SpoolExec      ─► …
//!   input, partition p ─► copy ──┤
//!                                └─► queue of reader 1 ─► SpoolReadExec  ─► …
//!                                          │  ▲
//!      no memory left, or others want it:  ▼  │  when memory has been emptied
//!                                   temporary space (spill files)
//! ```
//!
//! Partitions are kept: what the input emits as its partition p, every reader finds as its own. Each has queues of
//! its own, those of an [exchange](crate::exchange), so that one may be done before another begins, as when a scalar
//! subquery reads what the query around it reads, too. Rows that all readers hold in memory are reserved once for each.
//!
//! Which parts of a query are equal is for the planner to find out: Zhou, Larson, Freytag, Lehner, *Efficient
//! Exploitation of Similar Subexpressions for Query Processing*, SIGMOD 2007, whose spools these are.
//!
//! Invariants
//! - Every reader gets every row once, in no order.
//! - A partition of the input runs while some reader of it waits for rows, or has not begun, and ends with the last of
//!   them. A reader that never begins keeps it for as long as the plan is there.
//!
//! | file | subject |
//! |---|---|
//! | `exec` | the plan node that computes the rows and reads them first |
//! | `read` | the plan node of every other reader |

mod exec;
mod read;

pub use exec::SpoolExec;
pub use read::SpoolReadExec;
