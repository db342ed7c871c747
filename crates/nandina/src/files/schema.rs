//! Which columns files have, of files that are what their names say.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::datasource::file_format::FileFormat;
use datafusion::logical_expr::type_coercion::binary::type_union_resolution;
use datafusion::object_store::local::LocalFileSystem;
use datafusion::object_store::{ObjectMeta, ObjectStore};
use nandina_exec::scan::guard::Guarded;

use super::names::{Format, describe, display};
use crate::error::{Error, Result, panic_message};

/// What becomes of columns that have other types in other files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OtherTypes {
    Refused,
    /// They are cast to those of the first file that has the column.
    OfFirst,
    /// They are cast to a type that all values fit into.
    Common,
}

/// The columns of all `files` together. An error names the file that it is about.
pub(crate) async fn of_files(
    state: &dyn Session,
    format: &dyn FileFormat,
    store: &Arc<dyn ObjectStore>,
    files: &[ObjectMeta],
    other_types: OtherTypes,
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
        // What is missing in a file is null.
        Ok(schema) if files.len() > 1 => return Ok(nullable(&schema)),
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
    let mut schemas = Vec::with_capacity(files.len());
    for file in files {
        match inferred(std::slice::from_ref(file)).await {
            Ok(schema) => schemas.push(schema),
            Err(error) => return Err(unreadable(format, file, error)?),
        }
    }
    let casts =
        matches!(Format::of_reader(format), Some(Format::Parquet)) && other_types != OtherTypes::Refused;
    if let Some(schema) = casts.then(|| merged(&schemas, other_types)).flatten() {
        return Ok(schema);
    }
    Err(Error::file(
        format!("{} and {others} more", display(&first)),
        format!("the files do not have the same columns ({all_error})"),
    ))
}

fn nullable(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
}

/// The columns of all files, whose values have to be cast; none if they have no type in common.
fn merged(schemas: &[SchemaRef], other_types: OtherTypes) -> Option<SchemaRef> {
    let mut columns: Vec<Field> = Vec::new();
    for field in schemas.iter().flat_map(|schema| schema.fields()) {
        let Some(known) = columns.iter_mut().find(|known| known.name() == field.name()) else {
            columns.push(field.as_ref().clone().with_nullable(true));
            continue;
        };
        *known =
            known.clone().with_data_type(merged_type(known.data_type(), field.data_type(), other_types)?);
    }
    Some(Arc::new(Schema::new(columns)))
}

fn merged_type(one: &DataType, other: &DataType, other_types: OtherTypes) -> Option<DataType> {
    match (one, other) {
        (one, other) if one == other => Some(one.clone()),
        (DataType::Struct(fields), DataType::Struct(others)) => {
            let schema = |fields: &Fields| Arc::new(Schema::new(fields.clone()));
            let fields = merged(&[schema(fields), schema(others)], other_types)?;
            Some(DataType::Struct(fields.fields().clone()))
        }
        (one, other) if one.is_nested() != other.is_nested() => None,
        (one, _) if other_types == OtherTypes::OfFirst => Some(one.clone()),
        (one, other) => type_union_resolution(&[one.clone(), other.clone()]),
    }
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
