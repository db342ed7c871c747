//! `COPY … TO 'one.file'`: writes CSV, JSON and Parquet within the memory limit.
//!
//! DataFusion's sinks queue up to a hundred batches of text, and hand an object store up to eight parts of ten megabytes
//! at a time. Writing one file of the local disk needs neither: batches become text or pages in a few tasks, and go to
//! the file in order, while the next ones are computed.
//!
//! Folders of files, other stores, and appends are DataFusion's; partitioned writes are `nandina_exec::partitioned_write`.

mod parquet;
mod text;

pub use self::text::nested_as_text;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::file_format::csv::CsvSink;
use datafusion::datasource::file_format::json::JsonSink;
use datafusion::datasource::file_format::parquet::ParquetSink;
use datafusion::datasource::physical_plan::{FileSink, FileSinkConfig};
use datafusion::datasource::sink::{DataSink, DataSinkExec};
use datafusion::object_store::local::LocalFileSystem;
use datafusion::physical_expr::LexRequirement;

use crate::error::Error;
use crate::files::provisional::{final_path, is_provisional};

/// The write that `planned` describes by a sink of ours; `None` if it is not of one local file, or needs what only
/// DataFusion's sink can do.
pub(crate) fn for_one_file(planned: &DataSinkExec) -> Result<Option<DataSinkExec>> {
    let sink = planned.sink();
    let ours: Option<Arc<dyn DataSink>> = if let Some(csv) = sink.downcast_ref::<CsvSink>() {
        one_file(csv.config())?.map(|path| Arc::new(text::TextSink::csv(path, csv)) as _)
    } else if let Some(json) = sink.downcast_ref::<JsonSink>() {
        one_file(json.config())?.map(|path| Arc::new(text::TextSink::json(path, json)) as _)
    } else if let Some(parquet) = sink.downcast_ref::<ParquetSink>()
        && parquet::can_write(parquet.parquet_options())
    {
        let order = planned.sort_order().as_ref();
        one_file(parquet.config())?
            .map(|path| Arc::new(parquet::OneParquetSink::new(path, parquet, order)) as _)
    } else {
        None
    };
    let (input, order): (_, &Option<LexRequirement>) = (planned.input(), planned.sort_order());
    Ok(ours.map(|sink| DataSinkExec::new(Arc::clone(input), sink, order.clone())))
}

/// The local file to be written. Only a provisional one, which `COPY` renames to its target once it is complete: the
/// sinks truncate what they write to.
fn one_file(config: &FileSinkConfig) -> Result<Option<PathBuf>> {
    let [target] = config.table_paths.as_slice() else { return Ok(None) };
    let is_one = config.table_partition_cols.is_empty()
        && config.file_output_mode.single_file_output(target)
        && target.scheme() == "file";
    if !is_one {
        return Ok(None);
    }
    let path = LocalFileSystem::new().path_to_filesystem(target.prefix())?;
    Ok(is_provisional(&path).then_some(path))
}

/// What went wrong with a file that is being written, under the name that it will have.
fn failed(path: &Path, error: impl std::fmt::Display) -> DataFusionError {
    Error::file(final_path(path).display().to_string(), format!("cannot be written: {error}")).into()
}
