//! The rows of one window with what is fetched for them.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray as _, RecordBatch, RecordBatchOptions};
use arrow::compute::concat_batches;
use arrow::datatypes::{SchemaRef, UInt64Type};
use datafusion::common::{Result, internal_err};
use futures::future::try_join_all;

use super::source::{Reads, Source};

/// The rows of `batches` as one batch of `schema`: with the columns of `sources` behind them.
pub(super) async fn fetch_window(
    batches: Vec<RecordBatch>,
    sources: &[Source],
    schema: &SchemaRef,
    reads: &Reads,
) -> Result<RecordBatch> {
    let Some(first) = batches.first() else { return internal_err!("a window of no rows") };
    let rows = match batches.as_slice() {
        [one] => one.clone(),
        _ => concat_batches(&first.schema(), &batches)?,
    };
    drop(batches);
    // Of all sources at once: each by itself may have too few reads for the device.
    let fetched = sources
        .iter()
        .map(|source| source.fetch(rows.column(source.ids()).as_primitive::<UInt64Type>(), reads));
    let fetched = try_join_all(fetched).await?;
    let columns: Vec<ArrayRef> =
        rows.columns().iter().cloned().chain(fetched.into_iter().flatten()).collect();
    let row_count = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &row_count)?)
}
