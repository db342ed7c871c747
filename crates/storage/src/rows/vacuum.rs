//! Putting rows that are changed one by one back into segments, and small segments together.
//!
//! ```text
//!   segments                        stay
//!   segments with deleted rows      their other rows ─┐
//!   small segments                  all rows ─────────┤
//!   heap                            all rows ─────────┴─► one new segment;   heap and ids of deleted rows are dropped
//! ```
//!
//! It waits for no transaction, and gives up where rows are changed meanwhile that it has written. Rows that are added meanwhile go
//! on to another heap, so that a table can be vacuumed while rows come in. Row ids change; a transaction that has found rows before, and
//! changes them behind it, is told that another one did.
//!
//! Tables with indexes are left alone: keys lead to rows where they are.
//!
//! In the background, which was not asked for, it does less: large segments stay until a good part of their rows is deleted, as
//! writing them again takes as long as they are large. And it gives way to those who [keep rows](Store::keep_rows).

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use futures::StreamExt as _;
use nandina_pages::RowDecoder;

use super::place::id_of;
use super::{Changes, Heap, HeapRecord, Making, RowSet, Transaction};
use crate::definition::Target;
use crate::error::{Result, StorageError};
use crate::ids::{PageNumber, SegmentId};
use crate::segment::{Segment, TableShape};
use crate::store::{Store, TableEntry};
use crate::table::Table;
use crate::writer::{CommitSummary, TableWriter, WriteOptions, WriterLane};
use crate::{RowPages, ScanOptions};

/// Pages of the heap that are read together.
const PAGES_AT_ONCE: usize = 32;
/// Rows of the heap are handed on once they take so many bytes.
const BATCH_BYTES: usize = 1 << 20;
/// Segments below this length are put together: a file of its own costs more than writing so much again.
const SMALL_SEGMENT_BYTES: u64 = 1 << 20;
/// In the background, a segment with deleted rows is written again if it is no longer than this, or one of so many rows is deleted.
const CHEAP_SEGMENT_BYTES: u64 = 64 << 20;
const DELETED_SHARE: u64 = 10;
/// More bytes of rows than this do not go on to another heap while all statements wait.
const MOST_LATE_BYTES: usize = 4 << 20;
/// Nor are they looked for in a heap with more bytes of pages.
const MOST_SEARCHED_BYTES: usize = 256 << 20;

/// What a table is to be after some of its rows have been put into one segment.
#[derive(Debug, Clone)]
pub(crate) struct Vacuumed {
    /// First page of the heap whose rows were, and how often it had been changed.
    heap: Option<(u64, Changes)>,
    /// The segments whose rows were.
    pub rewritten: HashSet<SegmentId>,
    /// Rows of other segments are deleted.
    keeps_deleted: bool,
    in_background: bool,
    written: Arc<Written>,
}

/// What is known once all rows have been written.
#[derive(Debug, Default)]
struct Written {
    /// Rows of the heap.
    rows: OnceLock<RowSet>,
    /// Where rows go that are not among them.
    next: OnceLock<HeapRecord>,
}

/// What there is of a table that could be in fewer segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VacuumWork {
    /// Where rows of it have been changed, and how often: these tell whether it still is as it was.
    pub heap: Option<(u64, u64)>,
    pub heap_bytes: u64,
    /// Rows of segments are deleted, or were when the heap was made.
    pub has_deleted: bool,
    pub segments: usize,
    pub small_segments: usize,
}

impl Store {
    /// What vacuum could do for a table; none if that is nothing.
    pub fn vacuum_work(&self, name: &str) -> Result<Option<VacuumWork>> {
        let newest = self.table(name)?;
        let small_segments = newest.segments().iter().filter(|segment| is_small(segment)).count();
        let segments = newest.segments().len();
        if !newest.has_changeable_rows() {
            let work = VacuumWork { heap: None, heap_bytes: 0, has_deleted: false, segments, small_segments };
            return Ok((small_segments > 1).then_some(work));
        }
        if !newest.has_segments() || newest.has_indexes() {
            return Ok(None);
        }
        let transaction = self.begin()?;
        let table = transaction.table(name)?;
        let Some(heap) = &table.entry().heap else { return Ok(None) };
        let page_bytes = self.row_store()?.pages().page_bytes();
        let heap_bytes = (transaction.pages(&table)?.len() * page_bytes) as u64;
        let has_deleted = transaction.deleted_pages(&table)? > 0;
        let heap = Some((heap.record.heap, heap.changes()));
        Ok(Some(VacuumWork { heap, heap_bytes, has_deleted, segments, small_segments }))
    }

    /// Puts the rows of a table's heap, what deleted rows have left of segments, and small segments into a new one. Where others are
    /// changing something it is [`StorageError::TableChanging`], and may be tried again.
    pub async fn vacuum(&self, name: &str, options: WriteOptions) -> Result<CommitSummary> {
        self.vacuum_until(name, options, None).await
    }

    /// The same as far as it is cheap, unless others keep rows where they are, or until `must_stop` says so; whether it was done.
    pub async fn vacuum_in_background(
        &self,
        name: &str,
        options: WriteOptions,
        must_stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<bool> {
        match self.vacuum_until(name, options, Some(must_stop)).await {
            Err(StorageError::TableChanging { .. }) => Ok(false),
            vacuumed => vacuumed.map(|_| true),
        }
    }

    async fn vacuum_until(
        &self,
        name: &str,
        options: WriteOptions,
        must_stop: Option<&(dyn Fn() -> bool + Sync)>,
    ) -> Result<CommitSummary> {
        self.check_writable()?;
        let changing = || StorageError::TableChanging { name: name.to_owned() };
        let newest = self.table(name)?;
        if !newest.has_segments() || newest.has_indexes() {
            return Ok(CommitSummary::default());
        }
        let heap = newest.entry().heap.clone();
        // Of changes that have been counted so far none is being made: they are seen, unless their transactions are still open.
        let lock = self.shapes().write();
        let changes = heap.as_ref().map(|heap| (heap.record.heap, heap.changes_by_kind()));
        drop(lock);
        let in_background = must_stop.is_some();
        let must_give_way = in_background && self.rows_kept().load(Ordering::SeqCst) > 0;
        if must_give_way || (heap.is_some() && self.row_store()?.has_writers()?) {
            return Err(changing());
        }
        let transaction = self.begin()?;
        let table = transaction.table(name)?;
        let first_page = |heap: &Option<Arc<Heap>>| heap.as_ref().map(|heap| heap.record.heap);
        if first_page(&table.entry().heap) != first_page(&heap) {
            return Err(changing());
        }
        let (deleted, pages) = match heap {
            Some(_) => (transaction.deleted_rows(&table)?, Some(transaction.pages(&table)?)),
            None => (RowSet::default(), None),
        };
        let has_rows = pages.as_ref().is_some_and(|pages| !pages.is_empty());
        let (rewritten, keeps_deleted) = rewritten(&table, &deleted, has_rows, in_background);
        if rewritten.is_empty() && !has_rows && (heap.is_none() || keeps_deleted) {
            return Ok(CommitSummary::default());
        }
        let written = Arc::default();
        let vacuumed = Vacuumed { heap: changes, rewritten, keeps_deleted, in_background, written };
        let target = Target::Vacuum { shape: Arc::clone(table.shape()), vacuumed: vacuumed.clone() };
        let window_bytes = options.window_bytes;
        let account = options.account.clone();
        let writer = TableWriter::new(self.clone(), Arc::clone(table.shape()), target, options)?;
        let mut lane = writer.lane();
        let is_rewritten = |segment: &&Arc<Segment>| vacuumed.rewritten.contains(&segment.record.id);
        let segments = table.segments().iter().filter(is_rewritten).cloned().collect();
        let rules = Arc::clone(&table.entry().rules);
        let part =
            Table::of_entry(self.clone(), TableEntry::new(Arc::clone(table.shape()), segments, rules, None));
        let options =
            ScanOptions { deleted: Some(Arc::new(deleted)), window_bytes, account, ..ScanOptions::default() };
        let must_stop = || must_stop.is_some_and(|must_stop| must_stop());
        let mut rows = part.scan(options)?.reader();
        while let Some(batch) = rows.next().await {
            if must_stop() {
                return Err(changing());
            }
            lane.append(&batch?).await?;
        }
        if let Some(pages) = pages {
            let Some(copied) = append_heap(&transaction, &table, &pages, &mut lane, must_stop).await? else {
                return Err(changing());
            };
            let Ok(()) = vacuumed.written.rows.set(copied) else { unreachable!("all rows are written once") };
        }
        lane.finish().await?;
        // What is dropped then is given back where no transaction is open.
        drop((rows, part, table, transaction));
        let _next = match heap {
            Some(heap) => self.next_heap(&heap, &vacuumed)?,
            None => None,
        };
        writer.commit().await
    }

    /// Makes a heap for what is not in the new segment, if there may be something.
    fn next_heap(&self, heap: &Heap, vacuumed: &Vacuumed) -> Result<Option<Making<'_>>> {
        let then = vacuumed.heap.map(|(_, changes)| changes);
        if !vacuumed.keeps_deleted && then == Some(heap.changes_by_kind()) {
            return Ok(None);
        }
        let store = self.row_store()?;
        let (record, making) = self.rows().make_next(&store, &heap.record)?;
        let Ok(()) = vacuumed.written.next.set(record) else { unreachable!("it is made once") };
        Ok(Some(making))
    }

    /// The heap of a table that was vacuumed, with rows that were added meanwhile. Nothing is being changed now.
    pub(crate) fn heap_after(&self, shape: &TableShape, vacuumed: &Vacuumed) -> Result<Option<Arc<Heap>>> {
        let changing = || StorageError::TableChanging { name: shape.name.clone() };
        if vacuumed.in_background && self.rows_kept().load(Ordering::SeqCst) > 0 {
            return Err(changing());
        }
        let snapshot = self.snapshot();
        let entry = snapshot.entry(&shape.name).ok().filter(|entry| entry.shape.id == shape.id);
        let entry = entry.ok_or_else(|| StorageError::TableGone { name: shape.name.clone() })?;
        if entry.has_indexes() {
            // One has come meanwhile, whose keys lead to rows where they were.
            return Err(changing());
        }
        let (heap, then) = match (&entry.heap, &vacuumed.heap) {
            (None, None) => return Ok(None),
            (Some(heap), Some((first_page, then))) if heap.record.heap == *first_page => (heap, then),
            _ => return Err(changing()),
        };
        let now = heap.changes_by_kind();
        if now.others != then.others {
            return Err(changing());
        }
        if now == *then && !vacuumed.keeps_deleted {
            return Ok(None);
        }
        let next = vacuumed.written.next.get().ok_or_else(changing)?;
        // The last segment may go without another one in its place, but the ids of its deleted rows do not.
        let next = HeapRecord { next_page: entry.pages_end(), ..next.clone() };
        let next = Heap::new(next, &entry.shape)?;
        // It has what a transaction does not see that has begun before.
        next.note_change();
        if now != *then {
            self.move_rows(heap, &next, vacuumed.written.rows.get(), changing)?;
        }
        Ok(Some(Arc::new(next)))
    }

    /// Adds the rows of a heap to another one that are not among these.
    fn move_rows(
        &self,
        from: &Heap,
        to: &Heap,
        written: Option<&RowSet>,
        changing: impl Fn() -> StorageError,
    ) -> Result<()> {
        let store = self.row_store()?;
        if store.has_writers()? {
            return Err(changing());
        }
        let is_written = |id: u64| written.is_some_and(|written| written.contains(id));
        let (seen, mut moving) = (store.begin(), store.begin());
        let pages = seen.heap_pages(from.id())?;
        // All statements wait meanwhile.
        if pages.len() * store.pages().page_bytes() > MOST_SEARCHED_BYTES {
            return Err(changing());
        }
        let mut moved_bytes = 0;
        for pages in pages.chunks(PAGES_AT_ONCE) {
            let mut late: Vec<Vec<u8>> = Vec::new();
            seen.scan_pages(from.id(), pages, |row, bytes| {
                if !is_written(id_of(row)) {
                    moved_bytes += bytes.len();
                    if moved_bytes <= MOST_LATE_BYTES {
                        late.push(bytes.to_vec());
                    }
                }
            })?;
            if moved_bytes > MOST_LATE_BYTES {
                return Err(changing());
            }
            for bytes in &late {
                moving.insert(to.id(), bytes)?;
            }
        }
        Ok(moving.commit()?)
    }
}

fn is_small(segment: &Segment) -> bool {
    segment.record.file_bytes < SMALL_SEGMENT_BYTES
}

/// The segments whose rows are written again, and whether rows of others are deleted. `has_more`: others are written beside them.
fn rewritten(
    table: &Table,
    deleted: &RowSet,
    has_more: bool,
    in_background: bool,
) -> (HashSet<SegmentId>, bool) {
    let mut deleted_of: HashMap<SegmentId, u64> = HashMap::new();
    for (page, rows) in deleted.rows_of_pages() {
        // Segments that had deleted rows before they were written again are gone.
        if let Some(segment) = table.segment_of(PageNumber(page)) {
            *deleted_of.entry(segment.record.id).or_default() += rows;
        }
    }
    let is_worth_it = |segment: &&Arc<Segment>| {
        let Some(rows) = deleted_of.get(&segment.record.id) else { return false };
        let is_cheap = segment.record.file_bytes <= CHEAP_SEGMENT_BYTES;
        !in_background || is_cheap || rows.saturating_mul(DELETED_SHARE) >= segment.record.rows
    };
    let id = |segment: &Arc<Segment>| segment.record.id;
    let mut rewritten: HashSet<SegmentId> = table.segments().iter().filter(is_worth_it).map(id).collect();
    let small: Vec<SegmentId> = table.segments().iter().filter(|of| is_small(of)).map(id).collect();
    if !rewritten.is_empty() || has_more || small.len() > 1 {
        rewritten.extend(small);
    }
    let keeps_deleted = deleted_of.keys().any(|segment| !rewritten.contains(segment));
    (rewritten, keeps_deleted)
}

/// Appends the rows of a heap, and says which these are; none if it had to stop.
async fn append_heap(
    transaction: &Transaction,
    table: &Table,
    pages: &RowPages,
    lane: &mut WriterLane,
    must_stop: impl Fn() -> bool,
) -> Result<Option<RowSet>> {
    let columns: Vec<usize> = (0..table.schema().fields().len()).collect();
    let (mut next, mut copied) = (0, RowSet::default());
    while next < pages.len() {
        if must_stop() {
            return Ok(None);
        }
        let (batch, ids) = {
            let mut rows: RowDecoder<'_> =
                table.row_codec()?.decoder(&columns).map_err(StorageError::Encode)?;
            let mut ids = Vec::new();
            while next < pages.len() && rows.bytes() < BATCH_BYTES {
                let ahead = next..pages.len().min(next + PAGES_AT_ONCE);
                transaction.read_ahead(pages.slice(ahead.clone()))?;
                while next < ahead.end && rows.bytes() < BATCH_BYTES {
                    transaction.read_pages(table, pages.slice(next..next + 1), &mut rows, Some(&mut ids))?;
                    next += 1;
                }
            }
            (rows.finish().map_err(StorageError::Encode)?, ids)
        };
        ids.into_iter().for_each(|id| {
            copied.insert(id);
        });
        if batch.num_rows() > 0 {
            lane.append(&batch).await?;
        }
    }
    Ok(Some(copied))
}
