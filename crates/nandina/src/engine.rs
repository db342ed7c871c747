//! What a session runs on: memory governor, temporary space and DataFusion's runtime.
//!
//! ```text
//!   Settings ──► MemoryGovernor ──────┐
//!            ──► TempSpace (ours) ────┼──► RuntimeEnv, SessionConfig ──► SessionContext
//!            ──► OperatorFolder (DF) ─┤                                  (+ our physical optimizer rules)
//!            ──► caches' limits ──────┘
//! ```
//!
//! Both kinds of temporary files travel as extensions of the session's configuration, so that they live as long
//! as the last query that may write to them, and are gone after it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::common::config::MaxRowGroupBytes;
use datafusion::execution::cache::cache_manager::CacheManagerConfig;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::prelude::SessionConfig;
use nandina_device::{Backend, DeviceOptions};
use nandina_exec::memory::{MemoryGovernor, ResidentBound};
use nandina_exec::spill::SessionTempSpace;
use nandina_spill::{TempOptions, TempSpace};

use crate::error::{Error, Result};
use crate::files::sources::Sources;
use crate::media::Media;
use crate::options::{IoBackend, Settings};

/// Share of the memory limit that descriptions of files (Parquet footers, statistics, listings) may take.
const CACHE_SHARE: u64 = 16;
/// DataFusion's own limit for cached file metadata, which is enough for any limit.
const MOST_CACHE_BYTES: u64 = 50 << 20;
/// Share of the memory limit, and most, that a device keeps in unused buffers.
const BUFFER_SHARE: u64 = 6;
const MOST_BUFFER_BYTES: u64 = 64 << 20;

/// What a quick calibration may write.
const CALIBRATION_BYTES: u64 = 256 << 20;

/// What the settings of a session come to.
pub(crate) struct Engine {
    pub governor: Arc<MemoryGovernor>,
    pub runtime: Arc<RuntimeEnv>,
    pub config: SessionConfig,
    temp_space: Arc<TempSpace>,
    pub media: Arc<Media>,
}

impl Engine {
    pub(crate) fn temp_space(&self) -> Arc<TempSpace> {
        Arc::clone(&self.temp_space)
    }

    /// For a session that starts.
    pub(crate) fn start(
        settings: &Settings,
        media: Arc<Media>,
        resident: Option<ResidentBound>,
    ) -> Result<Self> {
        let governor = MemoryGovernor::new(Some(settings.memory_limit_bytes as usize));
        let governor = Arc::new(governor.with_resident_bound(resident));
        governor.set_caching(settings.table_cache);
        let config = SessionConfig::new()
            .with_default_catalog_and_schema(crate::catalog::CATALOG, crate::catalog::SCHEMA)
            .with_create_default_catalog_and_schema(false)
            // Without one, TIMESTAMP WITH TIME ZONE is a TIMESTAMP, and its offset is lost.
            .set_str("datafusion.execution.time_zone", "+00:00")
            // Of several functions DataFusion forgets those whose argument is no column, as in `min(x), max(x + 1)`, and
            // leaves out rows that they need.
            .set_bool("datafusion.optimizer.enable_aggregate_dynamic_filter_pushdown", false)
            .with_extension(governor.read_cache());
        Self::with_new_temp_space(settings, media, governor, config)
    }

    /// For a session whose settings change. What runs keeps what it has.
    pub(crate) fn changed(&self, old: &Settings, new: &Settings, config: SessionConfig) -> Result<Self> {
        self.governor.set_limit_bytes(Some(new.memory_limit_bytes as usize));
        self.governor.set_caching(new.table_cache);
        if (&old.temp_directory, old.io_backend) != (&new.temp_directory, new.io_backend) {
            let media = if old.io_backend == new.io_backend {
                Arc::clone(&self.media)
            } else {
                Media::new(device_options(new), new.open_device.clone(), None)
            };
            return Self::with_new_temp_space(new, media, Arc::clone(&self.governor), config);
        }
        self.temp_space.set_quota_bytes(new.temp_quota_bytes);
        self.temp_space.set_policies(new.temp_preallocation, new.temp_discard);
        self.temp_space.set_compression(new.temp_compression, new.threads);
        if let Some(sources) = config.get_extension::<Sources>() {
            sources.auto_calibrate.store(may_calibrate(new), Ordering::Relaxed);
        }
        let folder = config.get_extension::<OperatorFolder>();
        let folder = folder.ok_or_else(|| Error::setting("the session has lost its temporary folder"))?;
        let runtime = if old.temp_quota_bytes == new.temp_quota_bytes {
            limit_caches(&self.runtime, new);
            Arc::clone(&self.runtime)
        } else {
            runtime(new, &self.governor, &folder)?
        };
        Ok(Engine {
            governor: Arc::clone(&self.governor),
            runtime,
            config: configured(config, new),
            temp_space: Arc::clone(&self.temp_space),
            media: Arc::clone(&self.media),
        })
    }

    fn with_new_temp_space(
        settings: &Settings,
        media: Arc<Media>,
        governor: Arc<MemoryGovernor>,
        config: SessionConfig,
    ) -> Result<Self> {
        let fail = |reason: String| {
            Error::setting(format!(
                "temp_directory: '{}' cannot be used ({reason}); choose another with SET temp_directory or --temp-dir",
                settings.temp_directory.display()
            ))
        };
        fs::create_dir_all(&settings.temp_directory).map_err(|error| fail(error.to_string()))?;
        let device = media.directory(&settings.temp_directory).map_err(|error| fail(error.to_string()))?;
        let folders = [Some(settings.temp_directory.clone()), media.database_folder()];
        let folders = folders.into_iter().flatten().collect();
        let options = TempOptions {
            quota_bytes: settings.temp_quota_bytes,
            preallocation: settings.temp_preallocation,
            discard: settings.temp_discard,
            compression: settings.temp_compression,
            workers: settings.threads,
            ..TempOptions::default()
        };
        let temp_space = TempSpace::open(device, options).map_err(|error| fail(error.to_string()))?;
        let folder =
            OperatorFolder::create(&settings.temp_directory).map_err(|error| fail(error.to_string()))?;
        let folder = Arc::new(folder);
        Ok(Engine {
            runtime: runtime(settings, &governor, &folder)?,
            governor,
            config: configured(config, settings)
                .with_extension(Arc::new(SessionTempSpace(Arc::clone(&temp_space))))
                .with_extension(Arc::new(Sources::new(Arc::clone(&media), folders, may_calibrate(settings))))
                .with_extension(folder),
            temp_space,
            media,
        })
    }
}

/// Whether devices may be measured unasked: not where so much must not be written.
fn may_calibrate(settings: &Settings) -> bool {
    settings.auto_calibrate && settings.temp_quota_bytes.is_none_or(|quota| quota >= CALIBRATION_BYTES)
}

/// Under smaller limits, Parquet files are written in row groups of a share of the limit, by one thread each.
const PARALLEL_WRITING_BYTES: u64 = 256 << 20;
const ROW_GROUP_SHARE: u64 = 16;

/// How devices are opened under these settings.
pub(crate) fn device_options(settings: &Settings) -> DeviceOptions {
    let backend = match settings.io_backend {
        IoBackend::Auto => Backend::Auto,
        IoBackend::IoUring => Backend::IoUring,
        IoBackend::ThreadPool => Backend::ThreadPool,
    };
    let retained_buffer_bytes = (settings.memory_limit_bytes / BUFFER_SHARE).min(MOST_BUFFER_BYTES) as usize;
    DeviceOptions { backend, retained_buffer_bytes, ..DeviceOptions::default() }
}

/// The settings that DataFusion's planner and operators read.
fn configured(config: SessionConfig, settings: &Settings) -> SessionConfig {
    let mut config = config
        .with_target_partitions(settings.threads)
        .with_batch_size(settings.batch_rows())
        .with_extension(Arc::new(settings.sort_algorithm));
    settings.join_algorithm.set_in(&mut config);
    // A row group is in memory, encoded, until it is written, and by columns in parallel only its rows are counted.
    let parquet = &mut config.options_mut().execution.parquet;
    let is_small = settings.memory_limit_bytes < PARALLEL_WRITING_BYTES;
    let row_group = MaxRowGroupBytes::try_new((settings.memory_limit_bytes / ROW_GROUP_SHARE) as usize);
    parquet.allow_single_file_parallelism = !is_small;
    parquet.max_row_group_bytes = row_group.ok().filter(|_| is_small);
    config
}

fn runtime(
    settings: &Settings,
    governor: &Arc<MemoryGovernor>,
    folder: &OperatorFolder,
) -> Result<Arc<RuntimeEnv>> {
    let disk = DiskManagerBuilder::default()
        .with_mode(DiskManagerMode::Directories(vec![folder.path.clone()]))
        .with_max_temp_directory_size(settings.temp_quota_bytes.unwrap_or(u64::MAX));
    let (metadata_bytes, statistics_bytes) = cache_bytes(settings);
    let cache = CacheManagerConfig::default()
        .with_metadata_cache_limit(metadata_bytes)
        .with_file_statistics_cache_limit(statistics_bytes)
        .with_list_files_cache_limit(0);
    let pool: Arc<dyn MemoryPool> = Arc::clone(governor) as _;
    let builder = RuntimeEnvBuilder::new()
        .with_memory_pool(pool)
        .with_disk_manager_builder(disk)
        .with_cache_manager(cache);
    Ok(builder.build_arc()?)
}

/// The most that metadata and statistics of files may take.
fn cache_bytes(settings: &Settings) -> (usize, usize) {
    let metadata_bytes = (settings.memory_limit_bytes / CACHE_SHARE).min(MOST_CACHE_BYTES) as usize;
    (metadata_bytes, metadata_bytes / 8)
}

fn limit_caches(runtime: &RuntimeEnv, settings: &Settings) {
    let (metadata_bytes, statistics_bytes) = cache_bytes(settings);
    runtime.cache_manager.get_file_metadata_cache().update_cache_limit(metadata_bytes);
    if let Some(statistics) = runtime.cache_manager.get_file_statistic_cache() {
        statistics.update_cache_limit(statistics_bytes);
    }
}

/// The folder for temporary files of DataFusion's own operators (exchanges, mostly). A file in it is locked while it is
/// in use, so that what a killed process left is known for garbage at the next start, whatever number that process has.
#[derive(Debug)]
pub(crate) struct OperatorFolder {
    pub path: PathBuf,
    _lock: fs::File,
}

const FOLDER_PREFIX: &str = "nandina-operators-";
const FOLDER_LOCK: &str = "owner.lock";

impl OperatorFolder {
    pub(crate) fn create(parent: &Path) -> std::io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        remove_abandoned(parent);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("{FOLDER_PREFIX}{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => {}
                // Of an earlier process with this number, or of one in another container.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            }
            // Another process may take the folder for a leftover until it is locked.
            let lock_path = path.join(FOLDER_LOCK);
            let lock = match fs::File::create(&lock_path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                created => created?,
            };
            if lock.try_lock().is_ok() && lock_path.exists() {
                return Ok(OperatorFolder { path, _lock: lock });
            }
        }
    }
}

impl Drop for OperatorFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            log::warn!("cannot remove the temporary folder {}: {error}", self.path.display());
        }
    }
}

/// Removes the folders of processes that are gone.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(FOLDER_PREFIX));
        let lock = if is_ours { fs::File::open(entry.path().join(FOLDER_LOCK)) } else { continue };
        let removed = match lock {
            Ok(lock) if lock.try_lock().is_ok() => fs::remove_dir_all(entry.path()),
            Ok(_) => continue,
            // Its process is about to lock it, and will make another one; or ended before, or is of an earlier version.
            Err(_) if is_of_a_dead_process(&entry.file_name()) => fs::remove_dir_all(entry.path()),
            Err(_) => fs::remove_dir(entry.path()),
        };
        if let Err(error) = removed
            && error.kind() != std::io::ErrorKind::NotFound
        {
            log::warn!("cannot remove what an earlier process left in {}: {error}", entry.path().display());
        }
    }
}

fn is_of_a_dead_process(folder: &OsStr) -> bool {
    let process = folder.to_str().and_then(|name| name.strip_prefix(FOLDER_PREFIX)?.split('-').next());
    process.is_some_and(|process| !Path::new("/proc").join(process).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(settings: &Settings) -> Engine {
        Engine::start(
            settings,
            Media::new(device_options(settings), settings.open_device.clone(), None),
            None,
        )
        .unwrap()
    }
    use crate::options::Options;

    fn settings(directory: &Path) -> Settings {
        let options = Options { temp_directory: Some(directory.to_path_buf()), ..Options::default() };
        Settings::resolve(&options, None).unwrap()
    }

    #[test]
    fn folders_of_other_processes_are_known_by_their_locks() {
        let folder = tempfile::tempdir().unwrap();
        let named = |process: u32| folder.path().join(format!("{FOLDER_PREFIX}{process}-0"));
        // Killed with a number that this process has, one that lives has, and before it had a lock.
        for process in [std::process::id(), 1] {
            fs::create_dir(named(process)).unwrap();
            fs::write(named(process).join(FOLDER_LOCK), "").unwrap();
            fs::write(named(process).join("rows"), "left").unwrap();
        }
        fs::create_dir(named(7)).unwrap();
        // In use by a process of another container.
        fs::create_dir(named(2)).unwrap();
        let others = fs::File::create(named(2).join(FOLDER_LOCK)).unwrap();
        others.try_lock().unwrap();
        let _engine = start(&settings(folder.path()));
        assert!(named(2).exists() && !named(1).exists() && !named(7).exists());
        assert!(!named(std::process::id()).join("rows").exists());
    }

    #[test]
    fn temporary_folders_live_as_long_as_a_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let names = || fs::read_dir(folder.path()).unwrap().count();
        let engine = start(&settings(folder.path()));
        let config = engine.config.clone();
        drop(engine);
        assert_eq!(names(), 2);
        drop(config);
        assert_eq!(names(), 0);
    }

    #[test]
    fn what_a_killed_process_left_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        // No process has this number: the kernel's largest is 4194304.
        let left = folder.path().join(format!("{FOLDER_PREFIX}4294967295-0/datafusion-abc"));
        fs::create_dir_all(&left).unwrap();
        let _engine = start(&settings(folder.path()));
        assert!(!left.exists());
    }

    #[test]
    fn changes_keep_the_temporary_space_unless_they_concern_it() {
        let folder = tempfile::tempdir().unwrap();
        let old = settings(folder.path());
        let engine = start(&old);
        let limited = old.with("memory_limit", "64MB").unwrap();
        let changed = engine.changed(&old, &limited, engine.config.clone()).unwrap();
        assert!(Arc::ptr_eq(&engine.temp_space, &changed.temp_space));
        assert_eq!(changed.governor.limit_bytes(), Some(64 << 20));
        assert_eq!(changed.config.batch_size(), limited.batch_rows());
        let immediate = old.with("temp_discard", "immediate").unwrap();
        let changed = engine.changed(&old, &immediate, engine.config.clone()).unwrap();
        assert!(Arc::ptr_eq(&engine.temp_space, &changed.temp_space));
        drop(engine.temp_space.query("test").allocate(1 << 20).unwrap());
        assert_eq!(engine.temp_space.kept_bytes(), 0, "nothing waits for the next query");
        let moved = old.with("temp_directory", &folder.path().join("x").display().to_string()).unwrap();
        let changed = engine.changed(&old, &moved, engine.config.clone()).unwrap();
        assert!(!Arc::ptr_eq(&engine.temp_space, &changed.temp_space));
    }
}
