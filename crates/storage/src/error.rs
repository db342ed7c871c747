//! What can go wrong with a database. Every message names the file, table or page, and the way out.

use std::path::PathBuf;

use arrow_schema::ArrowError;
use nandina_device::Error as DeviceError;
use nandina_pages::PageError;

pub type Result<T, E = StorageError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    #[error("{} is not a directory: give the path of a database directory", path.display())]
    NotADirectory { path: PathBuf },

    #[error("there is no database in {}: open it for writing once to create one", path.display())]
    NoDatabase { path: PathBuf },

    #[error("database {} is open for writing in another process{holder}: close it there, or open it read-only", path.display())]
    Locked { path: PathBuf, holder: String },

    #[error("database {} was opened read-only: open it for writing to change it", path.display())]
    ReadOnly { path: PathBuf },

    #[error("{file} is damaged: {reason}; restore the database from a copy")]
    Damaged { file: String, reason: String },

    #[error(
        "{file} has format version {found}, this build reads version {supported}: open it with the release that wrote it"
    )]
    Version { file: String, found: u32, supported: u32 },

    #[error("{file}, page {page}: {source}{}", if source.is_damage() { "; restore the database from a copy" } else { "" })]
    Page { file: String, page: u64, source: PageError },

    #[error("{file}, page {page}: {source}")]
    PageRead { file: String, page: u64, source: DeviceError },

    #[error("{source}; met in {file}, page {page}")]
    RowFilter { file: String, page: u64, source: Box<dyn std::error::Error + Send + Sync> },

    #[error("table {name:?} exists already: drop it first or choose another name")]
    TableExists { name: String },

    #[error("there is no table {name:?}{hint}")]
    NoTable { name: String, hint: String },

    #[error(
        "table {name:?} was dropped or replaced while rows were being written: nothing was stored, run the statement again"
    )]
    TableGone { name: String },

    #[error(
        "rows of table {name:?} are being changed by a transaction that is open, or have been meanwhile: run the statement again when it has ended"
    )]
    TableChanging { name: String },

    #[error("page size {page_bytes} cannot be used: choose a power of two from 32 KiB to 4 MiB")]
    PageSize { page_bytes: usize },

    #[error("table {table:?}: column {column:?} is NOT NULL, but a row without a value was given")]
    NullValue { table: String, column: String },

    #[error("table {table:?}: batch schema does not match: {reason}")]
    SchemaMismatch { table: String, reason: String },

    #[error("table {table:?} has no column number {column}")]
    NoColumn { table: String, column: usize },

    #[error(
        "table {table:?} has no row with id {row_id}: row ids are valid only for the table's snapshot they came from"
    )]
    NoRow { table: String, row_id: crate::RowId },

    #[error("a lane of the writer of table {table:?} was given up before it finished: nothing was stored")]
    UnfinishedLane { table: String },

    #[error("the last change of database {} could not be confirmed on the medium: reopen the database to see whether it took effect", path.display())]
    Unconfirmed { path: PathBuf },

    #[error("database {} is replaced by its writer faster than it can be opened: try again", path.display())]
    Restless { path: PathBuf },

    #[error(
        "what the statement writes needs an index of pages of more than {max_bytes} bytes: nothing was stored, write fewer rows at once"
    )]
    IndexTooLong { max_bytes: usize },

    #[error("table {table:?} has a row with {key} already, which is unique ({index})")]
    DuplicateKey { table: String, index: String, key: String },

    #[error(
        "index {index:?}: column {column:?} is of type {data_type}, which has no order that an index can keep"
    )]
    NoKeyType { index: String, column: String, data_type: arrow_schema::DataType },

    #[error("there is an index {name:?} already: drop it first or choose another name")]
    IndexExists { name: String },

    #[error("there is no index {name:?}")]
    NoIndex { name: String },

    #[error(
        "table {name:?} has indexes, or has got one while rows were being written: no segment can be added to it, nor replace its rows; \
         nothing was stored, run the statement again, or drop the indexes"
    )]
    HasIndexes { name: String },

    #[error("table {table:?}, row {row:#x}: {source}; restore the database from a copy")]
    Row { table: String, row: u64, source: PageError },

    #[error(
        "table {name:?} keeps its rows in segments, which are only added to: CREATE TABLE … WITH (storage = 'row') makes one whose rows \
         can be changed"
    )]
    NotChangeable { name: String },

    #[error(
        "rows of database {} that can be changed are read by the process that has it open for writing alone: close it there, or \
         query it there; VACUUM there puts rows where others can read them, of tables that have neither keys nor indexes", path.display()
    )]
    RowsInUse { path: PathBuf },

    #[error("database {} has changed since it was opened to be read: open it again", path.display())]
    Outdated { path: PathBuf },

    #[error("{} is not empty: a backup goes into an empty folder", path.display())]
    BackupIntoSomething { path: PathBuf },

    #[error("a table was made in database {} after this transaction began: begin another one", path.display())]
    NewerTable { path: PathBuf },

    #[error(transparent)]
    Rows(#[from] nandina_rowstore::Error),

    #[error("writing rows that cannot be stored: {0}")]
    Encode(PageError),

    #[error(transparent)]
    Device(#[from] DeviceError),

    #[error(transparent)]
    Arrow(#[from] ArrowError),
}

impl StorageError {
    /// What a transaction is told that comes second.
    pub fn conflict() -> Self {
        Self::Rows(nandina_rowstore::Error::Conflict)
    }

    /// Whether a transaction came second.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Rows(nandina_rowstore::Error::Conflict))
    }

    pub(crate) fn damaged(file: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Damaged { file: file.into(), reason: reason.into() }
    }

    /// Whether the medium was full.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::Device(error) if error.is_no_space())
    }
}
