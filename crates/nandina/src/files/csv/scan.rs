//! The rows of CSV files: one thread reads, several parse.
#![allow(clippy::indexing_slicing, reason = "fields and columns are numbered here")]

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray as _, RecordBatch, RecordBatchOptions, StringArray, new_null_array};
use arrow::csv::ReaderBuilder;
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use arrow::error::ArrowError;
use datafusion::common::config::CsvOptions;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::physical_plan::metrics::Time;
use futures::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use tokio::sync::mpsc::Sender;

use super::chunks::{Chunk, ChunkSize, Chunks};
use super::columns::{columns_of_fields, places_in, unique_names};
use super::convert::{Conversion, with_column};
use super::extras::Extras;
use super::formats::FoundFormats;
use super::infer::{format_of, header_of, reason, without_line};
use super::records::{Record, Syntax, records_of};
use crate::error::{self, Error};
use crate::files::text_scan::{TextFile, TextFormat, from_thread};
use nandina_exec::execution::meter::inherited;

/// How CSV files are written, and what reading them may use.
#[derive(Debug, Clone)]
pub(super) struct CsvText {
    pub options: CsvOptions,
    pub extras: Arc<Extras>,
    pub formats: Arc<FoundFormats>,
    pub has_header: bool,
    pub pool: Arc<dyn MemoryPool>,
    pub size: ChunkSize,
    /// Chunks of one file that are parsed at a time.
    pub threads: usize,
}

/// How the records of one file are parsed.
#[derive(Debug)]
struct Layout {
    path: String,
    options: CsvOptions,
    /// The fields of a record as they are parsed, in the order of the file.
    parsed: SchemaRef,
    /// Which of them are parsed, for the columns that are wanted and that the file has.
    wanted: Vec<usize>,
    /// The columns that are wanted.
    columns: SchemaRef,
    /// What becomes of what is parsed; none if it is these columns.
    made: Option<Vec<Made>>,
    ignores_errors: bool,
    batch_rows: usize,
    time: Time,
}

/// How a column is made of the columns that are parsed.
#[derive(Debug)]
enum Made {
    Parsed(usize),
    Converted(usize, Conversion),
    /// Empty texts are texts.
    NeverNull(usize),
    /// The file has none.
    Null,
}

/// A chunk, and the memory that it takes until its rows have been handed on.
struct Reserved {
    chunk: Chunk,
    /// Whether its first record is the header.
    has_header: bool,
    layout: Arc<Layout>,
    memory: MemoryReservation,
}

impl TextFormat for CsvText {
    fn name(&self) -> &'static str {
        "csv"
    }

    fn describe(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, ", has_header={}", self.has_header)
    }

    fn read(&self, file: TextFile) -> BoxStream<'static, Result<RecordBatch>> {
        let text = self.clone();
        let threads = self.threads.max(1);
        let chunks = from_thread(move |sender| Ok(text.send_chunks(&file, sender)?));
        let parsed = chunks.map(|chunk: Result<Reserved>| async {
            let chunk = chunk?;
            let parsing = SpawnedTask::spawn(inherited(async move { chunk.parse() }));
            parsing.join_unwind().await.map_err(|error| DataFusionError::External(Box::new(error)))?
        });
        let batches = parsed.buffered(threads).map_ok(|(batches, memory)| {
            // The memory is held as long as there are rows.
            stream::iter(batches).map(move |batch| {
                let _held = &memory;
                Ok(batch)
            })
        });
        batches.try_flatten().boxed()
    }
}

impl CsvText {
    /// Sends all chunks of a file to the tasks that parse them, until they hang up.
    fn send_chunks(&self, file: &TextFile, sender: &Sender<Result<Reserved>>) -> error::Result<()> {
        let syntax = Syntax::of(&self.options);
        let bytes_scanned = file.bytes_scanned.clone();
        let mut chunks = Chunks::open(&file.path, file.compression, syntax, self.size, bytes_scanned)?;
        let mut layout: Option<Arc<Layout>> = None;
        while let Some(chunk) = chunks.next()? {
            let has_header = layout.is_none() && self.has_header;
            let layout = match &layout {
                Some(layout) => Arc::clone(layout),
                None => Arc::clone(layout.insert(Arc::new(self.layout(file, &chunk)?))),
            };
            let memory = MemoryConsumer::new("CSV reader").register(&self.pool);
            let bytes = layout.bytes_to_parse(&chunk);
            if memory.try_grow(bytes).is_err() {
                // Few chunks are in flight at a time, each a small part of the limit.
                memory.grow(bytes);
            }
            if sender.blocking_send(Ok(Reserved { chunk, has_header, layout, memory })).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// How a file is parsed of which this is the first chunk.
    fn layout(&self, file: &TextFile, first: &Chunk) -> error::Result<Layout> {
        let path = shown(&file.path);
        let columns = file.columns.fields();
        // For each field of a record, the column that it is.
        let places: Vec<Option<usize>> = if self.has_header && !self.extras.are_in_order() {
            let header = header_of(first, &self.options);
            let line = first.first_line;
            let header =
                header.map_err(|error| Error::file(&path, format!("line {line}: {}", reason(&error))))?;
            let header = unique_names(header);
            let names: Vec<&str> = columns.iter().map(|column| column.name().as_str()).collect();
            match self.extras.union_by_name && self.extras.columns.is_none() {
                true => places_in(&header, &names),
                false => columns_of_fields(&path, &header, &names)?.into_iter().map(Some).collect(),
            }
        } else {
            (0..columns.len()).map(Some).collect()
        };
        let conversion = |column: usize| {
            let field = file.columns.field(column);
            Conversion::of(field, self.formats.lock().get(field.name()), &self.options)
        };
        let parsed = places.iter().enumerate().map(|(number, place)| match place {
            Some(place) if conversion(*place).is_some() => {
                file.columns.field(*place).clone().with_data_type(DataType::Utf8)
            }
            Some(place) => file.columns.field(*place).clone(),
            None => Field::new(format!("field {number}"), DataType::Utf8, true),
        });
        let parsed: Fields = parsed.collect();
        let fields_of: HashMap<usize, usize> =
            places.iter().enumerate().filter_map(|(field, column)| Some(((*column)?, field))).collect();
        let mut wanted = Vec::with_capacity(file.wanted.len());
        let mut made = Vec::with_capacity(file.wanted.len());
        for column in &file.wanted {
            made.push(match (fields_of.get(column), conversion(*column)) {
                (None, _) => Made::Null,
                (Some(_), None) if self.extras.never_null.has(file.columns.field(*column).name()) => {
                    Made::NeverNull(wanted.len())
                }
                (Some(_), Some(conversion)) => Made::Converted(wanted.len(), conversion),
                (Some(_), None) => Made::Parsed(wanted.len()),
            });
            wanted.extend(fields_of.get(column));
        }
        let is_parsed = made.iter().all(|made| matches!(made, Made::Parsed(_)));
        Ok(Layout {
            path,
            options: self.options.clone(),
            parsed: Arc::new(Schema::new_with_metadata(parsed, file.columns.metadata().clone())),
            wanted,
            columns: Arc::new(file.columns.project(&file.wanted)?),
            made: (!is_parsed).then_some(made),
            ignores_errors: self.extras.ignores_errors,
            batch_rows: file.batch_rows,
            time: file.time.clone(),
        })
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Texts, of which the empty ones are texts; other values as they are.
fn without_nulls(values: &ArrayRef) -> ArrayRef {
    match values.as_string_opt::<i32>() {
        Some(texts) => {
            Arc::new(texts.iter().map(|text| Some(text.unwrap_or_default())).collect::<StringArray>())
        }
        None => Arc::clone(values),
    }
}

impl Layout {
    /// Memory that a chunk takes with all that is made of it: the text of its fields without quotes, the end of each, and
    /// the columns that are wanted.
    fn bytes_to_parse(&self, chunk: &Chunk) -> usize {
        let text = chunk.text.len();
        let rows = chunk.records.min(self.batch_rows);
        let ends = rows * self.parsed.fields().len() * size_of::<usize>();
        let columns = chunk.records * self.wanted.len() * size_of::<u64>();
        text + text.max(ends) + ends + text + columns
    }

    /// The rows of a text.
    fn rows(&self, text: &[u8], records: usize, has_header: bool) -> Result<Vec<RecordBatch>, ArrowError> {
        let builder = ReaderBuilder::new(Arc::clone(&self.parsed))
            .with_format(format_of(&self.options, has_header)?)
            .with_projection(self.wanted.clone())
            .with_batch_size(self.batch_rows.min(records).max(1));
        let mut decoder = builder.build_decoder();
        // A byte order mark is one only at the beginning of a file, which this may not be.
        let empty_line = self.options.terminator.unwrap_or(b'\n');
        decoder.decode(&[empty_line])?;
        let mut rest = text;
        let mut batches = Vec::new();
        loop {
            let read = decoder.decode(rest)?;
            rest = rest.split_at(read).1;
            if read == 0 || decoder.capacity() == 0 {
                match decoder.flush()? {
                    Some(batch) => batches.push(self.made_of(batch)?),
                    None if rest.is_empty() => return Ok(batches),
                    None => unreachable!("the parser has neither rows nor use for {} bytes", rest.len()),
                }
            }
        }
    }

    /// The columns that are wanted, made of those that were parsed.
    fn made_of(&self, parsed: RecordBatch) -> Result<RecordBatch, ArrowError> {
        let Some(made) = &self.made else { return Ok(parsed) };
        let columns = made.iter().zip(self.columns.fields()).map(|(made, field)| match made {
            Made::Parsed(place) => Ok(Arc::clone(parsed.column(*place))),
            Made::NeverNull(place) => Ok(without_nulls(parsed.column(*place))),
            Made::Converted(place, conversion) => conversion.apply(field.name(), parsed.column(*place)),
            Made::Null => Ok(new_null_array(field.data_type(), parsed.num_rows())),
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let rows = RecordBatchOptions::new().with_row_count(Some(parsed.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.columns), columns, &rows)
    }

    /// The rows of a chunk without the records that cannot be read.
    fn rows_that_can_be_read(&self, chunk: &Chunk, has_header: bool) -> Result<Vec<RecordBatch>, ArrowError> {
        let records = self.records(chunk, has_header);
        let mut unreadable = self.unreadable(&records, usize::MAX).into_iter().peekable();
        let mut text = Vec::with_capacity(chunk.text.len());
        let mut count = 0;
        for (place, record) in records.iter().enumerate() {
            if unreadable.next_if_eq(&place).is_none() {
                text.extend_from_slice(record.text);
                count += 1;
            }
        }
        self.rows(&text, count, false)
    }

    /// An error in a chunk, with the line of the first record that has one.
    fn failed(&self, chunk: &Chunk, has_header: bool, error: &ArrowError) -> Error {
        let records = self.records(chunk, has_header);
        let first = self.unreadable(&records, 1).first().and_then(|place| records.get(*place));
        match first.map(|record| (record.line, self.rows(record.text, 1, false))) {
            Some((line, Err(error))) => self.failed_in(line, &error),
            _ => self.failed_in(chunk.first_line, error),
        }
    }

    fn records<'a>(&self, chunk: &'a Chunk, has_header: bool) -> Vec<Record<'a>> {
        let records = records_of(&chunk.text, chunk.first_line, Syntax::of(&self.options));
        records.skip(usize::from(has_header)).collect()
    }

    /// The places of the first of the records that cannot be read: halves of those that cannot be read as a whole.
    fn unreadable(&self, records: &[Record<'_>], most: usize) -> Vec<usize> {
        let mut places = Vec::new();
        // What comes first is at the end.
        let mut parts = vec![(0, records.len())];
        while let Some((begin, end)) = parts.pop() {
            let inside = records.get(begin..end).unwrap_or_default();
            let text: Vec<u8> = inside.iter().flat_map(|record| record.text).copied().collect();
            if places.len() == most || self.rows(&text, inside.len(), false).is_ok() {
                continue;
            }
            if inside.len() < 2 {
                places.extend(inside.first().map(|_| begin));
                continue;
            }
            let middle = begin + inside.len() / 2;
            parts.push((middle, end));
            parts.push((begin, middle));
        }
        places
    }

    fn failed_in(&self, line: u64, error: &ArrowError) -> Error {
        // It has counted the records of the chunk.
        let (reason, _) = without_line(&reason(error));
        let reason = with_column(&reason, self.parsed.fields());
        Error::file(&self.path, format!("line {line}: {reason}"))
    }
}

impl Reserved {
    /// The rows, and the memory that they and the text take.
    fn parse(self) -> Result<(Vec<RecordBatch>, MemoryReservation)> {
        let Reserved { chunk, has_header, layout, memory } = self;
        let _timer = layout.time.timer();
        let mut rows = layout.rows(&chunk.text, chunk.records, has_header);
        if rows.is_err() && layout.ignores_errors {
            rows = layout.rows_that_can_be_read(&chunk, has_header);
        }
        Ok((rows.map_err(|error| layout.failed(&chunk, has_header, &error))?, memory))
    }
}
