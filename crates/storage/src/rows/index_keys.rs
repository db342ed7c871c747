//! Keys that lead to rows: which a row has, whether another one has them, and adding them.

use std::cell::RefCell;
use std::ops::Bound;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_row::Rows as Keys;
use nandina_rowstore::heap::RowId as HeapRow;
use nandina_rowstore::tree::Tree;
use nandina_rowstore::{Error as RowsError, Transaction as Rows};

use super::Heap;
use super::place::Place;
use super::target::Target;
use crate::error::{Result, StorageError};

/// Whether a row that a transaction sees has a key.
pub(super) fn has_key(transaction: &Rows<'_>, target: &Target<'_>, index: usize, key: &[u8]) -> Result<bool> {
    let heap = target.heap()?;
    let (tree, codec) = (heap.record.indexes[index].tree(), &heap.keys[index]);
    for entry in transaction.index_range(tree, Bound::Included(key), Bound::Included(key), false).rows() {
        let has_key = match Place::of_entry(entry?) {
            Place::Heap(row) => match transaction.get(heap.id(), row)? {
                Some(bytes) => {
                    let columns = keys_of(heap, &codec.columns, &bytes)?;
                    codec.of_columns(&columns)?.row(0).as_ref() == key
                }
                None => false,
            },
            Place::Segment(row) => target.sees(transaction, row)?,
        };
        if has_key {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The keys that the indexes have of a row.
pub(super) fn old_keys(transaction: &Rows<'_>, target: &Target<'_>, id: HeapRow) -> Result<Vec<Keys>> {
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
pub(super) fn add_key(
    transaction: &mut Rows<'_>,
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
    match added
        .and_then(|()| if is_unique { check_segments(transaction, heap, index.tree(), key) } else { Ok(()) })
    {
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

/// Fails if a row of a segment has a key that is to be unique, or has it unless another transaction commits what it has done to the row.
fn check_segments(
    transaction: &Rows<'_>,
    heap: &Heap,
    tree: Tree,
    key: &[u8],
) -> nandina_rowstore::Result<()> {
    let Some(deleted) = &heap.record.deleted else { return Ok(()) };
    for entry in transaction.index_range(tree, Bound::Included(key), Bound::Included(key), false).rows() {
        let entry = entry?;
        if let Place::Segment(row) = Place::of_entry(entry)
            && !deleted.has_now(transaction, row)?
        {
            return Err(RowsError::DuplicateKey { row: entry });
        }
    }
    Ok(())
}
