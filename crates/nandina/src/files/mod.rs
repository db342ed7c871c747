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
//! Functions say more of how files are to be read (`call`, `reading`), and columns come from where files are (`located`).
//!
//! Every way this can fail names the file: missing, unreadable, of unknown or mixed format, or with contents
//! that are not what the name says.

mod arrow;
pub(crate) mod call;
mod contents;
pub(crate) mod csv;
mod json;
pub(crate) mod located;
pub(crate) mod names;
pub(crate) mod option_value;
pub(crate) mod output;
pub(crate) mod parquet;
pub(crate) mod partitioned;
pub(crate) mod provisional;
pub(crate) mod reading;
pub(crate) mod schema;
pub(crate) mod sinks;
mod sniffed;
pub(crate) mod sources;
mod text_scan;
mod told;
pub(crate) mod written;

use std::collections::HashSet;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use ::arrow::datatypes::{Field, Schema, SchemaRef};
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

use self::call::{Call, Function};
use self::contents::Content;
use self::csv::{CsvFiles, Extras, likely_options};
use self::json::JsonFiles;
use self::located::{Located, LocatedFiles};
use self::names::{Format, Kind, common_kind, display, existing, expand, kind_as, looks_like_path};
use self::parquet::AccountedParquet;
use self::reading::{Reading, type_named};
use self::schema::OtherTypes;
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
        let call = Call::parse(name).transpose()?;
        if call.is_none() && !looks_like_path(name) {
            return Ok(None);
        }
        // The session is being dropped when the state is gone; nothing can be looked up then.
        let Some(state) = self.state.upgrade().map(|state| state.read().clone()) else { return Ok(None) };
        Ok(Some(match call {
            Some(call) => table_of(&state, &call).await?,
            None => open(&state, &Reading::of_names(&[name])).await?,
        }))
    }
}

/// The table that a function in `FROM` gives.
async fn table_of(state: &SessionState, call: &Call) -> Result<Arc<dyn TableProvider>> {
    let reading = Reading::of_call(call)?;
    match call.function {
        Function::Csv | Function::Parquet | Function::Json | Function::JsonLines | Function::JsonArray => {
            open(state, &reading).await
        }
        Function::SniffCsv => sniffed::table(state, &reading).await,
        Function::ParquetMetadata => told::parquet_metadata(&reading.names),
        Function::ParquetSchema => told::parquet_schema(&reading.names),
        Function::ParquetFileMetadata => told::parquet_file_metadata(&reading.names),
        Function::ParquetKeyValues => told::parquet_key_values(&reading.names),
        Function::Text => contents::table(&reading.names, Content::Text),
        Function::Blob => contents::table(&reading.names, Content::Blob),
        Function::Glob => told::glob(&reading.names),
    }
}

/// Opens files as one table.
pub(crate) async fn open(state: &SessionState, reading: &Reading) -> Result<Arc<dyn TableProvider>> {
    let mut files = Vec::new();
    for name in &reading.names {
        files.extend(if reading.allows_none { existing(name)? } else { expand(name)? });
    }
    if files.is_empty() && reading.allows_none {
        return told::nothing();
    }
    let mut seen = HashSet::new();
    if let Some(twice) = files.iter().find(|file| !seen.insert(*file)) {
        return Err(Error::file(display(twice), "it is to be read twice in one table; UNION ALL does that"));
    }
    let name = &reading.names.join(", ");
    let kind = match reading.format {
        Some(format) => kind_as(format, reading.compression, &files),
        None => common_kind(name, &files)?,
    };
    let format = reader(state, kind, &files, reading)?;
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
    let schema = match &reading.columns {
        Some(columns) if kind.format == Format::Json => given_schema(state, columns)?,
        _ => {
            let other_types = if reading.union_by_name { OtherTypes::Common } else { OtherTypes::OfFirst };
            schema::of_files(state, format.as_ref(), &store, &objects, other_types).await?
        }
    };
    if schema.fields().is_empty() {
        return Err(Error::file(name, format!("the {} file has no columns", kind.format.name())));
    }
    // The names were given one by one, so none must be filtered out by its extension again.
    let options = ListingOptions::new(format).with_file_extension("");
    let config = ListingTableConfig::new_with_multi_paths(urls)
        .with_listing_options(options)
        .with_schema(Arc::clone(&schema));
    let cache = state.runtime_env().cache_manager.get_file_statistic_cache();
    let table = ListingTable::try_new(config)?.with_cache(cache);
    let located = Located::of(&files, reading, &schema);
    if located.is_empty() {
        return Ok(Arc::new(table));
    }
    let places = objects.into_iter().map(|object| object.location);
    Ok(Arc::new(LocatedFiles::new(table, schema, located, places)))
}

/// Columns with the types of these names.
fn given_schema(state: &SessionState, columns: &[(String, String)]) -> Result<SchemaRef> {
    let field = |(name, of): &(String, String)| Ok(Field::new(name, type_named(state, of)?, true));
    Ok(Arc::new(Schema::new(columns.iter().map(field).collect::<Result<Vec<_>>>()?)))
}

/// The DataFusion reader for a kind of file, with the session's defaults.
fn reader(
    state: &SessionState,
    kind: Kind,
    files: &[PathBuf],
    reading: &Reading,
) -> Result<Arc<dyn FileFormat>> {
    let defaults = state.default_table_options();
    Ok(match kind.format {
        Format::Parquet => {
            let format = ParquetFormat::default().with_options(defaults.parquet);
            Arc::new(AccountedParquet(Arc::new(format)))
        }
        Format::Arrow => Arc::new(ArrowFormat),
        Format::Json => {
            let looks_like_array = || {
                kind.compression == FileCompressionType::UNCOMPRESSED
                    && files.first().is_some_and(|file| first_lines(file).trim_start().starts_with('['))
            };
            let mut options = defaults.json;
            options.schema_infer_max_rec = reading.sample_records.or(options.schema_infer_max_rec);
            Arc::new(JsonFiles(
                JsonFormat::default()
                    .with_options(options)
                    .with_file_compression_type(kind.compression)
                    .with_newline_delimited(reading.json_lines.unwrap_or_else(|| !looks_like_array())),
            ))
        }
        Format::Csv => {
            let mut extras = Extras::of(state, reading)?;
            let (options, skipped_lines) = likely_options(defaults.csv, kind.compression, files, reading);
            extras.skipped_lines = skipped_lines;
            Arc::new(CsvFiles::new(options, extras))
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
