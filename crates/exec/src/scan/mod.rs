//! Native tables in DataFusion's plans: scanning them, and inserting into them.
//!
//! ```text
//!  NativeTableProvider ──scan──► TableScanExec ──one ScanReader per partition──► storage
//!         │                        ▲   ▲                      │
//!         └──insert_into──►        │   └ dynamic filters ─────┤ PageFilter: bounds ► skip pages, asked per stripe
//!              DataSinkExec        └──── static filters ──────┘
//!              over TableSink
//! ```
//!
//! Filters only skip pages here: rows of the pages that remain are filtered above, so that every filter is inexact.

mod exec;
mod filter;
mod provider;
mod sink;
mod window;

pub use exec::TableScanExec;
pub use provider::NativeTableProvider;
pub use sink::TableSink;

use datafusion::common::DataFusionError;
use nandina_storage::StorageError;

/// A table that could not be read or written.
pub fn storage_error(error: StorageError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
