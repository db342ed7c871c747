//! Tables, views, macros and sequences that end with the session.
//!
//! They are a database in a folder of the session's own beside its other temporary files: what does not fit into memory
//! is there, and what a killed process leaves is removed with them at the next start.

use std::path::Path;
use std::sync::Arc;

use nandina_storage::{Mode, Store};
use parking_lot::Mutex;

use crate::engine::OperatorFolder;
use crate::error::{Error, Result};
use crate::media::Media;
use crate::tables::Tables;

/// Where a session's temporary tables are, once it makes one.
pub(crate) struct Temporary {
    state: Mutex<State>,
}

struct State {
    /// Before the folder, so that it is closed when that is removed.
    tables: Option<Arc<Tables>>,
    media: Arc<Media>,
    folder: Arc<OperatorFolder>,
}

impl Temporary {
    pub(crate) fn new(media: Arc<Media>, folder: Arc<OperatorFolder>) -> Arc<Self> {
        Arc::new(Temporary { state: Mutex::new(State { tables: None, media, folder }) })
    }

    pub(crate) fn tables(&self) -> Option<Arc<Tables>> {
        self.state.lock().tables.clone()
    }

    pub(crate) fn tables_or_new(&self) -> Result<Arc<Tables>> {
        let mut state = self.state.lock();
        if let Some(tables) = &state.tables {
            return Ok(Arc::clone(tables));
        }
        let path = state.folder.path.join("tables");
        let store = open(&state.media, &path).map_err(|reason| {
            Error::setting(format!(
                "temporary tables cannot be made in '{}' ({reason}); choose another folder with SET temp_directory \
                 before the first one",
                path.display()
            ))
        })?;
        let tables = Tables::in_directory(store);
        state.tables = Some(Arc::clone(&tables));
        Ok(tables)
    }
}

fn open(media: &Media, path: &Path) -> Result<Store, String> {
    std::fs::create_dir_all(path).map_err(|error| error.to_string())?;
    let device = media.directory(path).map_err(|error| error.to_string())?;
    Store::open(device, Mode::Write).map_err(|error| error.to_string())
}
