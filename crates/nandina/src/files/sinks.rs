//! `COPY … TO 'one.file'`, and folders of files: writes CSV, JSON and Parquet within the memory limit.
//!
//! DataFusion's sinks queue up to a hundred batches of text, and hand an object store up to eight parts of ten megabytes
//! at a time. Writing one file of the local disk needs neither: batches become text or pages in a few tasks, and go to
//! the file in order, while the next ones are computed. A folder is written file by file ([`folder`]).
//!
//! Other stores, and appends to tables of files, are DataFusion's; their partitioned writes are
//! `nandina_exec::partitioned_write`.

mod csv_text;
pub(crate) mod folder;
mod json_text;
mod parquet;
mod text;

pub use self::text::nested_as_text;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::common::tree_node::TreeNode as _;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::file_format::csv::CsvSink;
use datafusion::datasource::file_format::json::JsonSink;
use datafusion::datasource::file_format::parquet::ParquetSink;
use datafusion::datasource::physical_plan::{FileScanConfig, FileSink, FileSinkConfig};
use datafusion::datasource::sink::{DataSink, DataSinkExec};
use datafusion::datasource::source::DataSourceExec;
use datafusion::object_store::local::LocalFileSystem;
use datafusion::physical_expr::LexRequirement;
use datafusion::physical_plan::ExecutionPlan;
use nandina_exec::partitioned_write;

use self::folder::{Folder, FolderSink};
use crate::error::Error;
use crate::files::output::{Existing, Output};
use crate::files::provisional::{final_path, is_provisional};

/// The write that `planned` describes by a sink of ours; `None` if it is not of one local file, or needs what only
/// DataFusion's sink can do.
pub(crate) fn for_one_file(planned: &DataSinkExec, output: &Output) -> Result<Option<DataSinkExec>> {
    let Some(path) = config(planned).map(one_file).transpose()?.flatten() else { return Ok(None) };
    let order = planned.sort_order().as_ref();
    let sink = file_sink(planned, path, output, order);
    Ok(sink.map(|sink| DataSinkExec::new(Arc::clone(planned.input()), sink, planned.sort_order().clone())))
}

/// The write that `planned` describes into a local folder; into folders in it that are named after the values of
/// `columns`, if there are any.
pub(crate) fn for_folder(
    planned: &DataSinkExec,
    columns: &[String],
    output: &Output,
) -> Result<Option<DataSinkExec>> {
    let Some([target]) = config(planned).map(|config| config.table_paths.as_slice()) else { return Ok(None) };
    if target.scheme() != "file" {
        return Err(
            Error::unsupported("COPY … TO writes folders of files of its own names to local disks").into()
        );
    }
    let root = LocalFileSystem::new().path_to_filesystem(target.prefix())?;
    // Where a link leads to.
    let root = root.canonicalize().unwrap_or(root);
    if output.existing == Existing::Removed {
        check_removal(&root)?;
    }
    if output.existing == Existing::Removed && reads_below(planned.input(), &root)? {
        let message = "its files are read by the query, and would be removed before; write to another folder";
        return Err(Error::file(root.display().to_string(), message).into());
    }
    let folder = Folder::new(root, planned, columns, output)?;
    if columns.is_empty() {
        let sink = Arc::new(FolderSink(Arc::new(folder)));
        return Ok(Some(DataSinkExec::new(Arc::clone(planned.input()), sink, planned.sort_order().clone())));
    }
    partitioned_write::by_value(planned, columns, Some(Arc::new(folder)))
}

/// Refuses to remove a folder that holds a database, or that the program is in.
fn check_removal(root: &Path) -> Result<()> {
    let refused = |reason: &str| {
        let message = format!("OVERWRITE removes the folder, {reason}; write to another one");
        Err(Error::file(root.display().to_string(), message).into())
    };
    if std::env::current_dir().is_ok_and(|current| current.starts_with(root)) {
        return refused("in which the program runs");
    }
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            if entry.file_name() == nandina_storage::MANIFEST {
                return refused("in which there is a database");
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
    }
    Ok(())
}

/// Whether a plan reads files in a folder.
fn reads_below(plan: &Arc<dyn ExecutionPlan>, root: &Path) -> Result<bool> {
    let disk = LocalFileSystem::new();
    plan.exists(|plan| {
        let scan = plan.downcast_ref::<DataSourceExec>().map(DataSourceExec::data_source);
        let Some(scan) = scan.and_then(|source| source.downcast_ref::<FileScanConfig>()) else {
            return Ok(false);
        };
        let mut files = scan.file_groups.iter().flat_map(|group| group.files());
        Ok(files.any(|file| {
            let path = disk.path_to_filesystem(&file.object_meta.location);
            path.is_ok_and(|path| path.canonicalize().unwrap_or(path).starts_with(root))
        }))
    })
}

/// The sink that writes one file; `None` if only DataFusion's can.
fn file_sink(
    planned: &DataSinkExec,
    path: PathBuf,
    output: &Output,
    order: Option<&LexRequirement>,
) -> Option<Arc<dyn DataSink>> {
    let sink = planned.sink();
    if let Some(csv) = sink.downcast_ref::<CsvSink>() {
        Some(Arc::new(text::TextSink::csv(path, csv, &output.text)))
    } else if let Some(json) = sink.downcast_ref::<JsonSink>() {
        Some(Arc::new(text::TextSink::json(path, json, &output.text)))
    } else {
        let parquet = sink.downcast_ref::<ParquetSink>()?;
        parquet::can_write(parquet.parquet_options())
            .then(|| Arc::new(parquet::OneParquetSink::new(path, parquet, order, &output.metadata)) as _)
    }
}

fn config(planned: &DataSinkExec) -> Option<&FileSinkConfig> {
    let sink = planned.sink();
    if let Some(csv) = sink.downcast_ref::<CsvSink>() {
        Some(csv.config())
    } else if let Some(json) = sink.downcast_ref::<JsonSink>() {
        Some(json.config())
    } else {
        sink.downcast_ref::<ParquetSink>().map(FileSink::config)
    }
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
