//! Nandina's page store: rows in a heap, and an index that leads to them by key.

use std::borrow::Cow;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;

use nandina_device::{BufferPool, Device, DeviceOptions};
use nandina_rowstore::heap::RowId;
use nandina_rowstore::heap::directory::{self, TableId};
use nandina_rowstore::log::LogOptions;
use nandina_rowstore::page::PageId;
use nandina_rowstore::transaction::FIRST_FREE_ROOT;
use nandina_rowstore::tree::Tree;
use nandina_rowstore::{Error, PageStore, RowStore, StoreOptions, Transaction};

use super::{KeyedRow, LOADED_AT_ONCE, ROW_BYTES, Rows, Session};
use crate::error::{BenchError, Result};

const ID: u64 = 1;
const TABLE_ROOT: usize = FIRST_FREE_ROOT;
const INDEX_ROOT: usize = FIRST_FREE_ROOT + 1;
/// Memory for requests that is kept for the next ones.
const RETAINED_BYTES: usize = 2 << 20;

/// How full leaves of the index are, in percent, when rows are loaded.
const LEAVES_FILLED: usize = 90;

/// See the [module documentation](self).
pub struct PageRows {
    store: RowStore,
    table: TableId,
    index: Tree,
}

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::Setup(format!("Nandina: {error}"))
}

impl PageRows {
    /// Opens the store, or makes one whose pages have so many bytes. `most_log_bytes` is what recovery may have to read.
    pub fn open(
        folder: &Path,
        cache_bytes: u64,
        page_bytes: usize,
        is_durable: bool,
        most_log_bytes: u64,
    ) -> Result<Self> {
        let buffers = BufferPool::new(RETAINED_BYTES);
        let device = |name: &str| -> Result<Device> {
            let folder = folder.join(name);
            std::fs::create_dir_all(&folder).map_err(BenchError::file(&folder))?;
            let options =
                DeviceOptions { buffer_pool: Some(Arc::clone(&buffers)), ..DeviceOptions::default() };
            Device::open(&folder, options).map_err(failed)
        };
        let frames = (cache_bytes as usize / page_bytes).max(64);
        let options = StoreOptions {
            page_bytes,
            frames,
            most_frames: frames,
            log: LogOptions::default(),
            most_log_bytes,
        };
        let store = RowStore::open(device("pages")?, device("log")?, ID, &options).map_err(failed)?;
        store.set_relaxed(!is_durable);
        let pages = store.pages();
        if pages.root(TABLE_ROOT).map_err(failed)? == 0 {
            let table = store.create_table().map_err(failed)?;
            let index = store.create_index().map_err(failed)?;
            let mut change = pages.change();
            pages.set_root(&mut change, TABLE_ROOT, table.0.0).map_err(failed)?;
            pages.set_root(&mut change, INDEX_ROOT, index.root().0).map_err(failed)?;
            change.commit().map_err(failed)?;
        }
        let root = |number| pages.root(number).map(PageId).map_err(failed);
        let (table, index) = (TableId(root(TABLE_ROOT)?), Tree::at(root(INDEX_ROOT)?));
        Ok(Self { store, table, index })
    }

    pub fn pages(&self) -> &PageStore {
        self.store.pages()
    }

    /// The pages that the rows are in.
    pub fn heap_pages(&self) -> Result<Vec<PageId>> {
        let mut pages = Vec::new();
        let mut next = Some(self.table.0);
        while let Some(page) = next {
            let (entries, behind) = directory::read(self.pages(), self.table, page).map_err(failed)?;
            pages.extend(entries.into_iter().map(|(page, _)| page));
            next = behind;
        }
        Ok(pages)
    }

    fn find(&self, transaction: &Transaction<'_>, key: u64) -> Result<Option<(RowId, Vec<u8>)>> {
        let key = key.to_be_bytes();
        let found = transaction.index_range(self.index, Bound::Included(&key), Bound::Included(&key), false);
        for entry in found {
            let (_, row) = entry.map_err(failed)?;
            if let Some(bytes) = transaction.get(self.table, row).map_err(failed)? {
                return Ok(Some((row, bytes)));
            }
        }
        Ok(None)
    }
}

impl Rows for PageRows {
    fn session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        work(&mut PageSession(self))
    }

    /// The index is filled as rows come, in place of searching it for each.
    fn load(&self, rows: &mut dyn Iterator<Item = KeyedRow>) -> Result<()> {
        let Self { store, table, index } = self;
        let mut transaction = None;
        let keys = rows.enumerate().map(|(number, (key, row))| {
            if number % LOADED_AT_ONCE == 0 {
                transaction.take().map_or(Ok(()), Transaction::commit)?;
            }
            let id = transaction.get_or_insert_with(|| store.begin()).insert(*table, &row)?;
            Ok((Cow::Owned(key.to_be_bytes().to_vec()), id))
        });
        store.fill_index(*index, LEAVES_FILLED, true, keys).map_err(failed)?;
        transaction.map_or(Ok(()), Transaction::commit).map_err(failed)
    }

    fn settle(&self) -> Result<()> {
        self.pages().checkpoint().map_err(failed)
    }
}

struct PageSession<'s>(&'s PageRows);

impl Session for PageSession<'_> {
    fn read(&mut self, key: u64) -> Result<Option<usize>> {
        let transaction = self.0.store.begin();
        let found = self.0.find(&transaction, key)?;
        Ok(found.map(|(_, bytes)| bytes.len()))
    }

    fn range(&mut self, from: u64, rows: usize) -> Result<usize> {
        let PageRows { store, table, index } = self.0;
        let transaction = store.begin();
        let lower = from.to_be_bytes();
        let found = transaction.index_range(*index, Bound::Included(&lower), Bound::Unbounded, false).rows();
        let ids: Vec<RowId> = found.take(rows).collect::<std::result::Result<_, _>>().map_err(failed)?;
        let mut count = 0;
        let take = |_, bytes: Option<&[u8]>| {
            count += usize::from(bytes.is_some_and(|bytes| bytes.len() == ROW_BYTES));
            ControlFlow::Continue(())
        };
        transaction.get_each(*table, &ids, take).map_err(failed)?;
        Ok(count)
    }

    fn update(&mut self, key: u64, row: &[u8]) -> Result<()> {
        loop {
            let mut transaction = self.0.store.begin();
            let Some((id, _)) = self.0.find(&transaction, key)? else {
                return Err(BenchError::Setup(format!("Nandina has no row of key {key}")));
            };
            match transaction.update(self.0.table, id, row) {
                Ok(true) => return transaction.commit().map_err(failed),
                Ok(false) => return Err(BenchError::Setup(format!("Nandina updates no row of key {key}"))),
                // Another thread has the same row: again, with what it has made of it.
                Err(Error::Conflict) => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }

    fn insert(&mut self, rows: &[KeyedRow]) -> Result<()> {
        let PageRows { store, table, index } = self.0;
        let mut transaction = store.begin();
        for (key, row) in rows {
            let id = transaction.insert(*table, row).map_err(failed)?;
            let key = key.to_be_bytes();
            let has_key = |bytes: &[u8]| bytes.starts_with(&key);
            transaction.index_insert(*index, &key, id, Some(&has_key)).map_err(failed)?;
        }
        transaction.commit().map_err(failed)
    }
}
