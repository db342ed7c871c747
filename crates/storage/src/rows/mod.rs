//! Tables whose rows are changed one by one, by transactions.
//!
//! ```text
//!   manifest: table t, columns, where its heap and its indexes begin
//!                                      │
//!   row store (nandina-rowstore)       ▼
//!     heap    row id ─► bytes of a row (RowCodec)
//!     index   key    ─► row of the heap, or of a segment (Place)      keys are compared as bytes (KeyCodec)
//! ```
//!
//! The row store is made with the first such table, beside the manifest, and opened when it is needed first. Its log decides
//! what became of rows; which tables there are is for the manifest. A heap that no manifest names is left from a statement that
//! ended in a crash, or was dropped while somebody could still see it: `registry` knows all of them, and has those cleared away.

mod changes;
mod deleted;
mod index_keys;
mod indexes;
mod kept;
mod keys;
mod lookups;
mod place;
mod registry;
mod row_set;
mod target;
mod transaction;
mod vacuum;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::ArrayRef;
use arrow_cast::display::array_value_to_string;
use nandina_device::{Device, DirectoryLock};
use nandina_pages::RowCodec;
use nandina_rowstore::heap::directory::TableId as HeapId;
use nandina_rowstore::page::PageId;
use nandina_rowstore::pool::FEWEST_FRAMES;
use nandina_rowstore::tree::Tree;
use nandina_rowstore::{RowStore, StoreOptions};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

pub(crate) use self::keys::KeyCodec;
use crate::error::{Result, StorageError};
use crate::ids::DatabaseId;
use crate::segment::TableShape;

pub use self::changes::NewRows;
pub(crate) use self::deleted::DeletedRecord;
pub use self::kept::RowsKept;
pub use self::keys::KeyRange;
pub use self::lookups::MostRows;
pub use self::place::by_place;
pub use self::row_set::RowSet;
pub use self::transaction::{Deferred, Durability, RowPages, Transaction};
pub use self::vacuum::VacuumWork;
pub(crate) use self::vacuum::Vacuumed;

/// Bytes of pages in memory, where nothing else is asked for.
const POOL_BYTES: usize = 64 << 20;

/// Where the rows of a table are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeapRecord {
    /// First page of its heap.
    pub heap: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<IndexRecord>,
    /// Which rows of the table's segments are deleted. Without it, the table has no segments. A table with indexes gets no
    /// further ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted: Option<DeletedRecord>,
    /// Pages of new segments have this number or higher ones: rows of those before may still be among the deleted ones.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub next_page: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IndexRecord {
    #[serde(flatten)]
    pub definition: IndexDefinition,
    /// First page of its tree.
    pub root: u64,
    /// Rows are still being added to it: queries do not use it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_building: bool,
}

/// An index of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexDefinition {
    pub name: String,
    /// Numbers of columns, the first one first.
    pub columns: Vec<usize>,
    pub is_unique: bool,
    /// Of the primary key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_primary: bool,
}

/// The first page of a heap, and how often it has been changed since the database was opened; none if it has not been.
pub(crate) type HeapChanges = Option<(u64, u64)>;

/// What is known of a table's rows while it is there.
#[derive(Debug)]
pub(crate) struct Heap {
    pub record: HeapRecord,
    pub codec: RowCodec,
    /// For each index.
    pub keys: Vec<KeyCodec>,
    /// How often rows have been added, and others been changed, since the database was opened.
    additions: AtomicU64,
    other_changes: AtomicU64,
}

/// How often a heap has been changed since the database was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Changes {
    pub additions: u64,
    pub others: u64,
}

impl Heap {
    pub fn new(record: HeapRecord, shape: &TableShape) -> Result<Self> {
        let codec = RowCodec::try_new(Arc::clone(shape.page_schema())).map_err(StorageError::Encode)?;
        let of_index = |index: &IndexRecord| KeyCodec::try_new(codec.schema(), &index.definition);
        let keys = record.indexes.iter().map(of_index).collect::<Result<_>>()?;
        let (additions, other_changes) = Default::default();
        Ok(Self { record, codec, keys, additions, other_changes })
    }

    /// Counts on where another state of the same rows has come to.
    pub fn with_changes_of(self, other: &Self) -> Self {
        let Changes { additions, others } = other.changes_by_kind();
        self.additions.store(additions, Ordering::SeqCst);
        self.other_changes.store(others, Ordering::SeqCst);
        self
    }

    pub fn changes(&self) -> u64 {
        let Changes { additions, others } = self.changes_by_kind();
        additions + others
    }

    pub fn changes_by_kind(&self) -> Changes {
        let (additions, others) = (&self.additions, &self.other_changes);
        Changes { additions: additions.load(Ordering::SeqCst), others: others.load(Ordering::SeqCst) }
    }

    /// Notes that rows are about to be added.
    pub fn note_addition(&self) {
        self.additions.fetch_add(1, Ordering::SeqCst);
    }

    /// Notes that rows are about to be changed that are there.
    pub fn note_change(&self) {
        self.other_changes.fetch_add(1, Ordering::SeqCst);
    }

    pub fn id(&self) -> HeapId {
        HeapId(PageId(self.record.heap))
    }

    /// Which rows of segments are deleted, where an id or an index leads to such a row.
    pub fn deleted(&self) -> Result<&DeletedRecord> {
        let damaged = || StorageError::damaged("the row store", "a table without segments has rows of some");
        self.record.deleted.as_ref().ok_or_else(damaged)
    }

    /// The same, whose indexes are kept up to date, and find no rows.
    pub fn without_lookups(&self, shape: &TableShape) -> Result<Self> {
        let mut record = self.record.clone();
        record.indexes.iter_mut().for_each(|index| index.is_building = true);
        Ok(Self::new(record, shape)?.with_changes_of(self))
    }

    /// The key of a row for people, of the columns of an index.
    pub fn key_text(&self, index: usize, columns: &[ArrayRef], row: usize) -> String {
        let names = self.keys[index].columns.iter().map(|column| self.codec.schema().field(*column).name());
        let value = |(name, column): (&String, &ArrayRef)| match array_value_to_string(column, row) {
            Ok(text) => format!("{name} = {text}"),
            Err(_) => name.clone(),
        };
        names.zip(columns).map(value).collect::<Vec<_>>().join(", ")
    }

    /// All that stores its rows begins with these pages.
    pub fn first_pages(&self) -> impl Iterator<Item = u64> + '_ {
        let deleted = self.record.deleted.iter().flat_map(DeletedRecord::first_pages);
        std::iter::once(self.record.heap)
            .chain(self.record.indexes.iter().map(|index| index.root))
            .chain(deleted)
    }
}

impl IndexRecord {
    pub fn tree(&self) -> Tree {
        Tree::at(PageId(self.root))
    }
}

/// The row store of a database, once it is needed.
#[derive(Debug)]
pub(crate) struct RowStores {
    device: Device,
    database: DatabaseId,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Pages in memory may take so many bytes.
    pool_bytes: usize,
    open: Option<Arc<RowStore>>,
    /// Heaps and indexes that are being made, which the manifest does not name yet.
    making: HashSet<u64>,
    /// Keeps others from writing what is only read here.
    lock: Option<DirectoryLock>,
}

impl RowStores {
    pub fn new(device: Device, database: DatabaseId) -> Self {
        let state = State { pool_bytes: POOL_BYTES, open: None, making: HashSet::new(), lock: None };
        Self { device, database, state: Mutex::new(state) }
    }

    /// Pages in memory may take so many bytes; how many they take now at most.
    pub fn set_pool_bytes(&self, bytes: usize) -> Result<usize> {
        let mut state = self.state.lock();
        let is_other = state.pool_bytes != bytes;
        state.pool_bytes = bytes;
        let Some(store) = &state.open else { return Ok(0) };
        if is_other {
            store.pages().pool().resize(bytes / store.pages().page_bytes())?;
        }
        Ok(bytes)
    }

    /// Opens it, or makes one. `kept` are the first pages of the heaps and indexes that the manifest names.
    pub fn to_write(&self, kept: impl FnOnce() -> HashSet<u64>) -> Result<Arc<RowStore>> {
        let mut state = self.state.lock();
        if let Some(store) = &state.open {
            return Ok(Arc::clone(store));
        }
        let mut options = StoreOptions::default();
        options.frames = state.frames(options.page_bytes);
        options.most_frames = options.frames.max(options.most_frames);
        let store = RowStore::open(self.device.clone(), self.device.clone(), self.database.0, &options)?;
        if let Err(error) = registry::clear_others(&store, &kept()) {
            log::warn!("what dropped tables took is not given back: {error}");
        }
        Ok(state.opened(store))
    }

    /// Opens it to be read, with the lock of those who write.
    pub fn to_read(&self, lock: &str) -> Result<Arc<RowStore>> {
        let mut state = self.state.lock();
        if let Some(store) = &state.open {
            return Ok(Arc::clone(store));
        }
        let Some(held) = self.device.try_lock(lock)? else {
            return Err(StorageError::RowsInUse { path: self.device.path().to_owned() });
        };
        let frames = state.frames(StoreOptions::default().page_bytes);
        let (store, damage) = RowStore::open_read_only(self.device.clone(), self.device.clone(), frames)?;
        if let Some(damage) = damage {
            log::warn!("the last changes may be missing: {damage}");
        }
        state.lock = Some(held);
        Ok(state.opened(store))
    }

    pub fn is_open(&self) -> bool {
        self.state.lock().open.is_some()
    }

    /// Closes what was opened to be read, so that others can write it.
    pub fn release(&self) {
        let mut state = self.state.lock();
        state.open = None;
        state.lock = None;
    }

    /// What was committed is durable, also where that was not waited for.
    pub fn close(&self) {
        if let Some(store) = &self.state.lock().open
            && let Err(error) = store.pages().log().wait_until_all_durable()
        {
            log::error!("the last transactions are not durable: {error}");
        }
    }

    /// Makes a heap, and indexes of it. They are cleared away as soon as they are neither named by the manifest nor being made.
    pub fn make(&self, store: &RowStore, indexes: Vec<IndexDefinition>) -> Result<(HeapRecord, Making<'_>)> {
        // With the lock, so that they are not cleared away before it is noted that they are being made.
        let mut state = self.state.lock();
        let heap = registry::create_heap(store)?.0.0;
        let mut making = Making { stores: self, first_pages: vec![heap] };
        state.making.insert(heap);
        let mut records = Vec::with_capacity(indexes.len());
        drop(state);
        for definition in indexes {
            let (index, mut of_index) = self.make_index(store, definition)?;
            making.first_pages.append(&mut of_index.first_pages);
            records.push(IndexRecord { is_building: false, ..index });
        }
        Ok((HeapRecord { heap, indexes: records, deleted: None, next_page: 0 }, making))
    }

    /// Makes a heap that takes the place of another one beside segments, of which the same rows are deleted.
    pub fn make_next(&self, store: &RowStore, before: &HeapRecord) -> Result<(HeapRecord, Making<'_>)> {
        let mut state = self.state.lock();
        let heap = registry::create_heap(store)?.0.0;
        state.making.insert(heap);
        drop(state);
        let making = Making { stores: self, first_pages: vec![heap] };
        Ok((HeapRecord { heap, ..before.clone() }, making))
    }

    /// Makes what a table of segments needs so that its rows can be changed one by one.
    pub fn make_beside_segments(&self, store: &RowStore) -> Result<(HeapRecord, Making<'_>)> {
        // Before the lock, which it takes where this fails.
        let mut making = Making { stores: self, first_pages: Vec::new() };
        let mut state = self.state.lock();
        let mut made = |page: u64| {
            state.making.insert(page);
            making.first_pages.push(page);
            page
        };
        let heap = made(registry::create_heap(store)?.0.0);
        let deleted = DeletedRecord {
            heap: made(registry::create_heap(store)?.0.0),
            index: made(registry::create_index(store)?.root().0),
        };
        drop(state);
        Ok((HeapRecord { heap, indexes: Vec::new(), deleted: Some(deleted), next_page: 0 }, making))
    }

    /// Makes an index without keys.
    pub fn make_index(
        &self,
        store: &RowStore,
        definition: IndexDefinition,
    ) -> Result<(IndexRecord, Making<'_>)> {
        let mut state = self.state.lock();
        let root = registry::create_index(store)?.root().0;
        state.making.insert(root);
        drop(state);
        let making = Making { stores: self, first_pages: vec![root] };
        Ok((IndexRecord { definition, root, is_building: true }, making))
    }

    /// Gives back the pages of what was dropped, if no transaction may still see it. `kept` are the first pages of the heaps and indexes that the
    /// manifest names.
    pub fn clear_others(&self, kept: impl FnOnce() -> HashSet<u64>) -> Result<()> {
        let state = self.state.lock();
        let Some(store) = &state.open else { return Ok(()) };
        // With the lock: what the manifest does not name yet is being made until then.
        let mut kept = kept();
        kept.extend(&state.making);
        registry::clear_others(store, &kept)
    }
}

impl State {
    fn frames(&self, page_bytes: usize) -> usize {
        (self.pool_bytes / page_bytes).max(FEWEST_FRAMES)
    }

    fn opened(&mut self, store: RowStore) -> Arc<RowStore> {
        Arc::clone(self.open.insert(Arc::new(store)))
    }
}

/// Keeps what is being made from being cleared away.
#[derive(Debug)]
pub(crate) struct Making<'s> {
    stores: &'s RowStores,
    first_pages: Vec<u64>,
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        let mut state = self.stores.state.lock();
        for page in &self.first_pages {
            state.making.remove(page);
        }
    }
}
