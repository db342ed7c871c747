//! Writing TPC-H tables as Parquet or CSV files, with all processors.
//!
//! A file is cut into parts of about [`ROWS_PER_PART`] rows. Workers generate and encode whole parts (a row
//! group of Parquet, a piece of CSV text); the parts are appended in order, so the file is the same whatever
//! the number of workers.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{
    ArrowColumnChunk, ArrowRowGroupWriterFactory, ArrowWriterOptions, compute_leaves,
};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::{Table, ordered};
use crate::error::{Error, Result};

/// Rows per part. A Parquet reader holds one row group per worker, compressed and in part decoded, so small
/// ones (10 MB of lineitem) are what lets a query run in little memory.
const ROWS_PER_PART: u64 = 128 << 10;
const BATCH_ROWS: usize = 8192;

/// What files to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// Snappy-compressed, a row group per part.
    Parquet,
    /// With a header line.
    Csv,
}

impl FileFormat {
    pub fn extension(self) -> &'static str {
        match self {
            FileFormat::Parquet => "parquet",
            FileFormat::Csv => "csv",
        }
    }
}

/// What to generate, and where.
#[derive(Debug, Clone)]
pub struct Request {
    pub scale: f64,
    pub format: FileFormat,
    pub directory: PathBuf,
    pub tables: Vec<Table>,
    pub threads: usize,
}

/// A file that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GeneratedFile {
    pub table: Table,
    pub path: PathBuf,
    pub rows: u64,
    pub bytes: u64,
}

/// Writes `<table>.<extension>` for each table. `progress` is told of rows as they are written; setting
/// `stop` ends the work with an error. A file that was not finished is removed.
pub fn generate_files(
    request: &Request,
    stop: &AtomicBool,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Vec<GeneratedFile>> {
    if !(request.scale > 0.0 && request.scale <= 100_000.0) {
        return Err(Error::setting(format!(
            "the scale is above 0 and at most 100000, not {}",
            request.scale
        )));
    }
    let create =
        |error| Error::file(request.directory.display().to_string(), format!("cannot be created: {error}"));
    fs::create_dir_all(&request.directory).map_err(create)?;
    request.tables.iter().map(|table| generate_file(request, *table, stop, progress)).collect()
}

fn generate_file(
    request: &Request,
    table: Table,
    stop: &AtomicBool,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<GeneratedFile> {
    let path = request.directory.join(format!("{}.{}", table.name(), request.format.extension()));
    let unfinished = Unfinished(path.with_extension(format!("{}.unfinished", request.format.extension())));
    let parts = table.rows(request.scale).div_ceil(ROWS_PER_PART).max(1) as usize;
    let file = BufWriter::with_capacity(
        1 << 20,
        File::create(&unfinished.0).map_err(|error| io(&unfinished.0, &error))?,
    );
    let rows = match request.format {
        FileFormat::Parquet => write_parquet(request, table, parts, file, stop, progress),
        FileFormat::Csv => write_csv(request, table, parts, file, stop, progress),
    };
    let rows = rows?;
    fs::rename(&unfinished.0, &path).map_err(|error| io(&path, &error))?;
    let bytes = fs::metadata(&path).map_err(|error| io(&path, &error))?.len();
    Ok(GeneratedFile { table, path, rows, bytes })
}

/// Removes a file that was not renamed to its final name.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Absent after success.
        let _ = fs::remove_file(&self.0);
    }
}

fn write_parquet(
    request: &Request,
    table: Table,
    parts: usize,
    file: BufWriter<File>,
    stop: &AtomicBool,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<u64> {
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    // Without Arrow's own schema in the footer the file is plain Parquet to every reader.
    let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
    let writer = ArrowWriter::try_new_with_options(file, table.schema(), options).map_err(parquet_error)?;
    let (mut writer, factory) = writer.into_serialized_writer().map_err(parquet_error)?;
    let mut rows = 0;
    ordered::run(
        parts,
        request.threads,
        stop,
        |part| encode_row_group(request.scale, table, part, parts, &factory),
        |(part_rows, columns)| {
            let mut group = writer.next_row_group().map_err(parquet_error)?;
            for column in columns {
                column.append_to_row_group(&mut group).map_err(parquet_error)?;
            }
            group.close().map_err(parquet_error)?;
            rows += part_rows;
            progress(part_rows);
            Ok(())
        },
    )?;
    let file = writer.into_inner().map_err(parquet_error)?;
    flush(file)?;
    Ok(rows)
}

fn encode_row_group(
    scale: f64,
    table: Table,
    part: usize,
    parts: usize,
    factory: &ArrowRowGroupWriterFactory,
) -> Result<(u64, Vec<ArrowColumnChunk>)> {
    let schema = table.schema();
    let mut columns = factory.create_column_writers(part).map_err(parquet_error)?;
    let mut rows = 0;
    for batch in table.batches(scale, part, parts, BATCH_ROWS) {
        let batch = batch?;
        rows += batch.num_rows() as u64;
        for ((field, array), writer) in schema.fields().iter().zip(batch.columns()).zip(&mut columns) {
            for leaf in compute_leaves(field, array).map_err(parquet_error)? {
                writer.write(&leaf).map_err(parquet_error)?;
            }
        }
    }
    let chunks: Result<Vec<_>, ParquetError> = columns.into_iter().map(|column| column.close()).collect();
    Ok((rows, chunks.map_err(parquet_error)?))
}

fn write_csv(
    request: &Request,
    table: Table,
    parts: usize,
    mut file: BufWriter<File>,
    stop: &AtomicBool,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<u64> {
    let path = request.directory.clone();
    let mut rows = 0;
    ordered::run(
        parts,
        request.threads,
        stop,
        |part| {
            let mut writer = arrow::csv::WriterBuilder::new().with_header(part == 0).build(Vec::new());
            let mut part_rows = 0;
            for batch in table.batches(request.scale, part, parts, BATCH_ROWS) {
                let batch = batch?;
                part_rows += batch.num_rows() as u64;
                writer.write(&batch)?;
            }
            Ok((part_rows, writer.into_inner()))
        },
        |(part_rows, text)| {
            file.write_all(&text).map_err(|error| io(&path, &error))?;
            rows += part_rows;
            progress(part_rows);
            Ok(())
        },
    )?;
    flush(file)?;
    Ok(rows)
}

fn flush(file: BufWriter<File>) -> Result<()> {
    let file = file.into_inner().map_err(|error| Error::Query { message: error.error().to_string() })?;
    file.sync_all().map_err(|error| Error::Query { message: error.to_string() })
}

fn io(path: &Path, error: &std::io::Error) -> Error {
    Error::file(path.display().to_string(), error.to_string())
}

fn parquet_error(error: ParquetError) -> Error {
    Error::Query { message: format!("writing Parquet failed: {error}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use std::sync::atomic::{AtomicU64, Ordering};

    fn request(directory: &Path, format: FileFormat, threads: usize) -> Request {
        let tables = vec![Table::Region, Table::Orders];
        Request { scale: 0.1, format, directory: directory.to_path_buf(), tables, threads }
    }

    #[test]
    fn files_do_not_depend_on_the_number_of_workers() {
        for format in [FileFormat::Parquet, FileFormat::Csv] {
            let (one, three) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let told = AtomicU64::new(0);
            let tell = |rows| {
                told.fetch_add(rows, Ordering::Relaxed);
            };
            let stop = AtomicBool::new(false);
            let files = generate_files(&request(one.path(), format, 1), &stop, &tell).unwrap();
            assert_eq!(told.load(Ordering::Relaxed), 150_005);
            assert_eq!(files[1].rows, 150_000);
            generate_files(&request(three.path(), format, 3), &stop, &|_| {}).unwrap();
            let name = format!("orders.{}", format.extension());
            assert!(fs::read(one.path().join(&name)).unwrap() == fs::read(three.path().join(&name)).unwrap());
        }
    }

    #[test]
    fn row_groups_are_small() {
        let folder = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(false);
        generate_files(&request(folder.path(), FileFormat::Parquet, 2), &stop, &|_| {}).unwrap();
        let reader =
            SerializedFileReader::new(File::open(folder.path().join("orders.parquet")).unwrap()).unwrap();
        let groups: Vec<i64> = reader.metadata().row_groups().iter().map(|group| group.num_rows()).collect();
        assert_eq!(groups, [75_000, 75_000]);
    }

    #[test]
    fn nothing_is_left_of_a_cancelled_file() {
        let folder = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(true);
        assert!(generate_files(&request(folder.path(), FileFormat::Csv, 2), &stop, &|_| {}).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
