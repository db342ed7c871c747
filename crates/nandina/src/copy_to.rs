//! `COPY … TO 'file'`: a sink writes under a provisional name; the file takes its own when it is whole.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::execution::SessionState;
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::dml::CopyTo;
use datafusion::physical_plan::execute_stream;
use datafusion::sql::parser::Statement;
use futures::TryStreamExt as _;
use nandina_exec::batch::row_width::leaf_columns;

use crate::error::{Error, Result};
use crate::files;
use crate::media;
use crate::planning;
use crate::query::{Answer, Query, count_row, count_schema, rows_written};

/// Starts the statement.
pub(crate) async fn start(state: &Arc<SessionState>, copy: CopyTo) -> Result<Query> {
    let mut copy = with_absolute_target(copy)?;
    let file = Provisional::of(&copy)?;
    if let Some(file) = &file {
        copy.output_url = file.provisional.display().to_string();
    }
    leave_out_dictionaries(&mut copy, &state.runtime_env().memory_pool.memory_limit());
    let plan = planning::physical_plan(state, LogicalPlan::Copy(copy)).await?;
    media::know_before(state, &plan).await;
    let mut counts = execute_stream(Arc::clone(&plan), state.task_ctx())?;
    let work = async move {
        let mut rows = 0;
        while let Some(batch) = counts.try_next().await? {
            rows += rows_written(&batch);
        }
        if let Some(file) = file {
            file.finish()?;
        }
        count_row(rows)
    };
    Ok(Query::working(Answer::RowsWritten, count_schema(), Some(plan), work))
}

/// Refuses a statement that does not say in which format to write.
pub(crate) fn check_format(state: &SessionState, statement: &Statement) -> Result<()> {
    let copy = match statement {
        Statement::Explain(explain) => return check_format(state, &explain.statement),
        Statement::CopyTo(copy) => copy,
        _ => return Ok(()),
    };
    let is_known = |format: &str| state.get_file_format_factory(format).is_some();
    let target = &copy.target;
    let problem = match (&copy.stored_as, Path::new(target).extension().and_then(OsStr::to_str)) {
        (Some(format), _) if is_known(format) => return Ok(()),
        (None, Some(ending)) if is_known(ending) => return Ok(()),
        (Some(format), _) => format!("there is no format '{format}'"),
        (None, Some(ending)) => format!("'.{ending}' is the ending of no format"),
        (None, None) => "the name does not tell the format".to_owned(),
    };
    let message = format!(
        "COPY … TO '{target}': {problem}; end the name with .csv, .json or .parquet, or say STORED AS CSV, JSON or \
         PARQUET behind it"
    );
    Err(Error::Unsupported { message })
}

/// The same statement with `~` and relative paths resolved.
pub(crate) fn with_absolute_target(mut copy: CopyTo) -> Result<CopyTo> {
    if !copy.output_url.contains("://") {
        let is_folder = copy.output_url.ends_with('/');
        let path = files::absolute_path(&copy.output_url)?;
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

/// What stands before the name of a file while this process writes it.
fn provisional_prefix() -> String {
    format!(".unfinished-{}-", std::process::id())
}

/// Whether a file gets another name once it is whole.
pub(crate) fn is_provisional(path: &Path) -> bool {
    final_name(path).is_some()
}

/// The path that a file will have once it is whole.
pub(crate) fn final_path(path: &Path) -> PathBuf {
    final_name(path).map_or_else(|| path.to_owned(), |name| path.with_file_name(name))
}

fn final_name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()?.strip_prefix(&provisional_prefix())
}

/// A file that is being written; removed unless it is finished.
struct Provisional {
    provisional: PathBuf,
    target: PathBuf,
}

impl Provisional {
    /// None when a folder of files is written: its name ends with `/`, has no extension, or it is partitioned.
    fn of(copy: &CopyTo) -> Result<Option<Self>> {
        let target = PathBuf::from(&copy.output_url);
        if copy.output_url.ends_with('/') || copy.output_url.contains("://") || !copy.partition_by.is_empty()
        {
            return Ok(None);
        }
        // The extension stays: DataFusion decides by it whether to write one file.
        let name = target.extension().and(target.file_name()).and_then(|name| name.to_str());
        let name = name.map(|name| format!("{}{name}", provisional_prefix()));
        // Behind a link, the file that it leads to is replaced.
        let target = fs::canonicalize(&target).unwrap_or(target);
        if fs::metadata(&target).is_ok_and(|existing| !existing.is_file() && !existing.is_dir()) {
            let message = "it is not a regular file, which COPY would replace; the program writes results to anything \
                           with -o";
            return Err(Error::file(&copy.output_url, message));
        }
        Ok(name.map(|name| Provisional { provisional: target.with_file_name(name), target }))
    }

    fn finish(self) -> Result<()> {
        let fail = |error: std::io::Error| Error::file(self.target.display().to_string(), error.to_string());
        if !self.provisional.exists() {
            // A result without rows writes nothing in some formats; then nothing takes the target's place.
            return Ok(());
        }
        fs::File::open(&self.provisional).and_then(|file| file.sync_all()).map_err(fail)?;
        fs::rename(&self.provisional, &self.target).map_err(fail)
    }
}

impl Drop for Provisional {
    fn drop(&mut self) {
        // Absent after success.
        let _ = fs::remove_file(&self.provisional);
    }
}
