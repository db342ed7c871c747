//! How a query is computed: DataFusion [`ExecutionPlan`](datafusion::physical_plan::ExecutionPlan)s that
//! run in a fixed memory budget at close to the speed of the device.

#![allow(
    clippy::indexing_slicing,
    reason = "indices are made here, none is read from data: a wrong one has to end the query, not to lose rows"
)]

pub mod aggregate;
mod batch_bytes;
mod batch_rows;
mod bounded_projection;
mod compact;
mod equivalences;
mod error;
pub mod exchange;
pub mod floats;
pub mod flow;
pub mod guard;
mod held_batch;
pub mod join;
mod key_hasher;
pub mod memory;
pub mod meter;
mod mixed_partitions;
pub mod narrow_decimal;
pub mod nested_loop_join;
pub mod partitioned_write;
mod progress;
pub mod recursion;
pub mod row_width;
pub mod scan;
mod shared_execution;
pub mod sort;
pub mod spill;
pub mod spool;
pub mod window;

pub use batch_rows::BatchRowsExec;
pub use bounded_projection::BoundedProjectionExec;
