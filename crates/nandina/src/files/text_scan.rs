//! Scans of text files that are read from their beginning to their end.
//!
//! Where a record ends is not known in the middle of such a file, so one reader takes all of it, and what can be done in
//! parallel is the format's business.

use nandina_exec::execution::meter::inherited_work;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileOpenFuture, FileOpener, FileScanConfig, FileSource};
use datafusion::object_store::ObjectStore;
use datafusion::object_store::local::LocalFileSystem;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder, Time};
use datafusion::physical_plan::{DisplayFormatType, apply_expression_roots};
use datafusion_datasource::TableSchema;
use datafusion_datasource::projection::{ProjectionOpener, SplitProjection};
use futures::stream::{self, BoxStream, Stream};
use tokio::sync::mpsc::{Sender, channel};

/// A format of text files.
pub(crate) trait TextFormat: fmt::Debug + Send + Sync + 'static {
    fn name(&self) -> &'static str;

    /// What `EXPLAIN` says of it.
    fn describe(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// The rows of a file, in its order.
    fn read(&self, file: TextFile) -> BoxStream<'static, Result<RecordBatch>>;
}

/// A file, and which columns of it are wanted.
#[derive(Debug)]
pub(crate) struct TextFile {
    pub path: PathBuf,
    pub compression: FileCompressionType,
    /// All columns of the table that are in files.
    pub columns: SchemaRef,
    /// Which of them are wanted, in this order.
    pub wanted: Vec<usize>,
    pub batch_rows: usize,
    /// Counts the bytes read, as stored in the file.
    pub bytes_scanned: Count,
    /// Of parsing.
    pub time: Time,
}

/// The source of a scan.
#[derive(Debug, Clone)]
pub(crate) struct TextScan {
    format: Arc<dyn TextFormat>,
    table_schema: TableSchema,
    projection: SplitProjection,
    batch_rows: usize,
    metrics: ExecutionPlanMetricsSet,
}

/// Opens the files of one lane of a scan.
struct TextOpener {
    scan: TextScan,
    compression: FileCompressionType,
    lane: usize,
}

/// What a thread of its own sends, as a stream. The thread ends when the reader is gone, as sending fails then.
pub(crate) fn from_thread<T: Send + 'static>(
    work: impl FnOnce(&Sender<Result<T>>) -> Result<()> + Send + 'static,
) -> impl Stream<Item = Result<T>> + Send {
    let (sender, receiver) = channel(1);
    let thread = SpawnedTask::spawn_blocking(inherited_work(move || {
        if let Err(error) = work(&sender) {
            // The reader is gone if it cannot be sent.
            sender.blocking_send(Err(error)).ok();
        }
    }));
    stream::unfold((receiver, Some(thread)), |(mut receiver, mut thread)| async {
        if let Some(next) = receiver.recv().await {
            return Some((next, (receiver, thread)));
        }
        // A panic ends the query, not the rows.
        let ended = thread.take()?.join_unwind().await;
        let error = ended.err().map(|error| DataFusionError::External(Box::new(error)))?;
        Some((Err(error), (receiver, None)))
    })
}

impl TextScan {
    pub(crate) fn new(table_schema: TableSchema, format: Arc<dyn TextFormat>) -> Self {
        TextScan {
            format,
            projection: SplitProjection::unprojected(&table_schema),
            table_schema,
            batch_rows: 8192,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    pub(crate) fn with_format(&self, format: Arc<dyn TextFormat>) -> Self {
        TextScan { format, ..self.clone() }
    }
}

impl FileSource for TextScan {
    fn create_file_opener(
        &self,
        _store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        lane: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        let opener = TextOpener { scan: self.clone(), compression: config.file_compression_type, lane };
        ProjectionOpener::try_new(self.projection.clone(), Arc::new(opener), self.table_schema.file_schema())
    }

    fn table_schema(&self) -> &TableSchema {
        &self.table_schema
    }

    fn with_batch_size(&self, batch_rows: usize) -> Arc<dyn FileSource> {
        Arc::new(TextScan { batch_rows, ..self.clone() })
    }

    fn try_pushdown_projection(&self, projection: &ProjectionExprs) -> Result<Option<Arc<dyn FileSource>>> {
        let merged = self.projection.source.try_merge(projection)?;
        let projection = SplitProjection::new(self.table_schema.file_schema(), &merged);
        Ok(Some(Arc::new(TextScan { projection, ..self.clone() })))
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        Some(&self.projection.source)
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        &self.metrics
    }

    fn file_type(&self) -> &str {
        self.format.name()
    }

    fn supports_repartitioning(&self) -> bool {
        false
    }

    fn fmt_extra(&self, format: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match format {
            DisplayFormatType::Default | DisplayFormatType::Verbose => self.format.describe(formatter),
            DisplayFormatType::TreeRender => Ok(()),
        }
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        apply_expression_roots(self.projection.source.iter(), visit)
    }
}

impl FileOpener for TextOpener {
    fn open(&self, file: PartitionedFile) -> Result<FileOpenFuture> {
        let TextOpener { scan, compression, lane } = self;
        assert!(file.range.is_none(), "text files are not split by bytes");
        let file = TextFile {
            path: LocalFileSystem::new().path_to_filesystem(&file.object_meta.location)?,
            compression: *compression,
            columns: Arc::clone(scan.table_schema.file_schema()),
            wanted: scan.projection.file_indices.clone(),
            batch_rows: scan.batch_rows,
            bytes_scanned: MetricBuilder::new(&scan.metrics).counter("bytes_scanned", *lane),
            time: MetricBuilder::new(&scan.metrics).elapsed_compute(*lane),
        };
        let rows = scan.format.read(file);
        Ok(Box::pin(async { Ok(rows) }))
    }
}
