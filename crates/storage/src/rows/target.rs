//! A table whose rows are being changed, in its newest state.

use std::sync::Arc;

use arrow_array::{Array as _, RecordBatch};
use nandina_rowstore::{Error as RowsError, Transaction as Rows};

use super::Heap;
use crate::error::{Result, StorageError};
use crate::ids::RowId;
use crate::store::{Store, TableEntry};
use crate::table::Table;

/// A table that is changed, with the indexes that it has now. No index is added meanwhile.
pub(super) struct Target<'t> {
    pub table: &'t Table,
    entry: Arc<TableEntry>,
    _unchanged: parking_lot::RwLockReadGuard<'t, ()>,
}

impl<'t> Target<'t> {
    /// For changes of rows that are there.
    pub fn of(table: &'t Table) -> Result<Self> {
        Self::noting(table, Heap::note_change)
    }

    /// For rows that are added.
    pub fn adding_to(table: &'t Table) -> Result<Self> {
        Self::noting(table, Heap::note_addition)
    }

    fn noting(table: &'t Table, note: impl FnOnce(&Heap)) -> Result<Self> {
        let store: &Store = table.store();
        let unchanged = store.shapes().read();
        let entry = store.newest(table)?;
        // Others have replaced all rows, or put them elsewhere, and what this transaction has seen of them is there no longer.
        if entry.first_page_of_rows() != table.entry().first_page_of_rows() {
            return Err(RowsError::Conflict.into());
        }
        if let Some(heap) = &entry.heap {
            note(heap);
        }
        Ok(Self { table, entry, _unchanged: unchanged })
    }

    pub fn heap(&self) -> Result<&Heap> {
        self.entry.heap.as_deref().ok_or_else(|| self.table.not_changeable())
    }

    pub fn check_nulls(&self, rows: &RecordBatch) -> Result<()> {
        let schema = self.table.schema();
        for (column, field) in rows.columns().iter().zip(schema.fields()) {
            if !field.is_nullable() && column.logical_null_count() > 0 {
                return Err(StorageError::NullValue {
                    table: self.table.name().to_owned(),
                    column: field.name().clone(),
                });
            }
        }
        Ok(())
    }

    /// Whether a transaction sees a row of the table's segments. Others may have been added since it has begun.
    pub fn sees(&self, transaction: &Rows<'_>, row: RowId) -> Result<bool> {
        let is_known = self.table.segment_of(row.page()).is_some();
        Ok(is_known && !self.heap()?.deleted()?.has(transaction, row)?)
    }
}
