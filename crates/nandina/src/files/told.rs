//! What files say of themselves, as tables: `parquet_metadata('f')`, `parquet_schema('f')`, `parquet_file_metadata('f')`,
//! `parquet_kv_metadata('f')`, `glob('pattern')`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, BinaryArray, BooleanArray, Int64Array, RecordBatch, StringArray};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::arrow::parquet_to_arrow_schema;
use parquet::basic::{ConvertedType, LogicalType, Type as PhysicalType};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::statistics::Statistics;
use parquet::schema::types::Type;

use super::located::shown_path;
use super::names::{display, expand, is_pattern, matching};
use crate::error::{Error, Result};

/// The paths of the files that patterns match.
pub(super) fn glob(patterns: &[String]) -> Result<Arc<dyn TableProvider>> {
    let mut files = Vec::new();
    for pattern in patterns {
        let found = if is_pattern(pattern) { matching(pattern)? } else { existing(pattern)? };
        files.extend(found.iter().map(|file| shown(file, pattern)));
    }
    table(vec![texts("file", files.into_iter().map(Some))])
}

/// What `allow_empty` reads of no file.
pub(super) fn nothing() -> Result<Arc<dyn TableProvider>> {
    table(vec![("empty", Arc::new(BooleanArray::from(Vec::<bool>::new())))])
}

/// A row for each file.
pub(super) fn parquet_file_metadata(names: &[String]) -> Result<Arc<dyn TableProvider>> {
    let footers = footers(names)?;
    let of = || footers.iter().map(|(_, footer)| footer.file_metadata());
    let none = || footers.iter().map(|_| None);
    table(vec![
        texts("file_name", footers.iter().map(|(file, _)| Some(file.clone()))),
        texts("created_by", of().map(|file| file.created_by().map(str::to_owned))),
        numbers("num_rows", of().map(|file| Some(file.num_rows()))),
        numbers("num_row_groups", footers.iter().map(|(_, footer)| Some(footer.num_row_groups() as i64))),
        numbers("format_version", of().map(|file| Some(i64::from(file.version())))),
        texts("encryption_algorithm", none()),
        texts("footer_signing_key_metadata", none()),
    ])
}

/// A row for each pair of a key and a value in the footers of files.
pub(super) fn parquet_key_values(names: &[String]) -> Result<Arc<dyn TableProvider>> {
    let footers = footers(names)?;
    let mut rows = Vec::new();
    for (file, footer) in &footers {
        let pairs = footer.file_metadata().key_value_metadata().into_iter().flatten();
        rows.extend(pairs.map(|pair| (file.clone(), pair.key.clone(), pair.value.clone())));
    }
    let bytes = |values: Vec<Option<String>>| -> ArrayRef {
        Arc::new(values.iter().map(|value| value.as_ref().map(String::as_bytes)).collect::<BinaryArray>())
    };
    table(vec![
        texts("file_name", rows.iter().map(|(file, ..)| Some(file.clone()))),
        ("key", bytes(rows.iter().map(|(_, key, _)| Some(key.clone())).collect())),
        ("value", bytes(rows.into_iter().map(|(.., value)| value).collect())),
    ])
}

fn existing(path: &str) -> Result<Vec<PathBuf>> {
    let path = super::names::absolute_path(path)?;
    Ok(if path.is_file() { vec![path] } else { Vec::new() })
}

pub(super) fn shown(file: &Path, name: &str) -> String {
    shown_path(file, !name.starts_with(['/', '~']))
}

/// A column of a result.
type Column = (&'static str, ArrayRef);

fn texts(name: &'static str, values: impl Iterator<Item = Option<String>>) -> Column {
    (name, Arc::new(StringArray::from_iter(values)))
}

fn numbers(name: &'static str, values: impl Iterator<Item = Option<i64>>) -> Column {
    (name, Arc::new(Int64Array::from_iter(values)))
}

fn table(columns: Vec<Column>) -> Result<Arc<dyn TableProvider>> {
    let nullable = columns.into_iter().map(|(name, values)| (name, values, true));
    let batch = RecordBatch::try_from_iter_with_nullable(nullable)?;
    Ok(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?))
}

/// The footers of Parquet files, each with the path that is shown.
fn footers(names: &[String]) -> Result<Vec<(String, ParquetMetaData)>> {
    let mut footers = Vec::new();
    for name in names {
        for file in expand(name)? {
            let fail = |reason: String| {
                Error::file(display(&file), format!("not a readable Parquet file ({reason})"))
            };
            let opened = File::open(&file).map_err(|error| fail(error.to_string()))?;
            let footer = ParquetMetaDataReader::new().parse_and_finish(&opened);
            footers.push((shown(&file, name), footer.map_err(|error| fail(error.to_string()))?));
        }
    }
    Ok(footers)
}

/// A row for each element of the schemas of files.
pub(super) fn parquet_schema(names: &[String]) -> Result<Arc<dyn TableProvider>> {
    struct Element {
        file: String,
        of: Arc<Type>,
    }
    fn add(elements: &mut Vec<Element>, file: &str, of: &Arc<Type>) {
        elements.push(Element { file: file.to_owned(), of: Arc::clone(of) });
        if of.is_group() {
            of.get_fields().iter().for_each(|field| add(elements, file, field));
        }
    }
    let mut elements = Vec::new();
    for (file, footer) in footers(names)? {
        add(&mut elements, &file, &footer.file_metadata().schema_descr().root_schema_ptr());
    }
    let info = |element: &Element| element.of.get_basic_info().clone();
    let types = || elements.iter().map(|element| &element.of);
    let known = |number: i32| (number >= 0).then_some(i64::from(number));
    let lengths = types().map(|of| match of.as_ref() {
        Type::PrimitiveType { physical_type: PhysicalType::FIXED_LEN_BYTE_ARRAY, type_length, .. } => {
            Some(type_length.to_string())
        }
        _ => None,
    });
    let is_decimal = |of: &Type| of.get_basic_info().converted_type() == ConvertedType::DECIMAL;
    let scales = types().map(|of| match of.as_ref() {
        Type::PrimitiveType { scale, .. } if is_decimal(of) => known(*scale),
        _ => None,
    });
    let precisions = types().map(|of| match of.as_ref() {
        Type::PrimitiveType { precision, .. } if is_decimal(of) => known(*precision),
        _ => None,
    });
    table(vec![
        texts("file_name", elements.iter().map(|element| Some(element.file.clone()))),
        texts("name", types().map(|of| Some(of.name().to_owned()))),
        texts("type", types().map(|of| of.is_primitive().then(|| of.get_physical_type().to_string()))),
        texts("type_length", lengths),
        texts(
            "repetition_type",
            elements.iter().map(|element| {
                let info = info(element);
                info.has_repetition().then(|| info.repetition().to_string())
            }),
        ),
        numbers("num_children", types().map(|of| of.is_group().then(|| of.get_fields().len() as i64))),
        texts(
            "converted_type",
            elements.iter().map(|element| {
                let converted = info(element).converted_type();
                (converted != ConvertedType::NONE).then(|| converted.to_string())
            }),
        ),
        numbers("scale", scales),
        numbers("precision", precisions),
        numbers(
            "field_id",
            elements.iter().map(|element| {
                let info = info(element);
                info.has_id().then(|| i64::from(info.id()))
            }),
        ),
        texts(
            "logical_type",
            elements.iter().map(|element| {
                let info = info(element);
                info.logical_type_ref().map(LogicalType::to_owned).map(|of| format!("{of:?}"))
            }),
        ),
    ])
}

/// A column in a row group.
struct ColumnChunk {
    file: String,
    row_group: Arc<RowGroupMetaData>,
    group_number: i64,
    column: usize,
    least: Option<String>,
    greatest: Option<String>,
}

/// A row for each column of each row group of files.
#[allow(clippy::indexing_slicing, reason = "columns of a row group are numbered here")]
pub(super) fn parquet_metadata(names: &[String]) -> Result<Arc<dyn TableProvider>> {
    let mut chunks = Vec::new();
    for (file, footer) in footers(names)? {
        for (number, row_group) in footer.row_groups().iter().enumerate() {
            let group = Arc::new(row_group.clone());
            for column in 0..row_group.num_columns() {
                let (least, greatest) = bounds(&footer, row_group, column).unwrap_or_default();
                chunks.push(ColumnChunk {
                    file: file.clone(),
                    row_group: Arc::clone(&group),
                    group_number: number as i64,
                    column,
                    least,
                    greatest,
                });
            }
        }
    }
    let groups = || chunks.iter().map(|chunk| &chunk.row_group);
    let columns = || chunks.iter().map(|chunk| &chunk.row_group.columns()[chunk.column]);
    let counted = |count: Option<u64>| count.map(|count| count as i64);
    let least = || chunks.iter().map(|chunk| chunk.least.clone());
    let greatest = || chunks.iter().map(|chunk| chunk.greatest.clone());
    table(vec![
        texts("file_name", chunks.iter().map(|chunk| Some(chunk.file.clone()))),
        numbers("row_group_id", chunks.iter().map(|chunk| Some(chunk.group_number))),
        numbers("row_group_num_rows", groups().map(|group| Some(group.num_rows()))),
        numbers("row_group_num_columns", groups().map(|group| Some(group.num_columns() as i64))),
        numbers("row_group_bytes", groups().map(|group| Some(group.total_byte_size()))),
        numbers("column_id", chunks.iter().map(|chunk| Some(chunk.column as i64))),
        numbers("file_offset", columns().map(|column| Some(column.file_offset()))),
        numbers("num_values", columns().map(|column| Some(column.num_values()))),
        texts("path_in_schema", columns().map(|column| Some(column.column_path().parts().join(", ")))),
        texts("type", columns().map(|column| Some(column.column_type().to_string()))),
        texts("stats_min", least()),
        texts("stats_max", greatest()),
        numbers(
            "stats_null_count",
            columns().map(|column| counted(column.statistics().and_then(Statistics::null_count_opt))),
        ),
        numbers(
            "stats_distinct_count",
            columns().map(|column| counted(column.statistics().and_then(Statistics::distinct_count_opt))),
        ),
        texts("stats_min_value", least()),
        texts("stats_max_value", greatest()),
        texts(
            "compression",
            columns().map(|column| {
                let name = column.compression().to_string();
                Some(name.split('(').next().unwrap_or_default().to_owned())
            }),
        ),
        texts(
            "encodings",
            columns().map(|column| {
                let names: Vec<String> = column.encodings().map(|encoding| encoding.to_string()).collect();
                Some(names.join(", "))
            }),
        ),
        numbers("index_page_offset", columns().map(|column| column.index_page_offset())),
        numbers("dictionary_page_offset", columns().map(|column| column.dictionary_page_offset())),
        numbers("data_page_offset", columns().map(|column| Some(column.data_page_offset()))),
        numbers("total_compressed_size", columns().map(|column| Some(column.compressed_size()))),
        numbers("total_uncompressed_size", columns().map(|column| Some(column.uncompressed_size()))),
    ])
}

/// The least and the greatest value of a column, as texts; of columns inside of others, none.
pub(super) fn bounds(
    footer: &ParquetMetaData,
    row_group: &RowGroupMetaData,
    column: usize,
) -> Option<(Option<String>, Option<String>)> {
    let file = footer.file_metadata();
    let path = row_group.columns().get(column)?.column_path().parts();
    let [name] = path else { return None };
    let schema = parquet_to_arrow_schema(file.schema_descr(), None).ok()?;
    let converter = StatisticsConverter::try_new(name, &schema, file.schema_descr()).ok()?;
    let text = |values: Result<ArrayRef, parquet::errors::ParquetError>| {
        let values = values.ok().filter(|values| values.len() == 1 && values.is_valid(0))?;
        let formatter = ArrayFormatter::try_new(&values, &FormatOptions::default()).ok()?;
        formatter.value(0).try_to_string().ok()
    };
    Some((text(converter.row_group_mins([row_group])), text(converter.row_group_maxes([row_group]))))
}
