//! Transactions over the tables of a database whose rows are changed one by one.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use arrow_array::{Array as _, ArrayRef, BooleanArray, RecordBatch, UInt64Array};
use arrow_row::Rows as Keys;
use nandina_pages::RowDecoder;
use nandina_rowstore::heap::RowId as HeapRow;
use nandina_rowstore::page::PageId;
use nandina_rowstore::transaction::Savepoint;
use nandina_rowstore::{Error as RowsError, RowStore};
use parking_lot::Mutex;
use self_cell::self_cell;

use super::{Heap, IndexDefinition, KeyRange, RowSet};
use crate::error::{Result, StorageError};
use crate::ids::{PageNumber, RowId};
use crate::segment::Segment;
use crate::store::{Mode, Snapshot, Store, TableEntry};
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

/// The bit of a row's id that tells rows in the heap from those in segments, which have fewer pages than it would take.
const IN_HEAP: u64 = 1 << 63;

/// Where a row is.
enum Place {
    Heap(HeapRow),
    Segment(RowId),
}

impl Place {
    fn of(id: u64) -> Self {
        match id & IN_HEAP {
            0 => Self::Segment(RowId::from_bits(id)),
            _ => Self::Heap(HeapRow(id ^ IN_HEAP)),
        }
    }
}

pub(super) fn id_of(row: HeapRow) -> u64 {
    assert!(row.0 & IN_HEAP == 0, "page numbers of heaps have less than 48 bits");
    row.0 | IN_HEAP
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

    /// Rows are going to be changed, of tables that may not have been [made changeable](Store::make_changeable) when this began.
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
            seen => seen?,
        };
        if seen.has_changeable_rows() || self.rows.is_none() {
            return Ok(seen);
        }
        // One that is gone is as it was.
        let Ok(newest) = store.newest(&seen) else { return Ok(seen) };
        let is_kept =
            |segment: &Arc<Segment>| newest.segments.iter().any(|other| Arc::ptr_eq(other, segment));
        let heap = newest.heap.clone().filter(|_| seen.segments().iter().all(is_kept));
        let Some(heap) = heap else { return Ok(seen) };
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

    fn reader(&self) -> Result<&nandina_rowstore::Transaction<'_>> {
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

    /// The indexes of a table that rows can be found by, with their numbers: those that this transaction sees, and that have not been
    /// dropped since, as what it adds itself is not in these.
    pub fn indexes(&self, table: &Table) -> Result<Vec<(usize, IndexDefinition)>> {
        // Of a table that has been dropped since none is there.
        let newest = table.store().newest(table).ok().and_then(|entry| entry.heap.clone());
        let kept: HashSet<u64> = newest.iter().flat_map(|heap| heap.first_pages()).collect();
        let is_kept = |number: usize| {
            let index = table.heap().ok().and_then(|heap| heap.record.indexes.get(number));
            index.is_some_and(|index| kept.contains(&index.root))
        };
        Ok(table
            .indexes()
            .filter(|(number, _)| is_kept(*number))
            .map(|(number, index)| (number, index.clone()))
            .collect())
    }

    /// Whether this is one of these.
    pub fn has_index(&self, table: &Table, number: usize) -> Result<bool> {
        let Some(index) = table.heap()?.record.indexes.get(number) else { return Ok(false) };
        let newest = table.store().newest(table).ok().and_then(|entry| entry.heap.clone());
        Ok(newest.is_some_and(|heap| heap.first_pages().any(|page| page == index.root)))
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
        let wanted: Vec<HeapRow> = wanted.iter().map(|id| HeapRow(*id & !IN_HEAP)).collect();
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

    /// Ids of rows whose key in an index begins with these values, as far as it tells: each of them may have another key in the state
    /// that this transaction sees.
    pub fn find(&self, table: &Table, index: usize, values: &[ArrayRef]) -> Result<Vec<u64>> {
        let (record, keys) = table.index(index)?;
        let keys = keys.of_columns(values)?;
        let mut found = Vec::new();
        for key in &keys {
            let key = key.as_ref();
            // Keys that go on behind these values are below this.
            let upper = [key, &[u8::MAX]].concat();
            let range = self.reader()?.index_range(
                record.tree(),
                Bound::Included(key),
                Bound::Included(&upper),
                false,
            );
            for row in range.rows() {
                found.push(id_of(row?));
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// The same of keys in a range, in their order; `None` if there are more keys than `most`.
    pub fn find_few(
        &self,
        table: &Table,
        index: usize,
        range: &KeyRange,
        most: usize,
    ) -> Result<Option<Vec<u64>>> {
        let (record, keys) = table.index(index)?;
        let (lower, upper) = keys.bounds(range)?;
        let (lower, upper) = (Bound::Included(lower.as_slice()), Bound::Included(upper.as_slice()));
        let mut found = Vec::new();
        for row in self.reader()?.index_range(record.tree(), lower, upper, false).rows() {
            if found.len() == most {
                return Ok(None);
            }
            found.push(id_of(row?));
        }
        // A row has several keys where transactions see several states of it, which is rare: sorting is cheaper than a set.
        let mut sorted = found.clone();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| matches!(pair, [one, other] if one == other)) {
            let mut seen = HashSet::new();
            found.retain(|id| seen.insert(*id));
        }
        Ok(Some(found))
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
                    is_absent = is_absent
                        && (has_null
                            || !has_key(transaction, heap, *number, keys[*number].row(row).as_ref())?);
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
                    Place::Segment(id) => {
                        if !delete_from_segment(transaction, heap, id)? {
                            return Err(RowsError::Conflict.into());
                        }
                        bytes.clear();
                        encoder.encode(row, &mut bytes).map_err(StorageError::Encode)?;
                        transaction.insert(heap.id(), &bytes)?;
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
                        deleted += u64::from(delete_from_segment(transaction, heap, id)?);
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

/// A table that is changed, with the indexes that it has now. No index is added meanwhile.
struct Target<'t> {
    table: &'t Table,
    entry: Arc<TableEntry>,
    _unchanged: parking_lot::RwLockReadGuard<'t, ()>,
}

impl<'t> Target<'t> {
    /// For changes of rows that are there.
    fn of(table: &'t Table) -> Result<Self> {
        Self::noting(table, Heap::note_change)
    }

    /// For rows that are added.
    fn adding_to(table: &'t Table) -> Result<Self> {
        Self::noting(table, Heap::note_addition)
    }

    fn noting(table: &'t Table, note: impl FnOnce(&Heap)) -> Result<Self> {
        let store: &Store = table.store();
        let unchanged = store.shapes().read();
        let entry = store.newest(table)?;
        // Others have replaced all rows, or put them elsewhere, and what this transaction has seen of them is there no longer.
        let heap = |entry: &TableEntry| entry.heap.as_ref().map(|heap| heap.record.heap);
        if heap(&entry) != heap(table.entry()) {
            return Err(RowsError::Conflict.into());
        }
        if let Some(heap) = &entry.heap {
            note(heap);
        }
        Ok(Self { table, entry, _unchanged: unchanged })
    }

    fn heap(&self) -> Result<&Heap> {
        self.entry.heap.as_deref().ok_or_else(|| self.table.not_changeable())
    }

    fn check_nulls(&self, rows: &RecordBatch) -> Result<()> {
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
}

/// Whether a row that a transaction sees has a key.
fn has_key(
    transaction: &nandina_rowstore::Transaction<'_>,
    heap: &Heap,
    index: usize,
    key: &[u8],
) -> Result<bool> {
    let tree = heap.record.indexes[index].tree();
    for row in transaction.index_range(tree, Bound::Included(key), Bound::Included(key), false).rows() {
        if let Some(bytes) = transaction.get(heap.id(), row?)? {
            let codec = &heap.keys[index];
            let keys =
                keys_of(heap, &codec.columns, &bytes).and_then(|columns| codec.of_columns(&columns))?;
            if keys.row(0).as_ref() == key {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn delete_from_segment(
    transaction: &mut nandina_rowstore::Transaction<'_>,
    heap: &Heap,
    row: RowId,
) -> Result<bool> {
    assert!(heap.keys.is_empty(), "tables with segments have no indexes");
    let Some(deleted) = &heap.record.deleted else { unreachable!("a row id of a table without segments") };
    deleted.delete(transaction, row)
}

fn damaged_row(table: &Table, row: HeapRow, source: nandina_pages::PageError) -> StorageError {
    StorageError::Row { table: table.name().to_owned(), row: row.0, source }
}

/// The keys that the indexes have of a row.
fn old_keys(
    transaction: &nandina_rowstore::Transaction<'_>,
    target: &Target<'_>,
    id: HeapRow,
) -> Result<Vec<Keys>> {
    let heap = target.heap()?;
    if heap.keys.is_empty() {
        return Ok(Vec::new());
    }
    let Some(bytes) = transaction.get(heap.id(), id)? else { return Err(RowsError::Conflict.into()) };
    heap.keys
        .iter()
        .map(|keys| keys_of(heap, &keys.columns, &bytes).and_then(|columns| keys.of_columns(&columns)))
        .collect()
}

/// These columns of a row.
pub(super) fn keys_of(heap: &Heap, columns: &[usize], bytes: &[u8]) -> Result<Vec<ArrayRef>> {
    let mut decoder = heap.codec.decoder(columns).map_err(StorageError::Encode)?;
    decoder.push(bytes).map_err(StorageError::Encode)?;
    Ok(decoder.finish().map_err(StorageError::Encode)?.columns().to_vec())
}

/// Has the key of a row of this batch lead to a row.
fn add_key(
    transaction: &mut nandina_rowstore::Transaction<'_>,
    target: &Target<'_>,
    number: usize,
    rows: &RecordBatch,
    keys: &[Keys],
    row: usize,
    id: HeapRow,
) -> Result<()> {
    let heap = target.heap()?;
    let (index, codec) = (&heap.record.indexes[number], &heap.keys[number]);
    let key = keys[number].row(row);
    let key: &[u8] = key.as_ref();
    let is_unique = index.definition.is_unique && !codec.has_null(rows, row);
    let failed = RefCell::new(None);
    let has_key = |bytes: &[u8]| {
        let keys = keys_of(heap, &codec.columns, bytes).and_then(|columns| codec.of_columns(&columns));
        match keys {
            Ok(keys) => keys.row(0).as_ref() == key,
            Err(error) => {
                *failed.borrow_mut() = Some(error);
                false
            }
        }
    };
    let added = transaction.index_insert(index.tree(), key, id, is_unique.then_some(&has_key));
    if let Some(error) = failed.into_inner() {
        return Err(error);
    }
    match added {
        Err(RowsError::DuplicateKey { .. }) => {
            let columns: Vec<_> =
                codec.columns.iter().map(|column| Arc::clone(rows.column(*column))).collect();
            Err(StorageError::DuplicateKey {
                table: target.table.name().to_owned(),
                index: index.definition.name.clone(),
                key: heap.key_text(number, &columns, row),
            })
        }
        other => Ok(other?),
    }
}
