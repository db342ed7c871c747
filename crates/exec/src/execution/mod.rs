//! Operators at run time: what their output partitions share, and whose their requests and processor time are.

mod flow;
pub mod meter;
mod progress;
mod shared;

pub use flow::{QueryFlow, query_flow};
pub(crate) use progress::Progress;
pub(crate) use shared::SharedExecution;
