//! CSV and JSON.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use async_compression::Level;
use async_compression::tokio::write::{BzEncoder, GzipEncoder, XzEncoder, ZstdEncoder};
use async_trait::async_trait;
use bytes::Bytes;
use datafusion::common::parsers::CompressionTypeVariant;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::file_format::csv::CsvSink;
use datafusion::datasource::file_format::json::JsonSink;
use datafusion::datasource::file_format::write::{BatchSerializer, get_writer_schema};
use datafusion::datasource::physical_plan::FileSink as _;
use datafusion::datasource::sink::DataSink;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use nandina_exec::batch::row_width::value_bytes;
use nandina_exec::execution::meter::inherited;
use nandina_functions::{Failed, cast_array};
use tokio::fs::File;
use tokio::io::{AsyncWrite, AsyncWriteExt as _, BufWriter};
use tokio::sync::mpsc;

use super::csv_text::CsvText;
use super::failed;
use super::json_text::{BETWEEN, JsonText};
use crate::files::output::TextOutput;

/// Writes rows as text into one file.
#[derive(Debug)]
pub(super) struct TextSink {
    path: PathBuf,
    schema: SchemaRef,
    format: Format,
    compression: CompressionTypeVariant,
    level: Option<u32>,
    metrics: ExecutionPlanMetricsSet,
}

#[derive(Debug)]
enum Format {
    Csv(Arc<CsvText>),
    Json(Arc<JsonText>),
}

impl TextSink {
    pub fn csv(path: PathBuf, planned: &CsvSink, output: &TextOutput) -> Self {
        let options = planned.writer_options();
        Self {
            path,
            schema: get_writer_schema(planned.config()),
            format: Format::Csv(Arc::new(CsvText::new(&options.writer_options, output))),
            compression: options.compression,
            level: options.compression_level,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    pub fn json(path: PathBuf, planned: &JsonSink, output: &TextOutput) -> Self {
        let options = planned.writer_options();
        Self {
            path,
            schema: get_writer_schema(planned.config()),
            format: Format::Json(Arc::new(JsonText::new(output))),
            compression: options.compression,
            level: options.compression_level,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    fn serializer(&self) -> Arc<dyn BatchSerializer> {
        match &self.format {
            Format::Csv(csv) => Arc::clone(csv) as _,
            Format::Json(json) => Arc::clone(json) as _,
        }
    }

    /// What stands in front of the rows, and behind them.
    fn frame(&self) -> (String, String) {
        match &self.format {
            Format::Csv(csv) => {
                (csv.head(&RecordBatch::new_empty(Arc::clone(&self.schema))), csv.tail().into_owned())
            }
            Format::Json(json) if json.is_array => ("[\n\t".to_owned(), "\n]\n".to_owned()),
            Format::Json(_) => (String::new(), String::new()),
        }
    }

    /// Bytes in front of the first row that are not written: what stands between rows.
    fn left_out(&self) -> usize {
        match &self.format {
            Format::Csv(csv) => csv.left_out(),
            Format::Json(json) if json.is_array => BETWEEN.len(),
            Format::Json(_) => 0,
        }
    }

    /// An empty file, and what compresses on the way to it.
    async fn create(&self) -> Result<Box<dyn AsyncWrite + Send + Unpin>> {
        let file = File::create(&self.path).await.map_err(|error| failed(&self.path, error))?;
        let file = BufWriter::with_capacity(WRITE_BYTES, file);
        let level = self.level.map_or(Level::Default, |level| Level::Precise(level as i32));
        Ok(match self.compression {
            CompressionTypeVariant::GZIP => Box::new(GzipEncoder::with_quality(file, level)),
            CompressionTypeVariant::BZIP2 => Box::new(BzEncoder::with_quality(file, level)),
            CompressionTypeVariant::XZ => Box::new(XzEncoder::with_quality(file, level)),
            CompressionTypeVariant::ZSTD => Box::new(ZstdEncoder::with_quality(file, level)),
            CompressionTypeVariant::UNCOMPRESSED => Box::new(file),
        })
    }
}

#[async_trait]
impl DataSink for TextSink {
    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    async fn write_all(&self, data: SendableRecordBatchStream, context: &Arc<TaskContext>) -> Result<u64> {
        let rows_written = MetricBuilder::new(&self.metrics).global_counter("rows_written");
        let bytes_written = MetricBuilder::new(&self.metrics).global_counter("bytes_written");
        let lanes = context.session_config().target_partitions().max(1);
        let texts_in_memory = MemoryConsumer::new("TextSink").register(context.memory_pool());
        let serializer = self.serializer();
        let mut file = self.create().await?;
        // Names of columns are written even if no row is.
        let (head, tail) = self.frame();
        let mut left_out = self.left_out();
        let (texts, mut next_text) = mpsc::channel::<Bytes>(lanes);
        let path = self.path.clone();
        let write = SpawnedTask::spawn(inherited(async move {
            let fail = |error| failed(&path, error);
            file.write_all(head.as_bytes()).await.map_err(fail)?;
            while let Some(text) = next_text.recv().await {
                let (_, text) = text.split_at(std::mem::take(&mut left_out).min(text.len()));
                file.write_all(text).await.map_err(fail)?;
            }
            file.write_all(tail.as_bytes()).await.map_err(fail)?;
            file.shutdown().await.map_err(fail)
        }));
        let mut serialized = data
            .map_ok(|batch| stream::iter(pieces(batch).map(Ok::<_, DataFusionError>)))
            .try_flatten()
            .map(|batch| {
                let serializer = Arc::clone(&serializer);
                async move {
                    let batch = batch?;
                    let rows = batch.num_rows();
                    let task =
                        SpawnedTask::spawn(inherited(async move { serializer.serialize(batch, false) }));
                    Ok::<_, DataFusionError>((rows, task.join_unwind().await.map_err(lost)??))
                }
            })
            .buffered(2 * lanes);
        while let Some((rows, text)) = serialized.try_next().await? {
            // They are there already: to refuse them would not make them smaller.
            let _ = texts_in_memory.try_resize(text.len() * 3 * lanes);
            rows_written.add(rows);
            bytes_written.add(text.len());
            if texts.send(text).await.is_err() {
                break; // The write has failed, and says how.
            }
        }
        drop(texts);
        write.join_unwind().await.map_err(lost)??;
        Ok(rows_written.value() as u64)
    }
}

/// Bytes of a write: each goes to another thread and back.
const WRITE_BYTES: usize = 2 << 20;

/// Bytes that are made text at a time: a text that grows takes twice its size, and several are in flight in every lane.
const PIECE_BYTES: usize = 512 << 10;

/// A batch in pieces that are no larger than need be.
fn pieces(batch: RecordBatch) -> impl Iterator<Item = RecordBatch> {
    let rows = batch.num_rows();
    let bytes: usize = batch.columns().iter().map(value_bytes).sum();
    let row_bytes = bytes / rows.max(1);
    let most_rows = (PIECE_BYTES / row_bytes.max(1)).max(1);
    (0..rows).step_by(most_rows).map(move |first| batch.slice(first, most_rows.min(rows - first)))
}

/// A task that was cancelled, with the runtime that ended.
pub(super) fn lost(error: tokio::task::JoinError) -> DataFusionError {
    DataFusionError::ExecutionJoin(Box::new(error))
}

impl DisplayAs for TextSink {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.format {
            Format::Csv(_) => "CsvFile",
            Format::Json(_) => "JsonFile",
        };
        write!(f, "{name}({})", self.path.display())
    }
}

/// `batch` with texts in place of nested values and bytes: `[1, NULL]`, `{'a': 1}`, `\xAA`.
pub fn nested_as_text(batch: RecordBatch) -> std::result::Result<RecordBatch, ArrowError> {
    let schema = batch.schema();
    let becomes_text = |field: &Field| field.data_type().is_nested() || field.data_type().is_binary();
    if !schema.fields().iter().any(|field| becomes_text(field)) {
        return Ok(batch);
    }
    let mut fields = Vec::with_capacity(schema.fields().len());
    let mut columns = Vec::with_capacity(schema.fields().len());
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        if becomes_text(field) {
            fields.push(Arc::new(Field::new(field.name(), DataType::Utf8, true)));
            columns.push(cast_array(column, &DataType::Utf8, Failed::IsError)?);
        } else {
            fields.push(Arc::clone(field));
            columns.push(Arc::clone(column));
        }
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}
