//! Which columns files have, of files that are what their names say.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::catalog::Session;
use datafusion::datasource::file_format::FileFormat;
use datafusion::object_store::local::LocalFileSystem;
use datafusion::object_store::{ObjectMeta, ObjectStore};
use nandina_exec::scan::guard::Guarded;

use super::names::{Format, describe, display};
use crate::error::{Error, Result, panic_message};

/// The columns of all `files` together. An error names the file that it is about.
pub(crate) async fn of_files(
    state: &dyn Session,
    format: &dyn FileFormat,
    store: &Arc<dyn ObjectStore>,
    files: &[ObjectMeta],
) -> Result<SchemaRef> {
    check(format, files)?;
    let inferred = async |files: &[ObjectMeta]| -> Result<SchemaRef> {
        // The readers of Parquet and of Arrow panic over some metadata that is damaged.
        match Guarded::new(format.infer_schema(state, store, files)).await {
            Ok(inferred) => Ok(inferred?),
            Err(panic) => Err(Error::Query { message: panic_message(&*panic).to_owned() }),
        }
    };
    let all_error = match inferred(files).await {
        Ok(schema) => return Ok(schema),
        Err(error) => error,
    };
    if !is_about_files(&all_error) {
        return Err(all_error);
    }
    // Which one was it? The error for all of them does not say.
    let (first, others) = match files {
        [] => return Err(all_error),
        [only] => return Err(unreadable(format, only, all_error)?),
        [first, others @ ..] => (path_of(first)?, others.len()),
    };
    for file in files {
        if let Err(error) = inferred(std::slice::from_ref(file)).await {
            return Err(unreadable(format, file, error)?);
        }
    }
    Err(Error::file(
        format!("{} and {others} more", display(&first)),
        format!("the files do not have the same columns ({all_error})"),
    ))
}

/// Whether it may be what files hold that is wrong: not settings, memory or time.
fn is_about_files(error: &Error) -> bool {
    matches!(error, Error::File { .. } | Error::Query { .. } | Error::Unsupported { .. })
}

/// The error for a file whose columns could not be found out.
fn unreadable(format: &dyn FileFormat, file: &ObjectMeta, error: Error) -> Result<Error> {
    let named = match error {
        Error::Query { message } | Error::Unsupported { message } => {
            let kind = Format::of_reader(format).map(|format| format!("{} ", format.name()));
            let message = format!("not a readable {}file ({message})", kind.unwrap_or_default());
            Error::file(display(&path_of(file)?), message)
        }
        // It names a file already, or is not about one.
        other => other,
    };
    Ok(named)
}

/// Refuses files that their readers would trust too much.
pub(crate) fn check(format: &dyn FileFormat, files: &[ObjectMeta]) -> Result<()> {
    let check = match Format::of_reader(format) {
        Some(Format::Parquet) => check_footer,
        Some(Format::Arrow) => super::arrow::check,
        Some(Format::Csv | Format::Json) | None => return Ok(()),
    };
    files.iter().try_for_each(|file| check(&path_of(file)?))
}

fn path_of(file: &ObjectMeta) -> Result<PathBuf> {
    let path = LocalFileSystem::new().path_to_filesystem(&file.location);
    path.map_err(|error| Error::file(file.location.as_ref(), error.to_string()))
}

/// Refuses a Parquet file that does not end as one: `… footer | length of the footer | PAR1`.
fn check_footer(file: &Path) -> Result<()> {
    const END_BYTES: u64 = 8;
    const MAGIC: &[u8] = b"PAR1";
    let unreadable = |error: std::io::Error| Error::file(display(file), describe(&error));
    let not_parquet =
        |reason: &str| Error::file(display(file), format!("not a readable Parquet file ({reason})"));
    let mut opened = File::open(file).map_err(unreadable)?;
    let bytes = opened.metadata().map_err(unreadable)?.len();
    // The magic number stands in front, too.
    if bytes < END_BYTES + MAGIC.len() as u64 {
        return Err(not_parquet("it is too short to be one"));
    }
    let mut end = [0; END_BYTES as usize];
    opened.seek(SeekFrom::End(-(END_BYTES as i64))).map_err(unreadable)?;
    opened.read_exact(&mut end).map_err(unreadable)?;
    let [a, b, c, d, magic @ ..] = end;
    let is_encrypted = magic == *b"PARE";
    if magic != *MAGIC && !is_encrypted {
        return Err(not_parquet("it does not end with PAR1: it is something else, or was cut off"));
    }
    if u64::from(u32::from_le_bytes([a, b, c, d])) + END_BYTES + MAGIC.len() as u64 > bytes {
        return Err(not_parquet("its footer would be longer than the file"));
    }
    Ok(())
}
