//! The rows of one window with what is fetched for them.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray as _, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{concat_batches, take};
use arrow::datatypes::{SchemaRef, UInt64Type};
use datafusion::common::{Result, internal_err};
use futures::future::try_join_all;
use nandina_storage::{FetchOptions, RowId};

use super::exec::FetchedTable;
use crate::scan::storage_error;

/// The rows of `batches` as one batch of `schema`: with the columns of `tables` behind them.
pub(super) async fn fetch_window(
    batches: Vec<RecordBatch>,
    tables: &[FetchedTable],
    schema: &SchemaRef,
    options: &FetchOptions,
) -> Result<RecordBatch> {
    let Some(first) = batches.first() else { return internal_err!("a window of no rows") };
    let rows = match batches.as_slice() {
        [one] => one.clone(),
        _ => concat_batches(&first.schema(), &batches)?,
    };
    drop(batches);
    // Of all tables at once: each by itself may have too few reads for the device.
    let fetched = try_join_all(tables.iter().map(|table| fetch(table, &rows, options))).await?;
    let columns: Vec<ArrayRef> =
        rows.columns().iter().cloned().chain(fetched.into_iter().flatten()).collect();
    let row_count = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &row_count)?)
}

/// The columns of one table for all rows.
async fn fetch(table: &FetchedTable, rows: &RecordBatch, options: &FetchOptions) -> Result<Vec<ArrayRef>> {
    let ids = rows.column(table.row_ids).as_primitive::<UInt64Type>();
    let columns: Vec<usize> = table.columns.iter().map(|(column, _)| *column).collect();
    let known: Vec<RowId> = ids.iter().flatten().map(RowId::from_bits).collect();
    let fetched = table.table.fetch(&known, &columns, options).await.map_err(storage_error)?;
    if known.len() == ids.len() {
        return Ok(fetched.columns().to_vec());
    }
    let mut next = 0;
    let places: UInt32Array = ids
        .iter()
        .map(|id| {
            id.map(|_| {
                next += 1;
                next - 1
            })
        })
        .collect();
    fetched.columns().iter().map(|column| Ok(take(column, &places, None)?)).collect()
}
