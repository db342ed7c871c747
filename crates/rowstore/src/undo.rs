//! What transactions did, kept to roll it back and to see rows as they were (rollback segments).
//!
//! ```text
//!   streams page:  | next page | head, tail | head, tail | …
//!                                  │      └──────────────────────────┐
//!                                  ▼                                 ▼
//!   stream:        | page: entry, entry, … | ◄─► | page … | ◄─► | page: …, entry, commit, entry, … |
//!   entry:         | length | kind | first | transaction | body … | length |
//! ```
//!
//! A transaction that changes something writes to a stream that no other one writes to meanwhile, in the same change of pages
//! (`change`) in which it changes the row. So the pages of streams are as durable as the rows, and what a crash interrupted is at
//! the ends of streams: entries without a commit behind them. Old versions of rows may exceed memory like any other page.
//!
//! Pages of a stream are given back from its head on, once nobody needs what is in them.

#![allow(
    clippy::indexing_slicing,
    reason = "places within a page follow from what is in it, which its checksum covers"
)]

use crate::change::Change;
use crate::error::{Error, Result};
use crate::page::{self, HEADER_BYTES, PageId, PageKind, long_at, short_at};
use crate::pool::PageRead;
use crate::store::PageStore;
use crate::tier::Access;

pub const STREAMS_KIND: PageKind = PageKind(3);
pub const UNDO_KIND: PageKind = PageKind(4);

const STREAMS_AT: usize = HEADER_BYTES + 8;
const STREAM_BYTES: usize = 16;

const PREVIOUS_AT: usize = HEADER_BYTES;
const NEXT_AT: usize = HEADER_BYTES + 8;
const USED_AT: usize = HEADER_BYTES + 16;
/// Where the first entry of a page is.
const ENTRIES_AT: usize = HEADER_BYTES + 18;
/// Length, kind, first, transaction.
const ENTRY_HEAD_BYTES: usize = 12;
const ENTRY_BYTES: usize = ENTRY_HEAD_BYTES + 2;

/// The number of a transaction, and times of commits: both of one count, which never goes back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId(pub u64);

/// The place of an entry: page (48 bits) and byte (16).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UndoAddress(pub u64);

impl UndoAddress {
    fn new(page: PageId, at: usize) -> Self {
        Self(page.0 << 16 | at as u64)
    }

    pub fn page(self) -> PageId {
        PageId(self.0 >> 16)
    }

    fn at(self) -> usize {
        (self.0 & 0xffff) as usize
    }
}

/// What an entry tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum EntryKind {
    /// What it kept is not needed any more.
    Done = 0,
    /// A row was inserted.
    Insert = 1,
    /// A row had other bytes.
    Update = 2,
    /// A row was deleted; its bytes are still in place.
    Delete = 3,
    /// Pages were taken for bytes of a long row.
    Pages = 4,
    /// All before it, from the first of its transaction on, is committed.
    Commit = 5,
    /// A key was added to an index.
    IndexInsert = 6,
    /// A key of an index is to go.
    IndexRemove = 7,
}

impl EntryKind {
    fn of(byte: u8) -> Option<Self> {
        use EntryKind::*;
        [Done, Insert, Update, Delete, Pages, Commit, IndexInsert, IndexRemove]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// An entry as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub address: UndoAddress,
    pub kind: EntryKind,
    /// The first one of its transaction.
    pub is_first: bool,
    pub transaction: TransactionId,
    pub body: Vec<u8>,
}

impl Entry {
    /// Where the next one of the page would be.
    fn end(&self) -> usize {
        self.address.at() + ENTRY_BYTES + self.body.len()
    }
}

/// One stream. Only who holds it writes to it.
#[derive(Debug)]
pub struct Stream {
    number: usize,
    pub tail: PageId,
    /// Entries before it are not needed any more.
    pub kept_from: UndoAddress,
}

/// The streams of a store.
#[derive(Debug)]
pub struct Undo {
    streams_page: PageId,
    most_streams: usize,
}

impl Undo {
    /// Makes the page of streams of a new store.
    pub fn create<'a>(store: &'a PageStore, change: &mut Change<'a>, root: usize) -> Result<()> {
        let page = store.allocate(change, STREAMS_KIND)?;
        let id = change.id(page);
        store.set_root(change, root, id.0)
    }

    /// Opens the streams that there are.
    pub fn open(store: &PageStore, root: usize) -> Result<(Self, Vec<Stream>)> {
        let streams_page = PageId(store.root(root)?);
        let most_streams = (store.page_bytes() - STREAMS_AT) / STREAM_BYTES;
        let page = store.read(streams_page, Access::Random)?;
        let mut streams = Vec::new();
        for number in 0..most_streams {
            let at = STREAMS_AT + number * STREAM_BYTES;
            let (head, tail) = (long_at(&page, at), long_at(&page, at + 8));
            if head == 0 {
                break;
            }
            let kept_from = UndoAddress::new(PageId(head), ENTRIES_AT);
            streams.push(Stream { number, tail: PageId(tail), kept_from });
        }
        Ok((Self { streams_page, most_streams }, streams))
    }

    /// Adds a stream beside `number` others.
    pub fn add_stream(&self, store: &PageStore, number: usize) -> Result<Stream> {
        if number == self.most_streams {
            return Err(Error::TooManyWriters { most: self.most_streams });
        }
        let mut change = store.change();
        let streams = change.latch(self.streams_page)?;
        let page = store.allocate(&mut change, UNDO_KIND)?;
        let tail = change.id(page);
        change.write(page, USED_AT, &(ENTRIES_AT as u16).to_le_bytes());
        let both: Vec<u8> = [tail.0.to_le_bytes(), tail.0.to_le_bytes()].concat();
        change.write(streams, STREAMS_AT + number * STREAM_BYTES, &both);
        change.commit()?;
        Ok(Stream { number, tail, kept_from: UndoAddress::new(tail, ENTRIES_AT) })
    }

    /// The longest body of an entry.
    pub fn most_body_bytes(store: &PageStore) -> usize {
        store.page_bytes() - ENTRIES_AT - ENTRY_BYTES
    }

    /// Adds an entry to a stream, as part of a change. When that is committed, [`Stream::tail`] is the page of its address.
    #[allow(clippy::too_many_arguments, reason = "an entry has so many parts")]
    pub fn append<'a>(
        &self,
        store: &'a PageStore,
        change: &mut Change<'a>,
        stream: &Stream,
        transaction: TransactionId,
        is_first: bool,
        kind: EntryKind,
        body: &[&[u8]],
    ) -> Result<UndoAddress> {
        let bytes = ENTRY_BYTES + body.iter().map(|part| part.len()).sum::<usize>();
        let mut page = change.latch(stream.tail)?;
        let mut at = used(change.page(page));
        if at + bytes > store.page_bytes() {
            let streams = change.latch(self.streams_page)?;
            let next = store.allocate(change, UNDO_KIND)?;
            let id = change.id(next);
            change.write(next, PREVIOUS_AT, &stream.tail.0.to_le_bytes());
            change.write(page, NEXT_AT, &id.0.to_le_bytes());
            change.write(streams, STREAMS_AT + stream.number * STREAM_BYTES + 8, &id.0.to_le_bytes());
            (page, at) = (next, ENTRIES_AT);
        }
        let length = (bytes as u16).to_le_bytes();
        let mut entry = Vec::with_capacity(bytes);
        entry.extend_from_slice(&length);
        entry.extend_from_slice(&[kind as u8, u8::from(is_first)]);
        entry.extend_from_slice(&transaction.0.to_le_bytes());
        body.iter().for_each(|part| entry.extend_from_slice(part));
        entry.extend_from_slice(&length);
        change.write(page, at, &entry);
        change.write(page, USED_AT, &((at + bytes) as u16).to_le_bytes());
        Ok(UndoAddress::new(change.id(page), at))
    }

    /// The entry at an address.
    pub fn read(store: &PageStore, address: UndoAddress) -> Result<Entry> {
        let page = undo_page(store, address.page())?;
        entry_at(&page, address).ok_or_else(|| damaged(store, address.page()))
    }

    /// The last entry of a stream.
    pub fn last(store: &PageStore, stream: &Stream) -> Result<Option<Entry>> {
        let mut id = stream.tail;
        loop {
            let page = undo_page(store, id)?;
            let used = used(&page);
            if used > ENTRIES_AT {
                let length = short_at(&page, used - 2);
                let at = used.checked_sub(length).filter(|at| *at >= ENTRIES_AT);
                let at = at.ok_or_else(|| damaged(store, id))?;
                let entry = entry_at(&page, UndoAddress::new(id, at));
                return entry.map(Some).ok_or_else(|| damaged(store, id));
            }
            // A page that has become empty may be the last one of all.
            match long_at(&page, PREVIOUS_AT) {
                0 => return Ok(None),
                previous => id = PageId(previous),
            }
        }
    }

    /// The entry at a place, or the first one of the pages behind it.
    pub fn next(store: &PageStore, from: UndoAddress) -> Result<Option<Entry>> {
        let (mut id, mut at) = (from.page(), from.at());
        loop {
            let page = undo_page(store, id)?;
            if at < used(&page) {
                let entry = entry_at(&page, UndoAddress::new(id, at));
                return entry.map(Some).ok_or_else(|| damaged(store, id));
            }
            match long_at(&page, NEXT_AT) {
                0 => return Ok(None),
                next => (id, at) = (PageId(next), ENTRIES_AT),
            }
        }
    }

    /// Behind an entry.
    pub fn behind(entry: &Entry) -> UndoAddress {
        UndoAddress::new(entry.address.page(), entry.end())
    }

    /// Takes the last entry of a stream away, as part of a change; the page that is the last one then.
    pub fn take_back<'a>(
        &self,
        store: &'a PageStore,
        change: &mut Change<'a>,
        stream: &Stream,
        entry: &Entry,
    ) -> Result<PageId> {
        let page = change.latch(entry.address.page())?;
        let at = entry.address.at();
        assert_eq!(used(change.page(page)), entry.end(), "the last entry is taken back first");
        change.write(page, USED_AT, &(at as u16).to_le_bytes());
        let mut empty = stream.tail;
        if empty != entry.address.page() {
            change.write(page, NEXT_AT, &[0; 8]);
            let streams = change.latch(self.streams_page)?;
            let tail = entry.address.page().0.to_le_bytes();
            change.write(streams, STREAMS_AT + stream.number * STREAM_BYTES + 8, &tail);
        }
        // Pages behind it are empty.
        while empty != entry.address.page() {
            let latched = change.latch(empty)?;
            let previous = long_at(change.page(latched), PREVIOUS_AT);
            store.free(change, empty)?;
            empty = PageId(previous);
        }
        Ok(entry.address.page())
    }

    /// Writes the body of an entry anew, which has as many bytes.
    pub fn set_body(change: &mut Change<'_>, address: UndoAddress, body: &[u8]) -> Result<()> {
        Self::set_part(change, address, 0, body)
    }

    /// Writes a part of the body of an entry.
    pub fn set_part(change: &mut Change<'_>, address: UndoAddress, from: usize, bytes: &[u8]) -> Result<()> {
        let page = change.latch(address.page())?;
        change.write(page, address.at() + ENTRY_HEAD_BYTES + from, bytes);
        Ok(())
    }

    /// Marks an entry whose effects have been cleared away, as part of the change that did so.
    pub fn mark_done(change: &mut Change<'_>, entry: &Entry) -> Result<()> {
        let page = change.latch(entry.address.page())?;
        change.write(page, entry.address.at() + 2, &[EntryKind::Done as u8]);
        Ok(())
    }

    /// Gives pages back that are in front of those with entries that are kept.
    pub fn release(&self, store: &PageStore, stream: &mut Stream, kept_from: UndoAddress) -> Result<()> {
        while stream.kept_from.page() != kept_from.page() {
            let head = stream.kept_from.page();
            let next = PageId(long_at(&undo_page(store, head)?, NEXT_AT));
            let mut change = store.change();
            let following = change.latch(next)?;
            change.write(following, PREVIOUS_AT, &[0; 8]);
            let streams = change.latch(self.streams_page)?;
            change.write(streams, STREAMS_AT + stream.number * STREAM_BYTES, &next.0.to_le_bytes());
            store.free(&mut change, head)?;
            change.commit()?;
            stream.kept_from = UndoAddress::new(next, ENTRIES_AT);
        }
        stream.kept_from = kept_from;
        Ok(())
    }
}

fn undo_page(store: &PageStore, id: PageId) -> Result<PageRead<'_>> {
    let page = store.read(id, Access::Random)?;
    if page::kind(&page) == UNDO_KIND { Ok(page) } else { Err(damaged(store, id)) }
}

fn damaged(store: &PageStore, page: PageId) -> Error {
    store.damaged(page, "its entries of old versions are none")
}

/// Whether its entries end within the page. Each is checked when it is read.
pub fn is_sound(page: &[u8]) -> bool {
    (ENTRIES_AT..=page.len()).contains(&used(page))
}

fn used(page: &[u8]) -> usize {
    short_at(page, USED_AT)
}

fn entry_at(page: &[u8], address: UndoAddress) -> Option<Entry> {
    let bytes = page.get(address.at()..used(page).min(page.len()))?;
    let (length, _) = bytes.split_first_chunk::<2>()?;
    let bytes = bytes.get(..usize::from(u16::from_le_bytes(*length)))?;
    let (head, rest) = bytes.split_first_chunk::<ENTRY_HEAD_BYTES>()?;
    let (body, trailer) = rest.split_last_chunk::<2>()?;
    let [_, _, kind, first, transaction @ ..] = head;
    (trailer == length).then_some(())?;
    Some(Entry {
        address,
        kind: EntryKind::of(*kind)?,
        is_first: *first == 1,
        transaction: TransactionId(u64::from_le_bytes(*transaction)),
        body: body.to_vec(),
    })
}
