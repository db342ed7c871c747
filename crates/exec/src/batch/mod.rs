//! Batches: how many bytes their rows take, how few may stand in one, and copies without what they were cut from.

mod bytes;
mod compact;
mod held;
pub mod row_width;
mod rows_exec;

pub(crate) use bytes::{array_bytes, data_bytes};
pub use compact::compact;
pub(crate) use compact::{compact_column, with_own_buffers};
pub(crate) use held::HeldBatch;
pub use rows_exec::BatchRowsExec;
