//! Where does data live?
//!
//! A database is a directory: a manifest that names everything, and segment files of PAX pages. A write statement
//! appends one segment file and then replaces the manifest; readers keep the snapshot they started with.
//!
//! ```text
//!  nandina.lock        held by the one process that writes
//!  nandina.manifest    tables, their columns and segments, views, …; replaced atomically (manifest, objects)
//!  segment-7.pax       header │ stripe: pages… │ page index │ stripe … │ directory       (segment, page_index)
//!                                   ▲                ▲                      ▲
//!                       row id = page and slot   one row per page    one row per stripe
//! ```
//!
//! Reading goes down this picture from the right: the directory prunes stripes, a stripe's page index prunes pages
//! and says where each mini-page stands, and then only the needed mini-pages are read, in deep batches.
//!
//! Invariants:
//! * A file that the manifest names is complete and durable before the manifest names it.
//! * A segment file is never changed after that; it is deleted when no reader's snapshot names it any more.
//! * What the manifest does not name is removed when the database is opened for writing.
//!
//! Tables whose rows are changed one by one have none of this: their rows are in a row store beside the manifest (`rows`).
//!
//! Byte-level diagrams and the assumptions about the medium: `docs/format.md`.

#![allow(
    clippy::indexing_slicing,
    reason = "indices are made here, or checked where they are read from a file: a wrong one must not lose rows"
)]

mod alter;
mod backup;
mod definition;
mod error;
mod fetch;
pub mod guard;
mod ids;
mod manifest;
mod names;
mod objects;
#[cfg(test)]
mod old_versions;
mod page_filler;
mod page_index;
mod read_cache;
mod read_plan;
mod row_filter;
mod rows;
mod scan;
mod segment;
mod statistics;
mod store;
mod table;
mod writer;

pub use alter::{TableChange, TableState};
pub use definition::{IfExists, MAX_PAGE_BYTES, MIN_PAGE_BYTES, TableDefinition};
pub use error::{Result, StorageError};
pub use fetch::FetchOptions;
pub use ids::{PageNumber, RowId, SegmentId, TableId};
pub use names::{MAIN, parts, qualified};
pub use nandina_rowstore::transaction::Savepoint;
pub use objects::{ColumnDefault, ColumnOfTable, Made, Objects, Sequence, TableRules};
pub use page_index::{ColumnRange, PageRanges};
pub use read_cache::{CacheBudget, CacheVisit, ReadCache};
pub use row_filter::{PageColumns, RowFilter};
pub use rows::{
    Deferred, Durability, IndexDefinition, KeyRange, MostRows, NewRows, RowPages, RowSet, RowsKept,
    Transaction, VacuumWork, by_place,
};
pub use scan::{PagePruner, Scan, ScanFigures, ScanOptions, ScanReader};
pub use store::{MANIFEST, Mode, Snapshot, Store};
pub use table::{ColumnStatistics, PlannedBy, Table, TableStatistics};
pub use writer::{CommitSummary, TableWriter, WriteMode, WriteOptions, WriterLane};
