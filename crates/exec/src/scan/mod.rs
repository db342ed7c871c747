//! Native tables in DataFusion's plans: scanning them, and inserting into them; what scans of files get from us.
//!
//! ```text
//!  NativeTableProvider ──scan──► TableScanExec ──one ScanReader per partition──► storage
//!         │                        ▲   ▲                      │
//!         └──insert_into──►        │   └ dynamic filters ─────┤ PageFilter: bounds ► skip pages, asked per stripe
//!              DataSinkExec        └──── static filters ──────┘ TableRowFilter: rows, asked per page
//!              over TableSink
//! ```
//!
//! Filters of the query are exact here and not evaluated again. Those that joins and top-k send while the query
//! runs are applied as far as that pays. `Conjunction` does both; [`AdaptiveFilter`] lends it to Parquet scans.

mod adaptive_filter;
mod column_groups;
mod conjunction;
mod damage;
mod exec;
mod filter;
mod named_files;
mod page_reads;
mod provider;
mod row_filter;
mod sample;
mod sink;
mod stream;
mod text_set;
mod window;

pub use adaptive_filter::AdaptiveFilter;
pub use column_groups::{ColumnGroupsExec, DecodingBytes, begin_of_row_group};
pub use conjunction::{all_of, is_dynamic};
pub use exec::TableScanExec;
pub(crate) use filter::on_table_columns;
pub use named_files::NamingSource;
pub use nandina_storage::guard;
pub use page_reads::PageReads;
pub use provider::NativeTableProvider;
pub(crate) use provider::is_evaluated_by_scans;
pub use sink::TableSink;
pub(crate) use sink::{add_few, conform};

use std::sync::Arc;

use datafusion::common::DataFusionError;
use datafusion::execution::TaskContext;
use nandina_storage::{ReadCache, StorageError};

/// Where the session of a query keeps what was read of segments.
pub(crate) fn read_cache(context: &TaskContext) -> Option<Arc<ReadCache>> {
    context.session_config().get_extension()
}

/// A table that could not be read or written.
pub fn storage_error(error: StorageError) -> DataFusionError {
    match error {
        StorageError::RowFilter { source, file, page } => match source.downcast::<DataFusionError>() {
            Ok(error) => *error,
            Err(source) => {
                DataFusionError::External(Box::new(StorageError::RowFilter { source, file, page }))
            }
        },
        error => DataFusionError::External(Box::new(error)),
    }
}
