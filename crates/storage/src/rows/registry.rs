//! Which heaps and indexes a row store has, whether the manifest names them or not.
//!
//! ```text
//!   make:   heap ─► registry ─► manifest names it
//!   drop:   manifest no longer names it ─► pages but the first one are given back ─► registry ─► first page
//! ```
//!
//! A crash in between leaves an entry that no manifest names, and the rest is done when the store is opened next. Only where it
//! falls between the first two steps, or behind the last but one, a single page stays used.

use std::collections::HashSet;

use nandina_rowstore::RowStore;
use nandina_rowstore::heap::directory::TableId as HeapId;
use nandina_rowstore::page::PageId;
use nandina_rowstore::transaction::FIRST_FREE_ROOT;
use nandina_rowstore::tree::Tree;

use crate::error::{Result, StorageError};

const ROOT: usize = FIRST_FREE_ROOT;
const HEAP: u8 = 0;
const INDEX: u8 = 1;

/// The table that has an entry for each heap and index.
fn entries(store: &RowStore) -> Result<HeapId> {
    let root = store.pages().root(ROOT)?;
    if root != 0 {
        return Ok(HeapId(PageId(root)));
    }
    let table = store.create_table()?;
    let mut change = store.pages().change();
    store.pages().set_root(&mut change, ROOT, table.0.0)?;
    let lsn = change.commit()?;
    store.pages().log().wait_until_durable(lsn)?;
    Ok(table)
}

fn add(store: &RowStore, kind: u8, first: PageId) -> Result<()> {
    let table = entries(store)?;
    let mut transaction = store.begin();
    transaction.insert(table, &[&[kind][..], &first.0.to_le_bytes()].concat())?;
    Ok(transaction.commit()?)
}

pub(super) fn create_heap(store: &RowStore) -> Result<HeapId> {
    let heap = store.create_table()?;
    add(store, HEAP, heap.0)?;
    Ok(heap)
}

pub(super) fn create_index(store: &RowStore) -> Result<Tree> {
    let tree = store.create_index()?;
    add(store, INDEX, tree.root())?;
    Ok(tree)
}

/// Gives the pages of all heaps and indexes back that do not begin with one of these, unless there are transactions, which may see
/// some of them: then that is for another time.
pub(super) fn clear_others(store: &RowStore, kept: &HashSet<u64>) -> Result<()> {
    let table = entries(store)?;
    let found: Vec<_> = store.begin().scan(table)?.collect::<nandina_rowstore::Result<_>>()?;
    for (row, bytes) in found {
        let damaged = || StorageError::damaged("the row store", "an entry of a heap or index is none");
        let (kind, first) = bytes.split_first().ok_or_else(damaged)?;
        let first = PageId(u64::from_le_bytes(first.try_into().map_err(|_| damaged())?));
        if kept.contains(&first.0) {
            continue;
        }
        let is_clear = match *kind {
            HEAP => store.clear_table(HeapId(first))?,
            INDEX => store.clear_index(Tree::at(first))?,
            _ => return Err(damaged()),
        };
        if !is_clear {
            return Ok(());
        }
        let mut transaction = store.begin();
        transaction.delete(table, row)?;
        transaction.commit()?;
        store.give_back(first)?;
    }
    Ok(())
}
