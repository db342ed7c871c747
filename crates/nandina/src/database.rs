//! A database: a directory of native tables, or nothing but memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use nandina_storage::{MANIFEST, Mode, Store};

use crate::catalog::databases::Databases;
use crate::engine;
use crate::error::{Error, Result};
use crate::media::Media;
use crate::options::{Options, POOL_SHARE, Settings};
use crate::tables::Tables;
use crate::temporary_store::TemporaryStore;

/// A database that is open in this process. Cheap to clone; closed when the last clone and session is gone.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let database = nandina::Database::in_memory(nandina::Options::default())?;
/// let session = database.session()?;
/// let batches = session.sql("SELECT 40 + 2 AS answer").await?.collect().await?;
/// assert_eq!(batches[0].num_rows(), 1);
/// # Ok::<(), nandina::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Database {
    inner: Arc<Inner>,
}

struct Inner {
    directory: Option<PathBuf>,
    options: Options,
    databases: Arc<Databases>,
    /// The devices that it and its sessions use.
    media: Arc<Media>,
}

impl Database {
    /// Opens the database in `directory`, which is created if it does not exist. Only one process at a time has
    /// a database open, unless the others open it with [`Options::read_only`].
    pub fn open(directory: impl AsRef<Path>, options: Options) -> Result<Self> {
        let directory = existing(directory.as_ref(), options.read_only)?;
        let settings = Settings::resolve(&options, Some(&directory))?;
        let media =
            Media::new(engine::device_options(&settings), settings.open_device.clone(), Some(&directory));
        let tables = stored_tables(&directory, &options, &media)?;
        let databases = Databases::of(Some(&directory), tables, options.read_only);
        Ok(Database { inner: Arc::new(Inner { directory: Some(directory), options, databases, media }) })
    }

    /// The same, of a database that is there.
    pub fn open_existing(directory: impl AsRef<Path>, options: Options) -> Result<Self> {
        let directory = directory.as_ref();
        if !directory.join(MANIFEST).exists() {
            let message = "has no database".to_owned();
            return Err(Error::Database { path: directory.to_path_buf(), message });
        }
        Self::open(directory, options)
    }

    /// A database whose tables live in memory and vanish with it.
    pub fn in_memory(options: Options) -> Result<Self> {
        let settings = Settings::resolve(&options, None)?;
        let media = Media::new(engine::device_options(&settings), settings.open_device.clone(), None);
        let rows = TemporaryStore::in_directory(Arc::clone(&media), settings.temp_directory);
        let inner = Inner {
            directory: None,
            options,
            databases: Databases::of(None, Tables::in_memory(rows), false),
            media,
        };
        Ok(Database { inner: Arc::new(inner) })
    }

    /// Where the tables are; none for a database in memory.
    pub fn directory(&self) -> Option<&Path> {
        self.inner.directory.as_deref()
    }

    /// The options the database was opened with.
    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    pub(crate) fn media(&self) -> &Arc<Media> {
        &self.inner.media
    }

    /// It and those that are attached to it.
    pub(crate) fn databases(&self) -> &Arc<Databases> {
        &self.inner.databases
    }

    /// A directory that is made if it does not exist.
    pub(crate) fn new_directory(directory: &Path) -> Result<PathBuf> {
        existing(directory, false)
    }

    /// The tables of another database in memory.
    pub(crate) fn tables_in_memory(&self) -> Result<Arc<Tables>> {
        let settings = Settings::resolve(self.options(), self.directory())?;
        let rows = TemporaryStore::in_directory(Arc::clone(self.media()), settings.temp_directory);
        Ok(Tables::in_memory(rows))
    }

    /// The tables of another database, which is opened through the same devices.
    pub(crate) fn tables_in(directory: &Path, options: &Options, media: &Media) -> Result<Arc<Tables>> {
        stored_tables(&existing(directory, options.read_only)?, options, media)
    }
}

/// Hands over the log of the changed rows of a database, a line for each change, as opening it would read it. Nothing is changed.
pub fn list_log(directory: impl AsRef<Path>, options: &Options, mut take: impl FnMut(&str)) -> Result<()> {
    let directory = existing(directory.as_ref(), true)?;
    let settings = Settings::resolve(options, Some(&directory))?;
    let media = Media::new(engine::device_options(&settings), settings.open_device.clone(), Some(&directory));
    let device = media.directory(&directory);
    let device = device.map_err(|error| Error::Database { path: directory, message: error.to_string() })?;
    Ok(Store::list_log(&device, |line| {
        take(&line);
        Ok(())
    })?)
}

/// The directory of a database, which is made if rows may be written into it.
fn existing(directory: &Path, is_read_only: bool) -> Result<PathBuf> {
    let fail = |message: String| Error::Database { path: directory.to_path_buf(), message };
    if directory.exists() && !directory.is_dir() {
        return Err(fail(
            "is a file; a database is a directory (to query a file write FROM 'file')".to_owned(),
        ));
    }
    if !directory.exists() {
        if is_read_only {
            return Err(fail("does not exist".to_owned()));
        }
        std::fs::create_dir_all(directory).map_err(|error| fail(format!("cannot be created: {error}")))?;
    }
    directory.canonicalize().map_err(|error| fail(error.to_string()))
}

fn stored_tables(directory: &Path, options: &Options, media: &Media) -> Result<Arc<Tables>> {
    let device = media
        .directory(directory)
        .map_err(|error| Error::Database { path: directory.to_path_buf(), message: error.to_string() })?;
    let mode = if options.read_only { Mode::ReadOnly } else { Mode::Write };
    let tables = Tables::in_directory(Store::open(device, mode)?);
    tables.set_background_vacuum(options.background_vacuum);
    // Until a session shares out its memory, the first one of all.
    let settings = Settings::resolve(options, Some(directory))?;
    tables.set_pool_bytes(settings.memory_limit_bytes as usize / POOL_SHARE)?;
    Ok(tables)
}
