//! What scans of rows emit: columns of a table, and row ids where they are wanted.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use nandina_pages::RowDecoder;
use nandina_storage::{StorageError, Table, Transaction};

use crate::error::pages_error;

/// A batch is emitted once its rows take so many bytes.
pub(super) const BATCH_BYTES: usize = 1 << 20;
/// Rows that an index has found which are read together.
const ROWS_AT_ONCE: usize = 256;

#[derive(Debug, Clone)]
pub(super) struct Output {
    pub schema: SchemaRef,
    /// Columns of the table.
    pub columns: Vec<usize>,
    /// Where row ids stand in the output.
    row_ids_at: Option<usize>,
    /// How many columns the table has.
    of_table: usize,
}

impl Output {
    /// `schema` has the table's columns, and row ids behind them where they are wanted.
    pub fn try_new(table: &Table, schema: &SchemaRef, projection: Vec<usize>) -> Result<Self> {
        let of_table = table.schema().fields().len();
        let output = Arc::new(schema.project(&projection)?);
        let row_ids_at = projection.iter().position(|column| *column == of_table);
        let columns = projection.into_iter().filter(|column| *column < of_table).collect();
        Ok(Self { schema: output, columns, row_ids_at, of_table })
    }

    /// For each column of the output, that of the table; there is none for row ids.
    pub fn columns_of_table(&self) -> Vec<usize> {
        let mut columns = self.columns.clone();
        if let Some(at) = self.row_ids_at {
            columns.insert(at, self.of_table);
        }
        columns
    }

    /// Where ids of rows are collected, if they are wanted.
    pub fn ids(&self) -> Option<Vec<u64>> {
        self.row_ids_at.map(|_| Vec::new())
    }

    /// Rows that have been collected, with their ids.
    pub fn decoded(&self, rows: &mut RowDecoder<'_>, ids: Option<Vec<u64>>) -> Result<RecordBatch> {
        let count = rows.rows();
        let columns = rows.finish_columns().map_err(pages_error)?;
        let ids = ids.map(|ids| Arc::new(UInt64Array::from(ids)) as ArrayRef);
        self.batch(columns, ids, count)
    }

    /// So many rows of these columns.
    pub fn batch(
        &self,
        mut columns: Vec<ArrayRef>,
        ids: Option<ArrayRef>,
        rows: usize,
    ) -> Result<RecordBatch> {
        if let (Some(at), Some(ids)) = (self.row_ids_at, ids) {
            columns.insert(at, ids);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}

/// Collects rows of the heap that an index has found, from the first ones on, until they are enough for a batch. `left` has the ids of
/// those that are left then.
pub(super) fn read_found(
    transaction: &Transaction,
    table: &Table,
    left: &mut &[u64],
    batch_rows: usize,
    rows: &mut RowDecoder<'_>,
    mut ids: Option<&mut Vec<u64>>,
) -> Result<(), StorageError> {
    while !left.is_empty() && rows.rows() < batch_rows && rows.bytes() < BATCH_BYTES {
        let (next, later) = left.split_at(left.len().min(ROWS_AT_ONCE));
        transaction.read_rows(table, next, rows, ids.as_deref_mut())?;
        *left = later;
    }
    Ok(())
}
