//! How many rows pass a filter: from a few pages, while a query is planned.
//!
//! Bounds say what part of a range a comparison leaves, if values are spread evenly over it; of patterns, lists and
//! conditions on several columns they say nothing. Which side a join builds on follows from such estimates, and a
//! wrong one costs more than reading some pages does.

use std::sync::Arc;

use datafusion::physical_expr::PhysicalExpr;
use futures::StreamExt as _;
use nandina_storage::{Result, ScanOptions, Table};

use super::row_filter::TableRowFilter;

/// Pages read, and the least part of a table that is worth it.
const SAMPLE_PAGES: u64 = 16;
const TABLE_PAGES_PER_SAMPLE_PAGE: u64 = 4;

/// The share of a table's rows that pass `filters`; `None` if that cannot be told, or is too small for a sample to show.
pub(super) async fn sampled_selectivity(table: &Table, filters: &[Arc<dyn PhysicalExpr>]) -> Option<f64> {
    let pages = SAMPLE_PAGES.min(table.pages() / TABLE_PAGES_PER_SAMPLE_PAGE);
    let filter = TableRowFilter::new(Arc::clone(table.schema()), filters.to_vec())?;
    if pages == 0 {
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
        ..Default::default()
    })?;
    let mut reader = scan.reader();
    while let Some(batch) = reader.next().await {
        batch?;
    }
    let figures = scan.figures();
    Ok((figures.rows, figures.rows + figures.rows_filtered))
}
