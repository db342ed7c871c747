//! Rollback: entry by entry, from the last one on.
//!
//! Each entry goes, and the row is as it was, in one change: a crash in between leaves the entries that are still to be taken
//! back at the end of the stream.

use super::RowStore;
use super::entry::{OldRow, inserted};
use crate::change::{Change, Changed};
use crate::error::Result;
use crate::heap::RowId;
use crate::heap::slotted::{self, HEAP_KIND, RowHead};
use crate::page::{self, PageId};
use crate::undo::{Entry, EntryKind, Stream, Undo};

impl RowStore {
    /// Rolls back what is at the end of a stream without a commit.
    pub(super) fn take_back_unfinished(&self, stream: &mut Stream) -> Result<()> {
        while let Some(entry) = Undo::last(&self.pages, stream)? {
            if entry.kind == EntryKind::Commit {
                break;
            }
            self.take_back(stream, &entry)?;
            if entry.is_first {
                break;
            }
        }
        Ok(())
    }

    /// Rolls the last entry of a stream back.
    pub(super) fn take_back(&self, stream: &mut Stream, entry: &Entry) -> Result<()> {
        if entry.kind == EntryKind::IndexInsert {
            return self.take_index_insert_back(stream, entry);
        }
        let damaged = || self.damaged_entry(entry);
        let mut change = self.pages.change();
        match entry.kind {
            EntryKind::Insert => {
                let row = inserted(entry).ok_or_else(damaged)?;
                let page = latch_row(&mut change, row, entry)?;
                slotted::remove(&mut change, page, row.slot());
            }
            EntryKind::Update => {
                let old = OldRow::parse(entry).ok_or_else(damaged)?;
                let page = latch_row(&mut change, old.row, entry)?;
                let is_back =
                    slotted::update(&mut change, page, old.row.slot(), old.head, old.content, &|_| false);
                assert!(
                    is_back,
                    "a cell keeps the room of the version before until the next one is committed"
                );
            }
            EntryKind::Delete => {
                let old = OldRow::parse(entry).ok_or_else(damaged)?;
                let page = latch_row(&mut change, old.row, entry)?;
                slotted::set_head(&mut change, page, old.row.slot(), old.head);
            }
            EntryKind::Pages | EntryKind::IndexInsert | EntryKind::IndexRemove => {}
            EntryKind::Done | EntryKind::Commit => unreachable!("what is committed is not taken back"),
        }
        let tail = self.undo.take_back(&self.pages, &mut change, stream, entry)?;
        if entry.kind == EntryKind::Pages {
            let (pages, _) = entry.body.as_chunks::<8>();
            for page in pages {
                self.pages.free(&mut change, PageId(u64::from_le_bytes(*page)))?;
            }
        }
        change.commit()?;
        stream.tail = tail;
        Ok(())
    }
}

pub(super) const NOT_AS_LEFT: &str = "a row is not as the transaction left it that changed it last";

/// The version of a row that an entry belongs to, if it is the last one.
pub(super) fn last_version<'p>(page: &'p [u8], row: RowId, entry: &Entry) -> Option<(RowHead, &'p [u8])> {
    let is_heap = page::kind(page) == HEAP_KIND;
    let last = if is_heap { slotted::row(page, row.slot()) } else { None };
    last.filter(|(head, _)| head.writer == entry.transaction && head.undo == entry.address)
}

/// Latches the page of a row whose last version an entry belongs to.
fn latch_row(change: &mut Change<'_>, row: RowId, entry: &Entry) -> Result<Changed> {
    let page = change.latch(row.page())?;
    match last_version(change.page(page), row, entry) {
        Some(_) => Ok(page),
        None => Err(change.damaged(page, NOT_AS_LEFT)),
    }
}
