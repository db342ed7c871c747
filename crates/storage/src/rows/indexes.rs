//! Indexes: made while others change rows, and dropped.
//!
//! ```text
//!   a tree ─► the manifest names it: changes of rows add their keys ─► keys of all rows that are there ─► queries use it
//!             the table has a heap, and gets no other segments
//! ```
//!
//! Rows of segments keep their places as long as there is an index: what is written by many rows goes to the heap, too, and vacuum leaves
//! the table alone. So the keys of segments are added once, and stay. A row of a segment that is deleted leaves its key behind, which
//! leads to one whose id is among those of deleted rows.

use std::cell::RefCell;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::UInt64Type;
use arrow_array::{Array as _, ArrayRef};
use nandina_rowstore::heap::RowId as HeapRow;
use nandina_rowstore::transaction::index::IsSingle;
use nandina_rowstore::tree::Tree;
use nandina_rowstore::{Error as RowsError, RowStore, Transaction as Rows};

use super::index_keys::keys_of;
use super::place::Place;
use super::{Heap, IndexDefinition, IndexRecord, KeyCodec};
use crate::error::{Result, StorageError};
use crate::fetch::FetchOptions;
use crate::ids::RowId;
use crate::scan::ScanOptions;
use crate::store::Store;
use crate::table::Table;

/// Pages of the heap whose rows are in memory as keys at the same time.
const PAGES_AT_ONCE: usize = 32;
/// Bytes of keys that are put in order before they are added: those that are near each other go into the same pages then.
const KEY_BYTES_AT_ONCE: usize = 4 << 20;
/// What a key takes beside its bytes.
const KEY_OVERHEAD_BYTES: usize = size_of::<(Vec<u8>, HeapRow)>();
/// Bytes of segments that are read ahead.
const WINDOW_BYTES: usize = 1 << 20;
/// How often a table is made changeable anew, as its rows have gone back into segments: nothing does that often.
const MOST_TRIES: usize = 100;

type AddKey<'a> = &'a mut dyn FnMut(&[u8], HeapRow) -> nandina_rowstore::Result<()>;

impl Store {
    /// Adds an index to a table while others change its rows, which are changed one by one from now on. It waits for transactions that
    /// have changed something.
    pub fn create_index(&self, table: &Table, definition: IndexDefinition) -> Result<()> {
        self.check_writable()?;
        // Types that cannot be keys are refused before anything is made.
        KeyCodec::try_new(table.schema(), &definition)?;
        let _indexing = self.indexing().lock();
        let rows = self.row_store()?;
        let (record, making) = self.rows().make_index(&rows, definition)?;
        let (tree, name) = (record.tree(), record.definition.name.clone());
        self.add_index(table, &record)?;
        let with_index = Table::of_entry(self.clone(), self.newest(table)?);
        match build(&rows, &with_index, tree) {
            Ok(()) => self.change_indexes(table, |indexes| {
                let built = indexes.iter_mut().find(|index| index.tree() == tree);
                built.ok_or_else(|| StorageError::NoIndex { name: name.clone() })?.is_building = false;
                Ok(())
            }),
            Err(error) => {
                drop(making);
                self.remove_index(table, &name)?;
                Err(error)
            }
        }
    }

    /// From now on, keys of rows that are changed are added to an index.
    fn add_index(&self, table: &Table, record: &IndexRecord) -> Result<()> {
        let name = &record.definition.name;
        for _ in 0..MOST_TRIES {
            self.make_changeable(table)?;
            let added = self.change_indexes(table, |indexes| {
                if indexes.iter().any(|other| other.definition.name == *name) {
                    return Err(StorageError::IndexExists { name: name.clone() });
                }
                indexes.push(record.clone());
                Ok(())
            });
            match added {
                // All of its rows have gone back into segments in between.
                Err(StorageError::NotChangeable { .. }) => {}
                added => return added,
            }
        }
        Err(StorageError::TableChanging { name: table.name().to_owned() })
    }

    /// Removes an index.
    pub fn drop_index(&self, table: &Table, name: &str) -> Result<()> {
        self.check_writable()?;
        let _indexing = self.indexing().lock();
        self.remove_index(table, name)
    }

    fn remove_index(&self, table: &Table, name: &str) -> Result<()> {
        self.change_indexes(table, |indexes| {
            let before = indexes.len();
            indexes.retain(|index| index.definition.name != name);
            if indexes.len() == before {
                return Err(StorageError::NoIndex { name: name.to_owned() });
            }
            Ok(())
        })?;
        self.clear_dropped();
        Ok(())
    }
}

/// Adds the keys of all rows to an index that is maintained already.
fn build(store: &RowStore, table: &Table, tree: Tree) -> Result<()> {
    let heap = table.heap()?;
    let number = heap.record.indexes.iter().position(|index| index.tree() == tree);
    let number = number.ok_or_else(|| StorageError::TableGone { name: table.name().to_owned() })?;
    let (index, codec) = (&heap.record.indexes[number], &heap.keys[number]);
    // Damaged rows are told where they are read.
    let has_key = |wanted: &[u8], bytes: &[u8]| key_of(heap, codec, bytes).is_ok_and(|key| key == wanted);
    let failed = RefCell::new(None);
    let noted = |told: Result<bool>| match told {
        Err(StorageError::Rows(error)) => Err(error),
        Err(error) => {
            *failed.borrow_mut() = Some(error);
            Ok(false)
        }
        Ok(told) => Ok(told),
    };
    let elsewhere = |rows: &Rows<'_>, row: HeapRow| noted(is_left(rows, heap, row));
    // Nulls are no other row's keys.
    let is_single =
        |key: &[u8]| noted(codec.values(key).map(|values| values.iter().all(|value| value.is_valid(0))));
    let unique: Option<IsSingle<'_>> = index.definition.is_unique.then_some(&is_single as IsSingle<'_>);
    let built = store.build_index(tree, heap.id(), unique, &has_key, &elsewhere, |rows, add| {
        let mut keys = SortedKeys { keys: Vec::new(), bytes: 0, add };
        add_heap(rows, heap, codec, &mut keys)?;
        add_segments(rows, table, codec, &mut keys)?;
        keys.finish()
    });
    match (built, failed.into_inner()) {
        (Ok(()), None) => Ok(()),
        (_, Some(error)) => Err(error),
        (Err(StorageError::Rows(RowsError::DuplicateKey { row })), None) => {
            Err(duplicate(store, table, number, row))
        }
        (Err(error), None) => Err(error),
    }
}

/// The key of a row of the heap.
fn key_of(heap: &Heap, codec: &KeyCodec, bytes: &[u8]) -> Result<Vec<u8>> {
    let columns = keys_of(heap, &codec.columns, bytes)?;
    Ok(codec.of_columns(&columns)?.row(0).as_ref().to_vec())
}

/// Whether a transaction sees a row of a segment.
fn is_left(rows: &Rows<'_>, heap: &Heap, entry: HeapRow) -> Result<bool> {
    let Place::Segment(row) = Place::of_entry(entry) else {
        unreachable!("a row of the heap is not elsewhere")
    };
    Ok(!heap.deleted()?.has(rows, row)?)
}

/// Keys that are added to an index, many at a time in their order.
struct SortedKeys<'a> {
    keys: Vec<(Vec<u8>, HeapRow)>,
    bytes: usize,
    add: AddKey<'a>,
}

impl SortedKeys<'_> {
    fn push(&mut self, key: Vec<u8>, row: HeapRow) -> Result<()> {
        self.bytes += key.len() + KEY_OVERHEAD_BYTES;
        self.keys.push((key, row));
        if self.bytes >= KEY_BYTES_AT_ONCE { self.finish() } else { Ok(()) }
    }

    fn finish(&mut self) -> Result<()> {
        self.keys.sort_unstable();
        self.bytes = 0;
        for (key, row) in self.keys.drain(..) {
            (self.add)(&key, row)?;
        }
        Ok(())
    }
}

fn add_heap(rows: &Rows<'_>, heap: &Heap, codec: &KeyCodec, keys: &mut SortedKeys<'_>) -> Result<()> {
    let mut found = Vec::new();
    for pages in rows.heap_pages(heap.id())?.chunks(PAGES_AT_ONCE) {
        rows.scan_pages(heap.id(), pages, |row, bytes| found.push((row, key_of(heap, codec, bytes))))?;
        for (row, key) in found.drain(..) {
            keys.push(key?, row)?;
        }
    }
    Ok(())
}

/// Those that are deleted meanwhile are added all the same, as they would be if they were deleted later.
fn add_segments(rows: &Rows<'_>, table: &Table, codec: &KeyCodec, keys: &mut SortedKeys<'_>) -> Result<()> {
    let Some(deleted) = &table.heap()?.record.deleted else { return Ok(()) };
    let options = ScanOptions {
        projection: Some(codec.columns.clone()),
        row_ids: Some("row id".into()),
        deleted: Some(Arc::new(deleted.seen_by(rows)?)),
        window_bytes: Some(WINDOW_BYTES),
        ..ScanOptions::default()
    };
    let mut reader = table.scan(options)?.reader();
    while let Some(batch) = reader.next_blocking() {
        let batch = batch?;
        let Some((ids, columns)) = batch.columns().split_last() else {
            unreachable!("the ids of rows were asked for")
        };
        let ids = ids.as_primitive::<UInt64Type>();
        for (key, id) in codec.of_columns(columns)?.iter().zip(ids.values()) {
            keys.push(key.as_ref().to_vec(), Place::Segment(RowId::from_bits(*id)).entry())?;
        }
    }
    Ok(())
}

/// What an index that is unique cannot have.
fn duplicate(store: &RowStore, table: &Table, number: usize, entry: HeapRow) -> StorageError {
    let described = || -> Result<(String, String)> {
        let heap = table.heap()?;
        let columns = key_columns(store, table, heap, &heap.keys[number], entry)?;
        let key = columns.map_or_else(String::new, |columns| heap.key_text(number, &columns, 0));
        Ok((heap.record.indexes[number].definition.name.clone(), key))
    };
    match described() {
        Ok((index, key)) => StorageError::DuplicateKey { table: table.name().to_owned(), index, key },
        Err(error) => error,
    }
}

/// The values that a row has in the columns of a key; none if it has gone meanwhile.
fn key_columns(
    store: &RowStore,
    table: &Table,
    heap: &Heap,
    codec: &KeyCodec,
    entry: HeapRow,
) -> Result<Option<Vec<ArrayRef>>> {
    match Place::of_entry(entry) {
        Place::Heap(row) => {
            let bytes = store.begin().get(heap.id(), row)?;
            bytes.map(|bytes| keys_of(heap, &codec.columns, &bytes)).transpose()
        }
        Place::Segment(row) => {
            let rows = table.fetch_blocking(&[row], &codec.columns, &FetchOptions::default())?;
            Ok(Some(rows.columns().to_vec()))
        }
    }
}
