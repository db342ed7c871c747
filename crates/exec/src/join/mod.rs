//! Joins that spill: by hash where there are equality keys, else by comparing all rows, block by block.
//!
//! | file | subject |
//! |---|---|
//! | `hash` | the hybrid hash join |
//! | `nested_loop` | the block nested loop join |
//! | `spec`, `kind` | what the plan fixes before the first row: the sides, and which rows a join emits |
//! | `rows` | build rows in pages, and gathering them |
//! | `row_bits` | which rows of either side have matched |
//! | `assemble` | rows of the output |
//! | `outputs` | the output partitions, and the work that they share at the end |
//! | `metrics` | what joins report |

mod assemble;
mod hash;
mod kind;
mod metrics;
mod nested_loop;
mod outputs;
mod row_bits;
mod rows;
mod spec;

pub use hash::{BuildEstimate, HybridHashJoinExec, TABLE_BYTES_PER_ROW, replace_hash_join};
pub use nested_loop::BlockNestedLoopJoinExec;
