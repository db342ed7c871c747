//! Transactions: what one does is seen by others at once or not at all, and outlasts a crash as a whole or not at all.
//!
//! ```text
//!   write:   conflict? ─► one change of pages: undo entry, row that leads to it
//!   read:    row ── written by one whom the snapshot does not see? ──► undo entry: the version before ──► …
//!   commit:  entry in the stream ─► log durable ─► others see it
//! ```
//!
//! *Snapshot isolation* (Berenson et al., *A Critique of ANSI SQL Isolation Levels*, SIGMOD 1995): a transaction sees the state
//! of one moment, beside what it did itself, and readers wait for nobody. Of two that change the same row, the first one wins;
//! the other one ends with [`Error::Conflict`]. Versions are kept as in InnoDB: rows have the last one, `undo` those before.
//!
//! | file | subject |
//! |---|---|
//! | `clock` | which transactions there are, and what each sees |
//! | `entry` | what undo entries of rows have in them |
//! | `index` | keys that lead to rows |
//! | `rollback` | also after a crash |
//! | `purge` | clearing away what nobody sees any more |
//! | `drop` | tables and indexes that are dropped give their pages back |
//!
//! Pages are latched in this order: nodes of a tree from the root down and from left to right, heap page, undo page, directory, streams, maps, root.

mod clock;
mod drop;
mod entry;
pub mod index;
mod purge;
mod rollback;

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use nandina_device::Device;

use self::clock::Clock;
pub use self::clock::Time;
use self::entry::OldRow;
use self::index::KeyOfRow;
use self::purge::PurgedStream;
use crate::error::{Error, Result};
use crate::heap::RowId;
use crate::heap::directory::{self, Table, TableId};
use crate::heap::overflow::{self, Reference};
use crate::heap::slotted::{self, DELETED, LONG, RowHead};
use crate::log::Lsn;
use crate::page::PageId;
use crate::pool::PageRead;
use crate::store::{PageStore, StoreOptions};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::tier::Access;
use crate::tree::Tree;
use crate::undo::{EntryKind, TransactionId, Undo, UndoAddress};

const CLOCK_ROOT: usize = 0;
const STREAMS_ROOT: usize = 1;
/// Roots that tables and indexes may use.
pub const FIRST_FREE_ROOT: usize = 8;

/// Rows longer than this part of a page have their bytes in overflow pages: several rows fit into a page, and an old version of
/// each into one of its stream.
const LONG_PART: usize = 4;
/// Pages of a long row that are written by one change.
const OVERFLOW_PAGES: usize = 6;

/// See the [module documentation](self).
#[derive(Debug)]
pub struct RowStore {
    pages: PageStore,
    undo: Undo,
    clock: Clock,
    /// Streams that no transaction writes to, and how many there are of all.
    streams: Mutex<(VecDeque<PurgedStream>, usize)>,
    tables: Mutex<HashMap<TableId, Arc<Table>>>,
    /// Indexes that are being built, and the keys that were removed from them before they were there.
    building: Mutex<HashMap<Tree, Vec<KeyOfRow>>>,
    is_relaxed: AtomicBool,
}

impl RowStore {
    /// Opens a store, or makes one. What was not committed when it was last used is rolled back.
    pub fn open(pages: Device, log: Device, id: u64, options: &StoreOptions) -> Result<Self> {
        let pages = PageStore::open(pages, log, id, options)?;
        if pages.root(STREAMS_ROOT)? == 0 {
            let mut change = pages.change();
            Undo::create(&pages, &mut change, STREAMS_ROOT)?;
            change.commit()?;
        }
        let (undo, streams) = Undo::open(&pages, STREAMS_ROOT)?;
        let clock = Clock::open(&pages, CLOCK_ROOT)?;
        let count = streams.len();
        let store = Self {
            pages,
            undo,
            clock,
            streams: Mutex::new((VecDeque::new(), count)),
            tables: Mutex::default(),
            building: Mutex::default(),
            is_relaxed: AtomicBool::new(false),
        };
        for mut stream in streams {
            store.take_back_unfinished(&mut stream)?;
            store.streams.lock().0.push_back(PurgedStream::new(stream));
        }
        Ok(store)
    }

    /// Opens a store to read it, whatever is wrong with its log, which is told. Nothing on the devices is changed: what was not
    /// committed when it was last used stays where it is, and is not seen. `frames` pages are kept in memory, beside what the log has
    /// of all pages.
    pub fn open_read_only(pages: Device, log: Device, frames: usize) -> Result<(Self, Option<Error>)> {
        let (pages, damage) = PageStore::open_read_only(pages, log, frames)?;
        let (undo, streams) = Undo::open(&pages, STREAMS_ROOT)?;
        let clock = Clock::open(&pages, CLOCK_ROOT)?;
        for stream in &streams {
            match Undo::last(&pages, stream) {
                Ok(Some(last)) if last.kind != EntryKind::Commit => clock.leave_unfinished(last.transaction),
                Ok(_) => {}
                // With a part of the log, the pages of a stream need not go together.
                Err(error) if damage.is_some() => log::warn!("what was not committed may be seen: {error}"),
                Err(error) => return Err(error),
            }
        }
        let store = Self {
            pages,
            undo,
            clock,
            streams: Mutex::new((VecDeque::new(), streams.len())),
            tables: Mutex::default(),
            building: Mutex::default(),
            is_relaxed: AtomicBool::new(false),
        };
        Ok((store, damage))
    }

    pub fn pages(&self) -> &PageStore {
        &self.pages
    }

    /// Whether commits are reported before they are durable: a crash may lose the last ones, never a part of one.
    pub fn set_relaxed(&self, is_relaxed: bool) {
        self.is_relaxed.store(is_relaxed, Ordering::Relaxed);
    }

    /// Makes a table without rows.
    pub fn create_table(&self) -> Result<TableId> {
        let mut change = self.pages.change();
        let id = Table::create(&self.pages, &mut change)?;
        let lsn = change.commit()?;
        self.pages.log().wait_until_durable(lsn)?;
        Ok(id)
    }

    fn table(&self, id: TableId) -> Result<Arc<Table>> {
        if let Some(table) = self.tables.lock().get(&id) {
            return Ok(Arc::clone(table));
        }
        let table = Arc::new(Table::open(&self.pages, id)?);
        Ok(Arc::clone(self.tables.lock().entry(id).or_insert(table)))
    }

    /// Begins a transaction. It is rolled back when it is dropped before it was committed.
    pub fn begin(&self) -> Transaction<'_> {
        Transaction { store: self, snapshot: self.clock.take_snapshot(), writes: None }
    }

    fn take_stream(&self) -> Result<PurgedStream> {
        let mut streams = self.streams.lock();
        if let Some(stream) = streams.0.pop_back() {
            return Ok(stream);
        }
        // With the lock, so that each gets a number of its own.
        let stream = self.undo.add_stream(&self.pages, streams.1)?;
        streams.1 += 1;
        Ok(PurgedStream::new(stream))
    }

    fn give_stream_back(&self, stream: PurgedStream) {
        self.streams.lock().0.push_back(stream);
    }
}

/// See the [module documentation](self).
#[derive(Debug)]
pub struct Transaction<'s> {
    store: &'s RowStore,
    snapshot: Time,
    /// From its first change on.
    writes: Option<Writes>,
}

#[derive(Debug)]
struct Writes {
    id: TransactionId,
    stream: PurgedStream,
    /// Entries that it has there.
    entries: u64,
    /// One of them is its commit.
    is_committed: bool,
}

/// A moment within a transaction that it can be rolled back to: by default, its begin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Savepoint {
    entries: u64,
}

impl<'s> Transaction<'s> {
    /// What the row is in the state that this transaction sees.
    pub fn get(&self, table: TableId, row: RowId) -> Result<Option<Vec<u8>>> {
        let page = self.heap_page(table, row)?;
        Ok(self.version(&page, row.slot())?.map(Cow::into_owned))
    }

    /// Hands over what rows are in the state that this transaction sees, in their order. Pages that many of them are on, behind each
    /// other, are read once, and several pages at the same time. `take` must not read or change anything of this store: a page is
    /// latched. It may break off.
    pub fn get_each(
        &self,
        table: TableId,
        rows: &[RowId],
        mut take: impl FnMut(RowId, Option<&[u8]>) -> ControlFlow<()>,
    ) -> Result<()> {
        /// Pages that are read at the same time.
        const AHEAD: usize = 32;
        let on_pages: Vec<&[RowId]> = rows.chunk_by(|one, other| one.page() == other.page()).collect();
        for on_pages in on_pages.chunks(AHEAD) {
            if let [_, _, ..] = on_pages {
                let pages: Vec<PageId> =
                    on_pages.iter().flat_map(|rows| rows.first()).map(|row| row.page()).collect();
                self.store.pages.pool().prefetch(&pages, Access::Random);
            }
            for rows in on_pages {
                let Some(first) = rows.first() else { unreachable!("each page has rows") };
                let page = self.heap_page(table, *first)?;
                for row in *rows {
                    if take(*row, self.version(&page, row.slot())?.as_deref()).is_break() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// The page of a row of this table.
    fn heap_page(&self, table: TableId, row: RowId) -> Result<PageRead<'s>> {
        let page = self.store.pages.read(row.page(), Access::Random)?;
        if slotted::is_of_table(&page, table.0) { Ok(page) } else { Err(Error::NoSuchRow { row }) }
    }

    /// The version of a row that this transaction sees. The page stays latched: so no entry that leads to it goes away.
    fn version<'p>(&self, page: &'p [u8], slot: usize) -> Result<Option<Cow<'p, [u8]>>> {
        let Some((mut head, content)) = slotted::row(page, slot) else { return Ok(None) };
        let mut content = Cow::Borrowed(content);
        while !self.sees(head.writer) {
            let entry = Undo::read(&self.store.pages, head.undo)?;
            match entry.kind {
                EntryKind::Insert => return Ok(None),
                EntryKind::Update => {
                    let old = OldRow::parse(&entry).ok_or_else(|| self.store.damaged_entry(&entry))?;
                    head = old.head;
                    content = Cow::Owned(old.content.to_vec());
                }
                EntryKind::Delete => {
                    head = OldRow::parse(&entry).ok_or_else(|| self.store.damaged_entry(&entry))?.head;
                }
                EntryKind::Done
                | EntryKind::Pages
                | EntryKind::Commit
                | EntryKind::IndexInsert
                | EntryKind::IndexRemove => {
                    unreachable!(
                        "a row leads to an entry of its own, which is kept while a snapshot needs it"
                    )
                }
            }
        }
        Ok(match (head.is_deleted(), head.is_long()) {
            (true, _) => None,
            (false, false) => Some(content),
            (false, true) => Some(Cow::Owned(self.store.bytes(head, &content)?)),
        })
    }

    fn sees(&self, writer: TransactionId) -> bool {
        self.writes.as_ref().is_some_and(|writes| writes.id == writer)
            || self.store.clock.sees(self.snapshot, writer)
    }

    /// All rows of a table that this transaction sees.
    pub fn scan(&self, table: TableId) -> Result<Rows<'_, 's>> {
        directory::read(&self.store.pages, table, table.0)?;
        Ok(Rows {
            transaction: self,
            table,
            directory: Some(table.0),
            pages: VecDeque::new(),
            rows: VecDeque::new(),
        })
    }

    /// The pages that have the rows of a table.
    pub fn heap_pages(&self, table: TableId) -> Result<Vec<PageId>> {
        let (mut pages, mut next) = (Vec::new(), Some(table.0));
        while let Some(directory) = next {
            let (entries, following) = directory::read(&self.store.pages, table, directory)?;
            pages.extend(entries.into_iter().map(|(page, _)| page));
            next = following;
        }
        Ok(pages)
    }

    /// Reads pages that are wanted next, all at the same time.
    pub fn read_ahead(&self, pages: &[PageId]) {
        if let [_, _, ..] = pages {
            self.store.pages.pool().prefetch(pages, Access::Sequential);
        }
    }

    /// Hands over the rows of some pages of a table that this transaction sees. All pages are read at the same time; `take` must not read
    /// or change anything of this store.
    pub fn scan_pages(
        &self,
        table: TableId,
        pages: &[PageId],
        mut take: impl FnMut(RowId, &[u8]),
    ) -> Result<()> {
        self.read_ahead(pages);
        for page in pages {
            let latched = self.store.pages.read(*page, Access::Sequential)?;
            table.check(&self.store.pages, *page, &latched)?;
            for slot in 0..slotted::slots(&latched) {
                if let Some(bytes) = self.version(&latched, slot)? {
                    take(RowId::new(*page, slot), &bytes);
                }
            }
        }
        Ok(())
    }

    /// Adds a row.
    pub fn insert(&mut self, table: TableId, bytes: &[u8]) -> Result<RowId> {
        let table = self.store.table(table)?;
        let (content, flags) = self.content(bytes)?;
        let number = self.writes()?.stream.stream.tail.0 as usize;
        loop {
            let (store, clock) = (&self.store.pages, &self.store.clock);
            let page = table.target(store, number)?;
            let mut change = store.change();
            let latched = change.latch(page)?;
            table.id.check(store, page, change.page(latched))?;
            let may_shrink = |writer| clock.has_committed(writer);
            if !slotted::has_room(change.page(latched), content.len(), &may_shrink) {
                // Another thread may have filled it since it was offered.
                table.is_full(&mut change, latched)?;
                change.commit()?;
                continue;
            }
            let row = RowId::new(page, slotted::slot_for(change.page(latched)));
            let (writer, undo) = self.append(&mut change, EntryKind::Insert, &[&row.0.to_le_bytes()])?;
            let head = RowHead { writer, flags, undo };
            let slot = slotted::insert(&mut change, latched, |_| head, &content, &may_shrink);
            assert_eq!(slot, Some(row.slot()), "there is room for the row");
            change.commit()?;
            self.appended(undo);
            self.store.pages.throttle()?;
            return Ok(row);
        }
    }

    /// Gives a row other bytes; whether this transaction sees such a row.
    pub fn update(&mut self, table: TableId, row: RowId, bytes: &[u8]) -> Result<bool> {
        let (mut content, mut flags) = self.content(bytes)?;
        loop {
            let (store, clock) = (&self.store.pages, &self.store.clock);
            let mut change = store.change();
            let latched = change.latch(row.page())?;
            let Some((head, old)) = self.row_to_change(table, row, change.page(latched))? else {
                return Ok(false);
            };
            let body = OldRow { row, head, content: old }.to_bytes();
            let (writer, undo) = self.append(&mut change, EntryKind::Update, &[&body])?;
            let head = RowHead { writer, flags, undo };
            let may_shrink = |writer| clock.has_committed(writer);
            if slotted::update(&mut change, latched, row.slot(), head, &content, &may_shrink) {
                change.commit()?;
                self.appended(undo);
                self.store.pages.throttle()?;
                return Ok(true);
            }
            // Its page has no room for so many bytes, but has room for a reference.
            drop(change);
            assert!(flags & LONG == 0, "every row has room for a reference");
            (content, flags) = (self.write_long(bytes)?, LONG);
        }
    }

    /// Deletes a row; whether this transaction sees such a row.
    pub fn delete(&mut self, table: TableId, row: RowId) -> Result<bool> {
        self.writes()?;
        let store = &self.store.pages;
        let mut change = store.change();
        let latched = change.latch(row.page())?;
        let Some((head, _)) = self.row_to_change(table, row, change.page(latched))? else { return Ok(false) };
        let body = OldRow { row, head, content: &[] }.to_bytes();
        let (writer, undo) = self.append(&mut change, EntryKind::Delete, &[&body])?;
        let head = RowHead { writer, flags: head.flags | DELETED, undo };
        slotted::set_head(&mut change, latched, row.slot(), head);
        change.commit()?;
        self.appended(undo);
        Ok(true)
    }

    /// The last version of a row, which this transaction may replace: it sees it.
    fn row_to_change<'p>(
        &self,
        table: TableId,
        row: RowId,
        page: &'p [u8],
    ) -> Result<Option<(RowHead, &'p [u8])>> {
        if !slotted::is_of_table(page, table.0) {
            return Err(Error::NoSuchRow { row });
        }
        let Some((head, content)) = slotted::row(page, row.slot()) else { return Ok(None) };
        if !self.sees(head.writer) {
            // One that was inserted meanwhile is none that this transaction could mean.
            return if self.version(page, row.slot())?.is_some() { Err(Error::Conflict) } else { Ok(None) };
        }
        Ok((!head.is_deleted()).then_some((head, content)))
    }

    fn writes(&mut self) -> Result<&mut Writes> {
        if self.writes.is_none() {
            let stream = self.store.take_stream()?;
            let id = match self.store.clock.begin(&self.store.pages) {
                Ok(id) => id,
                Err(error) => {
                    self.store.give_stream_back(stream);
                    return Err(error);
                }
            };
            self.writes = Some(Writes { id, stream, entries: 0, is_committed: false });
        }
        self.writes.as_mut().ok_or_else(|| unreachable!("it has just been set"))
    }

    /// Adds an entry to the stream of this transaction, as part of a change.
    fn append<'a>(
        &self,
        change: &mut crate::change::Change<'a>,
        kind: EntryKind,
        body: &[&[u8]],
    ) -> Result<(TransactionId, UndoAddress)>
    where
        's: 'a,
    {
        let Some(writes) = &self.writes else {
            unreachable!("a transaction that changes something has a stream")
        };
        let (stream, is_first) = (&writes.stream.stream, writes.entries == 0);
        let address =
            self.store.undo.append(&self.store.pages, change, stream, writes.id, is_first, kind, body)?;
        Ok((writes.id, address))
    }

    /// The change that an entry was part of is committed.
    fn appended(&mut self, address: UndoAddress) {
        let Some(writes) = &mut self.writes else {
            unreachable!("a transaction that changes something has a stream")
        };
        writes.stream.stream.tail = address.page();
        writes.entries += 1;
    }

    /// What a heap page is to have of a row, and its flags.
    fn content(&mut self, bytes: &[u8]) -> Result<(Vec<u8>, u8)> {
        self.writes()?;
        if bytes.len() <= self.store.pages.page_bytes() / LONG_PART {
            Ok((bytes.to_vec(), 0))
        } else {
            Ok((self.write_long(bytes)?, LONG))
        }
    }

    /// Writes the bytes of a row to overflow pages, from the last one to the first; the reference to them.
    fn write_long(&mut self, bytes: &[u8]) -> Result<Vec<u8>> {
        let store = &self.store.pages;
        let mut first = PageId(0);
        let parts: Vec<&[u8]> = bytes.chunks(overflow::part_bytes(store)).rev().collect();
        for parts in parts.chunks(OVERFLOW_PAGES) {
            let mut change = store.change();
            // The page of the stream is latched before maps are. The numbers of pages come once they are known.
            let placeholder = vec![0; 8 * parts.len()];
            let (_, undo) = self.append(&mut change, EntryKind::Pages, &[&placeholder])?;
            let mut pages = Vec::with_capacity(placeholder.len());
            for part in parts {
                first = overflow::write(store, &mut change, part, first)?;
                pages.extend_from_slice(&first.0.to_le_bytes());
            }
            Undo::set_body(&mut change, undo, &pages)?;
            change.commit()?;
            self.appended(undo);
            store.throttle()?;
        }
        Ok(Reference { length: bytes.len() as u64, first }.to_bytes().to_vec())
    }

    /// Makes what was done durable, and has others see it.
    pub fn commit(self) -> Result<()> {
        let is_relaxed = self.store.is_relaxed.load(Ordering::Relaxed);
        self.end(!is_relaxed)
    }

    /// Has others see what was done before it is durable: a crash may lose it, with all that was committed later.
    pub fn commit_relaxed(self) -> Result<()> {
        self.end(false)
    }

    fn end(mut self, is_awaited: bool) -> Result<()> {
        let Some((lsn, time)) = self.append_commit()? else { return Ok(()) };
        let store = self.store;
        if is_awaited {
            store.pages.log().wait_until_durable(lsn)?;
        }
        store.clock.advance(time);
        if let Some(writes) = self.writes.take() {
            let mut stream = writes.stream;
            drop(self);
            let purged = store.purge(&mut stream, writes.entries);
            store.give_stream_back(stream);
            // The transaction is committed; what could not be cleared away is another time.
            purged.and_then(|()| store.pages.checkpoint_if_due()).unwrap_or_else(|error| {
                log::warn!("after a commit: {error}");
            });
        }
        Ok(())
    }

    fn append_commit(&mut self) -> Result<Option<(Lsn, Time)>> {
        let Some(writes) = &self.writes else { return Ok(None) };
        if writes.entries == 0 {
            return Ok(None);
        }
        let (store, id) = (self.store, writes.id);
        let mut change = store.pages.change();
        // Others wait until the time of this commit is known: not for the device as well.
        change.latch(writes.stream.stream.tail)?;
        let (time, order) = store.clock.commit_time(&store.pages)?;
        let (_, address) = self.append(&mut change, EntryKind::Commit, &[&time.0.to_le_bytes()])?;
        let lsn = change.commit()?;
        store.clock.committed(id, time, &order);
        drop(order);
        self.appended(address);
        if let Some(writes) = &mut self.writes {
            writes.is_committed = true;
        }
        Ok(Some((lsn, time)))
    }

    pub fn savepoint(&self) -> Savepoint {
        Savepoint { entries: self.writes.as_ref().map_or(0, |writes| writes.entries) }
    }

    /// Rolls back what was done since a savepoint.
    pub fn roll_back_to(&mut self, savepoint: Savepoint) -> Result<()> {
        let Some(writes) = &mut self.writes else { return Ok(()) };
        assert!(
            savepoint.entries <= writes.entries,
            "a savepoint is gone once an earlier one was rolled back to"
        );
        while writes.entries > savepoint.entries {
            let stream = &mut writes.stream.stream;
            let last = Undo::last(&self.store.pages, stream)?;
            let Some(last) = last.filter(|entry| entry.transaction == writes.id) else {
                unreachable!("the entries of a transaction are at the end of its stream")
            };
            self.store.take_back(stream, &last)?;
            writes.entries -= 1;
        }
        Ok(())
    }

    /// Rolls everything back.
    pub fn roll_back(mut self) -> Result<()> {
        self.roll_back_to(Savepoint { entries: 0 })
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        let is_committed = self.writes.as_ref().is_some_and(|writes| writes.is_committed);
        let rolled_back = if is_committed { Ok(()) } else { self.roll_back_to(Savepoint { entries: 0 }) };
        self.store.clock.drop_snapshot(self.snapshot);
        let Some(writes) = self.writes.take() else { return };
        match rolled_back {
            Ok(()) => {
                if !is_committed {
                    self.store.clock.forget(writes.id);
                }
                self.store.give_stream_back(writes.stream);
            }
            // It stays active: nobody sees its rows or changes them, until the store is opened again.
            Err(error) => {
                log::error!("a transaction could not be rolled back, open the database again: {error}")
            }
        }
    }
}

impl RowStore {
    /// The bytes of a version of a row.
    fn bytes(&self, head: RowHead, content: &[u8]) -> Result<Vec<u8>> {
        if !head.is_long() {
            return Ok(content.to_vec());
        }
        let Some(reference) = Reference::parse(content) else { unreachable!("a long row has a reference") };
        overflow::read(&self.pages, reference)
    }

    fn damaged_entry(&self, entry: &crate::undo::Entry) -> Error {
        self.pages.damaged(entry.address.page(), "an old version of a row is none")
    }
}

/// The rows of a table, page by page. See [`Transaction::scan`].
#[derive(Debug)]
pub struct Rows<'t, 's> {
    transaction: &'t Transaction<'s>,
    table: TableId,
    /// The page of the directory that comes next.
    directory: Option<PageId>,
    pages: VecDeque<PageId>,
    rows: VecDeque<(RowId, Vec<u8>)>,
}

impl Rows<'_, '_> {
    fn fill(&mut self) -> Result<bool> {
        /// Pages that are read ahead.
        const AHEAD: usize = 32;
        let store = &self.transaction.store.pages;
        while self.rows.is_empty() {
            let Some(page) = self.pages.pop_front() else {
                let Some(directory) = self.directory else { return Ok(false) };
                let (entries, next) = directory::read(store, self.table, directory)?;
                self.pages.extend(entries.into_iter().map(|(page, _)| page));
                self.directory = next;
                continue;
            };
            if self.pages.len().is_multiple_of(AHEAD) {
                let ahead: Vec<PageId> = self.pages.iter().copied().take(AHEAD).collect();
                store.pool().prefetch(&ahead, Access::Sequential);
            }
            let latched = store.read(page, Access::Sequential)?;
            self.table.check(store, page, &latched)?;
            for slot in 0..slotted::slots(&latched) {
                if let Some(bytes) = self.transaction.version(&latched, slot)? {
                    self.rows.push_back((RowId::new(page, slot), bytes.into_owned()));
                }
            }
        }
        Ok(true)
    }
}

impl Iterator for Rows<'_, '_> {
    type Item = Result<(RowId, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.fill() {
            Ok(true) => self.rows.pop_front().map(Ok),
            Ok(false) => None,
            Err(error) => {
                (self.directory, self.pages) = (None, VecDeque::new());
                Some(Err(error))
            }
        }
    }
}
