//! Indexes: keys that lead to rows, by transactions.
//!
//! ```text
//!   key in the tree:  | key | row id, 8 bytes | writer, 7 bytes |      numbers with the highest byte first
//! ```
//!
//! A key that a transaction adds is there for all at once, and goes when that is rolled back. One that it takes away stays until no
//! snapshot sees the row with it any more. So keys lead to rows that may have another key in the state that a transaction sees, or are
//! not there: a reader that follows one checks the row. The writer tells a key that was added again from the one that is to go.
//!
//! Keys may also lead to rows that are [elsewhere](RowId::ELSEWHERE). Such a key is only added where an index is built, and stays as long
//! as the index; whether its row is there is for those to tell who have added it.

use std::borrow::Cow;
use std::ops::Bound;

use super::clock::State;
use super::{RowStore, Transaction};
use crate::error::{Error, Result};
use crate::heap::RowId;
use crate::heap::directory::TableId;
use crate::heap::slotted::{self, HEAP_KIND};
use crate::page::{self, PageId};
use crate::store::PageStore;
use crate::sync::pause;
use crate::tier::Access;
use crate::tree::{Range, Tree};
use crate::undo::{Entry, EntryKind, Stream, TransactionId};

const ROW_BYTES: usize = 8;
const NO_ROW: &str = "a key of the index leads to no row";
const WRITER_BYTES: usize = 7;
const TAIL_BYTES: usize = ROW_BYTES + WRITER_BYTES;
/// In front of a key in an undo entry: the root of its tree.
const ROOT_BYTES: usize = 8;

/// The longest key that an index takes.
pub fn most_key_bytes(store: &PageStore) -> usize {
    Tree::most_key_bytes(store) - TAIL_BYTES
}

fn check_length(store: &PageStore, key: &[u8]) -> Result<()> {
    let (bytes, most_bytes) = (key.len(), most_key_bytes(store));
    if bytes > most_bytes { Err(Error::KeyTooLong { bytes, most_bytes }) } else { Ok(()) }
}

/// What stands in the tree.
fn entry_of(key: &[u8], row: RowId, writer: TransactionId) -> Vec<u8> {
    let [_, writer @ ..] = writer.0.to_be_bytes();
    [key, &row.0.to_be_bytes(), &writer].concat()
}

/// The key and the row of an entry.
fn parse(entry: &[u8]) -> Option<(&[u8], RowId)> {
    let (key, tail) = entry.split_at_checked(entry.len().checked_sub(TAIL_BYTES)?)?;
    Some((key, RowId(u64::from_be_bytes(*tail.first_chunk()?))))
}

/// The tree and the entry that an undo entry names.
fn named(entry: &Entry) -> Option<(Tree, &[u8])> {
    let (root, key) = entry.body.split_first_chunk::<ROOT_BYTES>()?;
    Some((Tree::at(PageId(u64::from_le_bytes(*root))), key))
}

/// A key, and a row that it leads to.
pub type KeyOfRow = (Vec<u8>, RowId);

/// Whether a row that is there now has a key that must be unique.
pub type HasKey<'k> = &'k dyn Fn(&[u8]) -> bool;

/// Whether a transaction sees a row that is elsewhere.
pub type HasRow<'k> = &'k dyn Fn(&Transaction<'_>, RowId) -> Result<bool>;

/// Whether a key of a unique index is that of one row at most: one with nulls is not.
pub type IsSingle<'k> = &'k dyn Fn(&[u8]) -> Result<bool>;

impl Transaction<'_> {
    /// Has a key lead to a row, which is there already. Where the key is to be `unique`, it fails if another row of this store has it, or
    /// may have it once others have ended; what other rows have is for the caller to tell from their bytes. Keys are compared as bytes,
    /// and none is the beginning of another.
    pub fn index_insert(
        &mut self,
        tree: Tree,
        key: &[u8],
        row: RowId,
        unique: Option<HasKey<'_>>,
    ) -> Result<()> {
        let store = &self.store.pages;
        check_length(store, key)?;
        let mut writer = self.writes()?.id;
        let undo = loop {
            let entry = entry_of(key, row, writer);
            let body = [&tree.root().0.to_le_bytes()[..], &entry].concat();
            let mut undo = None;
            let this = &*self;
            tree.insert(store, &entry, |change| {
                undo = Some(this.append(change, EntryKind::IndexInsert, &[&body])?.1);
                Ok(())
            })?;
            match undo {
                Some(undo) => break undo,
                // This transaction has added it before, and it goes with the commit if it was removed since: this one stays.
                None => writer = self.store.clock.number_of_none(store)?,
            }
        };
        self.appended(undo);
        self.store.pages.throttle()?;
        // After the key has been added: of two that add the same one, one sees the other.
        unique.map_or(Ok(()), |has_key| self.check_unique(tree, key, row, has_key))
    }

    fn check_unique(&self, tree: Tree, key: &[u8], row: RowId, has_key: HasKey<'_>) -> Result<()> {
        let store = &self.store.pages;
        let damaged = || store.damaged(tree.root(), NO_ROW);
        for entry in entries(tree, store, key) {
            let entry = entry?;
            let (_, other) = parse(&entry).ok_or_else(damaged)?;
            if other == row || other.is_elsewhere() {
                continue;
            }
            let page = store.read(other.page(), Access::Random)?;
            if page::kind(&page) != HEAP_KIND {
                return Err(damaged());
            }
            // A row that has been cleared away leaves its key behind for a moment.
            let is_taken = self.newest_on(&page, other.slot())?.is_some_and(|bytes| has_key(&bytes));
            if is_taken {
                return Err(Error::DuplicateKey { row: other });
            }
        }
        Ok(())
    }

    /// The bytes of a row as it is now, also where this transaction does not see that. It fails where another transaction that has not
    /// ended decides what they are.
    pub fn newest(&self, table: TableId, row: RowId) -> Result<Option<Vec<u8>>> {
        let page = self.heap_page(table, row)?;
        self.newest_on(&page, row.slot())
    }

    fn newest_on(&self, page: &[u8], slot: usize) -> Result<Option<Vec<u8>>> {
        let Some((head, content)) = slotted::row(page, slot) else { return Ok(None) };
        let is_mine = self.writes.as_ref().is_some_and(|writes| writes.id == head.writer);
        if !is_mine && self.store.clock.state(head.writer) == Some(State::Active) {
            return Err(Error::Conflict);
        }
        if head.is_deleted() { Ok(None) } else { self.store.bytes(head, content).map(Some) }
    }

    /// Has a key not lead to a row any more, which is about to be deleted or to get another key; whether it did. It is called before
    /// the row is deleted.
    pub fn index_remove(&mut self, tree: Tree, key: &[u8], row: RowId) -> Result<bool> {
        self.writes()?;
        let store = &self.store.pages;
        // The last one that was added: those before it are to go already.
        let last = entries(tree, store, &[key, &row.0.to_be_bytes()].concat()).last().transpose()?;
        let Some(entry) = last else {
            if let Some(missed) = self.store.building.lock().get_mut(&tree) {
                // It may be added behind this.
                missed.push((key.to_vec(), row));
            }
            return Ok(false);
        };
        let body = [&tree.root().0.to_le_bytes()[..], &entry].concat();
        let mut change = store.change();
        let (_, undo) = self.append(&mut change, EntryKind::IndexRemove, &[&body])?;
        change.commit()?;
        self.appended(undo);
        Ok(true)
    }

    /// Keys of a range and the rows that they lead to, in order or from the last one on. Each of these rows may have another key, or
    /// none, in the state that this transaction sees.
    pub fn index_range(
        &self,
        tree: Tree,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        is_backward: bool,
    ) -> IndexRange<'_> {
        // No tail is higher than this one, and none lower than that without bytes.
        let highest = [u8::MAX; TAIL_BYTES];
        let behind = |key: &[u8]| [key, &highest].concat();
        let lower = match lower {
            Bound::Unbounded => Bound::Unbounded,
            Bound::Included(key) => Bound::Included(key.to_vec()),
            Bound::Excluded(key) => Bound::Excluded(behind(key)),
        };
        let upper = match upper {
            Bound::Unbounded => Bound::Unbounded,
            Bound::Included(key) => Bound::Included(behind(key)),
            Bound::Excluded(key) => Bound::Excluded(key.to_vec()),
        };
        let store = &self.store.pages;
        let range = if is_backward {
            tree.range_backward(store, lower, upper)
        } else {
            tree.range(store, lower, upper)
        };
        IndexRange { range, key: Vec::new(), row: None }
    }
}

/// All entries that begin with these bytes.
fn entries<'s>(tree: Tree, store: &'s PageStore, prefix: &[u8]) -> Range<'s> {
    let upper = [prefix, &[u8::MAX; TAIL_BYTES]].concat();
    tree.range(store, Bound::Included(prefix.to_vec()), Bound::Included(upper))
}

/// See [`Transaction::index_range`].
#[derive(Debug)]
pub struct IndexRange<'s> {
    range: Range<'s>,
    /// The last key, and its row.
    key: Vec<u8>,
    row: Option<RowId>,
}

impl<'s> IndexRange<'s> {
    /// The next key and its row. [`Iterator::next`] copies it.
    pub fn next_key(&mut self) -> Option<Result<(&[u8], RowId)>> {
        loop {
            let entry = match self.range.next_key()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error)),
            };
            let Some((key, row)) = parse(entry) else {
                return Some(Err(self.range.damaged(NO_ROW)));
            };
            // One that was taken away and added again is there twice for a while.
            if self.row == Some(row) && self.key == key {
                continue;
            }
            self.key.clear();
            self.key.extend_from_slice(key);
            self.row = Some(row);
            return Some(Ok((&self.key, row)));
        }
    }

    /// The rows alone.
    pub fn rows(mut self) -> impl Iterator<Item = Result<RowId>> + 's {
        std::iter::from_fn(move || self.next_key().map(|found| found.map(|(_, row)| row)))
    }
}

impl Iterator for IndexRange<'_> {
    type Item = Result<(Vec<u8>, RowId)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_key().map(|found| found.map(|(key, row)| (key.to_vec(), row)))
    }
}

/// An index that is being built: keys that are removed from it before they are there are remembered.
struct Building<'s> {
    store: &'s RowStore,
    tree: Tree,
}

impl<'s> Building<'s> {
    fn begin(store: &'s RowStore, tree: Tree) -> Self {
        let before = store.building.lock().insert(tree, Vec::new());
        assert!(before.is_none(), "an index is built once at a time");
        Self { store, tree }
    }

    /// The keys that were removed too early.
    fn end(self) -> Vec<KeyOfRow> {
        self.store.building.lock().remove(&self.tree).unwrap_or_default()
    }
}

impl Drop for Building<'_> {
    fn drop(&mut self) {
        self.store.building.lock().remove(&self.tree);
    }
}

/// Fails if two rows of an index have the same key, and may not.
fn check_each_once(
    transaction: &Transaction<'_>,
    tree: Tree,
    is_single: IsSingle<'_>,
    is_there: impl Fn(&[u8], RowId) -> Result<bool>,
) -> Result<()> {
    let mut all = transaction.index_range(tree, Bound::Unbounded, Bound::Unbounded, false);
    let mut last: Option<Vec<u8>> = None;
    // The first row with this key is looked at when there is a second one.
    let mut first: Option<RowId> = None;
    let (mut has_one, mut may_repeat) = (false, false);
    while let Some(found) = all.next_key() {
        let (key, row) = found?;
        if last.as_deref() != Some(key) {
            last = Some(key.to_vec());
            (first, has_one, may_repeat) = (Some(row), false, false);
            continue;
        }
        if let Some(first) = first.take() {
            may_repeat = !is_single(key)?;
            has_one = !may_repeat && is_there(key, first)?;
        }
        if !may_repeat && is_there(key, row)? && std::mem::replace(&mut has_one, true) {
            return Err(Error::DuplicateKey { row });
        }
    }
    Ok(())
}

impl RowStore {
    /// Makes an index without keys.
    pub fn create_index(&self) -> Result<Tree> {
        let mut change = self.pages.change();
        let tree = Tree::create(&self.pages, &mut change)?;
        let lsn = change.commit()?;
        self.pages.log().wait_until_durable(lsn)?;
        Ok(tree)
    }

    /// Fills an index without keys: with those of rows that are there, in the order of keys and, where these are equal, of row ids.
    /// Its pages are so full, in percent from 50 on. It fails if two rows have the same key and may not. Nobody changes these rows or the
    /// index meanwhile, and no transaction uses it that began before. What fails, or ends in a crash, leaves some of the keys:
    /// [`drop_index`](Self::drop_index) is for that. The index is durable with the next commit.
    pub fn fill_index<'k>(
        &self,
        tree: Tree,
        percent: usize,
        is_unique: bool,
        keys: impl IntoIterator<Item = Result<(Cow<'k, [u8]>, RowId)>>,
    ) -> Result<()> {
        // Of its own: undo entries may still name keys that this index had before.
        let writer = self.clock.number_of_none(&self.pages)?;
        let mut last: Option<Cow<'k, [u8]>> = None;
        let entries = keys.into_iter().map(|key| {
            let (key, row) = key?;
            check_length(&self.pages, &key)?;
            if is_unique && last.as_ref() == Some(&key) {
                return Err(Error::DuplicateKey { row });
            }
            let entry = entry_of(&key, row, writer);
            last = Some(key);
            Ok(entry)
        });
        tree.fill(&self.pages, percent, entries)
    }

    /// Builds an index while others change rows of its table, who add and remove their keys from before this begins; the transactions of
    /// those who did not have ended by then. `keys` hands over those of the rows that a transaction sees, best in their order, and
    /// `has_key` tells whether the bytes of a row have a key. Rows that are elsewhere keep their keys; whether a transaction sees one of
    /// them is for `elsewhere` to tell. Transactions that began before this returns do not read the index.
    ///
    /// What was removed before it had been added is taken out at the end. It waits twice until all transactions have ended that
    /// are changing something: of two that add the same unique key at the same time, neither may have seen the other, and one of them
    /// then is an error here. What fails leaves some of the keys, for [`drop_index`](Self::drop_index).
    pub fn build_index<E: From<Error>>(
        &self,
        tree: Tree,
        table: TableId,
        unique: Option<IsSingle<'_>>,
        has_key: &dyn Fn(&[u8], &[u8]) -> bool,
        elsewhere: HasRow<'_>,
        keys: impl FnOnce(&Transaction<'_>, &mut dyn FnMut(&[u8], RowId) -> Result<()>) -> Result<(), E>,
    ) -> Result<(), E> {
        let building = Building::begin(self, tree);
        self.wait_for_writers()?;
        let writer = self.clock.number_of_none(&self.pages)?;
        let transaction = self.begin();
        let has_entry = |key: &[u8], row: RowId| {
            let prefix = [key, &row.0.to_be_bytes()].concat();
            entries(tree, &self.pages, &prefix).next().transpose().map(|entry| entry.is_some())
        };
        keys(&transaction, &mut |key, row| {
            check_length(&self.pages, key)?;
            // One that its transaction has added would stay behind where only one of both is removed. Of rows elsewhere it adds none.
            if row.is_elsewhere() || !has_entry(key, row)? {
                tree.insert(&self.pages, &entry_of(key, row, writer), |_| Ok(()))?;
            }
            self.pages.throttle()?;
            self.pages.checkpoint_if_due()
        })?;
        drop(transaction);
        self.wait_for_writers()?;
        let missed = building.end();
        let now = self.begin();
        let is_there = |key: &[u8], row: RowId| {
            if row.is_elsewhere() {
                return elsewhere(&now, row);
            }
            match now.get(table, row) {
                Ok(bytes) => Ok(bytes.is_some_and(|bytes| has_key(key, &bytes))),
                // Its page is one of another table by now.
                Err(Error::NoSuchRow { .. }) => Ok(false),
                Err(error) => Err(error),
            }
        };
        for (key, row) in missed {
            // It may have been added again by the transaction that has removed it.
            let prefix = [&key[..], &row.0.to_be_bytes()].concat();
            let is_twice = entries(tree, &self.pages, &prefix).nth(1).transpose()?.is_some();
            if is_twice || !is_there(&key, row)? {
                tree.remove(&self.pages, &entry_of(&key, row, writer), |_| Ok(()))?;
            }
        }
        if let Some(is_single) = unique {
            check_each_once(&now, tree, is_single, is_there)?;
        }
        self.pages.log().wait_until_all_durable()?;
        Ok(())
    }

    /// Waits until all transactions have ended that are changing something now, and those that begin later see what they did.
    fn wait_for_writers(&self) -> Result<()> {
        let next = self.clock.next_number();
        while self.clock.has_unseen(next) {
            // A commit whose log cannot be written is never seen.
            self.pages.log().wait_until_all_durable()?;
            pause();
        }
        Ok(())
    }

    /// Whether there are transactions that are changing something, or have and are not seen yet by those that begin.
    pub fn has_writers(&self) -> Result<bool> {
        let next = self.clock.next_number();
        if !self.clock.has_unseen(next) {
            return Ok(false);
        }
        self.pages.log().wait_until_all_durable()?;
        Ok(self.clock.has_unseen(next))
    }

    /// Takes all keys out of an index that no transaction uses any more, and gives its pages back, but for the first one, which undo
    /// entries of older transactions name. It is called again if a crash has ended it.
    pub fn drop_index(&self, tree: Tree) -> Result<()> {
        tree.clear(&self.pages)
    }

    /// Rolls back a key that a transaction has added.
    pub(super) fn take_index_insert_back(&self, stream: &mut Stream, entry: &Entry) -> Result<()> {
        let (tree, key) = named(entry).ok_or_else(|| self.damaged_entry(entry))?;
        let mut tail = None;
        tree.remove(&self.pages, key, |change| {
            tail = Some(self.undo.take_back(&self.pages, change, stream, entry)?);
            Ok(())
        })?;
        let Some(tail) = tail else { unreachable!("a key stays until its transaction has ended") };
        stream.tail = tail;
        Ok(())
    }

    /// Clears a key away that leads to a row for no snapshot.
    pub(super) fn clear_index_remove(&self, entry: &Entry) -> Result<()> {
        let (tree, key) = named(entry).ok_or_else(|| self.damaged_entry(entry))?;
        // After a crash it may have been cleared away already.
        tree.remove(&self.pages, key, |_| Ok(())).map(drop)
    }
}
