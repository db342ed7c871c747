//! What a statement's rows do to those of a table, batch by batch.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array as _, ArrayRef, AsArray as _, BooleanArray, Int8Array, RecordBatch, StringViewArray, UInt64Array,
};
use datafusion::arrow::compute::{concat_batches, filter_record_batch};
use datafusion::arrow::datatypes::{DataType, Field, Int8Type, Schema, SchemaRef, UInt64Type};
use datafusion::common::{Result, exec_err, internal_err};
use datafusion::execution::memory_pool::MemoryReservation;
use nandina_storage::{Deferred, RowSet, Table};

use super::transactions::SharedTransaction;
use crate::scan::conform;

/// What happens to rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowChange {
    Insert,
    /// Rows with a key that is there already are left out: one of the unique index of this name, or of any.
    InsertAbsent {
        index: Option<String>,
    },
    /// `has_each_once`: whether each row comes once at most.
    Update {
        has_each_once: bool,
    },
    Delete,
    /// Each row says what happens to it: see [`MergeAction`].
    Merge,
}

/// The column of returned rows that says what `MERGE` has done to them.
pub const MERGE_ACTION: &str = "merge_action";

impl RowChange {
    /// What rows are that are returned of a table with these columns: those of `MERGE` have [`MERGE_ACTION`] behind them.
    pub fn returned_schema(&self, table: &SchemaRef) -> SchemaRef {
        if *self != RowChange::Merge {
            return Arc::clone(table);
        }
        let action = Arc::new(Field::new(MERGE_ACTION, DataType::Utf8View, false));
        Arc::new(Schema::new(table.fields().iter().cloned().chain([action]).collect::<Vec<_>>()))
    }
}

/// What a row of `MERGE` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub enum MergeAction {
    Insert = 1,
    Update = 2,
    Delete = 3,
}

impl MergeAction {
    /// What `RETURNING` calls it.
    fn name(self) -> &'static str {
        match self {
            MergeAction::Insert => "INSERT",
            MergeAction::Update => "UPDATE",
            MergeAction::Delete => "DELETE",
        }
    }
}

/// A statement that is changing rows.
pub(super) struct Applying<'s> {
    pub table: &'s Table,
    pub transaction: &'s SharedTransaction,
    pub change: &'s RowChange,
    /// Whether the rows are told that have been changed.
    pub tells_rows: bool,
    /// Rows that have been changed.
    pub rows: u64,
    deferred: Deferred,
    /// Ids of rows that were changed, where they may come again.
    seen: RowSet,
    memory: MemoryReservation,
}

impl<'s> Applying<'s> {
    pub fn new(
        table: &'s Table,
        transaction: &'s SharedTransaction,
        change: &'s RowChange,
        tells_rows: bool,
        memory: MemoryReservation,
    ) -> Self {
        let (rows, deferred, seen) = Default::default();
        Self { table, transaction, change, tells_rows, rows, deferred, seen, memory }
    }

    /// Changes the rows of a batch, and returns them: as they are now, or were if they have been deleted. Of [`RowChange::Merge`] those
    /// to be inserted are for [`insert_of_merge`](Self::insert_of_merge) when all others are through. If rows are told, they have the
    /// columns of [`RowChange::returned_schema`].
    pub fn apply(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        match self.change {
            RowChange::Insert => self.insert(batch.columns()),
            RowChange::InsertAbsent { index } => {
                let rows = conform(batch.columns(), self.table.schema())?;
                let index = index.as_deref();
                let added = self
                    .transaction
                    .write(|transaction| transaction.insert_absent(self.table, &rows, index))?;
                self.rows += added.true_count() as u64;
                Ok(filter_record_batch(&rows, &added)?)
            }
            RowChange::Update { has_each_once } => {
                let batch = if *has_each_once { batch.clone() } else { self.without_repeated(batch)? };
                let (ids, columns) = ids_and_columns(&batch)?;
                self.update(ids, columns)
            }
            RowChange::Delete => {
                let batch = if self.tells_rows { self.without_repeated(batch)? } else { batch.clone() };
                let (ids, columns) = ids_and_columns(&batch)?;
                self.delete(ids)?;
                match self.tells_rows {
                    true => conform(columns, self.table.schema()),
                    false => Ok(batch),
                }
            }
            RowChange::Merge => {
                let updated = rows_with(batch, MergeAction::Update)?;
                let deleted = rows_with(batch, MergeAction::Delete)?;
                for (rows, what) in [(&updated, "update"), (&deleted, "delete")] {
                    let once = self.without_repeated(rows)?;
                    if once.num_rows() < rows.num_rows() {
                        return exec_err!(
                            "a row of table '{}' would be changed twice: two rows {what} it, make them one before",
                            self.table.name()
                        );
                    }
                }
                let (ids, columns) = ids_and_columns(&updated)?;
                let now = self.update(ids, columns.get(1..).unwrap_or_default())?;
                let (ids, columns) = ids_and_columns(&deleted)?;
                self.delete(ids)?;
                let before = conform(columns.get(1..).unwrap_or_default(), self.table.schema())?;
                let now = self.with_action(now, MergeAction::Update)?;
                let before = self.with_action(before, MergeAction::Delete)?;
                Ok(concat_batches(&now.schema(), [&now, &before])?)
            }
        }
    }

    /// Inserts rows of `MERGE`.
    pub fn insert_of_merge(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let now = self.insert(batch.columns().get(2..).unwrap_or_default())?;
        self.with_action(now, MergeAction::Insert)
    }

    /// Rows of `MERGE` with what has been done to them, if they are told.
    fn with_action(&self, rows: RecordBatch, action: MergeAction) -> Result<RecordBatch> {
        if !self.tells_rows {
            return Ok(rows);
        }
        let names = std::iter::repeat_n(action.name(), rows.num_rows());
        let names: ArrayRef = Arc::new(StringViewArray::from_iter_values(names));
        let columns = rows.columns().iter().cloned().chain([names]).collect();
        Ok(RecordBatch::try_new(self.change.returned_schema(&rows.schema()), columns)?)
    }

    /// All rows are through: keys that have moved are where they are to be.
    pub fn finish(mut self) -> Result<u64> {
        let deferred = std::mem::take(&mut self.deferred);
        self.transaction.write(|transaction| transaction.add_deferred(self.table, deferred))?;
        Ok(self.rows)
    }

    fn insert(&mut self, columns: &[ArrayRef]) -> Result<RecordBatch> {
        let rows = conform(columns, self.table.schema())?;
        self.transaction.write(|transaction| transaction.insert(self.table, &rows))?;
        self.rows += rows.num_rows() as u64;
        Ok(rows)
    }

    fn update(&mut self, ids: &UInt64Array, columns: &[ArrayRef]) -> Result<RecordBatch> {
        let rows = conform(columns, self.table.schema())?;
        let deferred = &mut self.deferred;
        self.transaction.write(|transaction| transaction.update(self.table, ids, &rows, deferred))?;
        self.memory.try_resize(self.deferred.bytes() + self.seen.bytes())?;
        self.rows += rows.num_rows() as u64;
        Ok(rows)
    }

    fn delete(&mut self, ids: &UInt64Array) -> Result<()> {
        self.rows += self.transaction.write(|transaction| transaction.delete(self.table, ids))?;
        self.memory.try_resize(self.deferred.bytes() + self.seen.bytes())?;
        Ok(())
    }

    /// Rows that come for the first time: the first of several wins.
    fn without_repeated(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let (ids, _) = ids_and_columns(batch)?;
        let is_first: BooleanArray = ids.values().iter().map(|id| Some(self.seen.insert(*id))).collect();
        Ok(filter_record_batch(batch, &is_first)?)
    }
}

/// The rows of a batch with this action.
pub(super) fn rows_with(batch: &RecordBatch, action: MergeAction) -> Result<RecordBatch> {
    let actions = batch.columns().get(1).and_then(|actions| actions.as_primitive_opt::<Int8Type>());
    let Some(actions): Option<&Int8Array> = actions.filter(|actions| actions.null_count() == 0) else {
        return internal_err!("rows of MERGE say what happens to them");
    };
    let has_action: BooleanArray =
        actions.values().iter().map(|other| Some(*other == action as i8)).collect();
    Ok(filter_record_batch(batch, &has_action)?)
}

/// The row ids in front, and what follows them.
fn ids_and_columns(batch: &RecordBatch) -> Result<(&UInt64Array, &[ArrayRef])> {
    match batch.columns().split_first() {
        Some((ids, columns)) => match ids.as_primitive_opt::<UInt64Type>() {
            Some(ids) if ids.null_count() == 0 => Ok((ids, columns)),
            _ => internal_err!("rows to be changed begin with their ids"),
        },
        None => internal_err!("rows to be changed begin with their ids"),
    }
}
