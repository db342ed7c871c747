//! Tables and indexes that are dropped give their pages back.

use super::{OVERFLOW_PAGES, RowStore};
use crate::error::Result;
use crate::heap::directory::{self, TableId};
use crate::heap::overflow::{self, Reference};
use crate::heap::slotted;
use crate::page::PageId;
use crate::tree::Tree;

impl RowStore {
    /// Takes all rows out of a table and gives its pages back, but for the first one, [`give_back`](Self::give_back) for that: in
    /// between it can be noted that there is no such table any more. Whether that was possible: not while there are transactions, which
    /// may still see it. None of those that begin meanwhile uses the table. It is called again if a crash has ended it.
    pub fn clear_table(&self, table: TableId) -> Result<bool> {
        if !self.clear_old_versions()? {
            return Ok(false);
        }
        self.tables.lock().remove(&table);
        loop {
            let (entries, next) = directory::read(&self.pages, table, table.0)?;
            let entries = match next {
                Some(second) => directory::read(&self.pages, table, second)?.0,
                None => entries,
            };
            for (page, _) in entries.into_iter().rev() {
                self.free_heap_page(table, page)?;
                self.pages.throttle()?;
                self.pages.checkpoint_if_due()?;
            }
            match next {
                Some(_) => directory::remove_second(&self.pages, table)?,
                None => return Ok(true),
            }
        }
    }

    /// The same for an index.
    pub fn clear_index(&self, tree: Tree) -> Result<bool> {
        let is_clear = self.clear_old_versions()?;
        if is_clear {
            tree.clear(&self.pages)?;
        }
        Ok(is_clear)
    }

    /// Gives the first page of a cleared table or index back, which is all that is left of it.
    pub fn give_back(&self, first: PageId) -> Result<()> {
        let mut change = self.pages.change();
        self.pages.free(&mut change, first)?;
        change.commit().map(drop)
    }

    /// Clears away what was changed and deleted, whatever it was, so that no undo entry names a page; whether that was possible.
    fn clear_old_versions(&self) -> Result<bool> {
        if !self.clock.is_idle() {
            return Ok(false);
        }
        let mut all = {
            let mut streams = self.streams.lock();
            if streams.0.len() < streams.1 {
                // A transaction writes to one of them, or clears it.
                return Ok(false);
            }
            std::mem::take(&mut streams.0)
        };
        let cleared =
            all.iter_mut().try_fold(true, |is_clear, stream| Ok(self.purge_whole(stream)? && is_clear));
        all.into_iter().for_each(|stream| self.give_stream_back(stream));
        cleared
    }

    /// Frees the last heap page of a table, and those that the rows of it go on in.
    fn free_heap_page(&self, table: TableId, page: PageId) -> Result<()> {
        loop {
            let mut change = self.pages.change();
            let latched = change.latch(page)?;
            table.check(&self.pages, page, change.page(latched))?;
            let long = (0..slotted::slots(change.page(latched))).find_map(|slot| {
                let (head, content) = slotted::row(change.page(latched), slot)?;
                let reference = if head.is_long() { Reference::parse(content) } else { None };
                Some((slot, head, reference.filter(|reference| reference.first != PageId(0))?))
            });
            let Some((slot, head, reference)) = long else {
                directory::remove_last(&mut change, latched)?;
                self.pages.free(&mut change, page)?;
                return change.commit().map(drop);
            };
            let (pages, next) = overflow::pages(&self.pages, reference.first, OVERFLOW_PAGES, Some(page))?;
            let left = Reference { first: next, ..reference }.to_bytes();
            if !slotted::update(&mut change, latched, slot, head, &left, &|_| false) {
                return Err(self.pages.damaged(page, "a row has less room than a reference takes"));
            }
            for page in pages {
                self.pages.free(&mut change, page)?;
            }
            change.commit()?;
        }
    }
}
