//! What can be wrong with a page, or with rows that should go into one.

use arrow_schema::{ArrowError, DataType};

pub type Result<T, E = PageError> = std::result::Result<T, E>;

/// Every variant says what was found, and in which page and column as far as that is known.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    #[error(
        "page is {found_bytes} bytes long, but its {part} needs {needed_bytes}: it is truncated or was not written completely"
    )]
    Truncated { part: &'static str, found_bytes: usize, needed_bytes: usize },

    #[error(
        "not a PAX page: it starts with {found:#010x} instead of {expected:#010x}: it is damaged, or the file is not one of Nandina's"
    )]
    Magic { found: u32, expected: u32 },

    #[error(
        "page {page_number} has format version {found}, this build reads version {supported}: open it with the release that wrote it"
    )]
    Version { page_number: u64, found: u16, supported: u16 },

    #[error("header of page {page_number} is damaged: checksum {found:#010x}, computed {computed:#010x}")]
    HeaderChecksum { page_number: u64, found: u32, computed: u32 },

    #[error("mini-page of column {column:?}{page} is damaged: checksum {expected:#010x}, computed {computed:#010x}", page = on_page(*page_number))]
    MiniPageChecksum { page_number: Option<u64>, column: String, expected: u32, computed: u32 },

    #[error("page {page_number} has {found} columns, its schema has {expected}: it belongs to another table")]
    ColumnCount { page_number: u64, found: usize, expected: usize },

    #[error("column {column:?}{page} cannot be decoded: {reason}; it is damaged or belongs to another table", page = on_page(*page_number))]
    Malformed { page_number: Option<u64>, column: String, reason: String },

    #[error("column number {column} was asked for, the page has {columns}")]
    NoSuchColumn { column: usize, columns: usize },

    #[error("batch does not fit the page's schema: column {column} is {found}, expected {expected}")]
    TypeMismatch { column: usize, found: DataType, expected: DataType },

    #[error("batch has {found} columns, the page's schema has {expected}")]
    BatchColumns { found: usize, expected: usize },

    #[error("row {row} was asked for, the batch has {rows} rows")]
    RowOutOfRange { row: usize, rows: usize },

    #[error(
        "column {column:?} holds a value of {value_bytes} bytes; at most {max_bytes} fit into one page: split the value"
    )]
    ValueTooLong { column: String, value_bytes: u64, max_bytes: u64 },

    #[error("page needs {needed_bytes} bytes, the buffer has {buffer_bytes}")]
    BufferTooSmall { needed_bytes: usize, buffer_bytes: usize },

    #[error("column {column:?} of type {data_type} cannot be stored in a page")]
    Unsupported { column: String, data_type: DataType },

    #[error(transparent)]
    Arrow(#[from] ArrowError),
}

fn on_page(page_number: Option<u64>) -> String {
    page_number.map(|number| format!(" of page {number}")).unwrap_or_default()
}

impl PageError {
    /// Whether the bytes read are not those written.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Truncated { .. }
            | Self::Magic { .. }
            | Self::HeaderChecksum { .. }
            | Self::MiniPageChecksum { .. }
            | Self::ColumnCount { .. }
            | Self::Malformed { .. } => true,
            Self::Version { .. }
            | Self::NoSuchColumn { .. }
            | Self::TypeMismatch { .. }
            | Self::BatchColumns { .. }
            | Self::RowOutOfRange { .. }
            | Self::ValueTooLong { .. }
            | Self::BufferTooSmall { .. }
            | Self::Unsupported { .. }
            | Self::Arrow(_) => false,
        }
    }

    /// Adds the page number to errors of mini-pages, which do not know the page they come from.
    #[must_use]
    pub fn in_page(mut self, number: u64) -> Self {
        match &mut self {
            Self::MiniPageChecksum { page_number, .. } | Self::Malformed { page_number, .. } => {
                page_number.get_or_insert(number);
            }
            _ => {}
        }
        self
    }

    pub(crate) fn malformed(column: &str, reason: impl Into<String>) -> Self {
        Self::Malformed { page_number: None, column: column.to_owned(), reason: reason.into() }
    }
}
