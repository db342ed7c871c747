//! Where the objects of a database are: in a directory, or in memory.

use std::collections::HashMap;

use datafusion::execution::memory_pool::MemoryReservation;
use nandina_storage::{Objects, Store, TableRules};
use parking_lot::{Mutex, RwLock};

use crate::error::Result;

pub(super) enum Home {
    Directory(Store),
    Memory(Memory),
}

#[derive(Default)]
pub(super) struct Memory {
    objects: RwLock<Objects>,
    tables: Mutex<HashMap<String, Held>>,
}

/// What there is of a table in memory beside its rows.
pub(super) struct Held {
    /// Given back when it is dropped.
    pub _memory: MemoryReservation,
    pub rules: TableRules,
}

impl Memory {
    pub(super) fn hold(&self, table: String, held: Held) {
        self.tables.lock().insert(table, held);
    }
}

impl Home {
    pub(super) fn memory() -> Self {
        Home::Memory(Memory::default())
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
                *objects = changed;
                let mut tables = memory.tables.lock();
                dropped_tables.iter().for_each(|name| drop(tables.remove(name)));
                Ok(outcome)
            }
        }
    }

    /// Tables that were made by `CREATE TABLE`.
    pub(super) fn stored_tables(&self) -> Vec<String> {
        match self {
            Home::Directory(store) => store.table_names(),
            Home::Memory(memory) => memory.tables.lock().keys().cloned().collect(),
        }
    }

    pub(super) fn has_stored_table(&self, name: &str) -> bool {
        match self {
            Home::Directory(store) => store.has_table(name),
            Home::Memory(memory) => memory.tables.lock().contains_key(name),
        }
    }

    pub(super) fn rules(&self, name: &str) -> TableRules {
        match self {
            Home::Directory(store) => {
                store.table(name).map(|table| table.rules().clone()).unwrap_or_default()
            }
            Home::Memory(memory) => {
                memory.tables.lock().get(name).map(|held| held.rules.clone()).unwrap_or_default()
            }
        }
    }
}
