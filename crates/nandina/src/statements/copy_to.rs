//! `COPY … TO 'file'`: a sink writes under a provisional name; the file takes its own when it is whole.

use std::any::Any;
use std::sync::Arc;

use datafusion::datasource::sink::DataSinkExec;
use datafusion::execution::SessionState;
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::dml::CopyTo;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::TryStreamExt as _;
use nandina_exec::batch::row_width::leaf_columns;
use nandina_exec::partitioned_write::ByValueSink;

use crate::error::{Error, Result};
use crate::files::output::{OUTPUT, Output, Report};
use crate::files::provisional::Provisional;
use crate::files::sinks::folder::{Folder, FolderSink};
use crate::files::written::WrittenFile;
use crate::files::{names, sources, written};
use crate::planning;
use crate::query::{Answer, Query, count_row, count_schema, rows_written};

/// The plan that writes, and the provisional file to be finished when it has.
pub(crate) async fn planned(
    state: &Arc<SessionState>,
    copy: CopyTo,
) -> Result<(Arc<dyn ExecutionPlan>, Option<Provisional>)> {
    let mut copy = with_absolute_target(copy)?;
    if let Some(is_one) = copy.options.remove("format.single_file_output") {
        copy.options.insert("single_file_output".to_owned(), is_one);
    }
    let file = Provisional::of(&copy)?;
    if let Some(file) = &file {
        copy.output_url = file.provisional.display().to_string();
    }
    leave_out_dictionaries(&mut copy, &state.runtime_env().memory_pool.memory_limit());
    Ok((planning::physical_plan(state, LogicalPlan::Copy(copy)).await?, file))
}

/// Starts the statement.
pub(crate) async fn start(state: &Arc<SessionState>, copy: CopyTo) -> Result<Query> {
    let output = Output::of(copy.options.get(OUTPUT))?;
    if output.reports == Report::Statistics && copy.file_type.get_ext() != "parquet" {
        return Err(Error::unsupported(
            "RETURN_STATS is about Parquet files; RETURN_FILES tells the names of others",
        ));
    }
    let is_relative = !copy.output_url.starts_with(['/', '~']);
    let (plan, file) = planned(state, copy).await?;
    let schema = match output.reports {
        Report::Count => count_schema(),
        Report::Files => written::files(0, &[], false)?.schema(),
        Report::Statistics => written::statistics(&[], false)?.schema(),
    };
    sources::know_before(state, &plan).await;
    let written = Arc::clone(&plan);
    let mut counts = execute_stream(Arc::clone(&plan), state.task_ctx())?;
    let work = async move {
        let mut rows = 0;
        while let Some(batch) = counts.try_next().await? {
            rows += rows_written(&batch);
        }
        let mut files = files_of(&written);
        if let Some(file) = file.filter(|_| rows > 0 || !output.leaves_empty_out) {
            files.push(WrittenFile { path: file.target().to_owned(), rows, values: Vec::new() });
            file.finish()?;
        }
        match output.reports {
            Report::Count => count_row(rows),
            Report::Files => written::files(rows, &files, is_relative),
            Report::Statistics => written::statistics(&files, is_relative),
        }
    };
    let answer = if output.reports == Report::Count { Answer::RowsWritten } else { Answer::Rows };
    Ok(Query::working(answer, schema, Some(plan), work))
}

/// The files that a plan has written into a folder.
fn files_of(plan: &Arc<dyn ExecutionPlan>) -> Vec<WrittenFile> {
    let Some(sink) = plan.downcast_ref::<DataSinkExec>().map(DataSinkExec::sink) else { return Vec::new() };
    if let Some(folder) = sink.downcast_ref::<FolderSink>() {
        return folder.0.files();
    }
    let writer = sink.downcast_ref::<ByValueSink>().and_then(ByValueSink::writer);
    let folder = writer.and_then(|writer| (writer as &dyn Any).downcast_ref::<Folder>());
    folder.map(Folder::files).unwrap_or_default()
}

/// The same statement with `~` and relative paths resolved.
fn with_absolute_target(mut copy: CopyTo) -> Result<CopyTo> {
    if !copy.output_url.contains("://") {
        let is_folder = copy.output_url.ends_with('/');
        let path = names::absolute_path(&copy.output_url)?;
        if let Some(parent) = path.parent().filter(|parent| !parent.is_dir()) {
            return Err(Error::file(&copy.output_url, format!("there is no folder '{}'", parent.display())));
        }
        copy.output_url = path.display().to_string();
        if is_folder {
            copy.output_url.push('/');
        }
    }
    Ok(copy)
}

/// What the writer of a Parquet column takes for its dictionary, however few values there are: a hash table.
const DICTIONARY_BYTES: usize = 80 << 10;
/// The share of the memory limit that those of all columns may take.
const DICTIONARIES_SHARE: usize = 8;

/// Writes Parquet files of many columns without dictionaries where memory is short of them, unless they are asked for.
fn leave_out_dictionaries(copy: &mut CopyTo, limit: &MemoryLimit) {
    let MemoryLimit::Finite(limit_bytes) = limit else { return };
    let columns = leaf_columns(copy.input.schema().as_arrow());
    if copy.file_type.get_ext() == "parquet" && columns * DICTIONARY_BYTES > limit_bytes / DICTIONARIES_SHARE
    {
        copy.options.entry("format.dictionary_enabled".to_owned()).or_insert_with(|| "false".to_owned());
    }
}
