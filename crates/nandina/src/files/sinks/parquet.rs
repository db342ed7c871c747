//! Parquet.
//!
//! Rows are gathered to a few megabytes; then tasks take one column after the other and encode it, while the next rows are
//! computed. A row group ends when it has as many rows or bytes as one may have, or when memory is wanted elsewhere, and
//! is written while the next one is encoded.
//!
//! ```text
//!   input ─► stage ─► ┌ task: column 1, column 3, … ┐ ─► encoded columns ─► row group ─► file
//!                     └ task: column 2, column 4, … ┘
//! ```
#![allow(clippy::indexing_slicing, reason = "columns are numbered here")]

use std::cmp::Reverse;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{RecordBatch, new_empty_array};
use arrow::datatypes::{FieldRef, SchemaRef};
use async_trait::async_trait;
use datafusion::common::config::{ParquetOptions, TableParquetOptions};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::file_format::parquet::ParquetSink;
use datafusion::datasource::file_format::write::get_writer_schema;
use datafusion::datasource::physical_plan::FileSink as _;
use datafusion::datasource::sink::DataSink;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::LexRequirement;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, Time};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType};
use futures::TryStreamExt as _;
use nandina_exec::batch::row_width::{leaf_columns, value_bytes};
use nandina_exec::execution::meter::{inherited, inherited_work};
use nandina_exec::partitioned_write::sorting_columns;
use parking_lot::Mutex;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{
    ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, ArrowWriterOptions, compute_leaves,
};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnDescPtr;

use super::failed;
use super::text::lost;

/// Rows that are encoded at a time, in bytes: enough that tasks are busy, and the share of the limit that they may take.
const MOST_STAGE_BYTES: usize = 4 << 20;
const STAGE_SHARE: usize = 64;

/// Bytes that the pages of all columns may have together, and those of one nevertheless.
const PAGES_BYTES: usize = 16 << 20;
const LEAST_PAGE_BYTES: usize = 32 << 10;

/// Bytes that a column of a row group has at least: each stands in the footer with its bounds, which is in memory until the
/// end.
const LEAST_CHUNK_BYTES: usize = 16 << 10;

/// What zstd's compressor has for a byte of the pages that it compresses, and at most, at its usual levels: tables that stay
/// until the column's row group ends (measured: 270 KB for pages of 16 KB). Other compressors keep nothing between pages.
const COMPRESSOR_PAGES: usize = 16;
const MOST_COMPRESSOR_BYTES: usize = 3 << 19;

/// Whether all that is asked for is done here.
pub(super) fn can_write(options: &TableParquetOptions) -> bool {
    let is_plain = options.crypto.file_encryption.is_none() && options.crypto.factory_id.is_none();
    is_plain && !options.global.content_defined_chunking.enabled
}

/// Writes rows into one Parquet file.
pub(super) struct OneParquetSink {
    path: PathBuf,
    schema: SchemaRef,
    options: TableParquetOptions,
    order: Option<Vec<SortingColumn>>,
    metrics: ExecutionPlanMetricsSet,
}

impl OneParquetSink {
    pub fn new(
        path: PathBuf,
        planned: &ParquetSink,
        order: Option<&LexRequirement>,
        metadata: &[(String, String)],
    ) -> Self {
        let schema = get_writer_schema(planned.config());
        let order = order.and_then(|order| sorting_columns(order, &[], &schema));
        let mut options = planned.parquet_options().clone();
        let metadata = metadata.iter().map(|(name, value)| (name.clone(), Some(value.clone())));
        options.key_value_metadata.extend(metadata);
        Self { path, schema, options, order, metrics: ExecutionPlanMetricsSet::new() }
    }

    /// For rows like those of `first`.
    fn properties(&self, first: &[RecordBatch]) -> Result<WriterProperties> {
        let mut options = self.options.clone();
        // A reader of the file holds a page and a dictionary of every column at a time.
        let page_bytes = (PAGES_BYTES / leaf_columns(&self.schema).max(1)).max(LEAST_PAGE_BYTES);
        let usual = ParquetOptions::default();
        // A page size that was set stays.
        if options.global.data_pagesize_limit == usual.data_pagesize_limit {
            options.global.data_pagesize_limit = usual.data_pagesize_limit.min(page_bytes);
        }
        if options.global.dictionary_page_size_limit == usual.dictionary_page_size_limit {
            options.global.dictionary_page_size_limit = usual.dictionary_page_size_limit.min(page_bytes);
        }
        // Whether a page is full is looked at once for so many values.
        let rows: usize = first.iter().map(RecordBatch::num_rows).sum();
        let of_column = |at| first.iter().map(|batch| value_bytes(batch.column(at))).sum::<usize>();
        let widest = (0..self.schema.fields().len()).map(of_column).max().unwrap_or(0) / rows.max(1);
        let values = (options.global.data_pagesize_limit / widest.max(1)).max(1);
        options.global.write_batch_size = options.global.write_batch_size.min(values);
        if !options.global.skip_arrow_metadata {
            options.arrow_schema(&self.schema);
        }
        let builder = WriterPropertiesBuilder::try_from(&options)?;
        Ok(builder.set_sorting_columns(self.order.clone()).build())
    }

    fn create(
        &self,
        properties: WriterProperties,
    ) -> Result<(SerializedFileWriter<File>, ArrowRowGroupWriterFactory)> {
        let file = File::create(&self.path).map_err(|error| failed(&self.path, error))?;
        let options = ArrowWriterOptions::new()
            .with_properties(properties)
            .with_skip_arrow_metadata(self.options.global.skip_arrow_metadata);
        let writer = ArrowWriter::try_new_with_options(file, Arc::clone(&self.schema), options);
        writer
            .and_then(ArrowWriter::into_serialized_writer)
            .map_err(|error| parquet_failed(&self.path, error))
    }
}

#[async_trait]
impl DataSink for OneParquetSink {
    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    async fn write_all(
        &self,
        mut data: SendableRecordBatchStream,
        context: &Arc<TaskContext>,
    ) -> Result<u64> {
        let stage_bytes = match context.memory_pool().memory_limit() {
            MemoryLimit::Finite(limit_bytes) => (limit_bytes / STAGE_SHARE).clamp(1, MOST_STAGE_BYTES),
            _ => MOST_STAGE_BYTES,
        };
        let mut stages = Stages { data: &mut data, bytes: stage_bytes, rest: None };
        let mut stage = stages.next().await?;
        let (writer, factory) = self.create(self.properties(&stage)?)?;
        let options = &self.options.global;
        let least_bytes = leaf_columns(&self.schema) * LEAST_CHUNK_BYTES;
        let writing = Writing {
            path: self.path.clone(),
            fields: self.schema.fields().iter().cloned().collect(),
            factory,
            page_rows: writer.properties().data_page_row_count_limit(),
            compressors: compressors(&writer),
            writer: FileWriter::Idle(writer),
            row_groups: 0,
            open: None,
            most_rows: options.max_row_group_size.max(1),
            most_bytes: options.max_row_group_bytes.map_or(usize::MAX, |bytes| bytes.get().max(least_bytes)),
            least_bytes,
            stages_bytes: 2 * stage_bytes,
            memory: MemoryConsumer::new("OneParquetSink").register(context.memory_pool()),
            lanes: context.session_config().target_partitions().max(1),
            encoding: MetricBuilder::new(&self.metrics).elapsed_compute(0),
        };
        let rows_written = MetricBuilder::new(&self.metrics).global_counter("rows_written");
        let bytes_written = MetricBuilder::new(&self.metrics).global_counter("bytes_written");
        let mut work = SpawnedTask::spawn(async move { Ok(writing) });
        let writing = loop {
            let writing = work.join_unwind().await.map_err(lost)??;
            if stage.is_empty() {
                break writing;
            }
            rows_written.add(stage.iter().map(RecordBatch::num_rows).sum());
            work = SpawnedTask::spawn(inherited(writing.add(stage)));
            stage = stages.next().await?;
        };
        bytes_written.add(writing.finish().await?);
        Ok(rows_written.value() as u64)
    }
}

impl fmt::Debug for OneParquetSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneParquetSink").field("path", &self.path).finish_non_exhaustive()
    }
}

impl DisplayAs for OneParquetSink {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ParquetFile({})", self.path.display())
    }
}

/// Rows for the encoders. Batches that have more bytes than one stage are cut.
struct Stages<'a> {
    data: &'a mut SendableRecordBatchStream,
    /// Bytes of a stage, within a row.
    bytes: usize,
    rest: Option<Rest>,
}

/// What earlier stages have left of a batch.
struct Rest {
    batch: RecordBatch,
    first: usize,
    /// Mean bytes of a row.
    row_bytes: usize,
}

impl Stages<'_> {
    /// The next rows; none at the end.
    async fn next(&mut self) -> Result<Vec<RecordBatch>> {
        let (mut stage, mut staged_bytes) = (Vec::new(), 0);
        while staged_bytes < self.bytes {
            let Rest { batch, first, row_bytes } = match self.rest.take() {
                Some(rest) => rest,
                None => match self.data.try_next().await? {
                    Some(batch) => Rest { first: 0, row_bytes: row_bytes(&batch), batch },
                    None => break,
                },
            };
            let left = batch.num_rows() - first;
            let taken = (self.bytes - staged_bytes).div_ceil(row_bytes).min(left);
            if taken > 0 {
                staged_bytes += taken * row_bytes;
                stage.push(batch.slice(first, taken));
            }
            if taken < left {
                self.rest = Some(Rest { batch, first: first + taken, row_bytes });
            }
        }
        Ok(stage)
    }
}

/// Mean bytes of a row, at least one.
fn row_bytes(batch: &RecordBatch) -> usize {
    let bytes: usize = batch.columns().iter().map(value_bytes).sum();
    (bytes / batch.num_rows().max(1)).max(1)
}

/// A file that is being written.
struct Writing {
    path: PathBuf,
    fields: Vec<FieldRef>,
    factory: ArrowRowGroupWriterFactory,
    writer: FileWriter,
    row_groups: usize,
    /// The row group that rows are added to.
    open: Option<RowGroup>,
    /// What a row group may have at most.
    most_rows: usize,
    most_bytes: usize,
    /// What it has at least, even if memory is wanted elsewhere.
    least_bytes: usize,
    /// Rows of a page at most.
    page_rows: usize,
    /// Of every leaf.
    compressors: Vec<Compressor>,
    /// Rows that wait for being encoded.
    stages_bytes: usize,
    memory: MemoryReservation,
    lanes: usize,
    encoding: Time,
}

struct RowGroup {
    columns: Arc<Vec<Column>>,
    rows: usize,
}

/// What compresses the pages of a leaf.
#[derive(Clone, Copy)]
struct Compressor {
    /// Encoded bytes of a page at most.
    page_bytes: usize,
    /// Whether it keeps memory from one page to the next.
    keeps_memory: bool,
}

impl Compressor {
    /// What it keeps of pages of so many bytes.
    fn kept_bytes(self, page_bytes: usize) -> usize {
        match self.keeps_memory {
            true => page_bytes.saturating_mul(COMPRESSOR_PAGES).min(MOST_COMPRESSOR_BYTES),
            false => 0,
        }
    }
}

enum FileWriter {
    Idle(SerializedFileWriter<File>),
    /// Writes a row group of so many bytes.
    Busy(SpawnedTask<Result<SerializedFileWriter<File>, ParquetError>>, usize),
    /// A write has failed, which is the last one.
    Failed,
}

/// A column of the table in one row group.
struct Column {
    field: FieldRef,
    /// One for each leaf of a nested column.
    leaves: Mutex<Vec<Leaf>>,
    encoded: Mutex<Vec<ArrowColumnChunk>>,
}

/// A leaf of a column in one row group.
struct Leaf {
    writer: ArrowColumnWriter,
    compressor: Compressor,
    /// Encoded bytes before the last rows.
    before_bytes: usize,
    /// What the compressor keeps, if need be once the next rows have been encoded.
    compressor_bytes: usize,
}

impl Writing {
    /// Encodes rows, and writes the row groups that are complete.
    async fn add(mut self, stage: Vec<RecordBatch>) -> Result<Self> {
        let mut stage = stage.into_iter();
        let mut rest = stage.next();
        while rest.is_some() {
            let (columns, mut rows) = match self.open.take() {
                Some(open) => (open.columns, open.rows),
                None => (self.columns()?, 0),
            };
            let rows_before = rows;
            let mut batches = Vec::new();
            while let Some(batch) = rest.take() {
                let taken = batch.num_rows().min(self.most_rows - rows);
                batches.push(batch.slice(0, taken));
                rows += taken;
                if taken < batch.num_rows() {
                    rest = Some(batch.slice(taken, batch.num_rows() - taken));
                    break;
                }
                rest = stage.next();
                if rows == self.most_rows {
                    break;
                }
            }
            self.encode(&columns, batches).await?;
            let bytes: usize = columns.iter().map(Column::memory_bytes).sum();
            let is_page_of_rows = rows + (rows - rows_before) >= self.page_rows;
            let compressors: usize =
                columns.iter().map(|column| column.compressor_bytes(is_page_of_rows)).sum();
            let has_room = self.has_room(bytes + compressors).await?;
            // What it will have in the file is less: tables of dictionaries are large from the beginning.
            let estimated_bytes: usize = columns.iter().map(Column::estimated_bytes).sum();
            let is_large = estimated_bytes > self.most_bytes || !has_room && bytes > self.least_bytes;
            self.open = Some(RowGroup { columns, rows });
            if rows == self.most_rows || is_large {
                self.end_row_group().await?;
            }
        }
        Ok(self)
    }

    /// The columns of the next row group.
    fn columns(&self) -> Result<Arc<Vec<Column>>> {
        let fail = |error: ParquetError| failed(&self.path, error);
        let writers = self.factory.create_column_writers(self.row_groups).map_err(fail)?;
        assert_eq!(writers.len(), self.compressors.len(), "every leaf has a compressor");
        let mut leaves = writers.into_iter().zip(&self.compressors).map(|(writer, &compressor)| Leaf {
            before_bytes: writer.get_estimated_total_bytes(),
            writer,
            compressor,
            compressor_bytes: 0,
        });
        let mut columns = Vec::with_capacity(self.fields.len());
        for field in &self.fields {
            let count = compute_leaves(field, &new_empty_array(field.data_type())).map_err(fail)?.len();
            columns.push(Column {
                field: Arc::clone(field),
                leaves: Mutex::new(leaves.by_ref().take(count).collect()),
                encoded: Mutex::default(),
            });
        }
        assert!(leaves.next().is_none(), "every leaf belongs to a column");
        Ok(Arc::new(columns))
    }

    /// Whether an open row group of so many bytes has room, if need be once the one before has been written.
    async fn has_room(&mut self, bytes: usize) -> Result<bool> {
        let needed_bytes = bytes + self.stages_bytes;
        if self.memory.try_resize(needed_bytes + self.writer.held_bytes()).is_ok() {
            return Ok(true);
        }
        self.writer = FileWriter::Idle(self.written().await?);
        Ok(self.memory.try_resize(needed_bytes).is_ok())
    }

    async fn encode(&self, columns: &Arc<Vec<Column>>, batches: Vec<RecordBatch>) -> Result<()> {
        self.on_columns(columns, move |at, column| {
            let mut leaves = column.leaves.lock();
            for leaf in leaves.iter_mut() {
                leaf.before_bytes = leaf.writer.get_estimated_total_bytes();
            }
            for batch in &batches {
                let values = compute_leaves(&column.field, batch.column(at))?;
                assert_eq!(values.len(), leaves.len(), "the leaves of a type are always as many");
                for (leaf, values) in leaves.iter_mut().zip(&values) {
                    leaf.writer.write(values)?;
                }
            }
            Ok(())
        })
        .await
    }

    async fn end_row_group(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        self.on_columns(&open.columns, |_, column| {
            let leaves = std::mem::take(&mut *column.leaves.lock());
            *column.encoded.lock() =
                leaves.into_iter().map(|leaf| leaf.writer.close()).collect::<Result<_, _>>()?;
            Ok(())
        })
        .await?;
        let columns = open.columns;
        let bytes = columns.iter().map(Column::encoded_bytes).sum();
        let mut writer = self.written().await?;
        let write = SpawnedTask::spawn_blocking(inherited_work(move || {
            let mut row_group = writer.next_row_group()?;
            for column in columns.iter() {
                for chunk in std::mem::take(&mut *column.encoded.lock()) {
                    chunk.append_to_row_group(&mut row_group)?;
                }
            }
            row_group.close()?;
            Ok(writer)
        }));
        self.writer = FileWriter::Busy(write, bytes);
        self.row_groups += 1;
        self.memory.resize(self.stages_bytes + bytes);
        Ok(())
    }

    /// Writes the remaining rows, and the footer. Returns the bytes of the file.
    async fn finish(mut self) -> Result<usize> {
        self.end_row_group().await?;
        let mut writer = self.written().await?;
        let finish = SpawnedTask::spawn_blocking(inherited_work(move || {
            writer.finish().map(|_| writer.bytes_written())
        }));
        let bytes = finish.join_unwind().await.map_err(lost)?;
        bytes.map_err(|error| parquet_failed(&self.path, error))
    }

    /// Does `work` to every column, in as many tasks as there are lanes.
    async fn on_columns<W>(&self, columns: &Arc<Vec<Column>>, work: W) -> Result<()>
    where
        W: Fn(usize, &Column) -> Result<(), ParquetError> + Send + Sync + 'static,
    {
        // The largest first: all tasks wait for the one that ends last.
        let mut order: Vec<usize> = (0..columns.len()).collect();
        order.sort_by_cached_key(|&at| Reverse(columns[at].memory_bytes()));
        let (order, work, next) = (Arc::new(order), Arc::new(work), Arc::new(AtomicUsize::new(0)));
        let task = |_| {
            let (columns, order) = (Arc::clone(columns), Arc::clone(&order));
            let (work, next) = (Arc::clone(&work), Arc::clone(&next));
            let encoding = self.encoding.clone();
            SpawnedTask::spawn(inherited(async move {
                let _timer = encoding.timer();
                loop {
                    let turn = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&at) = order.get(turn) else { return Ok(()) };
                    work(at, &columns[at])?;
                }
            }))
        };
        let tasks: Vec<SpawnedTask<Result<(), ParquetError>>> =
            (0..self.lanes.min(columns.len())).map(task).collect();
        for task in tasks {
            task.join_unwind().await.map_err(lost)?.map_err(|error| failed(&self.path, error))?;
        }
        Ok(())
    }

    /// The writer, once it has written what it was given.
    async fn written(&mut self) -> Result<SerializedFileWriter<File>> {
        match std::mem::replace(&mut self.writer, FileWriter::Failed) {
            FileWriter::Idle(writer) => Ok(writer),
            FileWriter::Busy(write, _) => {
                let written = write.join_unwind().await.map_err(lost)?;
                written.map_err(|error| parquet_failed(&self.path, error))
            }
            FileWriter::Failed => unreachable!("a failed write is the last one"),
        }
    }
}

impl FileWriter {
    /// Encoded bytes that are still in memory.
    fn held_bytes(&self) -> usize {
        match self {
            FileWriter::Busy(_, bytes) => *bytes,
            FileWriter::Idle(_) | FileWriter::Failed => 0,
        }
    }
}

impl Column {
    fn memory_bytes(&self) -> usize {
        self.leaves.lock().iter().map(|leaf| leaf.writer.memory_size()).sum()
    }

    /// Bytes that it has in the file, about.
    fn estimated_bytes(&self) -> usize {
        self.leaves.lock().iter().map(|leaf| leaf.writer.get_estimated_total_bytes()).sum()
    }

    /// What its compressors keep, if need be once the next rows have been encoded, which may end a page for their number.
    fn compressor_bytes(&self, is_page_of_rows: bool) -> usize {
        let of_leaf = |leaf: &mut Leaf| {
            let bytes = leaf.writer.get_estimated_total_bytes();
            // The next rows take what the last did.
            let next_bytes = bytes + bytes.saturating_sub(leaf.before_bytes);
            if is_page_of_rows || next_bytes >= leaf.compressor.page_bytes {
                let kept = leaf.compressor.kept_bytes(next_bytes.min(leaf.compressor.page_bytes));
                leaf.compressor_bytes = leaf.compressor_bytes.max(kept);
            }
            leaf.compressor_bytes
        };
        self.leaves.lock().iter_mut().map(of_leaf).sum()
    }

    fn encoded_bytes(&self) -> usize {
        self.encoded.lock().iter().map(|chunk| chunk.close().bytes_written as usize).sum()
    }
}

/// The compressors of all leaves of a file.
fn compressors(writer: &SerializedFileWriter<File>) -> Vec<Compressor> {
    let properties = writer.properties();
    let of_leaf = |leaf: &ColumnDescPtr| Compressor {
        page_bytes: properties.column_data_page_size_limit(leaf.path()),
        keeps_memory: matches!(properties.compression(leaf.path()), Compression::ZSTD(_)),
    };
    writer.schema_descr().columns().iter().map(of_leaf).collect()
}

fn parquet_failed(path: &Path, error: ParquetError) -> DataFusionError {
    match error {
        ParquetError::External(source) => failed(path, source),
        other => failed(path, other),
    }
}
