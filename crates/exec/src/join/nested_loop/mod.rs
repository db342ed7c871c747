//! Block nested loop join: for joins without equality keys, whatever fits in memory.
//!
//! ```text
//!   build input ──► PAX pages ──┬── all fit: one block ◄──── probe input, batch by batch, as it comes
//!   (left, all streams)         │
//!                               └── they do not: build file      probe file(s) ◄── probe input, kept once
//!                                                  │                  │            (one file after another)
//!                                                  └─ block by block ─┴─► every block meets every probe row
//! ```
//!
//! One row of either side is held fixed while the filter runs over thousands of rows of the other side at once; the
//! side with more rows in memory is the one that is run over. The block form is as old as relational joins: Kim, *A New
//! Way to Compute the Product and Join of Relations*, SIGMOD 1980.
//!
//! What becomes of rows by themselves (outer, semi, anti and mark joins) needs a bit per row, and the bits of one side
//! live as long as the loop over the other:
//!
//! | rows emitted | loop | bits |
//! |---|---|---|
//! | of the build side | for each block, all of the probe side | of the block |
//! | of the probe side | for each file of the probe side, all blocks | of the file |
//! | of both (`FULL`) | first the one without unmatched probe rows, then the other without pairs | of one at a time |
//!
//! Invariants
//! - Either all build rows are in memory or all are on the device. A probe row meets all of them in one place.
//! - An input is executed once. Rows needed again are read back from temporary space.
//! - Joins that emit no build rows by themselves keep each probe row in the output partition of its input, as their
//!   partitioning claims. The others claim nothing, and share the work that remains.
//! - Memory that grows with data is reserved: blocks, bits, read windows. Pairs are never more than a batch and the
//!   matches of one row in another.
//!
//! | file | subject |
//! |---|---|
//! | `exec` | the plan node |
//! | `state` | consuming the build side, spilling it, reclaim |
//! | `block` | build rows in memory and their bits |
//! | `pair_filter` | the filter with one row of one side held fixed |
//! | `prober` | a probe batch against a block |
//! | `side_rows` | rows of one side by themselves |
//! | `probe_spill` | the probe side in temporary space |
//! | `spilled` | blocks and files of probe rows against each other |
//! | `worker` | one output partition, from first batch to last block |

mod block;
mod exec;
mod pair_filter;
mod probe_spill;
mod prober;
mod side_rows;
mod spilled;
mod state;
mod worker;

pub use exec::BlockNestedLoopJoinExec;
