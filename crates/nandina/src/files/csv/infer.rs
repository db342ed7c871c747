//! The columns of CSV files, from their headers and first records.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use arrow::csv::reader::Format;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::error::ArrowError;
use datafusion::common::config::CsvOptions;
use datafusion::physical_plan::metrics::Count;
use regex::Regex;

use super::chunks::{Chunk, ChunkSize, Chunks};
use super::columns::{by_name, other_columns, places_in, unique_names};
use super::extras::Extras;
use super::formats::{self, common_formats, with_formats, with_kept};
use super::records::{Syntax, records_of};
use crate::error::{Error, Result};

/// Records that types are inferred from, as many as in DuckDB.
const SAMPLE_RECORDS: usize = 20_480;

/// Read of a file of which the header alone is wanted, as those before it had enough records.
const HEADER_BYTES: usize = 4 << 10;

/// How the files of a table are written, to find out their columns.
pub(super) struct Inferred<'a> {
    pub options: &'a CsvOptions,
    pub extras: &'a Extras,
    pub has_header: bool,
    pub size: ChunkSize,
}

impl Inferred<'_> {
    /// The columns of all files together, and the formats of dates and times: the names are those of the first file, which
    /// the others have too, in any order.
    pub fn schema_of(&self, files: &[PathBuf]) -> Result<(Schema, HashMap<String, String>)> {
        if let Some(columns) = &self.extras.columns {
            let field = |(name, of): &(String, DataType)| Field::new(name, of.clone(), true);
            return Ok((Schema::new(columns.iter().map(field).collect::<Vec<_>>()), HashMap::new()));
        }
        let mut records = self.options.schema_infer_max_rec.unwrap_or(SAMPLE_RECORDS);
        let are_texts = records == 0;
        let mut all: Vec<Field> = Vec::new();
        for path in files {
            let (fields, read) = self.fields_of(path, records)?;
            records -= read;
            // A file without a line has no columns.
            if all.is_empty() || fields.is_empty() {
                all = if all.is_empty() { fields } else { all };
                continue;
            }
            let names: Vec<String> = fields.iter().map(|field| field.name().clone()).collect();
            let columns: Vec<&str> = all.iter().map(|field| field.name().as_str()).collect();
            let places = match by_name(&names, &columns) {
                Some(places) => places.into_iter().map(Some).collect(),
                None if self.extras.union_by_name => places_in(&names, &columns),
                None => return Err(other_columns(&path.display().to_string(), &names, &columns)),
            };
            for (field, place) in fields.into_iter().zip(places) {
                match place.and_then(|place| all.get_mut(place)) {
                    Some(known) => *known = merged(known, &field),
                    None => all.push(field),
                }
            }
        }
        // A column that is empty so far may be of any type further on.
        let is_text = |field: &Field| are_texts || field.data_type().is_null();
        let known = |field: Field| if is_text(&field) { field.with_data_type(DataType::Utf8) } else { field };
        let mut known: Vec<Field> = all.into_iter().map(known).collect();
        let found: Vec<Option<String>> = known.iter_mut().map(formats::take).collect();
        let first = files.first().map(|path| path.display().to_string()).unwrap_or_default();
        let settled = self.extras.settle(&first, known.clone())?;
        let mut formats = HashMap::new();
        for ((field, inferred), format) in settled.iter().zip(&known).zip(found) {
            if let Some(format) = format.filter(|_| field.data_type() == inferred.data_type()) {
                formats.insert(field.name().clone(), format);
            }
        }
        Ok((Schema::new(settled), formats))
    }

    /// The columns of one file, with the types of at most so many records, and how many were read.
    fn fields_of(&self, path: &Path, most_records: usize) -> Result<(Vec<Field>, usize)> {
        let options = self.options;
        let compression = options.compression.into();
        let usual_bytes = if most_records == 0 { HEADER_BYTES } else { self.size.usual_bytes };
        let size = ChunkSize { usual_bytes, ..self.size };
        let mut chunks = Chunks::open(path, compression, Syntax::of(options), size, Count::new())?;
        let mut fields: Vec<Field> = Vec::new();
        let mut read = 0;
        let mut is_first = true;
        while is_first || read < most_records {
            let Some(mut chunk) = chunks.next()? else { break };
            let has_header = self.has_header && is_first;
            let infer = |chunk: &Chunk| {
                format_of(options, has_header)
                    .and_then(|format| format.infer_schema(chunk.text.as_slice(), Some(most_records - read)))
            };
            let mut inferred = infer(&chunk);
            if inferred.is_err() && self.extras.ignores_errors {
                let count = if is_first { None } else { Some(fields.len()) };
                chunk.text = self.records_with_fields(&chunk, count);
                inferred = infer(&chunk);
            }
            let (schema, records) = inferred.map_err(|error| {
                if let Some(uneven) = self.uneven_record(path, &chunk, (!is_first).then_some(fields.len())) {
                    return uneven;
                }
                let (reason, line) = without_line(&reason(&error));
                // Of the chunk, which begins further on.
                let line = line.map_or(chunk.first_line, |line| chunk.first_line + line.saturating_sub(1));
                Error::file(path.display().to_string(), format!("line {line}: {reason}"))
            })?;
            let typed: Vec<Field> = match most_records - read {
                0 => schema.fields().iter().map(|field| field.as_ref().clone()).collect(),
                most => format_of(options, has_header)
                    .and_then(|format| with_formats(&schema, &chunk.text, format, most, options))
                    .map_err(|error| Error::file(path.display().to_string(), reason(&error)))?,
            };
            read += records;
            if is_first {
                let names = match self.has_header {
                    true => schema.fields().iter().map(|field| field.name().clone()).collect(),
                    false => numbered_names(schema.fields().len()),
                };
                let named = unique_names(names).into_iter().zip(typed);
                fields = named.map(|(name, field)| field.with_name(name).with_nullable(true)).collect();
            } else {
                for (known, field) in fields.iter_mut().zip(&typed) {
                    *known = merged(known, field);
                }
            }
            is_first = false;
        }
        Ok((fields, read))
    }

    /// The number of fields of a record.
    fn field_count(&self, record: &[u8]) -> Option<usize> {
        let inferred = format_of(self.options, false).and_then(|format| format.infer_schema(record, Some(1)));
        inferred.ok().map(|(schema, _)| schema.fields().len())
    }

    /// An error for the first record of a chunk that has not so many fields, or as many as the first one.
    fn uneven_record(&self, path: &Path, chunk: &Chunk, count: Option<usize>) -> Option<Error> {
        let mut wanted = count;
        for record in records_of(&chunk.text, chunk.first_line, Syntax::of(self.options)) {
            let count = self.field_count(record.text)?;
            let wanted = *wanted.get_or_insert(count);
            if count != wanted {
                let message = format!(
                    "line {}: incorrect number of fields, {count} instead of {wanted}; ignore_errors = true leaves such \
                     records out",
                    record.line
                );
                return Some(Error::file(path.display().to_string(), message));
            }
        }
        None
    }

    /// The records of a chunk that have so many fields, or as many as the first one.
    fn records_with_fields(&self, chunk: &Chunk, count: Option<usize>) -> Vec<u8> {
        let mut count = count;
        let mut text = Vec::with_capacity(chunk.text.len());
        for record in records_of(&chunk.text, chunk.first_line, Syntax::of(self.options)) {
            let has = self.field_count(record.text);
            count = count.or(has);
            if has.is_some() && has == count {
                text.extend_from_slice(record.text);
            }
        }
        text
    }
}

/// The names of columns without a header, as in DuckDB: `column0`, or `column00` if there are more than ten.
fn numbered_names(columns: usize) -> Vec<String> {
    let digits = columns.saturating_sub(1).max(1).ilog10() as usize + 1;
    (0..columns).map(|number| format!("column{number:0digits$}")).collect()
}

/// How `arrow-csv` is told the options.
pub(super) fn format_of(options: &CsvOptions, has_header: bool) -> Result<Format, ArrowError> {
    let mut format = Format::default()
        .with_header(has_header)
        .with_delimiter(options.delimiter)
        .with_quote(options.quote)
        .with_truncated_rows(options.truncated_rows.unwrap_or(false));
    if let Some(escape) = options.escape {
        format = format.with_escape(escape);
    }
    if let Some(terminator) = options.terminator {
        format = format.with_terminator(terminator);
    }
    if let Some(comment) = options.comment {
        format = format.with_comment(comment);
    }
    if let Some(pattern) = &options.null_regex {
        let is_null = Regex::new(pattern);
        let is_null = is_null.map_err(|error| ArrowError::CsvError(format!("null_regex: {error}")))?;
        format = format.with_null_regex(is_null);
    }
    Ok(format)
}

/// The names in the header of a file, of which the first chunk is given.
pub(super) fn header_of(first: &Chunk, options: &CsvOptions) -> Result<Vec<String>, ArrowError> {
    let (schema, _) = format_of(options, true)?.infer_schema(first.text.as_slice(), Some(0))?;
    Ok(schema.fields().iter().map(|field| field.name().clone()).collect())
}

/// A field for values of two fields.
fn merged(one: &Field, other: &Field) -> Field {
    let formats = common_formats(one, other);
    match (common(one.data_type(), other.data_type()), formats) {
        (of @ DataType::Utf8, _) | (of, Some(None)) => with_kept(one.clone().with_data_type(of), None),
        (of, Some(formats)) if of == *one.data_type() || one.data_type().is_null() => {
            with_kept(one.clone().with_data_type(of), formats)
        }
        _ => with_kept(one.clone().with_data_type(DataType::Utf8), None),
    }
}

/// The type for values of two types; texts where they have no other in common.
fn common(one: &DataType, other: &DataType) -> DataType {
    match (one, other) {
        (one, other) if one == other => one.clone(),
        (DataType::Null, known) | (known, DataType::Null) => known.clone(),
        (DataType::Int64, DataType::Float64) | (DataType::Float64, DataType::Int64) => DataType::Float64,
        (DataType::Date32, DataType::Timestamp(unit, zone))
        | (DataType::Timestamp(unit, zone), DataType::Date32) => DataType::Timestamp(*unit, zone.clone()),
        (DataType::Timestamp(one, zone), DataType::Timestamp(other, others)) if zone == others => {
            DataType::Timestamp(*one.max(other), zone.clone())
        }
        _ => DataType::Utf8,
    }
}

/// What `arrow-csv` says without the line that it names, and that line: of the text that it was given.
pub(super) fn without_line(reason: &str) -> (String, Option<u64>) {
    for before in [" at line ", " for line "] {
        if let Some((start, rest)) = reason.split_once(before) {
            let end = rest.trim_start_matches(|letter: char| letter.is_ascii_digit());
            let line = rest.strip_suffix(end).and_then(|digits| digits.parse().ok());
            return (format!("{start}{end}"), line);
        }
    }
    (reason.to_owned(), None)
}

/// What `arrow-csv` says, without the kind of its error.
pub(super) fn reason(error: &ArrowError) -> String {
    match error {
        ArrowError::CsvError(message) | ArrowError::ParseError(message) => message.clone(),
        other => other.to_string(),
    }
}
