//! How many lanes a query has room for that reads Parquet files of many columns.
//!
//! A lane decodes a row group at a time, and holds of every column a page, its dictionary, a decompressor and the values of a
//! batch. For hundreds of columns that is tens of megabytes, which are not reserved.

use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::listing::ListingTable;
use datafusion::execution::SessionState;
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::logical_expr::{LogicalPlan, TableScan};
use nandina_exec::batch::row_width::leaf_columns;

use crate::files::located::LocatedFiles;

/// What a lane holds of a column, about: files of hundreds of columns have small pages, as their row groups have few rows.
const COLUMN_BYTES: usize = 96 << 10;

/// So many have room beside any limit.
const USUAL_COLUMNS: usize = 64;

/// The share of the memory limit that all lanes together may hold of it.
const SHARE: usize = 2;

/// The state to plan `optimized` with, if that has room for fewer lanes than the session has threads.
pub(crate) fn state_with_fewer_lanes(
    state: &SessionState,
    optimized: &LogicalPlan,
) -> Result<Option<SessionState>> {
    let MemoryLimit::Finite(limit_bytes) = state.runtime_env().memory_pool.memory_limit() else {
        return Ok(None);
    };
    let columns = widest_scan(optimized)?.saturating_sub(USUAL_COLUMNS);
    let lanes = (limit_bytes / SHARE / (columns * COLUMN_BYTES).max(1)).max(1);
    if lanes >= state.config().target_partitions() {
        return Ok(None);
    }
    let mut narrow = state.clone();
    *narrow.config_mut() = state.config().clone().with_target_partitions(lanes);
    Ok(Some(narrow))
}

/// Columns of the scan of Parquet files that has most of them.
fn widest_scan(plan: &LogicalPlan) -> Result<usize> {
    let mut widest = 0;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && reads_parquet(scan)
        {
            widest = widest.max(leaf_columns(scan.projected_schema.as_arrow()));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(widest)
}

fn reads_parquet(scan: &TableScan) -> bool {
    let Ok(provider) = source_as_provider(&scan.source) else { return false };
    let located = provider.downcast_ref::<LocatedFiles>().map(LocatedFiles::files);
    let files = provider.downcast_ref::<ListingTable>().or(located);
    files.is_some_and(|files| files.options().format.get_ext() == "parquet")
}
