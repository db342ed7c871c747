//! Tables, views, macros and sequences that end with the session.
//!
//! They are a database in a folder of the session's own beside its other temporary files.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::engine::OperatorFolder;
use crate::error::Result;
use crate::media::Media;
use crate::tables::Tables;
use crate::temporary_store::TemporaryStore;

/// Where a session's temporary tables are, once it makes one.
pub(crate) struct Temporary {
    /// Before the store, whose folder is removed once all is closed.
    tables: Mutex<Option<Arc<Tables>>>,
    store: TemporaryStore,
}

impl Temporary {
    pub(crate) fn new(media: Arc<Media>, folder: Arc<OperatorFolder>) -> Arc<Self> {
        Arc::new(Temporary { tables: Mutex::default(), store: TemporaryStore::in_folder(media, folder) })
    }

    pub(crate) fn tables(&self) -> Option<Arc<Tables>> {
        self.tables.lock().clone()
    }

    pub(crate) fn tables_or_new(&self) -> Result<Arc<Tables>> {
        let mut tables = self.tables.lock();
        if let Some(tables) = tables.as_ref() {
            return Ok(Arc::clone(tables));
        }
        let new = Tables::in_directory(self.store.store_or_new()?);
        *tables = Some(Arc::clone(&new));
        Ok(new)
    }
}
