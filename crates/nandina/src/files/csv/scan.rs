//! The rows of CSV files: one thread reads, several parse.
#![allow(clippy::indexing_slicing, reason = "fields and columns are numbered here")]

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::csv::ReaderBuilder;
use arrow::datatypes::{Fields, Schema, SchemaRef};
use arrow::error::ArrowError;
use datafusion::common::config::CsvOptions;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::physical_plan::metrics::Time;
use futures::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use tokio::sync::mpsc::Sender;

use super::chunks::{Chunk, ChunkSize, Chunks};
use super::columns::{columns_of_fields, unique_names};
use super::infer::{format_of, header_of, reason, without_line};
use super::records::{RecordEnds, Syntax};
use crate::error::{self, Error};
use crate::files::text_scan::{TextFile, TextFormat, from_thread};
use nandina_exec::execution::meter::inherited;

/// How CSV files are written, and what reading them may use.
#[derive(Debug, Clone)]
pub(super) struct CsvText {
    pub options: CsvOptions,
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
    /// The fields of a record, in the order of the file.
    fields: SchemaRef,
    /// Which of them are wanted, in the order of the table.
    wanted: Vec<usize>,
    batch_rows: usize,
    time: Time,
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
        let places = if self.has_header {
            let header = header_of(first, &self.options);
            let header = header.map_err(|error| Error::file(&path, format!("line 1: {}", reason(&error))))?;
            let header = unique_names(header);
            let names: Vec<&str> = columns.iter().map(|column| column.name().as_str()).collect();
            columns_of_fields(&path, &header, &names)?
        } else {
            (0..columns.len()).collect()
        };
        let fields: Fields = places.iter().map(|&place| file.columns.field(place).clone()).collect();
        let fields_of: HashMap<usize, usize> =
            places.iter().enumerate().map(|(field, &column)| (column, field)).collect();
        Ok(Layout {
            path,
            options: self.options.clone(),
            fields: Arc::new(Schema::new_with_metadata(fields, file.columns.metadata().clone())),
            wanted: file.wanted.iter().map(|column| fields_of[column]).collect(),
            batch_rows: file.batch_rows,
            time: file.time.clone(),
        })
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

impl Layout {
    /// Memory that a chunk takes with all that is made of it: the text of its fields without quotes, the end of each, and
    /// the columns that are wanted.
    fn bytes_to_parse(&self, chunk: &Chunk) -> usize {
        let text = chunk.text.len();
        let rows = chunk.records.min(self.batch_rows);
        let ends = rows * self.fields.fields().len() * size_of::<usize>();
        let columns = chunk.records * self.wanted.len() * size_of::<u64>();
        text + text.max(ends) + ends + text + columns
    }

    /// The rows of a text.
    fn rows(&self, text: &[u8], records: usize, has_header: bool) -> Result<Vec<RecordBatch>, ArrowError> {
        let builder = ReaderBuilder::new(Arc::clone(&self.fields))
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
                    Some(batch) => batches.push(batch),
                    None if rest.is_empty() => return Ok(batches),
                    None => unreachable!("the parser has neither rows nor use for {} bytes", rest.len()),
                }
            }
        }
    }

    /// An error in a chunk, with the line of the first record that has one.
    fn failed(&self, chunk: &Chunk, has_header: bool, error: &ArrowError) -> Error {
        let mut ends = RecordEnds::new(Syntax::of(&self.options));
        let (mut begin, mut end) = (0, 0);
        let (mut line, mut next_line) = (chunk.first_line, chunk.first_line);
        let mut is_header = has_header;
        for text in chunk.text.split_inclusive(|&byte| byte == b'\n') {
            end += text.len();
            next_line += 1;
            let is_empty = match ends.find(text) {
                Some(found) => found.records == 0,
                None if end < chunk.text.len() => continue,
                None => false,
            };
            let record = chunk.text.get(begin..end).unwrap_or_default();
            if !is_empty
                && !std::mem::take(&mut is_header)
                && let Err(error) = self.rows(record, 1, false)
            {
                return self.failed_in(line, &error);
            }
            (begin, line) = (end, next_line);
        }
        self.failed_in(chunk.first_line, error)
    }

    fn failed_in(&self, line: u64, error: &ArrowError) -> Error {
        // It has counted the records of the chunk.
        let (reason, _) = without_line(&reason(error));
        Error::file(&self.path, format!("line {line}: {reason}"))
    }
}

impl Reserved {
    /// The rows, and the memory that they and the text take.
    fn parse(self) -> Result<(Vec<RecordBatch>, MemoryReservation)> {
        let Reserved { chunk, has_header, layout, memory } = self;
        let _timer = layout.time.timer();
        let rows = layout.rows(&chunk.text, chunk.records, has_header);
        Ok((rows.map_err(|error| layout.failed(&chunk, has_header, &error))?, memory))
    }
}
