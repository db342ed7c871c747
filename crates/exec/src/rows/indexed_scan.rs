//! Reading a table that has segments and indexes.
//!
//! ```text
//!   keys of the query or of a join ─► index ─┬─ few rows ─► segments: columns by row id
//!                                            │              heap: rows by their ids
//!                                            └─ many ──┐
//!   no keys ───────────────────────────────────────────┴──► scan of segments and heap, below
//! ```
//!
//! It is decided when the first row is asked for: joins have told their keys by then, and the index tells how many rows there are. One row
//! of a segment takes a page of each column, so that an index pays for few rows alone.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use async_stream::try_stream;
use datafusion::arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, SchedulingType, reset_plan_states,
};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterDescription, FilterPushdownPhase, FilterPushdownPropagation, PushedDown,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::statistics::ChildStats;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties as _, Partitioning, PlanProperties,
    StatisticsArgs,
};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use nandina_storage::{IndexDefinition, MostRows, RowId, Table, Transaction, by_place};
use parking_lot::Mutex;

use super::blocking;
use super::lookup::Lookup;
use super::output::{Output, read_found};
use super::provider::ROW_ID;
use super::transactions::{OpenScan, SharedTransaction};
use crate::error::pages_error;
use crate::fetch::{FetchMetrics, FetchedTable, Fetching, Source, fetched_in_order};
use crate::scan::{is_dynamic, on_table_columns, storage_error};

/// Few rows are no more than fit into little memory by their ids.
const MOST_ROWS: usize = 1 << 16;
/// Those of segments are one of so many, or as many as do no harm in a small table.
const ROWS_SHARE: u64 = 64;
const LEAST_ROWS: u64 = 256;
/// They are on one of so many pages, or on as many as do no harm.
const PAGES_SHARE: u64 = 4;
const LEAST_PAGES: u64 = 16;

/// Reads the rows of a table that an index finds, if they are few, or all.
#[derive(Debug)]
pub struct IndexedScanExec {
    table: Table,
    transaction: Arc<SharedTransaction>,
    indexes: Arc<[(usize, IndexDefinition)]>,
    /// What the query asks for.
    lookup: Option<Lookup>,
    /// All rows; none where an index finds few in any case.
    scan: Option<Arc<dyn ExecutionPlan>>,
    output: Output,
    /// Conditions that become known while the query runs, on columns of the table. Rows that do not pass them may be emitted.
    hints: Vec<Arc<dyn PhysicalExpr>>,
    /// Keeps rows from being changed until all partitions have been read to their ends, or an index has told which rows are read.
    open: Mutex<Option<Arc<OpenScan>>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    run: Mutex<Run>,
}

/// What the partitions of one execution share.
#[derive(Debug, Default)]
struct Run {
    /// Partitions that were started: one that is started again begins a new run.
    started: HashSet<usize>,
    /// The scan of this run, if it is not the first one.
    scan: Option<Arc<dyn ExecutionPlan>>,
    decided: Arc<Decided>,
}

/// The rows that an index has found, if it has found few. The first partition looks for them while the others wait.
type Decided = Mutex<Option<Option<Arc<Found>>>>;

/// Few rows.
#[derive(Debug)]
struct Found {
    /// In order.
    in_segments: Vec<RowId>,
    in_heap: Vec<u64>,
}

/// Where rows come from.
enum Decision {
    Found(Arc<Found>),
    Scan(Arc<dyn ExecutionPlan>),
}

impl IndexedScanExec {
    /// `scan` reads all rows as `output` has them; without it, the look-up finds few.
    pub(super) fn new(
        table: Table,
        transaction: Arc<SharedTransaction>,
        indexes: Arc<[(usize, IndexDefinition)]>,
        lookup: Option<Lookup>,
        scan: Option<Arc<dyn ExecutionPlan>>,
        output: Output,
        open: Option<OpenScan>,
    ) -> Self {
        let partitions = scan.as_ref().map_or(1, |scan| scan.output_partitioning().partition_count());
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&output.schema)),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        Self {
            table,
            transaction,
            indexes,
            lookup,
            scan,
            output,
            hints: Vec::new(),
            open: Mutex::new(open.map(Arc::new)),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
            run: Mutex::default(),
        }
    }

    /// The same with something changed.
    fn changed(&self, scan: Option<Arc<dyn ExecutionPlan>>, hints: Vec<Arc<dyn PhysicalExpr>>) -> Self {
        let (table, transaction) = (self.table.clone(), Arc::clone(&self.transaction));
        let (indexes, lookup) = (Arc::clone(&self.indexes), self.lookup.clone());
        let new = Self::new(table, transaction, indexes, lookup, scan, self.output.clone(), None);
        Self { hints, open: Mutex::new(self.open.lock().clone()), ..new }
    }

    /// A partition of the run that it belongs to.
    fn lane(&self, partition: usize) -> Result<Lane> {
        let mut run = self.run.lock();
        if !run.started.insert(partition) {
            let scan = self.scan.as_ref().map(|scan| reset_plan_states(Arc::clone(scan))).transpose()?;
            *run = Run { started: HashSet::from([partition]), scan, ..Run::default() };
        }
        let mut open = self.open.lock();
        let own = open.clone();
        if run.started.len() == self.properties.partitioning.partition_count() {
            *open = None;
        }
        Ok(Lane {
            table: self.table.clone(),
            transaction: Arc::clone(&self.transaction),
            indexes: Arc::clone(&self.indexes),
            lookup: self.lookup.clone(),
            scan: run.scan.clone().or_else(|| self.scan.clone()),
            output: self.output.clone(),
            hints: self.hints.clone(),
            open: own,
            decided: Arc::clone(&run.decided),
            partition,
            metrics: self.metrics.clone(),
            baseline: BaselineMetrics::new(&self.metrics, partition),
            keys_looked_up: MetricBuilder::new(&self.metrics).counter("keys_looked_up", partition),
        })
    }
}

impl DisplayAs for IndexedScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "IndexedScanExec: table={}", self.table.name())?;
        match &self.lookup {
            Some(lookup) => write!(f, ", index={}, keys={}", lookup.name, lookup.keys()),
            None => {
                let names: Vec<&str> = self.indexes.iter().map(|(_, index)| index.name.as_str()).collect();
                write!(f, ", indexes=[{}]", names.join(", "))
            }
        }
    }
}

impl ExecutionPlan for IndexedScanExec {
    fn name(&self) -> &'static str {
        "IndexedScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.scan.iter().collect()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        self.scan.iter().map(|_| false).collect()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for hint in &self.hints {
            if f(hint)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let scan = children.pop();
        if scan.is_some() != self.scan.is_some() || !children.is_empty() {
            return internal_err!("a scan by an index has other children than it had");
        }
        Ok(Arc::new(self.changed(scan, self.hints.clone())))
    }

    fn gather_filters_for_pushdown(
        &self,
        phase: FilterPushdownPhase,
        parent_filters: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> Result<FilterDescription> {
        match phase {
            // They are evaluated above, however the rows are found.
            FilterPushdownPhase::Pre => {
                Ok(FilterDescription::all_unsupported(&parent_filters, &self.children()))
            }
            FilterPushdownPhase::Post => FilterDescription::from_children(parent_filters, &self.children()),
        }
    }

    fn handle_child_pushdown_result(
        &self,
        _: FilterPushdownPhase,
        child_pushdown_result: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let mut hints = self.hints.clone();
        let of_output = self.output.columns_of_table();
        let mut answers = Vec::new();
        for parent in child_pushdown_result.parent_filters {
            if self.scan.is_some() && is_dynamic(&parent.filter) {
                hints.push(on_table_columns(&parent.filter, &of_output)?);
            }
            answers.push(PushedDown::No);
        }
        let is_changed = hints.len() > self.hints.len();
        let changed = || Arc::new(self.changed(self.scan.clone(), hints)) as Arc<dyn ExecutionPlan>;
        let updated_node = is_changed.then(changed);
        Ok(FilterPushdownPropagation { filters: answers, updated_node })
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let rows = self.lane(partition)?.rows(context).boxed();
        Ok(Box::pin(cooperative(RecordBatchStreamAdapter::new(self.schema(), rows))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.scan.iter().map(|_| ChildStats::At(partition)).collect()
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let unknown = || Statistics::new_unknown(&self.schema());
        let statistics = match (&self.lookup, inputs) {
            (Some(lookup), _) if lookup.is_unique => {
                Statistics { num_rows: Precision::Inexact(lookup.keys()), ..unknown() }
            }
            (_, [scan]) => scan.as_ref().clone().to_inexact(),
            _ => unknown(),
        };
        Ok(Arc::new(statistics))
    }
}

/// One partition.
struct Lane {
    table: Table,
    transaction: Arc<SharedTransaction>,
    indexes: Arc<[(usize, IndexDefinition)]>,
    lookup: Option<Lookup>,
    scan: Option<Arc<dyn ExecutionPlan>>,
    output: Output,
    hints: Vec<Arc<dyn PhysicalExpr>>,
    open: Option<Arc<OpenScan>>,
    decided: Arc<Decided>,
    partition: usize,
    metrics: ExecutionPlanMetricsSet,
    baseline: BaselineMetrics,
    keys_looked_up: Count,
}

impl Lane {
    fn rows(mut self, context: Arc<TaskContext>) -> impl Stream<Item = Result<RecordBatch>> + Send {
        try_stream! {
            match self.decide()? {
                Decision::Scan(scan) => {
                    let mut rows = scan.execute(self.partition, context)?;
                    while let Some(batch) = rows.next().await {
                        let batch = batch?;
                        self.baseline.record_output(batch.num_rows());
                        yield batch;
                    }
                    drop(self.open.take());
                }
                // One partition does for all.
                Decision::Found(found) if self.partition == 0 => {
                    drop(self.open.take());
                    if !found.in_segments.is_empty() {
                        let mut rows = self.of_segments(&found.in_segments, &context)?;
                        while let Some(batch) = rows.next().await {
                            yield batch?;
                        }
                    }
                    let batch_rows = context.session_config().batch_size();
                    let mut left = found.in_heap.as_slice();
                    while !left.is_empty() {
                        let batch = self.of_heap(&mut left, batch_rows)?;
                        if batch.num_rows() > 0 {
                            self.baseline.record_output(batch.num_rows());
                            yield batch;
                        }
                    }
                }
                Decision::Found(_) => drop(self.open.take()),
            }
        }
    }

    fn decide(&self) -> Result<Decision> {
        let found = blocking(|| -> Result<_> {
            let mut decided = self.decided.lock();
            match &*decided {
                Some(found) => Ok(found.clone()),
                None => Ok(decided.insert(self.look_up()?).clone()),
            }
        })?;
        match (found, &self.scan) {
            (Some(found), _) => Ok(Decision::Found(found)),
            (None, Some(scan)) => Ok(Decision::Scan(Arc::clone(scan))),
            (None, None) => internal_err!("rows that an index finds few of are not looked up"),
        }
    }

    /// The rows that are asked for by now, if an index finds few.
    fn look_up(&self) -> Result<Option<Arc<Found>>> {
        let _timer = self.baseline.elapsed_compute().timer();
        let known = Lookup::of_known(&self.table, &self.indexes, &self.hints)?;
        for lookup in known.iter().chain(&self.lookup) {
            if let Some(found) = self.few(lookup)? {
                return Ok(Some(Arc::new(found)));
            }
        }
        Ok(None)
    }

    /// What a look-up finds, if that is few.
    fn few(&self, lookup: &Lookup) -> Result<Option<Found>> {
        let in_segments = (self.table.rows() / ROWS_SHARE).max(LEAST_ROWS) as usize;
        let most = match self.scan {
            Some(_) => MostRows { all: MOST_ROWS, in_segments },
            None => MostRows::ALL,
        };
        let find = |transaction: &Transaction| {
            transaction.find_up_to(&self.table, lookup.index, &lookup.values, most)
        };
        let found = self.transaction.read(find)?;
        self.keys_looked_up.add(lookup.keys());
        let Some(found) = found else { return Ok(None) };
        let (in_segments, in_heap) = by_place(&found);
        let pages = in_segments.chunk_by(|one, other| one.page() == other.page()).count() as u64;
        let is_few = self.scan.is_none() || pages <= (self.table.pages() / PAGES_SHARE).max(LEAST_PAGES);
        Ok(is_few.then_some(Found { in_segments, in_heap }))
    }

    /// Rows of segments, which this transaction sees.
    fn of_segments(
        &self,
        rows: &[RowId],
        context: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let ids: ArrayRef = Arc::new(UInt64Array::from_iter_values(rows.iter().map(|row| row.to_bits())));
        let output = self.output.clone();
        if output.columns.is_empty() {
            let batch = output.batch(Vec::new(), Some(ids), rows.len());
            self.baseline.record_output(rows.len());
            return Ok(futures::stream::iter([batch]).boxed());
        }
        let of_table = self.table.schema().fields();
        let columns: Vec<(usize, FieldRef)> =
            output.columns.iter().map(|column| (*column, Arc::clone(&of_table[*column]))).collect();
        let id: FieldRef = Arc::new(Field::new(ROW_ID, DataType::UInt64, false));
        let of_ids = Arc::new(Schema::new(vec![Arc::clone(&id)]));
        let fields = std::iter::once(id).chain(columns.iter().map(|(_, field)| Arc::clone(field)));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let batch = RecordBatch::try_new(Arc::clone(&of_ids), vec![ids])?;
        let input: SendableRecordBatchStream =
            Box::pin(RecordBatchStreamAdapter::new(of_ids, futures::stream::iter([Ok(batch)])));
        let source = Source::table(FetchedTable { table: self.table.clone(), row_ids: 0, columns });
        let metrics = FetchMetrics::new(&self.metrics, self.partition);
        let tasks = context.session_config().target_partitions();
        let fetching = Fetching::new(vec![source].into(), schema, tasks, Arc::default(), metrics, context);
        let fetched = fetched_in_order(fetching, input);
        let emitted = move |batch: Result<RecordBatch>| {
            let batch = batch?;
            match batch.columns().split_first() {
                Some((ids, columns)) => {
                    output.batch(columns.to_vec(), Some(Arc::clone(ids)), batch.num_rows())
                }
                None => internal_err!("rows that are fetched have lost their ids"),
            }
        };
        Ok(fetched.map(emitted).boxed())
    }

    /// The next rows of the heap, which need not be there as this transaction sees it.
    fn of_heap(&self, left: &mut &[u64], batch_rows: usize) -> Result<RecordBatch> {
        let _timer = self.baseline.elapsed_compute().timer();
        let codec = self.table.row_codec().map_err(storage_error)?;
        let mut rows = codec.decoder(&self.output.columns).map_err(pages_error)?;
        let mut ids = self.output.ids();
        self.transaction.read(|transaction| {
            read_found(transaction, &self.table, left, batch_rows, &mut rows, ids.as_mut())
        })?;
        self.output.decoded(&mut rows, ids)
    }
}
