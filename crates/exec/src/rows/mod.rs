//! Tables whose rows are changed one by one, in DataFusion's plans.
//!
//! ```text
//!   RowTableProvider ──scan──► RowScanExec    pages in order, or rows found by an index ─┐
//!         │                    IndexedScanExec, of a table that has segments, too ───────┼─► Transactions ─► storage
//!         └──insert_into──► DataSinkExec over RowSink: insert, update, delete, merge ────┘
//! ```
//!
//! Statements that name few rows by a key have no such plan: `short`.
//!
//! All parts of a statement are in one transaction of each database, that of the session or one of the statement's own.

mod applying;
mod changed_rows;
mod indexed_scan;
mod lookup;
mod output;
mod provider;
mod scan;
mod short;
mod sink;
mod transactions;

pub use applying::{MERGE_ACTION, MergeAction, RowChange};
pub use changed_rows::{ChangedRowsExec, ReturnedRows};
pub use indexed_scan::IndexedScanExec;
pub use provider::{ROW_ID, RowTableProvider};
pub use scan::RowScanExec;
pub use short::{Given, KeyLookup, KeyValue, Parameter, ShortChange, ShortSource, ShortStatement, ShortStep};
pub use sink::RowSink;
pub use transactions::{ChangingStatement, OpenScan, Savepoints, SharedTransaction, Transactions};

use tokio::runtime::{Handle, RuntimeFlavor};

/// Work that waits for a device, in a task: other tasks of its thread go on elsewhere, where there are several threads.
pub fn blocking<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
