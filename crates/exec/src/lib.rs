//! How a query is computed: DataFusion [`ExecutionPlan`](datafusion::physical_plan::ExecutionPlan)s that
//! run in a fixed memory budget at close to the speed of the device.

#![allow(
    clippy::indexing_slicing,
    reason = "indices are made here, none is read from data: a wrong one has to end the query, not to lose rows"
)]

pub mod aggregate;
pub mod batch;
mod error;
pub mod exchange;
pub mod execution;
pub mod fetch;
pub mod join;
pub mod keys;
pub mod memory;
pub mod partitioned_write;
mod plan_properties;
pub mod projection;
pub mod recursion;
pub mod rows;
pub mod scan;
pub mod sort;
pub mod spill;
pub mod spool;
pub mod window;
