//! Clearing away what no snapshot sees any more: deleted rows, bytes of long rows as they were, pages of streams.
//!
//! Streams are cleared from the head on, one transaction after the other, in the order in which they were committed there. After a
//! crash this begins again with the first page of a stream: what has been cleared is marked.

use super::clock::Time;
use super::entry::{CONTENT_AT, OldRow};
use super::rollback::{NOT_AS_LEFT, last_version};
use super::{RowStore, slotted};
use crate::error::Result;
use crate::heap::directory::TableId;
use crate::heap::overflow::{self, Reference};
use crate::page::PageId;
use crate::undo::{Entry, EntryKind, Stream, Undo, UndoAddress};

/// Entries that are cleared beside as many as a transaction has added.
const SOME_ENTRIES: u64 = 32;
/// Pages of a long row that are given back by one change.
const OVERFLOW_PAGES: usize = 6;
/// Rows are added to a page again when this part of it is free.
const ROOM_PART: usize = 4;

/// A stream, and how far it is known which of its transactions are committed.
#[derive(Debug)]
pub struct PurgedStream {
    pub stream: Stream,
    /// Of the first transaction that is kept: when it was committed, and where the next one begins.
    first: Option<(Time, UndoAddress)>,
}

impl PurgedStream {
    pub fn new(stream: Stream) -> Self {
        Self { stream, first: None }
    }
}

impl RowStore {
    /// Clears a stream to which some entries have been added, and another one for a bit.
    pub(super) fn purge(&self, stream: &mut PurgedStream, added: u64) -> Result<()> {
        let left = self.purge_some(stream, 2 * added + SOME_ENTRIES)?;
        let other = if left > 0 { self.streams.lock().0.pop_front() } else { None };
        if let Some(mut other) = other {
            let purged = self.purge_some(&mut other, SOME_ENTRIES);
            self.give_stream_back(other);
            purged?;
        }
        Ok(())
    }

    /// Clears all streams that no transaction writes to.
    pub fn purge_all(&self) -> Result<()> {
        let count = self.streams.lock().0.len();
        for _ in 0..count {
            let Some(mut stream) = self.streams.lock().0.pop_front() else { break };
            let purged = self.purge_some(&mut stream, u64::MAX);
            self.give_stream_back(stream);
            purged?;
        }
        Ok(())
    }

    /// Clears all of a stream that no snapshot needs; whether nothing is left.
    pub(super) fn purge_whole(&self, stream: &mut PurgedStream) -> Result<bool> {
        self.purge_some(stream, u64::MAX)?;
        Ok(self.first_commit(stream.stream.kept_from)?.is_none())
    }

    /// Clears about so many entries; how many are left of that number.
    fn purge_some(&self, stream: &mut PurgedStream, most: u64) -> Result<u64> {
        let horizon = self.clock.horizon();
        let mut left = most;
        while left > 0 {
            if stream.first.is_none() {
                stream.first = self.first_commit(stream.stream.kept_from)?;
            }
            let Some((_, behind)) = stream.first.filter(|(time, _)| *time <= horizon) else { break };
            let mut from = stream.stream.kept_from;
            while from != behind {
                let Some(entry) = Undo::next(&self.pages, from)? else {
                    unreachable!("the entries in front of a commit are there")
                };
                from = Undo::behind(&entry);
                left = left.saturating_sub(1);
                self.clear(&entry)?;
            }
            self.undo.release(&self.pages, &mut stream.stream, behind)?;
            stream.first = None;
        }
        Ok(left)
    }

    fn first_commit(&self, from: UndoAddress) -> Result<Option<(Time, UndoAddress)>> {
        let mut at = from;
        while let Some(entry) = Undo::next(&self.pages, at)? {
            at = Undo::behind(&entry);
            if entry.kind == EntryKind::Commit {
                let time = entry.body.first_chunk().ok_or_else(|| self.damaged_entry(&entry))?;
                return Ok(Some((Time(u64::from_le_bytes(*time)), at)));
            }
        }
        Ok(None)
    }

    fn clear(&self, entry: &Entry) -> Result<()> {
        match entry.kind {
            EntryKind::Update => self.clear_update(entry),
            EntryKind::Delete => self.clear_delete(entry),
            EntryKind::IndexRemove => self.clear_index_remove(entry),
            EntryKind::Done
            | EntryKind::Insert
            | EntryKind::Pages
            | EntryKind::Commit
            | EntryKind::IndexInsert => Ok(()),
        }
    }

    /// Gives the pages of a long row back that has other bytes now.
    fn clear_update(&self, entry: &Entry) -> Result<()> {
        let old = OldRow::parse(entry).ok_or_else(|| self.damaged_entry(entry))?;
        if !old.head.is_long() {
            return Ok(());
        }
        let reference = Reference::parse(old.content).ok_or_else(|| self.damaged_entry(entry))?;
        let mut first = reference.first;
        while first != PageId(0) {
            let (pages, next) = overflow::pages(&self.pages, first, OVERFLOW_PAGES, None)?;
            let mut change = self.pages.change();
            let left = Reference { first: next, ..reference }.to_bytes();
            Undo::set_part(&mut change, entry.address, CONTENT_AT, &left)?;
            if next == PageId(0) {
                Undo::mark_done(&mut change, entry)?;
            }
            for page in pages {
                self.pages.free(&mut change, page)?;
            }
            change.commit()?;
            first = next;
        }
        Ok(())
    }

    /// Takes a deleted row away.
    fn clear_delete(&self, entry: &Entry) -> Result<()> {
        let old = OldRow::parse(entry).ok_or_else(|| self.damaged_entry(entry))?;
        loop {
            let mut change = self.pages.change();
            let page = change.latch(old.row.page())?;
            let row = last_version(change.page(page), old.row, entry).filter(|(head, _)| head.is_deleted());
            let Some((head, content)) = row else { return Err(change.damaged(page, NOT_AS_LEFT)) };
            let reference = if head.is_long() { Reference::parse(content) } else { None };
            let first = reference.map_or(PageId(0), |reference| reference.first);
            let (pages, next) = overflow::pages(&self.pages, first, OVERFLOW_PAGES, Some(old.row.page()))?;
            if let Some(reference) = reference.filter(|_| next != PageId(0)) {
                let left = Reference { first: next, ..reference }.to_bytes();
                slotted::update(&mut change, page, old.row.slot(), head, &left, &|_| false);
            } else {
                slotted::remove(&mut change, page, old.row.slot());
                Undo::mark_done(&mut change, entry)?;
                let latched = change.page(page);
                let free = slotted::free_bytes(latched, &|writer| self.clock.has_committed(writer));
                if !slotted::is_with_room(latched) && free >= self.pages.page_bytes() / ROOM_PART {
                    let table = self.table(TableId(slotted::table(latched)))?;
                    table.has_room(&mut change, page)?;
                }
            }
            for page in pages {
                self.pages.free(&mut change, page)?;
            }
            change.commit()?;
            if next == PageId(0) {
                return Ok(());
            }
        }
    }
}
