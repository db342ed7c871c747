//! The databases that are attached.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;

use super::{CATALOG, SYSTEM, TEMPORARY};
use crate::error::{Error, Result};
use crate::suggestion;
use crate::tables::Tables;

/// Those of a [`crate::Database`] and of its sessions, by name.
pub(crate) struct Databases {
    /// The one that was opened.
    main: String,
    attached: RwLock<BTreeMap<String, Attached>>,
}

#[derive(Clone)]
pub(crate) struct Attached {
    pub tables: Arc<Tables>,
    /// None for one in memory.
    pub directory: Option<PathBuf>,
    pub is_read_only: bool,
}

impl Databases {
    pub(crate) fn of(directory: Option<&Path>, tables: Arc<Tables>, is_read_only: bool) -> Arc<Self> {
        let mut main = directory.and_then(name_of).unwrap_or_else(|| "memory".to_owned());
        if is_reserved(&main) {
            main.push_str("_db");
        }
        let attached = Attached { tables, directory: directory.map(Path::to_path_buf), is_read_only };
        Arc::new(Databases { attached: RwLock::new(BTreeMap::from([(main.clone(), attached)])), main })
    }

    /// The name of the one that was opened.
    pub(crate) fn main(&self) -> &str {
        &self.main
    }

    pub(crate) fn get(&self, name: &str) -> Option<Attached> {
        self.attached.read().get(name).cloned()
    }

    pub(crate) fn tables(&self, name: &str) -> Option<Arc<Tables>> {
        self.attached.read().get(name).map(|attached| Arc::clone(&attached.tables))
    }

    pub(crate) fn all(&self) -> Vec<(String, Attached)> {
        self.attached.read().iter().map(|(name, attached)| (name.clone(), attached.clone())).collect()
    }

    /// Whether a database can be attached by a name.
    pub(crate) fn check_name(&self, name: &str) -> Result<()> {
        if is_reserved(name) {
            return Err(Error::unsupported(format!(
                "a database cannot be called '{name}'; say AS another_name behind ATTACH"
            )));
        }
        match self.get(name) {
            Some(_) => Err(Error::Query {
                message: format!("there is a database '{name}' already; say AS another_name behind ATTACH"),
            }),
            None => Ok(()),
        }
    }

    pub(crate) fn attach(&self, name: &str, attached: Attached) -> Result<()> {
        self.check_name(name)?;
        self.attached.write().insert(name.to_owned(), attached);
        Ok(())
    }

    /// Closes a database once no statement uses it any more.
    pub(crate) fn detach(&self, name: &str) -> Result<()> {
        if name == self.main {
            return Err(Error::unsupported(format!(
                "'{name}' is the database that was opened, and cannot be detached"
            )));
        }
        let removed = self.attached.write().remove(name);
        removed.map(drop).ok_or_else(|| self.unknown(name))
    }

    pub(crate) fn unknown(&self, name: &str) -> Error {
        let attached = self.attached.read();
        let hint = suggestion::phrase(name, attached.keys().map(String::as_str));
        Error::Query { message: format!("there is no database '{name}'{hint}") }
    }
}

/// The name of a database in a directory where a statement gives none: `shop` for `data/shop.db`.
pub(crate) fn name_of(directory: &Path) -> Option<String> {
    directory.file_stem().and_then(|stem| stem.to_str()).map(str::to_lowercase)
}

fn is_reserved(name: &str) -> bool {
    [CATALOG, TEMPORARY, SYSTEM].contains(&name)
}
