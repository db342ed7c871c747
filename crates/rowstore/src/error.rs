//! What can go wrong with changes. Every message names the file or folder, and the way out.

use std::path::PathBuf;
use std::sync::Arc;

use nandina_device::Error as DeviceError;

use crate::page::PageId;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Clones share what was met: all who wait for a write learn why it failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error(
        "the log in {} can no longer be written: {source}; what has been reported as committed is kept. See to the \
         device and open the database again", path.display()
    )]
    LogFailed { path: PathBuf, source: Arc<DeviceError> },

    #[error("there is no room for the log in {}: {source}; free space and try again", path.display())]
    LogFull { path: PathBuf, source: Arc<DeviceError> },

    #[error("the log in {} cannot be read: {source}", path.display())]
    LogRead { path: PathBuf, source: Arc<DeviceError> },

    #[error("{} is damaged at byte {offset}: {reason}; restore the database from a backup", path.display())]
    LogDamaged { path: PathBuf, offset: u64, reason: &'static str },

    #[error(
        "another transaction changes the same row, or has changed it since this one began; roll back and try again"
    )]
    Conflict,

    #[error("a key of {bytes} bytes is too long for an index: the longest are of {most_bytes}")]
    KeyTooLong { bytes: usize, most_bytes: usize },

    #[error("row {row} has the same key, which is unique")]
    DuplicateKey { row: crate::heap::RowId },

    #[error("there is no row {row} in this table")]
    NoSuchRow { row: crate::heap::RowId },

    #[error("a table begins with page {page} of none of this store")]
    NoSuchTable { page: PageId },

    #[error(
        "no more than {most} transactions can change something at the same time; try again when others have ended"
    )]
    TooManyWriters { most: usize },

    #[error("a record of {bytes} bytes is too long for the log: the longest are of {most_bytes}")]
    RecordTooLong { bytes: usize, most_bytes: usize },

    #[error("pages cannot be read from {}: {source}", path.display())]
    PagesRead { path: PathBuf, source: Arc<DeviceError> },

    #[error("pages cannot be written to {}: {source}; nothing that was committed is lost", path.display())]
    PagesWrite { path: PathBuf, source: Arc<DeviceError> },

    #[error("there is no room for more pages in {}: {source}; free space and try again", path.display())]
    PagesFull { path: PathBuf, source: Arc<DeviceError> },

    #[error("page {page} of {} is damaged: {reason}; restore the database from a backup", path.display())]
    PageDamaged { path: PathBuf, page: PageId, reason: &'static str },

    #[error("{} was opened to be read only; open it without that to change something", path.display())]
    ReadOnly { path: PathBuf },

    #[error("{} has files of a row store already: a backup goes to an empty folder", path.display())]
    BackupExists { path: PathBuf },

    #[error("the backup in {} was not written: {source}; free space and try again", path.display())]
    BackupWrite { path: PathBuf, source: Arc<DeviceError> },

    #[error("{} is no page file that can be used: {reason}", path.display())]
    NoPageFile { path: PathBuf, reason: String },

    #[error(
        "all {frames} pages of the buffer pool are in use at the same time; give the database more memory, or use \
         fewer threads"
    )]
    PoolTooSmall { frames: usize },
}
