//! Putting rows that are changed one by one back into segments.
//!
//! ```text
//!   segments without deleted rows   stay
//!   segments with deleted rows      their other rows ─┐
//!   heap                            all rows ─────────┴─► one new segment;   heap and ids of deleted rows are dropped
//! ```
//!
//! Nobody waits for it, and it gives up where others change rows of the table meanwhile: what it has written would not have their
//! changes. Row ids change; a transaction that has found rows before, and changes them behind it, is told that another one did.

use std::collections::HashSet;
use std::sync::Arc;

use futures::StreamExt as _;
use nandina_pages::RowDecoder;

use super::Transaction;
use crate::definition::Target;
use crate::error::{Result, StorageError};
use crate::ids::{PageNumber, SegmentId};
use crate::segment::Segment;
use crate::store::{Store, TableEntry};
use crate::table::Table;
use crate::writer::{CommitSummary, TableWriter, WriteOptions, WriterLane};
use crate::{RowPages, ScanOptions};

/// Pages of the heap that are read together.
const PAGES_AT_ONCE: usize = 32;
/// Rows of the heap are handed on once they take so many bytes.
const BATCH_BYTES: usize = 1 << 20;

/// What a table is to be after its rows have been put into one segment.
#[derive(Debug, Clone)]
pub(crate) struct Vacuumed {
    /// First page of the heap whose rows were, and how often it had been changed.
    pub heap: u64,
    pub changes: u64,
    /// The segments whose rows were.
    pub rewritten: HashSet<SegmentId>,
}

impl Store {
    /// Puts the rows of a table's heap, and what deleted rows have left of segments, into a new segment. Where others are changing
    /// something it is [`StorageError::TableChanging`], and may be tried again.
    pub async fn vacuum(&self, name: &str, options: WriteOptions) -> Result<CommitSummary> {
        self.check_writable()?;
        let newest = self.table(name)?;
        let Some(heap) = newest.entry().heap.clone().filter(|heap| heap.record.deleted.is_some()) else {
            return Ok(CommitSummary::default());
        };
        // Of changes that have been counted so far none is being made: they are seen, unless their transactions are still open.
        let changing = self.shapes().write();
        let changes = heap.changes();
        drop(changing);
        if self.row_store()?.has_writers()? {
            return Err(StorageError::TableChanging { name: name.to_owned() });
        }
        let transaction = self.begin()?;
        let table = transaction.table(name)?;
        if table.heap()?.record.heap != heap.record.heap {
            return Err(StorageError::TableChanging { name: name.to_owned() });
        }
        let deleted = Arc::new(transaction.deleted_rows(&table)?);
        let rewritten: HashSet<SegmentId> = deleted
            .pages()
            .filter_map(|page| table.segment_of(PageNumber(page)))
            .map(|of| of.record.id)
            .collect();
        let vacuumed = Vacuumed { heap: heap.record.heap, changes, rewritten };
        let target = Target::Vacuum { shape: Arc::clone(table.shape()), vacuumed: vacuumed.clone() };
        let window_bytes = options.window_bytes;
        let account = options.account.clone();
        let writer = TableWriter::new(self.clone(), Arc::clone(table.shape()), target, options)?;
        let mut lane = writer.lane();
        let is_rewritten = |segment: &&Arc<Segment>| vacuumed.rewritten.contains(&segment.record.id);
        let segments = table.segments().iter().filter(is_rewritten).cloned().collect();
        let entry =
            TableEntry::new(Arc::clone(table.shape()), segments, Arc::clone(&newest.entry().rules), None);
        let part = Table::of_entry(self.clone(), entry);
        let options = ScanOptions { deleted: Some(deleted), window_bytes, account, ..ScanOptions::default() };
        let mut rows = part.scan(options)?.reader();
        while let Some(batch) = rows.next().await {
            lane.append(&batch?).await?;
        }
        append_heap(&transaction, &table, &mut lane).await?;
        lane.finish().await?;
        // What is dropped then is given back where no transaction is open.
        drop((rows, part, table, transaction));
        writer.commit().await
    }
}

async fn append_heap(transaction: &Transaction, table: &Table, lane: &mut WriterLane) -> Result<()> {
    let pages: RowPages = transaction.pages(table)?;
    let columns: Vec<usize> = (0..table.schema().fields().len()).collect();
    let mut next = 0;
    while next < pages.len() {
        let batch = {
            let mut rows: RowDecoder<'_> =
                table.row_codec()?.decoder(&columns).map_err(StorageError::Encode)?;
            while next < pages.len() && rows.bytes() < BATCH_BYTES {
                let ahead = next..pages.len().min(next + PAGES_AT_ONCE);
                transaction.read_ahead(pages.slice(ahead.clone()))?;
                while next < ahead.end && rows.bytes() < BATCH_BYTES {
                    transaction.read_pages(table, pages.slice(next..next + 1), &mut rows, None)?;
                    next += 1;
                }
            }
            rows.finish().map_err(StorageError::Encode)?
        };
        if batch.num_rows() > 0 {
            lane.append(&batch).await?;
        }
    }
    Ok(())
}
