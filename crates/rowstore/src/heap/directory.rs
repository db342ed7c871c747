//! The directory of a table: which heap pages it has.
//!
//! ```text
//!   24     32     40      44
//!   | next | last | count | page and room, page and room, …
//! ```
//!
//! `last` is the last page of the directory, in the first one. An entry has the number of a page, and in its highest bit whether
//! rows are to be added to it.

#![allow(
    clippy::indexing_slicing,
    reason = "places within a page follow from what is in it, which its checksum covers"
)]

use super::slotted::{self, DirectoryEntry, HEAP_KIND};
use crate::change::{Change, Changed};
use crate::error::{Error, Result};
use crate::page::{self, HEADER_BYTES, PageId, PageKind, long_at};
use crate::store::PageStore;
use crate::sync::Mutex;
use crate::tier::Access;

pub const DIRECTORY_KIND: PageKind = PageKind(6);

const NEXT_AT: usize = HEADER_BYTES;
const LAST_AT: usize = HEADER_BYTES + 8;
const COUNT_AT: usize = HEADER_BYTES + 16;
const ENTRIES_AT: usize = HEADER_BYTES + 20;
const ENTRY_BYTES: usize = 8;
const HAS_ROOM: u64 = 1 << 63;

/// Which table: the first page of its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub PageId);

impl TableId {
    /// Whether a page that the directory of this table names is one of it.
    pub fn check(self, store: &PageStore, id: PageId, page: &[u8]) -> Result<()> {
        if slotted::is_of_table(page, self.0) {
            Ok(())
        } else {
            Err(store.damaged(id, "the directory of a table names it, and it has no rows of that table"))
        }
    }
}

/// What is known of a table in memory.
#[derive(Debug)]
pub struct Table {
    pub id: TableId,
    /// Pages that rows are added to.
    with_room: Mutex<Vec<PageId>>,
    /// One page is added at a time.
    growing: Mutex<()>,
}

impl Table {
    /// Makes a table without rows.
    pub fn create<'a>(store: &'a PageStore, change: &mut Change<'a>) -> Result<TableId> {
        let page = store.allocate(change, DIRECTORY_KIND)?;
        let id = change.id(page);
        change.write(page, LAST_AT, &id.0.to_le_bytes());
        Ok(TableId(id))
    }

    /// Reads the directory of a table.
    pub fn open(store: &PageStore, id: TableId) -> Result<Self> {
        let mut with_room = Vec::new();
        let mut next = Some(id.0);
        while let Some(page) = next {
            let (entries, following) = read(store, id, page)?;
            with_room.extend(entries.iter().filter(|(_, has_room)| *has_room).map(|(page, _)| *page));
            next = following;
        }
        Ok(Self { id, with_room: Mutex::new(with_room), growing: Mutex::default() })
    }

    /// A page that rows are added to; threads with different numbers mostly get different ones.
    pub fn target(&self, store: &PageStore, number: usize) -> Result<PageId> {
        /// So many pages are offered at least, that not all threads wait for the latch of one.
        const OFFERED: usize = 4;
        let offered = |pages: &[PageId]| pages.get(number % OFFERED).copied();
        loop {
            if let Some(page) = offered(&self.with_room.lock()) {
                return Ok(page);
            }
            let _growing = self.growing.lock();
            if offered(&self.with_room.lock()).is_none() {
                let page = self.grow(store)?;
                self.with_room.lock().push(page);
            }
        }
    }

    /// Adds an empty heap page.
    fn grow(&self, store: &PageStore) -> Result<PageId> {
        let mut change = store.change();
        let first = change.latch(self.id.0)?;
        let mut last = change.latch(PageId(long_at(change.page(first), LAST_AT)))?;
        let mut number = count(change.page(last));
        if ENTRIES_AT + (number + 1) * ENTRY_BYTES > store.page_bytes() {
            let added = store.allocate(&mut change, DIRECTORY_KIND)?;
            let id = change.id(added).0.to_le_bytes();
            change.write(last, NEXT_AT, &id);
            change.write(first, LAST_AT, &id);
            (last, number) = (added, 0);
        }
        let page = store.allocate(&mut change, HEAP_KIND)?;
        let id = change.id(page);
        change.write(last, ENTRIES_AT + number * ENTRY_BYTES, &(id.0 | HAS_ROOM).to_le_bytes());
        change.write(last, COUNT_AT, &(number as u16 + 1).to_le_bytes());
        let entry = DirectoryEntry { page: change.id(last), number };
        slotted::create(&mut change, page, self.id.0, entry);
        change.commit()?;
        Ok(id)
    }

    /// No row fits into a page that is latched by this change: none is added to it any more.
    pub fn is_full(&self, change: &mut Change<'_>, page: Changed) -> Result<()> {
        self.set_room(change, page, false)?;
        let id = change.id(page);
        self.with_room.lock().retain(|other| *other != id);
        Ok(())
    }

    /// Rows went out of a page that is latched by this change.
    pub fn has_room(&self, change: &mut Change<'_>, page: Changed) -> Result<()> {
        self.set_room(change, page, true)?;
        let id = change.id(page);
        let mut with_room = self.with_room.lock();
        if !with_room.contains(&id) {
            with_room.push(id);
        }
        Ok(())
    }

    fn set_room(&self, change: &mut Change<'_>, page: Changed, has_room: bool) -> Result<()> {
        slotted::set_with_room(change, page, has_room);
        let entry = slotted::directory_entry(change.page(page));
        let id = change.id(page).0 | if has_room { HAS_ROOM } else { 0 };
        let at = ENTRIES_AT + entry.number * ENTRY_BYTES;
        let directory = change.latch(entry.page)?;
        let latched = change.page(directory);
        let is_named = page::kind(latched) == DIRECTORY_KIND
            && entry.number < count(latched)
            && long_at(latched, at) & !HAS_ROOM == change.id(page).0;
        if !is_named {
            let reason = "the entry of the directory that it leads to is that of another page";
            return Err(change.damaged(page, reason));
        }
        change.write(directory, at, &id.to_le_bytes());
        Ok(())
    }
}

/// Takes the last entry out of a page of the directory, that of a heap page which is latched by this change.
pub fn remove_last(change: &mut Change<'_>, page: Changed) -> Result<()> {
    let entry = slotted::directory_entry(change.page(page));
    let directory = change.latch(entry.page)?;
    let latched = change.page(directory);
    if page::kind(latched) != DIRECTORY_KIND || entry.number + 1 != count(latched) {
        return Err(change.damaged(page, "its entry in the directory is not the last one"));
    }
    change.write(directory, COUNT_AT, &(entry.number as u16).to_le_bytes());
    Ok(())
}

/// Takes the page behind the first one out of the directory; the one that follows it comes in its place.
pub fn remove_second(store: &PageStore, table: TableId) -> Result<()> {
    let mut change = store.change();
    let first = change.latch(table.0)?;
    let second = PageId(long_at(change.page(first), NEXT_AT));
    let (_, following) = read(store, table, second)?;
    change.write(first, NEXT_AT, &following.map_or(0, |page| page.0).to_le_bytes());
    if following.is_none() {
        change.write(first, LAST_AT, &table.0.0.to_le_bytes());
    }
    store.free(&mut change, second)?;
    change.commit().map(drop)
}

type Entries = Vec<(PageId, bool)>;

/// Heap pages that a page of the directory names, whether they have room, and the next page of the directory.
pub fn read(store: &PageStore, table: TableId, page: PageId) -> Result<(Entries, Option<PageId>)> {
    let directory = store.read(page, Access::Random)?;
    if page::kind(&directory) != DIRECTORY_KIND {
        return Err(Error::NoSuchTable { page: table.0 });
    }
    let entries = (0..count(&directory)).map(|number| long_at(&directory, ENTRIES_AT + number * ENTRY_BYTES));
    let entries = entries.map(|entry| (PageId(entry & !HAS_ROOM), entry & HAS_ROOM != 0)).collect();
    let next = long_at(&directory, NEXT_AT);
    Ok((entries, (next != 0).then_some(PageId(next))))
}

/// Whether all entries are within the page.
pub fn is_sound(page: &[u8]) -> bool {
    ENTRIES_AT + count(page) * ENTRY_BYTES <= page.len()
}

fn count(page: &[u8]) -> usize {
    usize::from(u16::from_le_bytes([page[COUNT_AT], page[COUNT_AT + 1]]))
}
