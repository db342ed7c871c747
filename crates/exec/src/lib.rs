//! How a query is computed: DataFusion [`ExecutionPlan`](datafusion::physical_plan::ExecutionPlan)s that
//! run in a fixed memory budget at close to the speed of the device.

pub mod aggregate;
mod batch_bytes;
mod error;
pub mod flow;
pub mod join;
mod key_hasher;
pub mod memory;
mod prefetch;
mod progress;
pub mod scan;
pub mod temp;
