//! Tables in a folder for temporary files: those of a session, and those of a database in memory whose rows are changed one by one.
//!
//! What does not fit into memory is there, and what a killed process leaves is removed with it at the next start.

use std::path::PathBuf;
use std::sync::Arc;

use nandina_storage::{Mode, Store};
use parking_lot::Mutex;

use crate::engine::OperatorFolder;
use crate::error::{Error, Result};
use crate::media::Media;

/// A store that is made when it is needed first.
pub(crate) struct TemporaryStore {
    state: Mutex<State>,
}

struct State {
    /// Before the folder, so that it is closed when that is removed.
    store: Option<Store>,
    media: Arc<Media>,
    folder: Folder,
}

enum Folder {
    Made(Arc<OperatorFolder>),
    /// One of its own is made in this directory.
    In(PathBuf),
}

impl TemporaryStore {
    /// In a folder that is removed once nothing uses it.
    pub(crate) fn in_folder(media: Arc<Media>, folder: Arc<OperatorFolder>) -> Self {
        Self { state: Mutex::new(State { store: None, media, folder: Folder::Made(folder) }) }
    }

    /// In a directory for temporary files.
    pub(crate) fn in_directory(media: Arc<Media>, directory: PathBuf) -> Self {
        Self { state: Mutex::new(State { store: None, media, folder: Folder::In(directory) }) }
    }

    pub(crate) fn store(&self) -> Option<Store> {
        self.state.lock().store.clone()
    }

    pub(crate) fn store_or_new(&self) -> Result<Store> {
        let mut state = self.state.lock();
        if let Some(store) = &state.store {
            return Ok(store.clone());
        }
        let store = state.open()?;
        state.store = Some(store.clone());
        Ok(store)
    }
}

impl State {
    fn open(&mut self) -> Result<Store> {
        let fail = |path: &std::path::Path, reason: String| {
            Error::setting(format!(
                "temporary tables cannot be made in '{}' ({reason}); choose another folder with SET temp_directory \
                 before the first one, or with --temp-dir",
                path.display()
            ))
        };
        let folder = match &self.folder {
            Folder::Made(folder) => Arc::clone(folder),
            Folder::In(directory) => {
                let made =
                    std::fs::create_dir_all(directory).and_then(|()| OperatorFolder::create(directory));
                Arc::new(made.map_err(|error| fail(directory, error.to_string()))?)
            }
        };
        let path = folder.path.join("tables");
        self.folder = Folder::Made(folder);
        std::fs::create_dir_all(&path).map_err(|error| fail(&path, error.to_string()))?;
        let device = self.media.directory(&path).map_err(|error| fail(&path, error.to_string()))?;
        Store::open(device, Mode::Temporary).map_err(|error| fail(&path, error.to_string()))
    }
}
