//! The options of opening a database, and their defaults.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use nandina_device::{Device, DeviceOptions};
use nandina_exec::memory::ResidentBound;
use nandina_plan::{JoinAlgorithm, SortAlgorithm};
use nandina_spill::{Compression, Discard, Preallocation};
use nandina_storage::Durability;

use crate::error::{Error, Result};
use crate::{byte_size, process_memory};

/// Share of the usable memory that a session takes unless told otherwise, in percent. The rest is for the
/// page cache, the rest of the program that embeds the session, and the fixed overhead.
const DEFAULT_MEMORY_PERCENT: u64 = 60;
/// Below this an operator could not keep even its fixed buffers (partition sub-pages, one batch per input).
pub(crate) const SMALLEST_MEMORY_LIMIT_BYTES: u64 = 1 << 20;
/// The buffer pool of rows of a database has this part of the limit.
pub(crate) const POOL_SHARE: usize = 4;
/// More workers than any machine has use for.
pub const MOST_THREADS: usize = 1024;
/// Rows per batch where memory allows: DataFusion's own default, which its kernels are tuned for.
const BATCH_ROWS: usize = 8192;

/// How requests reach the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IoBackend {
    /// io_uring where the system permits it, a pool of threads elsewhere.
    #[default]
    Auto,
    IoUring,
    ThreadPool,
}

impl IoBackend {
    /// The values of the setting `io_backend`.
    pub const NAMES: [&'static str; 3] = ["auto", "io_uring", "threads"];

    pub fn name(self) -> &'static str {
        match self {
            IoBackend::Auto => "auto",
            IoBackend::IoUring => "io_uring",
            IoBackend::ThreadPool => "threads",
        }
    }
}

impl FromStr for IoBackend {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.to_ascii_lowercase().as_str() {
            "auto" => Ok(IoBackend::Auto),
            "io_uring" => Ok(IoBackend::IoUring),
            "threads" => Ok(IoBackend::ThreadPool),
            _ => {
                Err(Error::setting(format!("io_backend is one of {}, not '{text}'", Self::NAMES.join(", "))))
            }
        }
    }
}

/// Choices for a database; `None` stands for a default that fits the machine.
///
/// ```
/// let options = nandina::Options { memory_limit: Some(256 << 20), ..Default::default() };
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    /// Bytes that a session may hold. Default: 60 % of what the process may use.
    pub memory_limit: Option<u64>,
    /// Folder for what does not fit in memory. Default: `temp` inside the database directory, or the system's
    /// folder for temporary files where there is none, or none that a reader may write to.
    pub temp_directory: Option<PathBuf>,
    /// Most bytes of temporary files at once. Default: what the disk has.
    pub temp_quota: Option<u64>,
    /// Where the space of temporary files comes from.
    pub temp_preallocation: Preallocation,
    /// When space of temporary files that is no longer needed is given back.
    pub temp_discard: Discard,
    /// Whether what does not fit into memory is compressed.
    pub temp_compression: Compression,
    /// How sorts are done.
    pub sort_algorithm: SortAlgorithm,
    /// How joins are done.
    pub join_algorithm: JoinAlgorithm,
    /// Workers per operator. Default: the processors available to this process.
    pub threads: Option<usize>,
    /// How requests reach the device.
    pub io_backend: IoBackend,
    /// Rows per batch. Default: 8192, fewer under small memory limits.
    pub batch_size: Option<usize>,
    /// Whether devices that nothing is known about are measured before the first statement that reads much: at most
    /// two seconds and 256 MiB, once.
    pub auto_calibrate: bool,
    /// Whether changed rows, and small segments, go into larger segments by themselves while the database is open for writing.
    pub background_vacuum: bool,
    /// For experiments: devices that are not what the file system offers.
    pub open_device: OpenDevice,
    /// How much of this process may be resident beyond the limit, in a program that has one session and does nothing
    /// beside its queries. Default: it is not watched.
    pub resident: Option<ResidentBound>,
    /// Whether the database is only read, as it is now: then another process may have it open.
    pub read_only: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory_limit: None,
            temp_directory: None,
            temp_quota: None,
            temp_preallocation: Preallocation::default(),
            temp_discard: Discard::default(),
            temp_compression: Compression::default(),
            sort_algorithm: SortAlgorithm::default(),
            join_algorithm: JoinAlgorithm::default(),
            threads: None,
            io_backend: IoBackend::default(),
            batch_size: None,
            auto_calibrate: true,
            background_vacuum: true,
            open_device: OpenDevice::default(),
            resident: None,
            read_only: false,
        }
    }
}

/// How the device of a directory is opened: with [`Device::open`] unless said otherwise.
#[derive(Clone)]
pub struct OpenDevice(Arc<OpenDirectory>);

type OpenDirectory = dyn Fn(&Path, &DeviceOptions) -> nandina_device::Result<Device> + Send + Sync;

impl OpenDevice {
    pub fn with(
        open: impl Fn(&Path, &DeviceOptions) -> nandina_device::Result<Device> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(open))
    }

    pub(crate) fn open(&self, directory: &Path, options: &DeviceOptions) -> nandina_device::Result<Device> {
        (self.0)(directory, options)
    }
}

impl Default for OpenDevice {
    fn default() -> Self {
        Self::with(|directory, options| Device::open(directory, options.clone()))
    }
}

impl PartialEq for OpenDevice {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl std::fmt::Debug for OpenDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OpenDevice")
    }
}

/// The choices in force in a session: options with their defaults filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub memory_limit_bytes: u64,
    pub temp_directory: PathBuf,
    pub temp_quota_bytes: Option<u64>,
    pub temp_preallocation: Preallocation,
    pub temp_discard: Discard,
    pub temp_compression: Compression,
    pub sort_algorithm: SortAlgorithm,
    pub join_algorithm: JoinAlgorithm,
    pub threads: usize,
    pub io_backend: IoBackend,
    pub auto_calibrate: bool,
    /// Of all sessions of a database, once one of them has set it.
    pub background_vacuum: bool,
    /// Whether what was read of tables stays in memory that no query needs. Set by `SET` alone.
    pub table_cache: bool,
    /// What a crash may lose of committed transactions.
    pub durability: Durability,
    /// How long a statement may take, from its text to its last row. Set by `SET` alone.
    pub statement_timeout: Option<Duration>,
    pub open_device: OpenDevice,
    /// As the user set it; [`Settings::batch_rows`] is the value in use.
    pub batch_size: Option<usize>,
}

impl Settings {
    /// Fills in the defaults for a database in `directory` (none: in memory).
    pub fn resolve(options: &Options, directory: Option<&Path>) -> Result<Self> {
        let settings = Settings {
            memory_limit_bytes: options.memory_limit.unwrap_or_else(default_memory_limit),
            temp_directory: options
                .temp_directory
                .clone()
                .unwrap_or_else(|| default_temp_directory(directory, options.read_only)),
            temp_quota_bytes: options.temp_quota,
            temp_preallocation: options.temp_preallocation,
            temp_discard: options.temp_discard,
            temp_compression: options.temp_compression,
            sort_algorithm: options.sort_algorithm,
            join_algorithm: options.join_algorithm,
            threads: options.threads.unwrap_or_else(available_threads),
            io_backend: options.io_backend,
            auto_calibrate: options.auto_calibrate,
            background_vacuum: options.background_vacuum,
            table_cache: true,
            durability: Durability::Full,
            statement_timeout: None,
            open_device: options.open_device.clone(),
            batch_size: options.batch_size,
        };
        settings.check()?;
        Ok(settings)
    }

    /// Refuses values that no query could run with.
    pub(crate) fn check(&self) -> Result<()> {
        if self.memory_limit_bytes < SMALLEST_MEMORY_LIMIT_BYTES {
            return Err(Error::setting(format!(
                "memory_limit is at least {}, not {} bytes",
                byte_size::format(SMALLEST_MEMORY_LIMIT_BYTES),
                self.memory_limit_bytes
            )));
        }
        if !(1..=MOST_THREADS).contains(&self.threads) {
            let message = format!("threads is between 1 and {MOST_THREADS}, not {}", self.threads);
            return Err(Error::setting(message));
        }
        if self.batch_size.is_some_and(|rows| !(1..=1 << 20).contains(&rows)) {
            return Err(Error::setting("batch_size is between 1 and 1048576 rows".to_owned()));
        }
        Ok(())
    }

    /// Rows per batch. Several batches are under way per worker (reader, exchange, operator, output); with
    /// rows of a few hundred bytes, 8192 of them come to megabytes each, which small limits do not have.
    pub fn batch_rows(&self) -> usize {
        self.batch_size.unwrap_or(match self.memory_limit_bytes >> 20 {
            0..16 => BATCH_ROWS / 8,
            16..48 => BATCH_ROWS / 4,
            48..64 => BATCH_ROWS / 2,
            _ => BATCH_ROWS,
        })
    }
}

/// 60 % of what the process may use.
pub fn default_memory_limit() -> u64 {
    (process_memory::usable_bytes() / 100 * DEFAULT_MEMORY_PERCENT).max(SMALLEST_MEMORY_LIMIT_BYTES)
}

fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// `temp` in the database's folder. Without one, and where a reader may not write there, the system's folder for temporary
/// files, unless that is kept in memory: then the one for large files.
fn default_temp_directory(database: Option<&Path>, read_only: bool) -> PathBuf {
    let own = database.map(|database| database.join("temp"));
    // A database that is only read may be another user's, or on a medium that cannot be written.
    if let Some(own) = own.filter(|own| !read_only || can_be_written(own)) {
        return own;
    }
    let system = std::env::temp_dir();
    let on_disk = Path::new("/var/tmp");
    if process_memory::is_memory_file_system(&system) && on_disk.is_dir() {
        on_disk.to_path_buf()
    } else {
        system
    }
}

/// Whether this process may make files in a folder, which is made if need be.
fn can_be_written(folder: &Path) -> bool {
    let probe = folder.join(format!("nandina-probe-{}", std::process::id()));
    let made = std::fs::create_dir_all(&probe);
    made.and_then(|()| std::fs::remove_dir(&probe)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_fit_the_machine() {
        let settings = Settings::resolve(&Options::default(), None).unwrap();
        assert!(settings.memory_limit_bytes < process_memory::usable_bytes());
        assert_eq!(settings.threads, available_threads());
        assert_eq!(settings.temp_quota_bytes, None);
    }

    #[test]
    fn a_database_spills_beside_its_tables() {
        let settings = Settings::resolve(&Options::default(), Some(Path::new("/data/shop"))).unwrap();
        assert_eq!(settings.temp_directory, Path::new("/data/shop/temp"));
    }

    #[test]
    fn batches_shrink_with_the_limit() {
        let rows = |mebibytes: u64| {
            let options = Options { memory_limit: Some(mebibytes << 20), ..Options::default() };
            Settings::resolve(&options, None).unwrap().batch_rows()
        };
        assert_eq!([rows(8), rows(32), rows(63), rows(64)], [1024, 2048, 4096, 8192]);
    }

    #[test]
    fn impossible_values_are_refused() {
        let tiny = Options { memory_limit: Some(1000), ..Options::default() };
        assert!(Settings::resolve(&tiny, None).unwrap_err().to_string().contains("at least 1 MiB"));
        let idle = Options { threads: Some(0), ..Options::default() };
        assert!(Settings::resolve(&idle, None).is_err());
        assert!("uring".parse::<IoBackend>().unwrap_err().to_string().contains("io_uring"));
    }
}
