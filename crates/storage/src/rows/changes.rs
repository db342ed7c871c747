//! Making tables whose rows are changed one by one, and their indexes.

use std::sync::Arc;

use nandina_rowstore::heap::RowId as HeapRow;
use nandina_rowstore::{Error as RowsError, RowStore};

use super::transaction::keys_of;
use super::{Heap, HeapRecord, IndexDefinition, IndexRecord, Making, Transaction};
use crate::definition::{IfExists, TableDefinition, Target};
use crate::error::{Result, StorageError};
use crate::store::{Store, TableEntry, shape};
use crate::table::{BEING_MADE, Table};

/// Pages of rows that are in memory as keys at the same time while an index is built.
const PAGES_AT_ONCE: usize = 32;

/// A table that is being made. What a transaction adds to it is seen once it is finished; before that, nothing is left of it.
#[derive(Debug)]
pub struct NewRows<'s> {
    store: &'s Store,
    rows: Arc<RowStore>,
    definition: TableDefinition,
    if_exists: IfExists,
    record: HeapRecord,
    table: Table,
    _making: Making<'s>,
}

impl Store {
    /// Begins to make a table whose rows are changed one by one.
    pub fn new_rows(&self, definition: TableDefinition, if_exists: IfExists) -> Result<NewRows<'_>> {
        self.check_writable()?;
        definition.check()?;
        let definition = self.sized(definition);
        let page_bytes = definition.page_bytes_on(self.device());
        let shape = shape(BEING_MADE, &definition.name, page_bytes, &definition.schema)?;
        let indexes = definition.rows.clone().unwrap_or_default();
        // Types that cannot be keys are refused before anything is made.
        let planned = indexes.iter().map(|definition| IndexRecord {
            definition: definition.clone(),
            root: 0,
            is_building: false,
        });
        Heap::new(HeapRecord { heap: 0, indexes: planned.collect(), deleted: None, next_page: 0 }, &shape)?;
        let rows = self.row_store()?;
        let (record, making) = self.rows().make(&rows, indexes)?;
        let heap = Heap::new(record.clone(), &shape)?;
        let entry =
            TableEntry::new(shape, Vec::new(), Arc::new(definition.rules.clone()), Some(Arc::new(heap)));
        let table = Table::of_entry(self.clone(), entry);
        Ok(NewRows { store: self, rows, definition, if_exists, record, table, _making: making })
    }

    /// Has rows of a table of segments be changed one by one from now on, also by transactions that have begun before: there is nothing to
    /// be seen of changes yet.
    pub fn make_changeable(&self, table: &Table) -> Result<()> {
        self.check_writable()?;
        if self.newest(table)?.heap.is_some() {
            return Ok(());
        }
        let rows = self.row_store()?;
        let (record, making) = self.rows().make_beside_segments(&rows)?;
        let first_page = record.heap;
        self.change_heap(table, |entry| match entry.heap {
            Some(_) => Ok(None),
            None => Heap::new(record, &entry.shape).map(Some),
        })?;
        drop(making);
        // Another one was faster.
        if self.newest(table)?.heap.as_ref().is_some_and(|heap| heap.record.heap != first_page) {
            self.clear_dropped();
        }
        Ok(())
    }

    /// Adds an index to a table while others change its rows. It waits for transactions that have changed something.
    pub fn create_index(&self, table: &Table, definition: IndexDefinition) -> Result<()> {
        self.check_writable()?;
        if table.has_segments() {
            return Err(table.not_changeable());
        }
        let _indexing = self.indexing().lock();
        let rows = self.row_store()?;
        let name = definition.name.clone();
        let (record, _making) = self.rows().make_index(&rows, definition)?;
        let tree = record.tree();
        self.change_indexes(table, |indexes| {
            if indexes.iter().any(|other| other.definition.name == record.definition.name) {
                return Err(StorageError::IndexExists { name: record.definition.name.clone() });
            }
            indexes.push(record);
            Ok(())
        })?;
        let entry = self.newest(table)?;
        let of_name = |record: &&IndexRecord| record.definition.name == name;
        let built = match entry.heap.as_deref() {
            Some(heap) => {
                build(&rows, table, heap, heap.record.indexes.iter().position(|record| of_name(&record)))
            }
            None => Err(table.not_changeable()),
        };
        match built {
            Ok(()) => self.change_indexes(table, |indexes| {
                let built = indexes.iter_mut().find(|index| index.tree() == tree);
                built.ok_or_else(|| StorageError::NoIndex { name: name.clone() })?.is_building = false;
                Ok(())
            }),
            Err(error) => {
                drop(_making);
                self.remove_index(table, &name)?;
                Err(error)
            }
        }
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
fn build(store: &RowStore, table: &Table, heap: &Heap, number: Option<usize>) -> Result<()> {
    let number = number.ok_or_else(|| StorageError::TableGone { name: table.name().to_owned() })?;
    let (index, codec) = (&heap.record.indexes[number], &heap.keys[number]);
    let key = |bytes: &[u8]| -> Result<(Vec<u8>, bool)> {
        let columns = keys_of(heap, &codec.columns, bytes)?;
        let has_null = columns.iter().any(|column| column.is_null(0));
        Ok((codec.of_columns(&columns)?.row(0).as_ref().to_vec(), has_null))
    };
    // Nulls are no other row's keys, and damaged rows are told where they are read.
    let has_key =
        |wanted: &[u8], bytes: &[u8]| key(bytes).is_ok_and(|(key, has_null)| !has_null && key == wanted);
    let built =
        store.build_index(index.tree(), heap.id(), index.definition.is_unique, &has_key, |rows, add| {
            let mut found = Vec::new();
            for pages in rows.heap_pages(heap.id())?.chunks(PAGES_AT_ONCE) {
                rows.scan_pages(heap.id(), pages, |row, bytes| found.push((row, key(bytes))))?;
                for (row, key) in found.drain(..) {
                    add(&key?.0, row)?;
                }
            }
            Ok(())
        });
    match built {
        Err(StorageError::Rows(RowsError::DuplicateKey { row })) => {
            Err(duplicate(store, table, heap, number, row))
        }
        built => built,
    }
}

/// What an index that is unique cannot have.
fn duplicate(store: &RowStore, table: &Table, heap: &Heap, number: usize, row: HeapRow) -> StorageError {
    let (index, codec) = (&heap.record.indexes[number], &heap.keys[number]);
    let bytes = store.begin().get(heap.id(), row).ok().flatten();
    let columns = bytes.and_then(|bytes| keys_of(heap, &codec.columns, &bytes).ok());
    let key = columns.map_or_else(String::new, |columns| heap.key_text(number, &columns, 0));
    StorageError::DuplicateKey { table: table.name().to_owned(), index: index.definition.name.clone(), key }
}

impl NewRows<'_> {
    /// The table, for rows that are added before it is there.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// A transaction that can add rows to it.
    pub fn begin(&self) -> Transaction {
        Transaction::new(self.store.snapshot(), Some(Arc::clone(&self.rows)))
    }

    /// Makes it part of the database. What has been added to it is committed before.
    pub fn finish(self) -> Result<Table> {
        let name = self.definition.name.clone();
        let target = Target::Create {
            definition: Box::new(self.definition),
            if_exists: self.if_exists,
            rows: Some(self.record),
        };
        self.store.commit(target, None)?;
        drop(self._making);
        self.store.clear_dropped();
        self.store.table(&name)
    }
}
