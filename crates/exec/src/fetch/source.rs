//! What columns are fetched from.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{Array as _, ArrayRef, AsArray as _, RecordBatch, UInt32Array, UInt64Array};
use arrow::compute::take;
use arrow::datatypes::UInt64Type;
use datafusion::common::Result;
use nandina_device::IoAccount;
use nandina_spill::RowFile;
use nandina_storage::{FetchOptions, ReadCache, RowId};

use super::exec::FetchedTable;
use crate::batch::row_width::{TEXT_BYTES, column_bytes, text_bytes};
use crate::error::spill_error;
use crate::scan::storage_error;

/// Rows on the device, and where their ids are in the input.
#[derive(Clone)]
pub enum Source {
    /// Of a stored table, and bytes of the columns that are fetched of a row.
    Table(FetchedTable, usize),
    /// Of temporary space.
    File { file: Arc<RowFile>, addresses: usize },
}

/// How rows of a window are fetched.
pub(super) struct Reads {
    /// Bytes of reads that are in flight or not decoded yet.
    pub window_bytes: usize,
    /// Whether all columns of a table's page are read.
    pub whole_pages: bool,
    pub account: Arc<IoAccount>,
    pub cache: Option<Arc<ReadCache>>,
    /// Pages are counted here.
    pub pages: Arc<AtomicU64>,
}

impl Source {
    /// The stored table that some columns are fetched from.
    pub fn table(fetched: FetchedTable) -> Self {
        let row_bytes = fetched_row_bytes(&fetched);
        Self::Table(fetched, row_bytes)
    }

    /// Adds the bytes that are fetched for each of `rows`, about.
    pub(super) fn add_row_bytes(&self, rows: &RecordBatch, bytes: &mut [usize]) {
        match self {
            Self::Table(_, row_bytes) => bytes.iter_mut().for_each(|bytes| *bytes += row_bytes),
            Self::File { addresses, .. } => {
                let addresses = rows.column(*addresses).as_primitive::<UInt64Type>().values();
                for (bytes, &address) in bytes.iter_mut().zip(addresses) {
                    *bytes += RowFile::row_bytes(address);
                }
            }
        }
    }

    /// Bytes of reads in flight that the device gains from.
    pub(super) fn useful_read_bytes(&self) -> usize {
        match self {
            Self::Table(fetched, _) => fetched.table.store().device().sizes().small_read_window_bytes(),
            Self::File { file, .. } => file.space().device().sizes().small_read_window_bytes(),
        }
    }

    /// The column of the input that has the ids.
    pub(super) fn ids(&self) -> usize {
        match self {
            Self::Table(fetched, _) => fetched.row_ids,
            Self::File { addresses, .. } => *addresses,
        }
    }

    /// The columns of all rows.
    pub(super) async fn fetch(&self, ids: &UInt64Array, reads: &Reads) -> Result<Vec<ArrayRef>> {
        match self {
            Self::Table(fetched, _) => of_table(fetched, ids, reads).await,
            Self::File { file, .. } => {
                assert_eq!(ids.null_count(), 0, "every row that has been written has an address");
                let fetched = file.fetch(ids.values(), reads.window_bytes, &reads.account).await;
                let (rows, pages) = fetched.map_err(spill_error)?;
                reads.pages.fetch_add(pages as u64, Ordering::Relaxed);
                Ok(rows.columns().to_vec())
            }
        }
    }
}

async fn of_table(table: &FetchedTable, ids: &UInt64Array, reads: &Reads) -> Result<Vec<ArrayRef>> {
    let columns: Vec<usize> = table.columns.iter().map(|(column, _)| *column).collect();
    let known: Vec<RowId> = ids.iter().flatten().map(RowId::from_bits).collect();
    let options = FetchOptions {
        window_bytes: Some(reads.window_bytes),
        whole_pages: reads.whole_pages,
        account: Some(Arc::clone(&reads.account)),
        // A visit for each window: pages that rows of two of them stand on are kept.
        cache: reads.cache.as_ref().map(|cache| cache.visit()),
        pages: Some(Arc::clone(&reads.pages)),
    };
    let fetched = table.table.fetch(&known, &columns, &options).await.map_err(storage_error)?;
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

/// Bytes of the columns that a row gets. Texts are as long as the table's mean row says.
fn fetched_row_bytes(fetched: &FetchedTable) -> usize {
    let table = &fetched.table;
    let stored = table.statistics().map_or(0, |statistics| statistics.page_bytes / statistics.rows.max(1));
    let text_bytes =
        text_bytes(table.schema(), stored as usize).map_or(TEXT_BYTES, |bytes| bytes.max(TEXT_BYTES));
    fetched.columns.iter().map(|(_, field)| column_bytes(field.data_type(), text_bytes)).sum()
}
