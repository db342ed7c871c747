//! Rows of segments that have been deleted, or changed: what has become of them is in the heap then.
//!
//! ```text
//!   table = segments, which stay as they are      ─┐
//!         − rows in the heap of deleted ones        ├─► what a transaction sees
//!         + rows in the heap                      ─┘
//! ```
//!
//! A deleted row has an entry in a heap of its own, which has the row's id: so deleting it is seen, rolled back and made durable
//! like any other change. The ids are in a unique index, so that of two transactions only one deletes a row.

use std::ops::Bound;

use nandina_rowstore::heap::RowId as HeapRow;
use nandina_rowstore::heap::directory::TableId as HeapId;
use nandina_rowstore::page::PageId;
use nandina_rowstore::tree::Tree;
use nandina_rowstore::{Error as RowsError, Transaction as Rows};
use serde::{Deserialize, Serialize};

use crate::error::{Result, StorageError};
use crate::ids::RowId;
use crate::rows::RowSet;

/// Where the ids of deleted rows are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeletedRecord {
    /// First page of their heap.
    pub heap: u64,
    /// First page of the index of ids.
    pub index: u64,
}

impl DeletedRecord {
    pub fn first_pages(&self) -> [u64; 2] {
        [self.heap, self.index]
    }

    fn heap(&self) -> HeapId {
        HeapId(PageId(self.heap))
    }

    fn index(&self) -> Tree {
        Tree::at(PageId(self.index))
    }

    pub fn pages(&self, transaction: &Rows<'_>) -> Result<usize> {
        Ok(transaction.heap_pages(self.heap())?.len())
    }

    /// The rows that a transaction does not see any more.
    pub fn seen_by(&self, transaction: &Rows<'_>) -> Result<RowSet> {
        let mut deleted = RowSet::default();
        let mut is_damaged = false;
        for pages in transaction.heap_pages(self.heap())?.chunks(PAGES_AT_ONCE) {
            transaction.read_ahead(pages);
            transaction.scan_pages(self.heap(), pages, |_, bytes| match <[u8; 8]>::try_from(bytes) {
                Ok(bits) => {
                    deleted.insert(u64::from_be_bytes(bits));
                }
                Err(_) => is_damaged = true,
            })?;
        }
        match is_damaged {
            false => Ok(deleted),
            true => Err(StorageError::damaged("the row store", "the id of a deleted row is none")),
        }
    }

    /// Entries of the heap that have this id.
    fn notes(&self, transaction: &Rows<'_>, key: [u8; 8]) -> nandina_rowstore::Result<Vec<HeapRow>> {
        let bounds = (Bound::Included(&key[..]), Bound::Included(&key[..]));
        transaction.index_range(self.index(), bounds.0, bounds.1, false).rows().collect()
    }

    /// Whether a row is deleted as a transaction sees it.
    pub fn has(&self, transaction: &Rows<'_>, row: RowId) -> nandina_rowstore::Result<bool> {
        let key = key_of(row);
        for note in self.notes(transaction, key)? {
            if transaction.get(self.heap(), note)?.is_some_and(|bytes| bytes == key) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a row is deleted by now, also where a transaction does not see that: a conflict where another one that has not ended may
    /// delete it.
    pub fn has_now(&self, transaction: &Rows<'_>, row: RowId) -> nandina_rowstore::Result<bool> {
        let key = key_of(row);
        for note in self.notes(transaction, key)? {
            if transaction.newest(self.heap(), note)?.is_some_and(|bytes| bytes == key) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Deletes a row, unless that has been done as this transaction sees it.
    pub fn delete(&self, transaction: &mut Rows<'_>, row: RowId) -> Result<bool> {
        if self.has(transaction, row)? {
            return Ok(false);
        }
        let key = key_of(row);
        let entry = transaction.insert(self.heap(), &key)?;
        let has_key = |bytes: &[u8]| bytes == key;
        match transaction.index_insert(self.index(), &key, entry, Some(&has_key)) {
            // Another transaction has, which this one does not see.
            Err(RowsError::DuplicateKey { .. }) => Err(RowsError::Conflict.into()),
            added => Ok(added.map(|()| true)?),
        }
    }
}

fn key_of(row: RowId) -> [u8; 8] {
    row.to_bits().to_be_bytes()
}

/// Pages that are read together.
const PAGES_AT_ONCE: usize = 32;
