//! The scan operator.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ColumnStatistics, Result, ScalarValue, Statistics};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation, PushedDown,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, Gauge, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, StatisticsArgs,
};
use futures::Stream;
use nandina_device::{IoAccount, Priority};
use nandina_storage::{Scan, ScanFigures, ScanOptions, ScanReader, Table, TableStatistics};
use parking_lot::Mutex;

use crate::flow::query_flow;

use super::filter::{PageFilter, on_table_columns};
use super::storage_error;
use super::window::ReadWindow;

/// Bytes of table from which on another partition is worth its while: the length of the stripes that partitions share.
const PARTITION_BYTES: u64 = 16 << 20;

/// Scans a table snapshot. Partitions take stripes from one queue, so that none idles while another has work.
///
/// Reads only the mini-pages of the projected columns, of the pages that `filters` do not rule out.
#[derive(Debug)]
pub struct TableScanExec {
    table: Table,
    statistics: Arc<TableStatistics>,
    /// Columns of the table, in the order of the output.
    projection: Vec<usize>,
    /// On columns of the table.
    filters: Vec<Arc<dyn PhysicalExpr>>,
    limit: Option<usize>,
    partitions: usize,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    run: Mutex<Option<Run>>,
}

/// What the partitions of one execution share.
#[derive(Debug, Clone)]
struct Run {
    scan: Arc<Scan>,
    /// Partitions that were started: one that is started again begins a new run.
    started: Vec<bool>,
    rows_left: Arc<AtomicUsize>,
    metrics: Arc<ScanMetrics>,
}

impl TableScanExec {
    /// `filters` are on columns of the table, whether projected or not.
    pub fn try_new(
        table: Table,
        projection: Option<&[usize]>,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        limit: Option<usize>,
        target_partitions: usize,
    ) -> Result<Self> {
        let all = || (0..table.schema().fields().len()).collect();
        let projection = projection.map_or_else(all, <[usize]>::to_vec);
        let statistics = Arc::new(table.statistics().map_err(storage_error)?);
        let partitions =
            table.file_bytes().div_ceil(PARTITION_BYTES).clamp(1, target_partitions.max(1) as u64);
        Self::assemble(table, statistics, projection, filters, limit, partitions as usize)
    }

    fn assemble(
        table: Table,
        statistics: Arc<TableStatistics>,
        projection: Vec<usize>,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        limit: Option<usize>,
        partitions: usize,
    ) -> Result<Self> {
        let schema: SchemaRef = Arc::new(table.schema().project(&projection)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        Ok(Self {
            table,
            statistics,
            projection,
            filters,
            limit,
            partitions,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
            run: Mutex::new(None),
        })
    }

    /// The same scan with something changed.
    fn changed(
        &self,
        projection: Vec<usize>,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        limit: Option<usize>,
    ) -> Result<Self> {
        let (table, statistics) = (self.table.clone(), Arc::clone(&self.statistics));
        Self::assemble(table, statistics, projection, filters, limit, self.partitions)
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Columns of the table, in the order of the output.
    pub fn projection(&self) -> &[usize] {
        &self.projection
    }

    /// Filters that skip pages, on columns of the table.
    pub fn filters(&self) -> &[Arc<dyn PhysicalExpr>] {
        &self.filters
    }

    /// The run that `partition` belongs to.
    fn run(&self, partition: usize, context: &TaskContext) -> Result<Run> {
        let mut current = self.run.lock();
        if let Some(started) = current.as_mut().and_then(|run| run.started.get_mut(partition))
            && !std::mem::replace(started, true)
            && let Some(run) = current.as_ref()
        {
            return Ok(run.clone());
        }
        let account = IoAccount::of_flow(query_flow(context), Priority::Scan);
        let pruner = PageFilter::new(Arc::clone(self.table.schema()), self.filters.clone());
        let options = ScanOptions {
            projection: Some(self.projection.clone()),
            pruner: pruner.map(|pruner| Arc::new(pruner) as _),
            account: Some(Arc::clone(&account)),
            ..Default::default()
        };
        let run = Run {
            scan: self.table.scan(options).map_err(storage_error)?,
            started: (0..self.partitions).map(|other| other == partition).collect(),
            rows_left: Arc::new(AtomicUsize::new(self.limit.unwrap_or(usize::MAX))),
            metrics: Arc::new(ScanMetrics::new(&self.metrics, account)),
        };
        *current = Some(run.clone());
        Ok(run)
    }
}

impl DisplayAs for TableScanExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let columns: Vec<&str> = self
            .properties
            .eq_properties
            .schema()
            .fields()
            .iter()
            .map(|field| field.name().as_str())
            .collect();
        let filters: Vec<String> = self.filters.iter().map(ToString::to_string).collect();
        match format {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "TableScanExec: table={}, columns=[{}]", self.table.name(), columns.join(", "))?;
                if !filters.is_empty() {
                    write!(f, ", page_filter={}", filters.join(" AND "))?;
                }
                self.limit.map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
            }
            DisplayFormatType::TreeRender => {
                writeln!(f, "table={}", self.table.name())?;
                writeln!(f, "columns={}", columns.join(", "))?;
                if !filters.is_empty() {
                    writeln!(f, "page_filter={}", filters.join(" AND "))?;
                }
                Ok(())
            }
        }
    }
}

impl ExecutionPlan for TableScanExec {
    fn name(&self) -> &'static str {
        "TableScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for filter in &self.filters {
            if f(filter)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.changed(self.projection.clone(), self.filters.clone(), self.limit)?))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let run = self.run(partition, &context)?;
        let stream = ScanStream {
            reader: run.scan.reader(),
            schema: self.schema(),
            batch_rows: context.session_config().batch_size().max(1),
            page_bytes: self.table.page_bytes(),
            rest: None,
            rows_left: run.rows_left,
            shared_metrics: run.metrics,
            baseline: BaselineMetrics::new(&self.metrics, partition),
            window: None,
            context,
        };
        Ok(Box::pin(cooperative(stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let mut statistics = table_statistics(&self.statistics, &self.projection);
        if !self.filters.is_empty() {
            statistics = statistics.to_inexact();
        }
        let fetched = statistics.with_fetch(self.limit, 0, 1)?;
        // Partitions share out the work as it comes: each has about its part.
        match args.partition() {
            None => Ok(Arc::new(fetched)),
            Some(_) => Ok(Arc::new(share(fetched, self.partitions))),
        }
    }

    fn supports_limit_pushdown(&self) -> bool {
        false
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        let changed = self.changed(self.projection.clone(), self.filters.clone(), limit).ok()?;
        Some(Arc::new(changed))
    }

    fn fetch(&self) -> Option<usize> {
        self.limit
    }

    fn try_swapping_with_projection(
        &self,
        projection: &ProjectionExec,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        // Only what leaves names alone: columns of the scan, some or all, in another order.
        let mut columns = Vec::with_capacity(projection.expr().len());
        for projected in projection.expr() {
            let Some(column) = projected.expr.downcast_ref::<Column>() else { return Ok(None) };
            match self.projection.get(column.index()) {
                Some(&in_table) if column.name() == projected.alias => columns.push(in_table),
                _ => return Ok(None),
            }
        }
        Ok(Some(Arc::new(self.changed(columns, self.filters.clone(), self.limit)?)))
    }

    fn handle_child_pushdown_result(
        &self,
        _: FilterPushdownPhase,
        child_pushdown_result: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let mut filters = self.filters.clone();
        let mut answers = Vec::new();
        for parent in child_pushdown_result.parent_filters {
            let filter = on_table_columns(&parent.filter, &self.projection)?;
            if !filters.contains(&filter) {
                filters.push(filter);
            }
            // Taken as a hint: the parent keeps it, since rows of the pages that remain are not filtered here.
            answers.push(PushedDown::No);
        }
        let propagation = FilterPushdownPropagation::with_parent_pushdown_result(answers);
        if filters.len() == self.filters.len() {
            return Ok(propagation);
        }
        let changed = self.changed(self.projection.clone(), filters, self.limit)?;
        Ok(propagation.with_updated_node(Arc::new(changed)))
    }
}

/// DataFusion's statistics of the projected columns.
pub(super) fn table_statistics(table: &TableStatistics, projection: &[usize]) -> Statistics {
    let column = |column: &usize| -> ColumnStatistics {
        let Some(column) = table.columns.get(*column) else { return ColumnStatistics::new_unknown() };
        let bound = |bound| match ScalarValue::try_from_array(bound, 0) {
            Ok(value) if value.is_null() => Precision::Absent,
            Ok(value) if column.bounds_are_exact => Precision::Exact(value),
            Ok(value) => Precision::Inexact(value),
            Err(_) => Precision::Absent,
        };
        ColumnStatistics::new_unknown()
            .with_null_count(Precision::Exact(column.nulls as usize))
            .with_min_value(bound(&column.min))
            .with_max_value(bound(&column.max))
    };
    let all = table.columns.len().max(1) as u64;
    Statistics {
        num_rows: Precision::Exact(table.rows as usize),
        total_byte_size: Precision::Inexact((table.file_bytes / all * projection.len() as u64) as usize),
        column_statistics: projection.iter().map(column).collect(),
    }
}

fn share(statistics: Statistics, partitions: usize) -> Statistics {
    let part = |total: &Precision<usize>| match total.get_value() {
        Some(total) => Precision::Inexact(total.div_ceil(partitions.max(1))),
        None => Precision::Absent,
    };
    let (num_rows, total_byte_size) = (part(&statistics.num_rows), part(&statistics.total_byte_size));
    Statistics { num_rows, total_byte_size, ..statistics.to_inexact() }
}

/// Figures of all partitions together; each reports what has been added since anyone did.
#[derive(Debug)]
struct ScanMetrics {
    account: Arc<IoAccount>,
    reported: Mutex<ScanFigures>,
    bytes_read: Count,
    requests: Count,
    pages_read: Count,
    pages_pruned: Count,
    window_bytes: Gauge,
    mean_queue_depth_x100: Gauge,
}

impl ScanMetrics {
    fn new(set: &ExecutionPlanMetricsSet, account: Arc<IoAccount>) -> Self {
        let count = |name: &'static str| MetricBuilder::new(set).global_counter(name);
        let gauge = |name: &'static str| MetricBuilder::new(set).global_gauge(name);
        Self {
            account,
            reported: Mutex::default(),
            bytes_read: count("bytes_read"),
            requests: count("read_requests"),
            pages_read: count("pages_read"),
            pages_pruned: count("pages_pruned"),
            window_bytes: gauge("window_bytes"),
            mean_queue_depth_x100: gauge("mean_queue_depth_x100"),
        }
    }

    fn report(&self, figures: ScanFigures, ended: bool) {
        let mut reported = self.reported.lock();
        let add = |count: &Count, now: u64, before: u64| count.add(now.saturating_sub(before) as usize);
        add(&self.bytes_read, figures.bytes_read, reported.bytes_read);
        add(&self.requests, figures.requests, reported.requests);
        add(&self.pages_read, figures.pages_read, reported.pages_read);
        add(&self.pages_pruned, figures.pages_pruned, reported.pages_pruned);
        *reported = figures;
        if ended {
            let depth = self.account.statistics().mean_queue_depth();
            self.mean_queue_depth_x100.set((depth * 100.0).round() as usize);
        }
    }
}

/// Batches of one partition: pages, cut to the session's batch size.
struct ScanStream {
    reader: ScanReader,
    schema: SchemaRef,
    batch_rows: usize,
    page_bytes: usize,
    /// Rows of the last page that are yet to be handed out.
    rest: Option<RecordBatch>,
    /// Of the limit, all partitions together.
    rows_left: Arc<AtomicUsize>,
    shared_metrics: Arc<ScanMetrics>,
    baseline: BaselineMetrics,
    /// Reserved at the first poll, given back at the end.
    window: Option<ReadWindow>,
    context: Arc<TaskContext>,
}

impl ScanStream {
    fn poll_page(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        if let Some(rest) = self.rest.take() {
            return Poll::Ready(Some(Ok(rest)));
        }
        if self.window.is_none() {
            let table = self.reader.scan().table();
            // Of a small table, no more is ever held than there is of it.
            let table_bytes = usize::try_from(table.file_bytes()).unwrap_or(usize::MAX);
            let window = ReadWindow::reserve(
                self.context.memory_pool(),
                "TableScanExec",
                table.store().device().sizes().read_window_bytes().min(table_bytes),
                self.page_bytes.min(table_bytes),
            );
            self.reader.set_window_bytes(window.bytes());
            self.shared_metrics.window_bytes.set_max(window.bytes());
            self.window = Some(window);
        }
        let timer = self.baseline.elapsed_compute().timer();
        let next = Pin::new(&mut self.reader).poll_next(context).map_err(storage_error);
        timer.done();
        next
    }

    fn end(&mut self) -> Poll<Option<Result<RecordBatch>>> {
        self.window = None;
        self.shared_metrics.report(self.reader.scan().figures(), true);
        Poll::Ready(None)
    }

    /// Takes up to `rows` of what the limit leaves.
    fn take_of_limit(&self, rows: usize) -> usize {
        if self.rows_left.load(Ordering::Relaxed) == usize::MAX {
            return rows;
        }
        let taken = self
            .rows_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(rows)));
        rows.min(taken.unwrap_or(0))
    }
}

impl Stream for ScanStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.rows_left.load(Ordering::Relaxed) == 0 {
            return self.end();
        }
        let batch = match ready!(self.poll_page(context)) {
            Some(Ok(batch)) => batch,
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            None => return self.end(),
        };
        let rows = batch.num_rows().min(self.batch_rows);
        if rows < batch.num_rows() {
            self.rest = Some(batch.slice(rows, batch.num_rows() - rows));
        }
        let rows = self.take_of_limit(rows);
        if rows == 0 && batch.num_rows() > 0 {
            return self.end();
        }
        self.shared_metrics.report(self.reader.scan().figures(), false);
        self.baseline.record_output(rows);
        Poll::Ready(Some(Ok(batch.slice(0, rows))))
    }
}

impl RecordBatchStream for ScanStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
