//! The scan operator.

use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ColumnStatistics, Result, ScalarValue, Statistics};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, conjunction};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation, PushedDown,
};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, StatisticsArgs,
};
use nandina_device::{IoAccount, Priority};
use nandina_storage::{Scan, ScanOptions, Table, TableStatistics};
use parking_lot::Mutex;

use crate::batch::row_width::{TEXT_BYTES, column_bytes, text_bytes};
use crate::execution::query_flow;

use crate::rows::{OpenScan, SharedTransaction};

use super::conjunction::is_dynamic;
use super::filter::{PageFilter, on_table_columns};
use super::page_reads::PageReads;
use super::row_filter::TableRowFilter;
use super::stream::{ScanMetrics, ScanStream};
use super::{read_cache, storage_error};

/// Bytes of table from which on another partition is worth its while: the length of the stripes that partitions share.
const PARTITION_BYTES: u64 = 16 << 20;
/// Ids of deleted rows that take no more than this need no room in the limit.
const FEW_DELETED_BYTES: usize = 256 << 10;

/// Scans a table snapshot. Partitions take stripes from one queue, so that none idles while another has work.
///
/// Reads only the mini-pages of the columns that are needed, of the pages that `filters` do not rule out, and emits the
/// rows that pass them.
#[derive(Debug)]
pub struct TableScanExec {
    table: Table,
    statistics: Arc<TableStatistics>,
    /// Columns of the table, in the order of the output.
    projection: Vec<usize>,
    /// The name of a last column, of row ids, if there is one.
    row_ids: Option<Arc<str>>,
    /// On columns of the table.
    filters: Vec<Arc<dyn PhysicalExpr>>,
    /// Share of the rows that pass the query's filters, if a sample was taken.
    selectivity: Option<f64>,
    limit: Option<usize>,
    /// Rows that it does not see are left out.
    transaction: Option<Arc<SharedTransaction>>,
    /// Keeps rows from being changed until all partitions have been read to their ends, each of which has its share of it then.
    open: Mutex<Option<Arc<OpenScan>>>,
    partitions: usize,
    properties: Arc<PlanProperties>,
    /// Of all partitions, once they have been asked for.
    known: OnceLock<Arc<Statistics>>,
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
    /// What is known of deleted rows takes this memory.
    _deleted: Option<Arc<MemoryReservation>>,
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
        let statistics = table.statistics().map_err(storage_error)?;
        let partitions =
            table.file_bytes().div_ceil(PARTITION_BYTES).clamp(1, target_partitions.max(1) as u64);
        Self::assemble(table, statistics, projection, None, filters, limit, partitions as usize)
    }

    fn assemble(
        table: Table,
        statistics: Arc<TableStatistics>,
        projection: Vec<usize>,
        row_ids: Option<Arc<str>>,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        limit: Option<usize>,
        partitions: usize,
    ) -> Result<Self> {
        let mut schema: SchemaRef = Arc::new(table.schema().project(&projection)?);
        if let Some(name) = &row_ids {
            schema = with_row_ids(&schema, name);
        }
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
            row_ids,
            filters,
            selectivity: None,
            limit,
            transaction: None,
            open: Mutex::default(),
            partitions,
            properties: Arc::new(properties),
            known: OnceLock::new(),
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
        let (row_ids, partitions) = (self.row_ids.clone(), self.partitions);
        let mut changed = Self::assemble(table, statistics, projection, row_ids, filters, limit, partitions)?;
        if changed.projection == self.projection && changed.row_ids == self.row_ids {
            // Operators above look at whether they are the same, and need not be planned again.
            changed.properties = Arc::clone(&self.properties);
        }
        changed.transaction.clone_from(&self.transaction);
        changed.open = Mutex::new(self.open.lock().clone());
        Ok(changed.with_selectivity(self.selectivity))
    }

    /// The same scan with a last column of this name, which has the ids of rows.
    pub(super) fn with_row_ids(self, name: &str) -> Result<Self> {
        let (projection, row_ids) = (self.projection, Some(name.into()));
        let (filters, limit, partitions) = (self.filters, self.limit, self.partitions);
        let mut changed =
            Self::assemble(self.table, self.statistics, projection, row_ids, filters, limit, partitions)?;
        changed.transaction = self.transaction;
        changed.open = self.open;
        Ok(changed.with_selectivity(self.selectivity))
    }

    /// The same scan without the rows that this transaction does not see. `open` keeps rows from being changed meanwhile, if nothing above
    /// does.
    pub(crate) fn seen_by(mut self, transaction: Arc<SharedTransaction>, open: Option<OpenScan>) -> Self {
        self.open = Mutex::new(open.map(Arc::new));
        self.transaction = Some(transaction);
        self.known = OnceLock::new();
        self
    }

    /// Share of the rows that pass the query's filters, found by a sample.
    pub(super) fn with_selectivity(mut self, selectivity: Option<f64>) -> Self {
        self.selectivity = selectivity;
        self.known = OnceLock::new();
        self
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Columns of the table, in the order of the output; one of row ids may follow.
    pub fn projection(&self) -> &[usize] {
        &self.projection
    }

    /// On columns of the table. Rows that do not pass those of the query are not emitted; those that change while
    /// it runs are hints.
    pub fn filters(&self) -> &[Arc<dyn PhysicalExpr>] {
        &self.filters
    }

    /// Statistics of the rows that pass the query's filters, as far as bounds tell.
    fn filtered_statistics(&self) -> Statistics {
        let mut statistics = self.statistics_of_columns();
        statistics.column_statistics.extend(self.row_ids.iter().map(|_| ColumnStatistics::new_unknown()));
        match self.transaction {
            Some(_) => statistics.to_inexact(),
            None => statistics,
        }
    }

    fn statistics_of_columns(&self) -> Statistics {
        let unfiltered = || table_statistics(&self.statistics, self.table.schema(), &self.projection);
        let filters: Vec<_> = self.filters.iter().filter(|filter| !is_dynamic(filter)).cloned().collect();
        if filters.is_empty() {
            let statistics = unfiltered();
            return if self.filters.is_empty() { statistics } else { statistics.to_inexact() };
        }
        let all: Vec<usize> = (0..self.table.schema().fields().len()).collect();
        let all = Arc::new(table_statistics(&self.statistics, self.table.schema(), &all));
        // Estimated by the operator that would stand above otherwise.
        let table = Arc::new(EmptyExec::new(Arc::clone(self.table.schema())));
        let filtered = FilterExec::try_new(conjunction(filters), table)
            .and_then(|filter| filter.statistics_from_inputs(&[all], &StatisticsArgs::new()));
        match filtered {
            Ok(statistics) => {
                let statistics = Statistics::clone(&statistics).to_inexact();
                self.sampled(statistics.project(Some(&self.projection)))
            }
            Err(_) => unfiltered().to_inexact(),
        }
    }

    /// The same with the number of rows that a sample tells, if there is one.
    fn sampled(&self, mut statistics: Statistics) -> Statistics {
        if let Some(selectivity) = self.selectivity {
            let rows = (self.statistics.rows as f64 * selectivity).ceil() as usize;
            let row_bytes = projected_row_bytes(&self.statistics, self.table.schema(), &self.projection);
            statistics.num_rows = Precision::Inexact(rows);
            statistics.total_byte_size = Precision::Inexact(rows.saturating_mul(row_bytes));
        }
        statistics
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
        let (deleted, reserved) = match &self.transaction {
            Some(transaction) => {
                let deleted = transaction.read(|transaction| transaction.deleted_rows(&self.table))?;
                let memory = MemoryConsumer::new("deleted rows").register(context.memory_pool());
                match deleted.bytes() {
                    // As the buffers of a scan: a writer above it may have more than the limit already.
                    few @ ..=FEW_DELETED_BYTES => memory.resize(few),
                    many => memory.try_resize(many)?,
                }
                ((deleted.rows() > 0).then(|| Arc::new(deleted)), Some(Arc::new(memory)))
            }
            None => (None, None),
        };
        let account = IoAccount::of_flow(query_flow(context), Priority::Scan);
        let pruner = PageFilter::new(Arc::clone(self.table.schema()), self.filters.clone());
        let row_filter = TableRowFilter::new(Arc::clone(self.table.schema()), self.filters.clone());
        let options = ScanOptions {
            projection: Some(self.projection.clone()),
            row_ids: self.row_ids.clone(),
            pruner: pruner.map(|pruner| Arc::new(pruner) as _),
            row_filter: row_filter.map(|filter| Arc::new(filter) as _),
            deleted,
            whole_pages: PageReads::of(context).are_whole(),
            account: Some(Arc::clone(&account)),
            cache: read_cache(context).map(|cache| cache.visit()),
            ..Default::default()
        };
        let run = Run {
            scan: self.table.scan(options).map_err(storage_error)?,
            started: (0..self.partitions).map(|other| other == partition).collect(),
            rows_left: Arc::new(AtomicUsize::new(self.limit.unwrap_or(usize::MAX))),
            metrics: Arc::new(ScanMetrics::new(&self.metrics, account)),
            _deleted: reserved,
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
                    write!(f, ", filter={}", filters.join(" AND "))?;
                }
                self.limit.map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
            }
            DisplayFormatType::TreeRender => {
                writeln!(f, "table={}", self.table.name())?;
                writeln!(f, "columns={}", columns.join(", "))?;
                if !filters.is_empty() {
                    writeln!(f, "filter={}", filters.join(" AND "))?;
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
        let open = self.open.lock().clone();
        if run.started.iter().all(|started| *started) {
            *self.open.lock() = None;
        }
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let reader = run.scan.reader();
        let stream =
            ScanStream::new(reader, self.table.page_bytes(), run.rows_left, run.metrics, baseline, context);
        let stream = stream.keeping(open);
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
        let all = match self.known.get() {
            Some(known) => Arc::clone(known),
            None => {
                let statistics = self.filtered_statistics().with_fetch(self.limit, 0, 1)?;
                Arc::clone(self.known.get_or_init(|| Arc::new(statistics)))
            }
        };
        // Partitions share out the work as it comes: each has about its part.
        Ok(match args.partition() {
            None => all,
            Some(_) => Arc::new(share(Statistics::clone(&all), self.partitions)),
        })
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
        if self.row_ids.is_some() {
            return Ok(None);
        }
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
            // A limit counts the rows before filters above it; volatile ones see each row once, where they stand.
            let of_row_ids = |column: &Column| column.index() >= self.projection.len();
            let needs_row_ids = collect_columns(&parent.filter).iter().any(of_row_ids);
            if self.limit.is_some() || is_volatile(&parent.filter) || needs_row_ids {
                answers.push(PushedDown::No);
                continue;
            }
            let filter = on_table_columns(&parent.filter, &self.projection)?;
            // Its sender does not depend on one that changes, and it is dropped when it turns nothing away.
            answers.push(if is_dynamic(&filter) { PushedDown::No } else { PushedDown::Yes });
            if !filters.contains(&filter) {
                filters.push(filter);
            }
        }
        let propagation = FilterPushdownPropagation::with_parent_pushdown_result(answers);
        if filters.len() == self.filters.len() {
            return Ok(propagation);
        }
        let changed = self.changed(self.projection.clone(), filters, self.limit)?;
        Ok(propagation.with_updated_node(Arc::new(changed)))
    }
}

/// Columns with those of row ids behind them.
pub(super) fn with_row_ids(schema: &SchemaRef, name: &str) -> SchemaRef {
    let row_ids = Arc::new(Field::new(name, DataType::UInt64, false));
    let fields: Vec<FieldRef> = schema.fields().iter().cloned().chain([row_ids]).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// DataFusion's statistics of the projected columns.
pub(super) fn table_statistics(table: &TableStatistics, schema: &Schema, projection: &[usize]) -> Statistics {
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
    let row_bytes = projected_row_bytes(table, schema, projection);
    Statistics {
        num_rows: Precision::Exact(table.rows as usize),
        total_byte_size: Precision::Inexact((table.rows as usize).saturating_mul(row_bytes)),
        column_statistics: projection.iter().map(column).collect(),
    }
}

/// Bytes of a row in memory, about: pages are smaller, but joins compare what they have to hold. Texts are at least as long
/// as what the pages have beside numbers.
fn projected_row_bytes(table: &TableStatistics, schema: &Schema, projection: &[usize]) -> usize {
    let stored_bytes = usize::try_from(table.page_bytes / table.rows.max(1)).unwrap_or(usize::MAX);
    let text_bytes = text_bytes(schema, stored_bytes).map_or(TEXT_BYTES, |bytes| bytes.max(TEXT_BYTES));
    let projected = projection.iter().filter_map(|&column| schema.fields().get(column));
    projected.map(|field| column_bytes(field.data_type(), text_bytes)).sum()
}

fn share(statistics: Statistics, partitions: usize) -> Statistics {
    let part = |total: &Precision<usize>| match total.get_value() {
        Some(total) => Precision::Inexact(total.div_ceil(partitions.max(1))),
        None => Precision::Absent,
    };
    let (num_rows, total_byte_size) = (part(&statistics.num_rows), part(&statistics.total_byte_size));
    Statistics { num_rows, total_byte_size, ..statistics.to_inexact() }
}
