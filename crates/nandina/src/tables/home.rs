//! Where the objects of a database are: in a directory, or in memory.
//!
//! In memory, tables whose rows are changed one by one are in a folder for temporary files, where they may exceed it.

use std::collections::HashMap;

use datafusion::execution::memory_pool::MemoryReservation;
use nandina_storage::{Objects, Store, TableRules};
use parking_lot::{Mutex, RwLock};

use crate::error::{Error, Result};
use crate::temporary_store::TemporaryStore;

pub(super) enum Home {
    Directory(Store),
    Memory(Box<Memory>),
}

pub(super) struct Memory {
    objects: RwLock<Objects>,
    tables: Mutex<HashMap<String, Held>>,
    rows: TemporaryStore,
}

/// What there is of a table in memory beside its rows.
pub(super) struct Held {
    /// Given back when it is dropped.
    pub _memory: MemoryReservation,
    pub rules: TableRules,
}

impl Memory {
    /// Keeps what there is of a table in memory, which takes the place of one of its name.
    pub(super) fn hold(&self, table: String, held: Held) -> Result<()> {
        if let Some(store) = self.rows.store().filter(|store| store.has_table(&table)) {
            store.drop_table(&table)?;
        }
        self.tables.lock().insert(table, held);
        Ok(())
    }

    /// Whether a table is in memory.
    pub(super) fn has(&self, table: &str) -> bool {
        self.tables.lock().contains_key(table)
    }

    /// Keeps what there is of a table in memory under another name, with other rules.
    pub(super) fn alter(&self, table: &str, name: String, rules: TableRules) {
        let mut tables = self.tables.lock();
        if let Some(held) = tables.remove(table) {
            tables.insert(name, Held { rules, ..held });
        }
    }

    /// Lets go of a table in memory, whose rows are elsewhere from now on.
    pub(super) fn let_go(&self, table: &str) -> Option<Held> {
        self.tables.lock().remove(table)
    }
}

impl Home {
    pub(super) fn memory(rows: TemporaryStore) -> Self {
        Home::Memory(Box::new(Memory { objects: RwLock::default(), tables: Mutex::default(), rows }))
    }

    /// Where tables are stored, if there is a store.
    pub(super) fn store(&self) -> Option<Store> {
        match self {
            Home::Directory(store) => Some(store.clone()),
            Home::Memory(memory) => memory.rows.store(),
        }
    }

    /// The same; there is one from now on.
    pub(super) fn store_or_new(&self) -> Result<Store> {
        match self {
            Home::Directory(store) => Ok(store.clone()),
            Home::Memory(memory) => memory.rows.store_or_new(),
        }
    }

    pub(super) fn objects(&self) -> Objects {
        match self {
            Home::Directory(store) => store.objects(),
            Home::Memory(memory) => memory.objects.read().clone(),
        }
    }

    /// Changes objects and drops tables, all or nothing.
    pub(super) fn change<T>(
        &self,
        dropped_tables: &[String],
        edit: impl FnOnce(&mut Objects) -> Result<T>,
    ) -> Result<T> {
        match self {
            Home::Directory(store) if dropped_tables.is_empty() => store.change_objects(edit),
            _ => self.shrink(dropped_tables, edit),
        }
    }

    /// The same, on a full disk too: for what makes a database smaller.
    pub(super) fn shrink<T>(
        &self,
        dropped_tables: &[String],
        edit: impl FnOnce(&mut Objects) -> Result<T>,
    ) -> Result<T> {
        match self {
            Home::Directory(store) => store.drop_objects(dropped_tables, edit),
            Home::Memory(memory) => {
                let mut objects = memory.objects.write();
                let mut changed = objects.clone();
                let outcome = edit(&mut changed)?;
                dropped_tables.iter().for_each(|table| changed.drop_sequences_of(table));
                let (in_memory, stored): (Vec<_>, Vec<_>) =
                    dropped_tables.iter().cloned().partition(|name| memory.tables.lock().contains_key(name));
                if let Some(store) = memory.rows.store().filter(|_| !stored.is_empty()) {
                    store.drop_objects(&stored, |_| Ok::<_, Error>(()))?;
                }
                *objects = changed;
                let mut tables = memory.tables.lock();
                in_memory.iter().for_each(|name| drop(tables.remove(name)));
                Ok(outcome)
            }
        }
    }

    /// Tables that were made by `CREATE TABLE`.
    pub(super) fn stored_tables(&self) -> Vec<String> {
        match self {
            Home::Directory(store) => store.table_names(),
            Home::Memory(memory) => {
                let stored = memory.rows.store().map(|store| store.table_names()).unwrap_or_default();
                memory.tables.lock().keys().cloned().chain(stored).collect()
            }
        }
    }

    pub(super) fn has_stored_table(&self, name: &str) -> bool {
        match self {
            Home::Directory(store) => store.has_table(name),
            Home::Memory(memory) => {
                let is_stored = || memory.rows.store().is_some_and(|store| store.has_table(name));
                memory.tables.lock().contains_key(name) || is_stored()
            }
        }
    }

    pub(super) fn rules(&self, name: &str) -> TableRules {
        if let Home::Memory(memory) = self
            && let Some(held) = memory.tables.lock().get(name)
        {
            return held.rules.clone();
        }
        let table = self.store().and_then(|store| store.table(name).ok());
        table.map(|table| table.rules().clone()).unwrap_or_default()
    }
}
