//! How many rows pass a filter: from a few pages, while a query is planned.
//!
//! Bounds say what part of a range a comparison leaves, if values are spread evenly over it; of patterns, lists and
//! conditions on several columns they say nothing. Which side a join builds on follows from such estimates, and a
//! wrong one costs more than reading some pages does.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan as _;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use futures::StreamExt as _;
use nandina_storage::{Result, ScanOptions, Table};

use super::exec::TableScanExec;
use super::row_filter::TableRowFilter;

/// Pages read, and the least part of a table that is worth it.
const SAMPLE_PAGES: u64 = 16;
const TABLE_PAGES_PER_SAMPLE_PAGE: u64 = 4;
/// Pages in memory at a time.
const WINDOW_PAGES: usize = 4;

/// Where bounds leave no more rows than this, nothing depends on how many there are.
const FEW_ROWS: usize = 10_000;

/// The share of a table's rows that pass the filters of `scan`; `None` if it is not needed, if it cannot be determined, or
/// is too small for a sample to show.
pub(super) async fn sampled_selectivity(scan: &TableScanExec) -> Option<f64> {
    let table = scan.table();
    let pages = SAMPLE_PAGES.min(table.pages() / TABLE_PAGES_PER_SAMPLE_PAGE);
    let filter = TableRowFilter::new(Arc::clone(table.schema()), scan.filters().to_vec())?;
    let by_bounds = StatisticsContext::new().compute(scan, &StatisticsArgs::new()).ok()?;
    let are_few = by_bounds.num_rows.get_value().is_some_and(|&rows| rows < FEW_ROWS);
    if pages == 0 || are_few || scan.fetch().is_some() {
        return None;
    }
    match count(table, filter, pages).await {
        Ok((passed, seen)) => (passed > 0).then(|| passed as f64 / seen as f64),
        Err(error) => {
            // The query will meet it too, if it reads that page, and say so.
            log::debug!("no sample of table {:?}: {error}", table.name());
            None
        }
    }
}

/// Rows of the sample that pass, and all of them.
async fn count(table: &Table, filter: TableRowFilter, pages: u64) -> Result<(u64, u64)> {
    let scan = table.scan(ScanOptions {
        projection: Some(Vec::new()),
        row_filter: Some(Arc::new(filter)),
        sample_pages: Some(pages),
        window_bytes: Some(WINDOW_PAGES * table.page_bytes()),
        ..Default::default()
    })?;
    let mut reader = scan.reader();
    while let Some(batch) = reader.next().await {
        batch?;
    }
    let figures = scan.figures();
    Ok((figures.rows, figures.rows + figures.rows_filtered))
}
