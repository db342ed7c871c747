//! Window functions over input that is sorted by partition and order, in memory that is bounded.
//!
//! ```text
//!   rows ─► partitions ─┬─► all columns ───────────► waiting ─┬─► computed ─┬─► rows with results
//!                       │                           (queue)   │   (queue)   │
//!                       └─► columns that the functions        │             │
//!                           look at ─┬─► running functions ───┘             │
//!                                    └─► functions of whole partitions ─────┘
//! ```
//!
//! DataFusion's operators keep the rows of a partition, or of a frame, in memory with all their columns. Here rows
//! wait in queues that spill, and only what the functions themselves need is in memory:
//!
//! - *Running* functions (ranks, `lag`, frames that end at or near the current row) need their arguments as long as
//!   a frame may still reach them. Aggregates, `first_value` and `last_value` of all rows up to the current one or its
//!   peers, as is the default, need one value or an accumulator; others whose frames end with peers need the arguments of
//!   the last row's peers, too.
//! - Aggregates whose frame is the *whole* partition need an accumulator, `first_value` and `last_value` two rows.
//! - `ntile`, `percent_rank` and `cume_dist` follow from a running function, whose result waits with the row, and the
//!   number of rows.
//! - Whatever else ends with the partition needs its arguments of all rows; they are held beyond the limit if need be. So
//!   does `lead … IGNORE NULLS`, and, as a running function, `nth_value … IGNORE NULLS` of all rows so far.
//!
//! Functions are DataFusion's, evaluated by its `WindowExpr`s and accumulators, but for `first_value`, `last_value` and
//! those that follow from a count.
//!
//! Invariants
//! - Rows come out in the order in which they came.
//! - Queues are first in, first out; results of a function stand in the same order, and row `n` of the one belongs to
//!   row `n` of the other.
//!
//! Where only the first rows of every partition are wanted, a filter below the sort drops most of the others
//! ([`PartitionedTopKFilterExec`]). Where only the first rows of all are, the operator above ends with them ([`RowsWhileExec`]).
//!
//! | file | subject |
//! |---|---|
//! | `exec` | the plan node |
//! | `top_k_filter`, `partition_top_k` | the plan node of the filter of first rows; the best keys of partitions so far |
//! | `rows_while` | the plan node that ends with the first rows of all |
//! | `pipeline` | one output: from rows to rows with results |
//! | `expression`, `function` | what kinds of functions there are, and what they look at |
//! | `running` | functions whose results follow the rows |
//! | `of_count` | functions of a row's place and the number of rows |
//! | `edge` | functions of the first or the last row |
//! | `partition` | the functions over one partition that came in several batches |
//! | `frames` | DataFusion's running functions, and the rows that they may still look at |
//! | `cumulative` | those of all rows so far |
//! | `peers` | which rows are equal in the order |
//! | `results` | values of one function for rows that still wait |

mod cumulative;
mod edge;
mod exec;
mod expression;
mod frames;
mod function;
mod of_count;
mod partition;
mod partition_top_k;
mod peers;
mod pipeline;
mod results;
mod rows_while;
mod running;
mod top_k_filter;

pub use exec::SpillingWindowExec;
pub use partition_top_k::RankedBy;
pub use rows_while::RowsWhileExec;
pub use top_k_filter::PartitionedTopKFilterExec;
