//! Transactions over the tables of a database whose rows are changed one by one.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch, UInt64Array};
use nandina_pages::RowDecoder;
use nandina_rowstore::heap::RowId as HeapRow;
use nandina_rowstore::page::PageId;
use nandina_rowstore::transaction::Savepoint;
use nandina_rowstore::{Error as RowsError, RowStore};
use parking_lot::Mutex;
use self_cell::self_cell;

use super::RowSet;
use super::index_keys::{add_key, has_key, old_keys};
use super::place::{Place, id_of};
use super::target::Target;
use crate::error::{Result, StorageError};
use crate::ids::PageNumber;
use crate::segment::Segment;
use crate::store::{Mode, Snapshot, TableEntry};
use crate::table::Table;

/// Pages of the heap that are read together.
const PAGES_AT_ONCE: usize = 32;

type Inner<'s> = Option<nandina_rowstore::Transaction<'s>>;

self_cell! {
    /// A transaction and the store that it is of.
    struct Owned {
        owner: Arc<RowStore>,
        #[covariant]
        dependent: Inner,
    }

    impl { Debug }
}

/// Sees one state of all tables of a database, beside what it does itself. It is rolled back when it is dropped before it was
/// committed.
#[derive(Debug)]
pub struct Transaction {
    /// None where the database has no table whose rows are changed one by one. Before the snapshot, which may be what keeps the database
    /// open.
    rows: Option<Owned>,
    /// Tables that got a heap after it began.
    changeable: Mutex<HashMap<String, Table>>,
    snapshot: Snapshot,
}

/// What a crash may lose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// Nothing that was committed.
    #[default]
    Full,
    /// The last transactions that were committed, never a part of one.
    Relaxed,
}

/// Pages of a table's rows, in the order in which they were added.
#[derive(Debug, Clone)]
pub struct RowPages(Arc<[PageId]>);

impl RowPages {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn slice(&self, pages: std::ops::Range<usize>) -> &[PageId] {
        &self.0[pages]
    }
}

/// Rows whose new keys are not in the unique indexes yet: not before all rows of a statement are as they will be, since one may
/// have a key that another one of them had before.
#[derive(Debug, Default)]
pub struct Deferred {
    /// Rows, and the first pages of indexes.
    keys: Vec<(HeapRow, u64)>,
}

impl Deferred {
    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.keys.capacity() * size_of::<(HeapRow, u64)>()
    }
}

impl Transaction {
    pub(crate) fn new(snapshot: Snapshot, store: Option<Arc<RowStore>>) -> Self {
        let rows = store.map(|store| Owned::new(store, |store| Some(store.begin())));
        Self { snapshot, rows, changeable: Mutex::default() }
    }

    /// All tables as they were when it began.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Rows are going to be changed, of tables that may not have been [made changeable](crate::Store::make_changeable) when this began.
    pub fn begin_changes(&mut self) -> Result<()> {
        if self.rows.is_none() {
            let store = self.snapshot.store().row_store()?;
            self.rows = Some(Owned::new(store, |store| Some(store.begin())));
            // What others have changed since the snapshot is no part of it.
            for name in self.snapshot.store().table_names() {
                let is_changed = |entry: Arc<TableEntry>| entry.heap_changes().is_some();
                if let Ok(table) = self.snapshot.table(&name)
                    && table.store().newest(&table).is_ok_and(is_changed)
                {
                    self.changeable.lock().insert(name, table);
                }
            }
        }
        Ok(())
    }

    /// A table as this transaction sees it. It knows of a table that its rows are changed one by one as soon as this begins, unless those
    /// that it sees have been replaced meanwhile.
    pub fn table(&self, name: &str) -> Result<Table> {
        if let Some(known) = self.changeable.lock().get(name) {
            return Ok(known.clone());
        }
        let store = self.snapshot.store();
        let seen = match self.snapshot.table(name) {
            // One of a database in memory that has been stored since.
            Err(StorageError::NoTable { .. }) if store.mode() == Mode::Temporary => store.table(name)?,
            Ok(seen) if seen.has_changeable_rows() => return Ok(seen),
            seen => seen?,
        };
        if self.rows.is_none() {
            return Ok(seen);
        }
        // One that is gone is as it was.
        let Ok(newest) = store.newest(&seen) else { return Ok(seen) };
        let is_kept =
            |segment: &Arc<Segment>| newest.segments.iter().any(|other| Arc::ptr_eq(other, segment));
        let heap = newest.heap.clone().filter(|_| seen.segments().iter().all(is_kept));
        let Some(heap) = heap else { return Ok(seen) };
        // Indexes that have come since do not have rows that were deleted before, which this transaction may see.
        let heap = match heap.record.indexes.is_empty() {
            true => heap,
            false => Arc::new(heap.without_lookups(&newest.shape)?),
        };
        let table = Table::of_entry(store.clone(), seen.entry().with_heap(heap));
        self.changeable.lock().insert(name.to_owned(), table.clone());
        Ok(table)
    }

    /// The rows of a table's segments that this transaction does not see.
    pub fn deleted_rows(&self, table: &Table) -> Result<RowSet> {
        match &table.heap()?.record.deleted {
            Some(deleted) => deleted.seen_by(self.reader()?),
            None => Ok(RowSet::default()),
        }
    }

    /// How many pages say which rows these are.
    pub fn deleted_pages(&self, table: &Table) -> Result<usize> {
        match &table.heap()?.record.deleted {
            Some(deleted) => deleted.pages(self.reader()?),
            None => Ok(0),
        }
    }

    /// How many rows this transaction sees of a table with segments.
    pub fn rows(&self, table: &Table) -> Result<u64> {
        if !table.has_changeable_rows() {
            return Ok(table.rows());
        }
        let deleted = self.deleted_rows(table)?;
        let of_table =
            deleted.rows_of_pages().filter(|(page, _)| table.segment_of(PageNumber(*page)).is_some());
        let mut rows = table.rows() - of_table.map(|(_, rows)| rows).sum::<u64>();
        let heap = table.heap()?;
        let reader = self.reader()?;
        for pages in reader.heap_pages(heap.id())?.chunks(PAGES_AT_ONCE) {
            reader.scan_pages(heap.id(), pages, |_, _| rows += 1)?;
        }
        Ok(rows)
    }

    pub(super) fn reader(&self) -> Result<&nandina_rowstore::Transaction<'_>> {
        let rows = self.rows.as_ref().ok_or_else(|| self.no_rows())?;
        let Some(transaction) = rows.borrow_dependent() else { unreachable!("it is there until it ends") };
        Ok(transaction)
    }

    fn no_rows(&self) -> StorageError {
        StorageError::NewerTable { path: self.snapshot.store().device().path().to_owned() }
    }

    fn write<T>(
        &mut self,
        change: impl FnOnce(&mut nandina_rowstore::Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        let Some(rows) = &mut self.rows else { return Err(self.no_rows()) };
        rows.with_dependent_mut(|store, transaction| {
            let Some(transaction) = transaction else { unreachable!("it is there until it ends") };
            let changed = change(transaction)?;
            store.pages().checkpoint_if_due()?;
            Ok(changed)
        })
    }

    /// Where the rows of a table are.
    pub fn pages(&self, table: &Table) -> Result<RowPages> {
        Ok(RowPages(self.reader()?.heap_pages(table.heap()?.id())?.into()))
    }

    /// Reads pages that are wanted next, all at the same time.
    pub fn read_ahead(&self, pages: &[PageId]) -> Result<()> {
        self.reader()?.read_ahead(pages);
        Ok(())
    }

    /// Collects the rows of some pages that this transaction sees, and their ids.
    pub fn read_pages(
        &self,
        table: &Table,
        pages: &[PageId],
        rows: &mut RowDecoder<'_>,
        mut ids: Option<&mut Vec<u64>>,
    ) -> Result<()> {
        let heap = table.heap()?;
        let mut outcome = Ok(());
        self.reader()?.scan_pages(heap.id(), pages, |row, bytes| {
            if outcome.is_ok() {
                outcome = rows.push(bytes).map_err(|source| damaged_row(table, row, source));
                if let Some(ids) = &mut ids {
                    ids.push(id_of(row));
                }
            }
        })?;
        outcome
    }

    /// Collects rows of the heap by their ids, in this order; those that this transaction does not see are left out.
    pub fn read_rows(
        &self,
        table: &Table,
        wanted: &[u64],
        rows: &mut RowDecoder<'_>,
        ids: Option<&mut Vec<u64>>,
    ) -> Result<()> {
        self.read_rows_up_to(table, wanted, rows, ids, usize::MAX).map(|_| ())
    }

    /// The same, which ends where there are more than so many bytes, and says with `false` that there are.
    pub fn read_rows_up_to(
        &self,
        table: &Table,
        wanted: &[u64],
        rows: &mut RowDecoder<'_>,
        mut ids: Option<&mut Vec<u64>>,
        most_bytes: usize,
    ) -> Result<bool> {
        let heap = table.heap()?;
        let in_heap = |id: &u64| match Place::of(*id) {
            Place::Heap(row) => row,
            Place::Segment(row) => unreachable!("row {row} is fetched from its segment"),
        };
        let wanted: Vec<HeapRow> = wanted.iter().map(in_heap).collect();
        let mut outcome = Ok(true);
        self.reader()?.get_each(heap.id(), &wanted, |row, bytes| {
            let Some(bytes) = bytes else { return ControlFlow::Continue(()) };
            if let Err(source) = rows.push(bytes) {
                outcome = Err(damaged_row(table, row, source));
                return ControlFlow::Break(());
            }
            if let Some(ids) = &mut ids {
                ids.push(id_of(row));
            }
            match rows.bytes() > most_bytes {
                true => {
                    outcome = Ok(false);
                    ControlFlow::Break(())
                }
                false => ControlFlow::Continue(()),
            }
        })?;
        outcome
    }

    /// Adds rows, with all columns of the table.
    pub fn insert(&mut self, table: &Table, rows: &RecordBatch) -> Result<()> {
        let target = Target::adding_to(table)?;
        let heap = target.heap()?;
        let mut encoder = heap.codec.encoder(rows).map_err(StorageError::Encode)?;
        target.check_nulls(rows)?;
        let keys = heap.keys.iter().map(|keys| keys.of_rows(rows)).collect::<Result<Vec<_>>>()?;
        self.write(|transaction| {
            let mut bytes = Vec::new();
            for row in 0..rows.num_rows() {
                bytes.clear();
                encoder.encode(row, &mut bytes).map_err(StorageError::Encode)?;
                let id = transaction.insert(heap.id(), &bytes)?;
                for number in 0..keys.len() {
                    add_key(transaction, &target, number, rows, &keys, row, id)?;
                }
            }
            Ok(())
        })
    }

    /// Adds the rows whose keys no row has that this transaction sees, of the unique index of this name or of all of them, and says which.
    pub fn insert_absent(
        &mut self,
        table: &Table,
        rows: &RecordBatch,
        index: Option<&str>,
    ) -> Result<BooleanArray> {
        let target = Target::of(table)?;
        let heap = target.heap()?;
        let mut encoder = heap.codec.encoder(rows).map_err(StorageError::Encode)?;
        target.check_nulls(rows)?;
        let keys = heap.keys.iter().map(|keys| keys.of_rows(rows)).collect::<Result<Vec<_>>>()?;
        let is_asked = |number: &usize| {
            let definition = &heap.record.indexes[*number].definition;
            definition.is_unique && index.is_none_or(|index| definition.name == index)
        };
        let asked: Vec<usize> = (0..keys.len()).filter(is_asked).collect();
        self.write(|transaction| {
            let (mut bytes, mut added) = (Vec::new(), Vec::with_capacity(rows.num_rows()));
            for row in 0..rows.num_rows() {
                let mut is_absent = true;
                for number in &asked {
                    let has_null = heap.keys[*number].has_null(rows, row);
                    let key = keys[*number].row(row);
                    is_absent =
                        is_absent && (has_null || !has_key(transaction, &target, *number, key.as_ref())?);
                }
                added.push(is_absent);
                if !is_absent {
                    continue;
                }
                bytes.clear();
                encoder.encode(row, &mut bytes).map_err(StorageError::Encode)?;
                let id = transaction.insert(heap.id(), &bytes)?;
                for number in 0..keys.len() {
                    match add_key(transaction, &target, number, rows, &keys, row, id) {
                        // Of a row that this transaction does not see.
                        Err(StorageError::DuplicateKey { .. }) if asked.contains(&number) => {
                            return Err(RowsError::Conflict.into());
                        }
                        added => added?,
                    }
                }
            }
            Ok(BooleanArray::from(added))
        })
    }

    /// Gives rows other values, of all columns. Where `deferred` is given, their keys are not in the unique indexes before
    /// [`add_deferred`](Self::add_deferred).
    pub fn update(
        &mut self,
        table: &Table,
        ids: &UInt64Array,
        rows: &RecordBatch,
        deferred: &mut Deferred,
    ) -> Result<()> {
        let target = Target::of(table)?;
        let heap = target.heap()?;
        let mut encoder = heap.codec.encoder(rows).map_err(StorageError::Encode)?;
        target.check_nulls(rows)?;
        let keys = heap.keys.iter().map(|keys| keys.of_rows(rows)).collect::<Result<Vec<_>>>()?;
        self.write(|transaction| {
            let mut bytes = Vec::new();
            for row in 0..rows.num_rows() {
                let id = match Place::of(ids.value(row)) {
                    Place::Heap(id) => id,
                    // The keys of the old row stay, and lead to one that is deleted.
                    Place::Segment(id) => {
                        if !heap.deleted()?.delete(transaction, id)? {
                            return Err(RowsError::Conflict.into());
                        }
                        bytes.clear();
                        encoder.encode(row, &mut bytes).map_err(StorageError::Encode)?;
                        let id = transaction.insert(heap.id(), &bytes)?;
                        for (number, index) in heap.record.indexes.iter().enumerate() {
                            match index.definition.is_unique {
                                true => deferred.keys.push((id, index.root)),
                                false => add_key(transaction, &target, number, rows, &keys, row, id)?,
                            }
                        }
                        continue;
                    }
                };
                let old = old_keys(transaction, &target, id)?;
                let mut added = Vec::new();
                for (number, old) in old.iter().enumerate() {
                    if old.row(0) == keys[number].row(row) {
                        continue;
                    }
                    transaction.index_remove(heap.record.indexes[number].tree(), old.row(0).as_ref(), id)?;
                    if heap.record.indexes[number].definition.is_unique {
                        deferred.keys.push((id, heap.record.indexes[number].root));
                    } else {
                        added.push(number);
                    }
                }
                bytes.clear();
                encoder.encode(row, &mut bytes).map_err(StorageError::Encode)?;
                if !transaction.update(heap.id(), id, &bytes)? {
                    return Err(RowsError::Conflict.into());
                }
                for number in added {
                    add_key(transaction, &target, number, rows, &keys, row, id)?;
                }
            }
            Ok(())
        })
    }

    /// Adds the keys of rows that were updated to the unique indexes.
    pub fn add_deferred(&mut self, table: &Table, deferred: Deferred) -> Result<()> {
        let target = Target::of(table)?;
        let heap = target.heap()?;
        let all: Vec<usize> = (0..heap.codec.schema().fields().len()).collect();
        self.write(|transaction| {
            let mut decoder = heap.codec.decoder(&all).map_err(StorageError::Encode)?;
            for (id, root) in deferred.keys {
                let Some(bytes) = transaction.get(heap.id(), id)? else {
                    unreachable!("a row that a statement has updated is there at its end")
                };
                decoder.push(&bytes).map_err(|source| damaged_row(table, id, source))?;
                let row = decoder.finish().map_err(|source| damaged_row(table, id, source))?;
                // The index may have been dropped meanwhile.
                if let Some(number) = heap.record.indexes.iter().position(|index| index.root == root) {
                    let keys = heap.keys.iter().map(|keys| keys.of_rows(&row)).collect::<Result<Vec<_>>>()?;
                    add_key(transaction, &target, number, &row, &keys, 0, id)?;
                }
            }
            Ok(())
        })
    }

    /// Deletes rows; how many of them there were.
    pub fn delete(&mut self, table: &Table, ids: &UInt64Array) -> Result<u64> {
        let target = Target::of(table)?;
        let heap = target.heap()?;
        self.write(|transaction| {
            let mut deleted = 0;
            for id in ids.values() {
                let id = match Place::of(*id) {
                    Place::Heap(id) => id,
                    Place::Segment(id) => {
                        deleted += u64::from(heap.deleted()?.delete(transaction, id)?);
                        continue;
                    }
                };
                if transaction.get(heap.id(), id)?.is_none() {
                    // Named twice by the statement.
                    continue;
                }
                for (keys, index) in old_keys(transaction, &target, id)?.iter().zip(&heap.record.indexes) {
                    transaction.index_remove(index.tree(), keys.row(0).as_ref(), id)?;
                }
                deleted += u64::from(transaction.delete(heap.id(), id)?);
            }
            Ok(deleted)
        })
    }

    /// A moment that the transaction can be rolled back to.
    pub fn savepoint(&self) -> Option<Savepoint> {
        self.rows.as_ref().and_then(|rows| rows.borrow_dependent().as_ref()).map(|rows| rows.savepoint())
    }

    /// Rolls back what was done since.
    pub fn roll_back_to(&mut self, savepoint: Option<Savepoint>) -> Result<()> {
        match (savepoint, &self.rows) {
            (Some(savepoint), Some(_)) => self.write(|rows| Ok(rows.roll_back_to(savepoint)?)),
            _ => Ok(()),
        }
    }

    /// Has others see what was done, once it is durable.
    pub fn commit(self) -> Result<()> {
        self.commit_as(Durability::Full)
    }

    /// Has others see what was done, and says so once it is as durable as this.
    pub fn commit_as(mut self, durability: Durability) -> Result<()> {
        let is_lasting = durability == Durability::Full && self.snapshot.store().mode() != Mode::Temporary;
        let Some(rows) = &mut self.rows else { return Ok(()) };
        rows.with_dependent_mut(|_, transaction| match transaction.take() {
            Some(transaction) if is_lasting => Ok(transaction.commit()?),
            Some(transaction) => Ok(transaction.commit_relaxed()?),
            None => unreachable!("it is there until it ends"),
        })
    }
}

fn damaged_row(table: &Table, row: HeapRow, source: nandina_pages::PageError) -> StorageError {
    StorageError::Row { table: table.name().to_owned(), row: row.0, source }
}
