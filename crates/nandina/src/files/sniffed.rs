//! How a CSV file is written, as it is found out: `sniff_csv('f.csv')`. Columns are in small letters, so that they are found
//! without quotes.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, ListArray, RecordBatch, StringArray, StructArray, UInt64Array};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Fields};
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use datafusion::execution::SessionState;
use datafusion::object_store::ObjectStoreExt as _;
use nandina_functions::sql_type;

use super::csv::{CsvFiles, Extras, likely_options};
use super::names::{Format, display, expand, kind_as};
use super::option_value::OptionValue;
use super::reading::Reading;
use super::schema::{self, OtherTypes};
use crate::error::{Error, Result};

/// One row about the files, of which the first tells how all are written.
pub(super) async fn table(state: &SessionState, reading: &Reading) -> Result<Arc<dyn TableProvider>> {
    let mut files = Vec::new();
    for name in &reading.names {
        files.extend(expand(name)?);
    }
    let kind = kind_as(Format::Csv, reading.compression, &files);
    let mut extras = Extras::of(state, reading)?;
    let (options, skipped_lines) =
        likely_options(state.default_table_options().csv, kind.compression, &files, reading);
    extras.skipped_lines = skipped_lines;
    let format = CsvFiles::new(options.clone(), extras);
    let store: Arc<dyn datafusion::object_store::ObjectStore> =
        Arc::new(datafusion::object_store::local::LocalFileSystem::new());
    let mut objects = Vec::with_capacity(files.len());
    for file in &files {
        let place = datafusion::object_store::path::Path::from_absolute_path(file);
        let place = place.map_err(|error| Error::file(display(file), error.to_string()))?;
        let object = store.head(&place).await;
        objects.push(object.map_err(|error| Error::file(display(file), error.to_string()))?);
    }
    let schema = schema::of_files(state, &format, &store, &objects, OtherTypes::Refused).await?;
    let formats = format.found_formats();
    let format_of = |is_wanted: fn(&DataType) -> bool| {
        let mut wanted = schema.fields().iter().filter(|field| is_wanted(field.data_type()));
        wanted.find_map(|field| formats.get(field.name()).cloned())
    };
    let dates = format_of(|of| matches!(of, DataType::Date32)).or_else(|| options.date_format.clone());
    let times =
        format_of(|of| matches!(of, DataType::Timestamp(..))).or_else(|| options.timestamp_format.clone());
    let byte = |byte: Option<u8>| byte.filter(|byte| *byte != 0).map(|byte| char::from(byte).to_string());
    let has_header = options.has_header.unwrap_or(true);
    let escape = byte(options.escape).or_else(|| byte(Some(options.quote)));
    let begin = files.first().map(|file| super::first_lines(file)).unwrap_or_default();
    let line_end = Some(if begin.contains("\r\n") { "\\r\\n" } else { "\\n" }.to_owned());
    let text = |text: Option<String>| -> ArrayRef { Arc::new(StringArray::from(vec![text])) };
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let types: Vec<String> = schema.fields().iter().map(|field| sql_type(field.data_type())).collect();
    let call = call(reading, &options, skipped_lines, has_header, &names, &types);
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("delimiter", text(byte(Some(options.delimiter))), true),
        ("quote", text(byte(Some(options.quote))), true),
        ("escape", text(escape), true),
        ("newlinedelimiter", text(line_end), true),
        ("comment", text(byte(options.comment)), true),
        ("skiprows", Arc::new(UInt64Array::from(vec![skipped_lines as u64])), true),
        ("hasheader", Arc::new(BooleanArray::from(vec![has_header])), true),
        ("columns", list_of_columns(&names, &types)?, true),
        ("dateformat", text(dates.filter(|format| !format.is_empty())), true),
        ("timestampformat", text(times.filter(|format| !format.is_empty())), true),
        ("prompt", text(Some(call)), true),
    ];
    let row = RecordBatch::try_from_iter_with_nullable(columns)?;
    Ok(Arc::new(MemTable::try_new(row.schema(), vec![vec![row]])?))
}

fn list_of_columns(names: &[&str], types: &[String]) -> Result<ArrayRef> {
    let fields: Fields =
        ["name", "type"].into_iter().map(|name| Field::new(name, DataType::Utf8, true)).collect();
    let values: Vec<ArrayRef> =
        vec![Arc::new(StringArray::from(names.to_vec())), Arc::new(StringArray::from_iter_values(types))];
    let columns = StructArray::try_new(fields.clone(), values, None)?;
    let item = Arc::new(Field::new_list_field(DataType::Struct(fields), true));
    let one = OffsetBuffer::from_lengths([names.len()]);
    Ok(Arc::new(ListArray::try_new(item, one, Arc::new(columns), None)?))
}

/// The call that reads the files in the same way, without finding it out.
fn call(
    reading: &Reading,
    options: &datafusion::common::config::CsvOptions,
    skipped_lines: usize,
    has_header: bool,
    names: &[&str],
    types: &[String],
) -> String {
    let text = |text: String| OptionValue::Text(text).to_string();
    let paths = OptionValue::List(reading.names.iter().cloned().map(OptionValue::Text).collect());
    let byte = |byte: u8| if byte == 0 { String::new() } else { char::from(byte).to_string() };
    let columns = names.iter().zip(types);
    let columns = columns.map(|(name, of)| ((*name).to_owned(), OptionValue::Text(of.clone()))).collect();
    format!(
        "FROM read_csv({paths}, auto_detect = false, delim = {}, quote = {}, escape = {}, skip = {skipped_lines}, \
         comment = {}, header = {has_header}, columns = {});",
        text(byte(options.delimiter)),
        text(byte(options.quote)),
        text(byte(options.escape.unwrap_or(options.quote))),
        text(options.comment.map(byte).unwrap_or_default()),
        OptionValue::Map(columns),
    )
}
