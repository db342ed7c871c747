//! Recursive queries whose steps, and whose rows so far, may exceed the memory.
//!
//! ```text
//!   static term ────┐        ┌──────────────────────────────────────────────────────► rows, as they are found
//!                   ├─► rows ┤
//!   recursive term ─┘        └─► queue ── when the step has ended ──► work table ─┐
//!        ▲                                                                        │
//!        └───────────────────────── scan, in the next step ◄──────────────────────┘
//! ```
//!
//! The rows of a step wait for the next one in a queue that spills. With `UNION` every row counts once, so that those
//! seen have to be known:
//!
//! ```text
//!   rows ─► table ─┬─ there ────────────────────────────────────────────────────► nothing
//!                  └─ not there ─► filter ─┬─ has not left memory ────────────► new
//!                                          └─ may have ─► unchecked ─┬─ end ──► new
//!                                                            ▲       └─ of step ─► nothing
//!   no memory: table ─► partitions of keys ──────────────────┘ find
//!                       those that may have one of them
//! ```
//!
//! - The table leaves memory as partitions by hash, and begins anew. Rows that it does not have are *unchecked* then,
//!   unless a filter of hashes knows that they are not in temporary space either. They wait in another queue until the
//!   step has ended. Then the partitions that may have one of them are read past the table. Small steps of new rows
//!   read nothing, others a few partitions; recently added rows are found in the table at once.
//! - Where unchecked rows of a step exceed the memory, they and the rest of the step are scattered by hash as well, and
//!   compared with those seen partition by partition, of each as many rows at a time as there is memory for.
//!
//! Two rows are the same if `GROUP BY` would put them together: nulls are, both zeros are, and so are equal bits of `NaN`;
//! not so zeros within lists.
//!
//! The recursive term is executed anew in every step. A recursion within it reads the rows of a step in every step of
//! its own; they are kept for it.
//!
//! | file | subject |
//! |---|---|
//! | `exec` | the plan node |
//! | `run` | from one step to the next |
//! | `scan`, `work_table` | the rows of the last step in the recursive term |
//! | `distinct` | rows that are new |
//! | `seen` | the rows so far |
//! | `keys`, `row_table` | rows as keys, and a hash table of them |
//!
//! Invariants
//! - Without `UNION`, rows come out, and are read in the next step, in the order in which they were found. With it,
//!   too, as long as the table fits.
//! - A row that was emitted is in the table or in exactly one partition, or in both.

mod distinct;
mod exec;
mod keys;
mod row_table;
mod run;
mod scan;
mod seen;
mod work_table;

pub use exec::SpillingRecursiveQueryExec;
pub use scan::WorkTableScanExec;
