//! What `COPY … TO` tells of the files that it wrote: `RETURN_FILES`, `RETURN_STATS`.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::builder::{ListBuilder, MapBuilder, MapFieldNames, StringBuilder};
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt64Array};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::file::statistics::Statistics;

use super::located::shown_path;
use super::told::bounds;
use crate::error::{Error, Result};

/// A file that has been written.
#[derive(Debug, Clone)]
pub(crate) struct WrittenFile {
    pub path: PathBuf,
    pub rows: u64,
    /// What the names of its folders say.
    pub values: Vec<(String, Option<String>)>,
}

/// One row: how many rows were written, and into which files.
pub(crate) fn files(rows: u64, files: &[WrittenFile], is_relative: bool) -> Result<RecordBatch> {
    let mut paths = ListBuilder::new(StringBuilder::new());
    for file in files {
        paths.values().append_value(shown_path(&file.path, is_relative));
    }
    paths.append(true);
    let columns: Vec<(&str, ArrayRef)> =
        vec![("Count", Arc::new(Int64Array::from(vec![rows as i64]))), ("Files", Arc::new(paths.finish()))];
    Ok(RecordBatch::try_from_iter(columns)?)
}

fn map_names() -> MapFieldNames {
    MapFieldNames { entry: "entries".to_owned(), key: "key".to_owned(), value: "value".to_owned() }
}

type TextMap = MapBuilder<StringBuilder, StringBuilder>;

fn text_map() -> TextMap {
    MapBuilder::new(Some(map_names()), StringBuilder::new(), StringBuilder::new())
}

/// A row for each Parquet file.
pub(crate) fn statistics(files: &[WrittenFile], is_relative: bool) -> Result<RecordBatch> {
    let (mut names, mut rows) = (Vec::new(), Vec::new());
    let (mut file_bytes, mut footer_bytes) = (Vec::new(), Vec::new());
    let mut columns = MapBuilder::new(Some(map_names()), StringBuilder::new(), text_map());
    let mut partitions = text_map();
    let mut extra = text_map();
    for file in files {
        let fail = |reason: String| Error::file(file.path.display().to_string(), reason);
        let opened = File::open(&file.path).map_err(|error| fail(error.to_string()))?;
        let bytes = opened.metadata().map_err(|error| fail(error.to_string()))?.len();
        let mut reader = ParquetMetaDataReader::new();
        reader.try_parse(&opened).map_err(|error| fail(error.to_string()))?;
        let footer_length = reader.metadata_size().unwrap_or_default() as u64;
        let footer = reader.finish().map_err(|error| fail(error.to_string()))?;
        names.push(shown_path(&file.path, is_relative));
        rows.push(file.rows);
        file_bytes.push(bytes);
        footer_bytes.push(footer_length);
        for (column, told) in of_columns(&footer) {
            columns.keys().append_value(column);
            for (name, value) in told {
                columns.values().keys().append_value(name);
                columns.values().values().append_value(value);
            }
            columns.values().append(true)?;
        }
        columns.append(true)?;
        for (name, value) in &file.values {
            partitions.keys().append_value(name);
            partitions.values().append_option(value.as_ref());
        }
        partitions.append(!file.values.is_empty())?;
        extra.keys().append_value("row_group_count");
        extra.values().append_value(footer.num_row_groups().to_string());
        extra.append(true)?;
    }
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("filename", Arc::new(StringArray::from(names)), true),
        ("count", Arc::new(UInt64Array::from(rows)), true),
        ("file_size_bytes", Arc::new(UInt64Array::from(file_bytes)), true),
        ("footer_size_bytes", Arc::new(UInt64Array::from(footer_bytes)), true),
        ("column_statistics", Arc::new(columns.finish()), true),
        ("partition_keys", Arc::new(partitions.finish()), true),
        ("extra_info", Arc::new(extra.finish()), true),
    ];
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}

/// What the footer of a file says of each column.
fn of_columns(footer: &ParquetMetaData) -> BTreeMap<String, BTreeMap<&'static str, String>> {
    let mut told: BTreeMap<String, BTreeMap<&'static str, String>> = BTreeMap::new();
    let mut nulls: BTreeMap<String, Option<u64>> = BTreeMap::new();
    let mut bytes: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    for row_group in footer.row_groups() {
        for column in row_group.columns() {
            let quoted: Vec<String> =
                column.column_path().parts().iter().map(|part| format!("\"{part}\"")).collect();
            let name = quoted.join(".");
            let count = column.statistics().and_then(Statistics::null_count_opt);
            let nulls = nulls.entry(name.clone()).or_insert(Some(0));
            *nulls = nulls.zip(count).map(|(sum, count)| sum + count);
            let (sum, values) = bytes.entry(name).or_default();
            *sum += column.compressed_size();
            *values += column.num_values();
        }
    }
    let mut least_and_greatest = overall_bounds(footer);
    for (name, (sum, values)) in bytes {
        let entry = told.entry(name.clone()).or_default();
        entry.insert("column_size_bytes", sum.to_string());
        entry.insert("num_values", values.to_string());
        if let Some(Some(nulls)) = nulls.get(&name) {
            entry.insert("null_count", nulls.to_string());
        }
        if let Some((least, greatest)) = least_and_greatest.remove(&name) {
            entry.insert("min", least);
            entry.insert("max", greatest);
        }
    }
    told
}

/// The least and the greatest value of columns that are in one row group; of several, texts do not tell.
fn overall_bounds(footer: &ParquetMetaData) -> BTreeMap<String, (String, String)> {
    let mut all = BTreeMap::new();
    if let [row_group] = footer.row_groups() {
        for (number, column) in row_group.columns().iter().enumerate() {
            if let Some((Some(least), Some(greatest))) = bounds(footer, row_group, number) {
                let name = column.column_path().parts().join(".");
                all.insert(format!("\"{name}\""), (least, greatest));
            }
        }
    }
    all
}
