//! Changing what a table is: its name, the names of its columns, whether they may be null, its rules and which indexes it has.
//!
//! ```text
//!   the table and its state ─► rows are looked at, if the change asks something of them ─► manifest, if the state is the same
//!                           └► other rows are written (TableDefinition::in_place_of)    ─┘
//! ```
//!
//! Rows stay where they are. Whatever others are adding meanwhile has not been looked at: the table gets another id, so that their
//! commits find it gone, and those that came before are noticed.

use std::sync::Arc;

use arrow_schema::SchemaRef;

use crate::error::{Result, StorageError};
use crate::ids::{SegmentId, TableId};
use crate::objects::TableRules;
use crate::rows::{Heap, HeapRecord};
use crate::store::{ManifestSpace, Store, TableEntry, shape};
use crate::table::Table;

/// A table as it was before it is changed.
#[derive(Debug, Clone)]
pub struct TableState {
    name: String,
    id: TableId,
    rules: Arc<TableRules>,
    segments: Vec<SegmentId>,
    heap: Option<HeapRecord>,
    /// How often rows of the heap had been changed.
    changes: u64,
}

/// What a table is to be. Its columns have the types that they had.
#[derive(Debug, Clone)]
pub struct TableChange {
    /// As [`qualified`](crate::qualified) gives it.
    pub name: String,
    pub schema: SchemaRef,
    pub rules: TableRules,
    pub dropped_indexes: Vec<String>,
    /// Whether it asks something of rows that it did not ask before, and that its rows have been looked at for.
    pub is_stricter: bool,
}

impl TableState {
    fn of(entry: &TableEntry) -> Self {
        Self {
            name: entry.shape.name.clone(),
            id: entry.shape.id,
            rules: Arc::clone(&entry.rules),
            segments: entry.segments.iter().map(|segment| segment.record.id).collect(),
            heap: entry.heap.as_ref().map(|heap| heap.record.clone()),
            changes: entry.heap.as_ref().map_or(0, |heap| heap.changes()),
        }
    }

    /// Whether it is still the same table, whatever its rows are.
    fn check_definition(&self, entry: Option<&TableEntry>) -> Result<()> {
        let gone = || StorageError::TableGone { name: self.name.clone() };
        let entry = entry.filter(|entry| entry.shape.id == self.id).ok_or_else(gone)?;
        let indexes = |heap: &HeapRecord| heap.indexes.clone();
        let is_same = Arc::ptr_eq(&entry.rules, &self.rules)
            && entry.heap.as_ref().map(|heap| indexes(&heap.record)).unwrap_or_default()
                == self.heap.as_ref().map(indexes).unwrap_or_default();
        if is_same { Ok(()) } else { Err(self.changing()) }
    }

    /// Whether it is the same table with the same rows. Nobody changes any meanwhile.
    pub(crate) fn check(&self, entry: Option<&TableEntry>) -> Result<()> {
        self.check_definition(entry)?;
        let now = entry.map(Self::of);
        let has_same_rows = now.is_some_and(|now| {
            now.segments == self.segments && now.heap == self.heap && now.changes == self.changes
        });
        if has_same_rows { Ok(()) } else { Err(self.changing()) }
    }

    fn changing(&self) -> StorageError {
        StorageError::TableChanging { name: self.name.clone() }
    }
}

impl Store {
    /// The newest state of a table that is to be changed.
    pub fn table_to_alter(&self, name: &str) -> Result<(Table, TableState)> {
        self.check_writable()?;
        // Of changes of rows that have been counted so far none is being made.
        let _unchanged = self.shapes().write();
        let table = self.table(name)?;
        let state = TableState::of(table.entry());
        Ok((table, state))
    }

    /// Fails with [`StorageError::TableChanging`] while there are transactions that have changed rows, which may be some of the
    /// table: they are not seen yet. What is read after this has succeeded has all rows of the state.
    pub fn check_settled(&self, state: &TableState) -> Result<()> {
        match state.heap.is_some() && self.row_store()?.has_writers()? {
            true => Err(state.changing()),
            false => Ok(()),
        }
    }

    /// Whether a table is as it was, with the same rows.
    pub fn is_unchanged(&self, state: &TableState) -> bool {
        let _unchanged = self.shapes().write();
        let table = self.table(&state.name).ok();
        state.check(table.as_ref().map(|table| &**table.entry())).is_ok()
    }

    /// Changes what a table is. Nothing is changed if it is not as it was any more.
    pub fn alter_table(&self, state: &TableState, change: TableChange) -> Result<()> {
        self.check_writable()?;
        let drops_index = !change.dropped_indexes.is_empty();
        // An index that is being made is of the table as it was.
        let _indexing = self.indexing().lock();
        {
            let _still = self.not_held();
            let _changing = self.shapes().write();
            self.change(ManifestSpace::Free, |_, tables, manifest| -> Result<_> {
                let entry = tables.remove(&state.name);
                match change.is_stricter {
                    true => state.check(entry.as_deref())?,
                    false => state.check_definition(entry.as_deref())?,
                }
                let Some(entry) = entry else { unreachable!("a table that is as it was is there") };
                if tables.contains_key(&change.name) {
                    return Err(StorageError::TableExists { name: change.name });
                }
                let next = TableId(manifest.next_table);
                let (name, altered) = (change.name.clone(), altered(&entry, change, next)?);
                manifest.next_table += u64::from(altered.shape.id == next);
                manifest.objects.rename_owner(&state.name, &name);
                tables.insert(name, altered);
                Ok(Vec::new())
            })?;
        }
        if drops_index {
            self.clear_dropped();
        }
        Ok(())
    }
}

/// A table with the rows of another one. It is the same one as long as those that add rows need not know of the change.
fn altered(entry: &TableEntry, change: TableChange, next: TableId) -> Result<Arc<TableEntry>> {
    let schema = entry.shape.page_schema().arrow();
    let types = |schema: &SchemaRef| -> Vec<_> {
        schema.fields().iter().map(|field| field.data_type().clone()).collect()
    };
    assert!(
        types(schema) == types(&change.schema),
        "columns of other types are for rows that are written anew"
    );
    let is_same = change.name == entry.shape.name && change.schema == *schema && !change.is_stricter;
    let shape = match is_same {
        true => Arc::clone(&entry.shape),
        false => shape(next, &change.name, entry.shape.page_bytes, &change.schema)?,
    };
    let heap = match &entry.heap {
        Some(heap) if is_same && change.dropped_indexes.is_empty() => Some(Arc::clone(heap)),
        Some(heap) => {
            let mut record = heap.record.clone();
            for name in &change.dropped_indexes {
                let at = record.indexes.iter().position(|index| index.definition.name == *name);
                record.indexes.remove(at.ok_or_else(|| StorageError::NoIndex { name: name.clone() })?);
            }
            Some(Arc::new(Heap::new(record, &shape)?.with_changes_of(heap)))
        }
        None => None,
    };
    Ok(TableEntry::new(shape, entry.segments.clone(), Arc::new(change.rules), heap))
}
