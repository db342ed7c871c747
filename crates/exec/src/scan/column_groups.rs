//! Wide Parquet scans, decoded in a few columns at a time.
//!
//! A reader of a row group holds, of each of its columns, the dictionary, the page that is being decoded and a
//! decompressor: megabytes where a value takes eight bytes, and all columns are read side by side. Of a thousand columns
//! that is more than many a memory limit. Here one group of columns is decoded after the other; what has been decoded of
//! a row group waits in queues, in memory as long as there is some, else in temporary space:
//!
//! ```text
//!   row group   columns 0…75 ─► queue ─┐
//!               columns 76…  ─► queue ─┼─► as many rows of each ─► batches of all columns
//!               …            ─► queue ─┘
//! ```
//!
//! Invariants
//! - At most one group of columns has open readers in each partition.
//! - All groups give the same rows of a row group: their readers know only filters that do not change while they run.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt::{self, Formatter};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use async_stream::try_stream;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, Statistics, internal_err};
use datafusion::datasource::listing::{FileRange, PartitionedFile};
use datafusion::datasource::physical_plan::parquet::ParquetAccessPlan;
use datafusion::datasource::physical_plan::{
    FileGroup, FileScanConfig, FileScanConfigBuilder, FileSource, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{PhysicalExpr, conjunction, split_conjunction};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, Gauge, Metric, MetricBuilder, MetricValue, MetricsSet,
};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::StreamExt as _;
use nandina_pages::PageSchema;
use nandina_spill::QuerySpace;

use super::conjunction::is_dynamic;
use super::named_files::NamingSource;
use crate::error::pages_error;
use crate::execution::meter::MeterExec;
use crate::memory::pool_limit;
use crate::spill::{RowQueue, SpillContext, SpillMetrics, SpillShape, operator_space};

/// What decoding the columns of a file takes besides their values, known to each file of a scan.
#[derive(Debug, Clone, Default)]
pub struct DecodingBytes {
    /// Bytes of the fields of the file's schema, by their names.
    pub of_fields: HashMap<String, u64>,
    /// What all partitions of a scan together may take.
    pub most_bytes: u64,
}

/// The name that memory is reserved under.
const CONSUMER: &str = "ColumnGroups";

/// Puts the columns of a wide scan together, which it has read in groups.
pub struct ColumnGroupsExec {
    /// All columns, none computed.
    scan: Arc<dyn ExecutionPlan>,
    groups: Vec<Vec<usize>>,
    metrics: ExecutionPlanMetricsSet,
}

impl ColumnGroupsExec {
    /// Reads `scan`, a scan of Parquet files as [`Self::plain`] makes them, in these groups of its columns.
    pub fn new(scan: Arc<dyn ExecutionPlan>, groups: Vec<Vec<usize>>) -> Result<Self> {
        let columns: BTreeSet<usize> = groups.iter().flatten().copied().collect();
        let count: usize = groups.iter().map(Vec::len).sum();
        if !columns.iter().copied().eq(0..scan.schema().fields().len()) || count != columns.len() {
            return internal_err!("each column of a scan is in one of its groups");
        }
        // What cannot wait in temporary space is not read in groups.
        for group in &groups {
            PageSchema::try_new(Arc::new(scan.schema().project(group)?)).map_err(pages_error)?;
        }
        Ok(Self { scan, groups, metrics: ExecutionPlanMetricsSet::new() })
    }

    /// The scan `config` of `source` without computed columns: these columns of the table alone, and the filters that do
    /// not change while it runs.
    pub fn plain(
        config: &FileScanConfig,
        source: &ParquetSource,
        columns: &[usize],
    ) -> Result<FileScanConfig> {
        let mut plain = ParquetSource::new(source.table_schema().clone())
            .with_table_parquet_options(source.table_parquet_options().clone());
        if let Some(factory) = source.parquet_file_reader_factory() {
            plain = plain.with_parquet_file_reader_factory(Arc::clone(factory));
        }
        if let Some(predicate) = source.filter() {
            let lasting = split_conjunction(&predicate).into_iter().filter(|term| !is_dynamic(term));
            let lasting: Vec<_> = lasting.cloned().collect();
            if !lasting.is_empty() {
                plain = plain.with_predicate(conjunction(lasting));
            }
        }
        let config = FileScanConfigBuilder::from(config.clone()).with_source(Arc::new(plain));
        Ok(config.with_projection_indices(Some(columns.to_vec()))?.build())
    }

    fn config(&self) -> Result<&FileScanConfig> {
        let metered = self.scan.downcast_ref::<MeterExec>();
        let scan = metered.map_or(&self.scan, MeterExec::operator).downcast_ref::<DataSourceExec>();
        match scan.and_then(|scan| scan.data_source().downcast_ref::<FileScanConfig>()) {
            Some(config) => Ok(config),
            None => internal_err!("what is read in groups of columns is a scan of files"),
        }
    }

    /// What a partition needs to read its files.
    fn lane(&self, partition: usize, context: &Arc<TaskContext>) -> Result<Lane> {
        let config = self.config()?.clone();
        let Some(source) = parquet_source(config.file_source()).cloned() else {
            return internal_err!("what is read in groups of columns is a scan of Parquet files");
        };
        let Some(columns) = source.projection().map(ProjectionExprs::column_indices) else {
            return internal_err!("what is read in groups of columns names its columns");
        };
        let of_group = |group: &Vec<usize>| group.iter().filter_map(|&at| columns.get(at).copied()).collect();
        let files = config.file_groups.get(partition).cloned().map(FileGroup::into_inner).unwrap_or_default();
        let source_metrics = source.metrics().clone();
        let pool = Arc::clone(context.memory_pool());
        let lanes = config.file_groups.len().max(1);
        // All queues of all partitions have readers at the same time.
        let share_bytes = pool_limit(pool.as_ref()).map(|limit| limit / lanes / self.groups.len().max(1));
        Ok(Lane {
            schema: self.scan.schema(),
            groups: self.groups.clone(),
            columns: self.groups.iter().map(of_group).collect(),
            files: files.into(),
            source,
            batch_rows: config.batch_size.unwrap_or_else(|| context.session_config().batch_size()),
            config,
            space: operator_space(context, "column_groups")?,
            pool,
            share_bytes,
            spill: SpillMetrics::new(&self.metrics, partition),
            peak_bytes: MetricBuilder::new(&self.metrics).gauge("peak_mem_used", partition),
            scanned: Scanned { set: source_metrics, partition, values: HashMap::new() },
            context: Arc::clone(context),
        })
    }
}

/// The source of Parquet files, which knows how to name them or not.
fn parquet_source(source: &Arc<dyn FileSource>) -> Option<&ParquetSource> {
    let source = source.downcast_ref::<NamingSource>().map_or(source, NamingSource::inner);
    source.downcast_ref::<ParquetSource>()
}

/// Where DataFusion says that a row group begins: a part of a file has those that begin in its range.
pub fn begin_of_row_group(group: &RowGroupMetaData) -> Option<i64> {
    let first = group.columns().first()?;
    Some(first.dictionary_page_offset().unwrap_or_else(|| first.data_page_offset()))
}

impl fmt::Debug for ColumnGroupsExec {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { scan, groups, .. } = self;
        f.debug_struct("ColumnGroupsExec").field("scan", scan).field("groups", groups).finish_non_exhaustive()
    }
}

impl DisplayAs for ColumnGroupsExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut Formatter<'_>) -> fmt::Result {
        let largest = self.groups.iter().map(Vec::len).max().unwrap_or_default();
        match format {
            DisplayFormatType::TreeRender => write!(f, "groups={}", self.groups.len()),
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "ColumnGroupsExec: {} groups of up to {largest} columns", self.groups.len())
            }
        }
    }
}

impl ExecutionPlan for ColumnGroupsExec {
    fn name(&self) -> &'static str {
        "ColumnGroupsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.scan.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.scan]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([scan]) = <[_; 1]>::try_from(children) else {
            return internal_err!("groups of columns are of one scan");
        };
        Ok(Arc::new(Self::new(scan, self.groups.clone())?))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let lane = self.lane(partition, &context)?;
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let schema = Arc::clone(&lane.schema);
        let rows = lane.rows().inspect(move |batch| {
            if let Ok(batch) = batch {
                metrics.record_output(batch.num_rows());
            }
        });
        Ok(Box::pin(cooperative(RecordBatchStreamAdapter::new(schema, Box::pin(rows)))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        input_stats: &[Arc<Statistics>],
        _args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        match input_stats {
            [scan] => Ok(Arc::clone(scan)),
            _ => internal_err!("groups of columns are of one scan"),
        }
    }
}

/// One partition: its files, and what reading them takes.
struct Lane {
    schema: SchemaRef,
    groups: Vec<Vec<usize>>,
    /// The columns of the table that each group reads.
    columns: Vec<Vec<usize>>,
    files: VecDeque<PartitionedFile>,
    config: FileScanConfig,
    source: ParquetSource,
    batch_rows: usize,
    space: Arc<QuerySpace>,
    pool: Arc<dyn MemoryPool>,
    /// Memory that one queue may reckon with.
    share_bytes: Option<usize>,
    spill: SpillMetrics,
    peak_bytes: Gauge,
    scanned: Scanned,
    context: Arc<TaskContext>,
}

/// What the scans of groups of columns count, put together: bytes and times of all, everything else of the first groups, as
/// all have the same rows.
struct Scanned {
    set: ExecutionPlanMetricsSet,
    partition: usize,
    values: HashMap<String, MetricValue>,
}

impl Scanned {
    /// Adds what the scan of a group has counted.
    fn add(&mut self, counted: &MetricsSet, is_first: bool) {
        for metric in counted.iter() {
            let value = metric.value();
            let is_time = matches!(value, MetricValue::Time { .. } | MetricValue::ElapsedCompute(_));
            if !is_first && !is_time && value.name() != "bytes_scanned" {
                continue;
            }
            let total = self.values.entry(value.name().to_owned()).or_insert_with(|| {
                let total = value.new_empty();
                let of_lane = Metric::new(total.clone(), Some(self.partition));
                self.set.register(Arc::new(of_lane.with_type(metric.metric_type())));
                total
            });
            total.aggregate(value);
        }
    }
}

impl Lane {
    fn rows(mut self) -> impl futures::Stream<Item = Result<RecordBatch>> + Send {
        try_stream! {
            let mut left = self.config.limit.unwrap_or(usize::MAX);
            while let Some(file) = self.files.pop_front() {
                // Readers of a file whose footer is held do not read that again.
                let (_footer, parts) = self.row_groups(file).await?;
                for part in parts {
                    if left == 0 {
                        return;
                    }
                    let mut columns = self.decode(part, left).await?;
                    while let Some(batch) = self.next(&mut columns, left).await? {
                        left -= batch.num_rows();
                        yield batch;
                    }
                }
            }
        }
    }

    /// The row groups of a file, as rows wait until all columns of one have been decoded, and its footer if it was read.
    async fn row_groups(
        &self,
        file: PartitionedFile,
    ) -> Result<(Option<Arc<ParquetMetaData>>, Vec<PartitionedFile>)> {
        let is_window = file.extension::<ParquetAccessPlan>().is_some();
        let Some(factory) = self.source.parquet_file_reader_factory().filter(|_| !is_window) else {
            return Ok((None, vec![file]));
        };
        let metrics = ExecutionPlanMetricsSet::new();
        let mut reader = factory.create_reader(0, file.clone(), file.metadata_size_hint, &metrics)?;
        let Ok(metadata) = reader.get_metadata(None).await else {
            // Reading the file will say what is wrong with it.
            return Ok((None, vec![file]));
        };
        let begins: Option<Vec<i64>> = metadata.row_groups().iter().map(begin_of_row_group).collect();
        // In the order of the file, of which each place has an end.
        let is_in_order =
            |begins: &Vec<i64>| begins.is_sorted() && begins.last().is_none_or(|&last| last < i64::MAX);
        let Some(mut begins) = begins.filter(is_in_order) else {
            return Ok((Some(metadata), vec![file]));
        };
        begins.dedup();
        let is_in_part =
            |begin: &i64| file.range.as_ref().is_none_or(|range| (range.start..range.end).contains(begin));
        let part = |begin| {
            let mut part = file.clone();
            part.range = Some(FileRange { start: begin, end: begin + 1 });
            part
        };
        let parts = begins.into_iter().filter(is_in_part).map(part).collect();
        Ok((Some(metadata), parts))
    }

    /// The rows of a part of a file, a queue for each group of columns. No more than `most_rows` will be asked for.
    async fn decode(&mut self, part: PartitionedFile, most_rows: usize) -> Result<Vec<RowQueue>> {
        let mut queues: Vec<RowQueue> = Vec::with_capacity(self.groups.len());
        for columns in &self.columns {
            let slice = self.slice(part.clone(), columns, most_rows)?;
            let mut stream = slice.execute(0, Arc::clone(&self.context))?;
            let pages = PageSchema::try_new(stream.schema()).map_err(pages_error)?;
            let (shape, pool) = (SpillShape::OneAfterTheOther(self.share_bytes), &self.pool);
            let rows = self.batch_rows;
            let spill = SpillContext::new(shape, &pages, &self.space, pool, CONSUMER, rows, &self.spill);
            let mut queue = RowQueue::new(CONSUMER, &self.pool, spill, self.peak_bytes.clone());
            while let Some(batch) = stream.next().await.transpose()? {
                queue.push(batch).await?;
            }
            queue.seal().await?;
            if let Some(counted) = slice.metrics() {
                self.scanned.add(&counted, queues.is_empty());
            }
            if queues.first().is_some_and(|first| first.rows() != queue.rows()) {
                return internal_err!(
                    "columns of '{}' have different numbers of rows",
                    part.object_meta.location
                );
            }
            queues.push(queue);
        }
        Ok(queues)
    }

    /// A scan of some columns of the table, of a part of a file.
    fn slice(
        &self,
        part: PartitionedFile,
        columns: &[usize],
        most_rows: usize,
    ) -> Result<Arc<DataSourceExec>> {
        let limit = self.config.limit.map(|_| most_rows);
        let plain = ColumnGroupsExec::plain(&self.config, &self.source, columns)?;
        let named = NamingSource::over(Arc::clone(plain.file_source()));
        let config = FileScanConfigBuilder::from(plain)
            .with_source(Arc::new(named))
            .with_statistics(Statistics::new_unknown(self.config.file_schema()))
            .with_output_ordering(Vec::new())
            .with_file_groups(vec![FileGroup::new(vec![part])])
            .with_limit(limit)
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }

    /// The next rows of all columns, `most_rows` at most; `None` at the end.
    async fn next(&self, columns: &mut [RowQueue], most_rows: usize) -> Result<Option<RecordBatch>> {
        let most_rows = most_rows.min(self.batch_rows);
        if most_rows == 0 {
            return Ok(None);
        }
        let mut all: Vec<Option<ArrayRef>> = vec![None; self.schema.fields().len()];
        let mut rows = None;
        for (queue, group) in columns.iter_mut().zip(&self.groups) {
            let Some(batch) = exactly(queue, rows, most_rows).await? else { return Ok(None) };
            rows = Some(batch.num_rows());
            for (column, &at) in batch.columns().iter().zip(group) {
                if let Some(place) = all.get_mut(at) {
                    *place = Some(Arc::clone(column));
                }
            }
        }
        let options = RecordBatchOptions::new().with_row_count(rows);
        let all: Option<Vec<ArrayRef>> = all.into_iter().collect();
        let all =
            all.ok_or_else(|| DataFusionError::Internal("a column is in none of the groups".to_owned()))?;
        Ok(Some(RecordBatch::try_new_with_options(Arc::clone(&self.schema), all, &options)?))
    }
}

/// So many rows of a queue; if no number is given, as many as come at once.
async fn exactly(queue: &mut RowQueue, rows: Option<usize>, most_rows: usize) -> Result<Option<RecordBatch>> {
    let Some(first) = queue.pop(rows.unwrap_or(most_rows)).await? else { return Ok(None) };
    let wanted = rows.unwrap_or_else(|| first.num_rows());
    let mut taken = first.num_rows();
    let mut pieces = vec![first];
    while taken < wanted {
        let Some(piece) = queue.pop(wanted - taken).await? else {
            return internal_err!("a group of columns has fewer rows than the one before");
        };
        taken += piece.num_rows();
        pieces.push(piece);
    }
    match <[_; 1]>::try_from(pieces) {
        Ok([piece]) => Ok(Some(piece)),
        Err(pieces) => {
            let schema = pieces.first().map(RecordBatch::schema);
            schema.map(|schema| concat_batches(&schema, &pieces)).transpose().map_err(Into::into)
        }
    }
}
