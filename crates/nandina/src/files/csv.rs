//! CSV files, read record by record.
//!
//! DataFusion's reader splits a large file at any line break, and so inside quoted values that have one. Here one thread
//! goes over the text from its beginning, so that it knows which line breaks are inside quotes, and cuts it into chunks of
//! whole records, which several threads parse:
//!
//! ```text
//!   file ─► decompress ─► chunks ─┬─► parse ─┬─► batches, in the order of the file
//!                                 └─► parse ─┘
//! ```
//!
//! What a file's first records say is found out before: how they are written (`sniff`), whether there is a header (`dialect`), the types
//! (`infer`), unless it is said (`extras`). Files of one table may have their columns in different orders; their headers tell
//! (`columns`). What the parser does not know is read as text and converted (`convert`), as are dates in other formats than ISO 8601's
//! (`formats`).

mod chunks;
mod columns;
mod convert;
mod dialect;
mod encoding;
mod extras;
mod format;
mod formats;
mod infer;
mod records;
mod scan;
mod sniff;

pub(crate) use self::columns::{by_name, columns_of_fields};
pub(crate) use self::dialect::likely_options;
pub use self::dialect::{CsvDialect, NeverNull};
pub use self::encoding::Encoding;
pub(crate) use self::extras::Extras;
pub(crate) use self::format::{CsvFiles, CsvFilesFactory};
