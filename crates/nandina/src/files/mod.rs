//! Files as tables: `SELECT … FROM 'orders.parquet'`, without declaring anything.
//!
//! A table name that looks like a path (it has a folder, an extension of a known format, a pattern or a
//! leading `~`) and is not the name of a table stands for files:
//!
//! ```text
//!   'orders.parquet'   '~/data/*.csv'   'logs/2026-??.ndjson.gz'   'export/'
//!         └── expanded to the files that exist ──┴── one format ──┴── one schema, merged over the files
//! ```
//!
//! Every way this can fail names the file: missing, unreadable, of unknown or mixed format, or with contents
//! that are not what the name says.

mod arrow;
pub(crate) mod csv;
mod json;
pub(crate) mod names;
pub(crate) mod parquet;
pub(crate) mod partitioned;
pub(crate) mod provisional;
pub(crate) mod schema;
pub(crate) mod sinks;
pub(crate) mod sources;
mod text_scan;

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use datafusion::catalog::{TableProvider, UrlTableFactory};
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::arrow::ArrowFormat;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::execution::SessionState;
use datafusion::object_store::ObjectStoreExt as _;
use parking_lot::RwLock;

use self::csv::{CsvDialect, CsvFiles, likely_options};
use self::json::JsonFiles;
use self::names::{Format, Kind, common_kind, display, expand, looks_like_path};
use self::parquet::AccountedParquet;
use crate::error::{Error, Result};

/// Makes tables of the paths that stand where a table name is expected.
#[derive(Debug)]
pub(crate) struct FileTables {
    state: Weak<RwLock<SessionState>>,
}

impl FileTables {
    pub(crate) fn new(state: Weak<RwLock<SessionState>>) -> Self {
        FileTables { state }
    }
}

#[async_trait]
impl UrlTableFactory for FileTables {
    async fn try_new(&self, name: &str) -> datafusion::common::Result<Option<Arc<dyn TableProvider>>> {
        if !looks_like_path(name) {
            return Ok(None);
        }
        // The session is being dropped when the state is gone; nothing can be looked up then.
        let Some(state) = self.state.upgrade().map(|state| state.read().clone()) else { return Ok(None) };
        Ok(Some(open(&state, &[name], &CsvDialect::default()).await?))
    }
}

/// Opens the files that `names` stand for (paths, folders, patterns) as one table.
pub(crate) async fn open(
    state: &SessionState,
    names: &[&str],
    dialect: &CsvDialect,
) -> Result<Arc<dyn TableProvider>> {
    let mut files = Vec::new();
    for name in names {
        files.extend(expand(name)?);
    }
    let name = &names.join(", ");
    let kind = common_kind(name, &files)?;
    let format = reader(state, kind, &files, dialect)?;
    let mut urls = Vec::with_capacity(files.len());
    for file in &files {
        let url =
            url::Url::from_file_path(file).map_err(|()| Error::file(name, "the path is not absolute"))?;
        urls.push(ListingTableUrl::try_new(url, None)?);
    }
    let Some(first) = urls.first() else { return Err(Error::unsupported("a table of no files")) };
    let store = state.runtime_env().object_store(first)?;
    let mut objects = Vec::with_capacity(urls.len());
    for (url, file) in urls.iter().zip(&files) {
        let object = store.head(url.prefix()).await;
        objects.push(object.map_err(|error| Error::file(display(file), error.to_string()))?);
    }
    let schema = schema::of_files(state, format.as_ref(), &store, &objects).await?;
    if schema.fields().is_empty() {
        return Err(Error::file(name, format!("the {} file has no columns", kind.format.name())));
    }
    // The names were given one by one, so none must be filtered out by its extension again.
    let options = ListingOptions::new(format).with_file_extension("");
    let config =
        ListingTableConfig::new_with_multi_paths(urls).with_listing_options(options).with_schema(schema);
    let cache = state.runtime_env().cache_manager.get_file_statistic_cache();
    Ok(Arc::new(ListingTable::try_new(config)?.with_cache(cache)))
}

/// The DataFusion reader for a kind of file, with the session's defaults.
fn reader(
    state: &SessionState,
    kind: Kind,
    files: &[PathBuf],
    dialect: &CsvDialect,
) -> Result<Arc<dyn FileFormat>> {
    let defaults = state.default_table_options();
    Ok(match kind.format {
        Format::Parquet => {
            let format = ParquetFormat::default().with_options(defaults.parquet);
            Arc::new(AccountedParquet(Arc::new(format)))
        }
        Format::Arrow => Arc::new(ArrowFormat),
        Format::Json => {
            let is_array = kind.compression == FileCompressionType::UNCOMPRESSED
                && files.first().is_some_and(|file| first_lines(file).trim_start().starts_with('['));
            Arc::new(JsonFiles(
                JsonFormat::default()
                    .with_options(defaults.json)
                    .with_file_compression_type(kind.compression)
                    .with_newline_delimited(!is_array),
            ))
        }
        Format::Csv => {
            Arc::new(CsvFiles::new(likely_options(defaults.csv, kind.compression, files, dialect)))
        }
    })
}

/// The first few kilobytes of a file as text; empty when they cannot be read.
fn first_lines(file: &Path) -> String {
    let mut start = Vec::new();
    let read = File::open(file).and_then(|file| file.take(16 << 10).read_to_end(&mut start));
    if read.is_err() {
        return String::new();
    }
    String::from_utf8_lossy(&start).trim_start_matches('\u{feff}').to_owned()
}
