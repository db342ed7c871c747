//! Files with names of their own in a folder: `data_0.parquet`, `data_1.parquet`, … or as `FILENAME_PATTERN` says.
//!
//! ```text
//!   rows ─┬─► data_0 until it has enough row groups or bytes ─► data_1 ─► …     one file after the other
//!         └─► PER_THREAD_OUTPUT: a batch to each of several files in turn
//!   rows of one value of PARTITION_BY ─► name=value/data_0 ─► …
//! ```
//!
//! Each file has a provisional name until it is whole. What has been written of a write that fails or is cancelled stays:
//! files that were complete.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use async_trait::async_trait;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result, exec_datafusion_err};
use datafusion::datasource::file_format::parquet::ParquetSink;
use datafusion::datasource::file_format::write::get_writer_schema;
use datafusion::datasource::sink::{DataSink, DataSinkExec};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::LexRequirement;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType};
use futures::{TryStreamExt as _, stream};
use nandina_exec::batch::row_width::value_bytes;
use nandina_exec::execution::meter::inherited;
use nandina_exec::partitioned_write::{ValueWriter, within_value};
use nandina_functions::{Failed, cast_array};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::text::lost;
use super::{config, file_sink};
use crate::error::Error;
use crate::files::located::{encoded, encoded_value};
use crate::files::output::{Existing, Output};
use crate::files::provisional::Provisional;
use crate::files::written::WrittenFile;

/// Writes files into a folder.
#[derive(Debug)]
pub(crate) struct Folder {
    root: PathBuf,
    /// The write as DataFusion would do it: of which format, and how.
    planned: DataSinkExec,
    output: Output,
    order: Option<LexRequirement>,
    /// The columns that folders are named after.
    columns: Vec<usize>,
    /// Those that are in files.
    kept: Vec<usize>,
    schema: SchemaRef,
    extension: String,
    most_rows: usize,
    /// The number of the next file of each folder.
    next: Mutex<HashMap<PathBuf, usize>>,
    files: Mutex<Vec<WrittenFile>>,
    /// Sums over the files that have been written.
    written: Mutex<MetricsSet>,
}

impl Folder {
    pub fn new(root: PathBuf, planned: &DataSinkExec, columns: &[String], output: &Output) -> Result<Self> {
        let config = config(planned).ok_or_else(|| exec_datafusion_err!("a folder of an unknown format"))?;
        let input = planned.input().schema();
        let numbers = columns.iter().map(|name| input.index_of(name)).collect::<Result<Vec<_>, _>>()?;
        let kept: Vec<usize> = (0..input.fields().len())
            .filter(|number| config.keep_partition_by_columns || !numbers.contains(number))
            .collect();
        if kept.is_empty() {
            let message =
                "all columns are in the names of folders, and none in the files; say WRITE_PARTITION_COLUMNS";
            return Err(Error::unsupported(message).into());
        }
        let rows = planned.sink().downcast_ref::<ParquetSink>().map_or(usize::MAX, |parquet| {
            let group_rows = parquet.parquet_options().global.max_row_group_size;
            output.most_row_groups.map_or(usize::MAX, |groups| groups.saturating_mul(group_rows))
        });
        Ok(Folder {
            root,
            order: within_value(planned),
            planned: planned.clone(),
            output: output.clone(),
            columns: numbers,
            kept,
            schema: get_writer_schema(config),
            extension: output.extension.clone().unwrap_or_else(|| config.file_extension.clone()),
            most_rows: rows,
            next: Mutex::default(),
            files: Mutex::default(),
            written: Mutex::default(),
        })
    }

    /// The files that have been written.
    pub fn files(&self) -> Vec<WrittenFile> {
        self.files.lock().clone()
    }

    /// Writes rows that belong into one folder, into as many files as need be.
    async fn write_all(&self, rows: SendableRecordBatchStream, context: &Arc<TaskContext>) -> Result<u64> {
        let source = Arc::new(tokio::sync::Mutex::new(Source { rows, rest: None }));
        let mut total = 0;
        loop {
            let first = source.lock().await.peek().await?;
            let Some(first) = first else { return Ok(total) };
            let values = self.values(&first)?;
            total += self.write_file(values, self.next_rows(&source), context).await?;
        }
    }

    /// The rows of one file.
    fn next_rows(&self, source: &Arc<tokio::sync::Mutex<Source>>) -> SendableRecordBatchStream {
        let (most_rows, most_bytes) = (self.most_rows, self.output.most_bytes.unwrap_or(usize::MAX));
        let begin = (Arc::clone(source), self.kept.clone(), 0_usize, 0_usize);
        let rows = stream::try_unfold(begin, move |(source, kept, rows, bytes)| async move {
            if rows >= most_rows || bytes >= most_bytes {
                return Ok(None);
            }
            let Some(batch) = source.lock().await.next(most_rows - rows).await? else { return Ok(None) };
            let batch = batch.project(&kept)?;
            let batch_bytes: usize = batch.columns().iter().map(value_bytes).sum();
            let state = (source, kept, rows + batch.num_rows(), bytes + batch_bytes);
            Ok::<_, DataFusionError>(Some((batch, state)))
        });
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), rows))
    }

    /// The values that rows have which belong together, with the names of their columns.
    fn values(&self, rows: &RecordBatch) -> Result<Vec<(String, Option<String>)>> {
        let value = |&column: &usize| {
            let text = cast_array(&rows.column(column).slice(0, 1), &DataType::Utf8, Failed::IsError)?;
            let text = text.as_string::<i32>();
            let value = text.is_valid(0).then(|| text.value(0).to_owned());
            Ok((rows.schema().field(column).name().clone(), value))
        };
        self.columns.iter().map(value).collect()
    }

    async fn write_file(
        &self,
        values: Vec<(String, Option<String>)>,
        rows: SendableRecordBatchStream,
        context: &Arc<TaskContext>,
    ) -> Result<u64> {
        let mut folder = self.root.clone();
        if !self.output.is_flat {
            for (name, value) in &values {
                folder.push(format!("{}={}", encoded(name), encoded_value(value.as_deref())));
            }
        }
        let fail = |error: std::io::Error| Error::file(folder.display().to_string(), error.to_string());
        tokio::fs::create_dir_all(&folder).await.map_err(fail)?;
        let path = folder.join(self.next_name(&folder));
        let file = Provisional::at(&path)?;
        let sink = file_sink(&self.planned, file.provisional.clone(), &self.output, self.order.as_ref());
        let sink = sink.ok_or_else(|| Error::unsupported("encrypted Parquet is written to one file"))?;
        let rows = sink.write_all(rows, context).await?;
        file.take_place()?;
        self.add_up(&sink.metrics().unwrap_or_default());
        self.files.lock().push(WrittenFile { path, rows, values });
        Ok(rows)
    }

    /// The name of the next file of a folder.
    fn next_name(&self, folder: &Path) -> String {
        let number = {
            let mut next = self.next.lock();
            let next = next.entry(folder.to_owned()).or_default();
            *next += 1;
            *next - 1
        };
        let usual = if self.output.existing == Existing::Kept { "data_{uuid}" } else { "data_{i}" };
        let pattern = self.output.pattern.as_deref().unwrap_or(usual);
        let has_place = pattern.contains("{i}") || pattern.contains("{uuid");
        let mut name = pattern.replace("{i}", &number.to_string());
        for (place, make) in [
            ("{uuid}", uuid::Uuid::new_v4 as fn() -> uuid::Uuid),
            ("{uuidv4}", uuid::Uuid::new_v4),
            ("{uuidv7}", ordered_uuid),
        ] {
            name = name.replace(place, &make().to_string());
        }
        if !has_place {
            name += &number.to_string();
        }
        format!("{name}.{}", self.extension)
    }

    fn add_up(&self, of_file: &MetricsSet) {
        let mut written = self.written.lock();
        for metric in of_file.iter() {
            written.push(Arc::clone(metric));
        }
        *written = written.aggregate_by_name();
    }

    async fn prepare(&self) -> Result<()> {
        let fail = |error: std::io::Error| Error::file(self.root.display().to_string(), error.to_string());
        if self.output.existing == Existing::Removed && self.root.exists() {
            tokio::fs::remove_dir_all(&self.root).await.map_err(fail)?;
        }
        Ok(tokio::fs::create_dir_all(&self.root).await.map_err(fail)?)
    }
}

#[async_trait]
impl ValueWriter for Folder {
    async fn begin(&self) -> Result<()> {
        self.prepare().await
    }

    async fn write(&self, rows: SendableRecordBatchStream, context: &Arc<TaskContext>) -> Result<u64> {
        self.write_all(rows, context).await
    }

    fn metrics(&self) -> MetricsSet {
        self.written.lock().clone()
    }
}

/// A UUID that is greater than earlier ones, by its milliseconds.
fn ordered_uuid() -> uuid::Uuid {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let [_, _, _, _, _, _, random @ ..] = uuid::Uuid::new_v4().into_bytes();
    uuid::Builder::from_unix_timestamp_millis(since.as_millis() as u64, &random).into_uuid()
}

/// Rows that several files take from, one after the other.
struct Source {
    rows: SendableRecordBatchStream,
    rest: Option<RecordBatch>,
}

impl Source {
    /// The rows that come next, which stay: at least one, if there are any.
    async fn peek(&mut self) -> Result<Option<RecordBatch>> {
        while self.rest.as_ref().is_none_or(|rest| rest.num_rows() == 0) {
            let Some(batch) = self.rows.try_next().await? else { return Ok(None) };
            self.rest = Some(batch);
        }
        Ok(self.rest.clone())
    }

    /// At most so many of the rows that come next.
    async fn next(&mut self, most: usize) -> Result<Option<RecordBatch>> {
        let Some(batch) = self.peek().await? else { return Ok(None) };
        let taken = batch.num_rows().min(most);
        self.rest = (taken < batch.num_rows()).then(|| batch.slice(taken, batch.num_rows() - taken));
        Ok(Some(batch.slice(0, taken)))
    }
}

/// Writes all rows into one folder.
#[derive(Debug)]
pub(crate) struct FolderSink(pub Arc<Folder>);

impl FolderSink {
    /// Gives batches to several files in turn.
    async fn write_in_turn(
        &self,
        mut rows: SendableRecordBatchStream,
        context: &Arc<TaskContext>,
    ) -> Result<u64> {
        let lanes = context.session_config().target_partitions().max(1);
        let mut senders = Vec::with_capacity(lanes);
        let mut tasks = Vec::with_capacity(lanes);
        for _ in 0..lanes {
            let (sender, receiver) = mpsc::channel::<RecordBatch>(1);
            let received = stream::unfold(receiver, |mut receiver| async {
                receiver.recv().await.map(|batch| (Ok(batch), receiver))
            });
            let lane: SendableRecordBatchStream =
                Box::pin(RecordBatchStreamAdapter::new(rows.schema(), received));
            let (folder, context) = (Arc::clone(&self.0), Arc::clone(context));
            tasks.push(SpawnedTask::spawn(inherited(async move { folder.write_all(lane, &context).await })));
            senders.push(sender);
        }
        let mut turn = 0;
        while let Some(batch) = rows.try_next().await? {
            let Some(sender) = senders.get(turn % lanes) else { break };
            if sender.send(batch).await.is_err() {
                break; // The write has failed, and says how.
            }
            turn += 1;
        }
        drop(senders);
        let mut total = 0;
        for task in tasks {
            total += task.join_unwind().await.map_err(lost)??;
        }
        Ok(total)
    }
}

#[async_trait]
impl DataSink for FolderSink {
    fn metrics(&self) -> Option<MetricsSet> {
        Some(ValueWriter::metrics(self.0.as_ref()))
    }

    fn schema(&self) -> &SchemaRef {
        &self.0.schema
    }

    async fn write_all(&self, data: SendableRecordBatchStream, context: &Arc<TaskContext>) -> Result<u64> {
        let folder = &self.0;
        folder.prepare().await?;
        let schema = data.schema();
        let rows = match folder.output.per_thread {
            true => self.write_in_turn(data, context).await?,
            false => folder.write_all(data, context).await?,
        };
        if rows == 0 && !folder.output.leaves_empty_out {
            let none = RecordBatchStreamAdapter::new(schema, stream::empty());
            folder.write_file(Vec::new(), Box::pin(none), context).await?;
        }
        Ok(rows)
    }
}

impl DisplayAs for FolderSink {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Folder({})", self.0.root.display())
    }
}
