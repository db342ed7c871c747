//! Making tables whose rows are changed one by one.

use std::sync::Arc;

use nandina_rowstore::RowStore;

use super::{Heap, HeapRecord, IndexRecord, Making, Transaction};
use crate::definition::{IfExists, TableDefinition, Target};
use crate::error::Result;
use crate::store::{Store, TableEntry, shape};
use crate::table::{BEING_MADE, Table};

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
