//! How a query is computed: DataFusion [`ExecutionPlan`](datafusion::physical_plan::ExecutionPlan)s that
//! run in a fixed memory budget at close to the speed of the device.

mod error;
pub mod exchange;
pub mod flow;
pub mod join;
pub mod memory;
pub mod nested_loop_join;
pub mod scan;
pub mod temp;
