//! Reading rows that are changed one by one.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::RecordBatch;
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation, PushedDown,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, StatisticsArgs,
};
use nandina_pages::{RowCodec, RowDecoder};
use nandina_storage::{IndexDefinition, RowPages, StorageError, Table, Transaction};
use parking_lot::Mutex;

use super::lookup::Lookup;
use super::output::{BATCH_BYTES, Output, read_found};
use super::transactions::SharedTransaction;
use crate::scan::{is_dynamic, on_table_columns};

/// Pages that are read together.
const PAGES_AT_ONCE: usize = 32;
/// Pages from which on another partition is worth its while.
const PARTITION_PAGES: usize = 256;

/// Which rows are read.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// All rows, or those that an index finds, once joins have told which are wanted.
    Pages {
        pages: RowPages,
        indexes: Arc<[(usize, IndexDefinition)]>,
    },
    Index(Lookup),
}

/// Reads all rows of a table that a transaction sees, or those whose keys an index finds.
#[derive(Debug)]
pub struct RowScanExec {
    table: Table,
    transaction: Arc<SharedTransaction>,
    source: Source,
    output: Output,
    /// Conditions that become known while the query runs, on columns of the table. Rows that do not pass them may be emitted.
    hints: Vec<Arc<dyn PhysicalExpr>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    run: Mutex<Run>,
}

/// What the partitions of one execution share.
#[derive(Debug, Default)]
struct Run {
    /// Partitions that were started: one that is started again begins a new run.
    started: HashSet<usize>,
    /// What the hints ask for, decided once for all partitions.
    asked: Arc<OnceLock<Option<Lookup>>>,
}

impl RowScanExec {
    pub(super) fn new(
        table: Table,
        transaction: Arc<SharedTransaction>,
        source: Source,
        output: Output,
        target_partitions: usize,
    ) -> Self {
        let partitions = match &source {
            Source::Pages { pages, .. } => (pages.len() / PARTITION_PAGES).clamp(1, target_partitions.max(1)),
            Source::Index(_) => 1,
        };
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
            source,
            output,
            hints: Vec::new(),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
            run: Mutex::default(),
        }
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    fn with_hints(&self, hints: Vec<Arc<dyn PhysicalExpr>>) -> Self {
        Self {
            table: self.table.clone(),
            transaction: Arc::clone(&self.transaction),
            source: self.source.clone(),
            output: self.output.clone(),
            hints,
            properties: Arc::clone(&self.properties),
            metrics: ExecutionPlanMetricsSet::new(),
            run: Mutex::default(),
        }
    }

    /// What the hints ask for in the run that `partition` belongs to.
    fn asked(&self, partition: usize) -> Arc<OnceLock<Option<Lookup>>> {
        let mut run = self.run.lock();
        if !run.started.insert(partition) {
            *run = Run { started: HashSet::from([partition]), ..Run::default() };
        }
        Arc::clone(&run.asked)
    }

    fn codec(&self) -> Result<&RowCodec> {
        self.table.row_codec().map_err(crate::scan::storage_error)
    }
}

impl DisplayAs for RowScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "RowScanExec: table={}", self.table.name())?;
        match &self.source {
            Source::Pages { pages, .. } => write!(f, ", pages={}", pages.len()),
            Source::Index(lookup) => write!(f, ", index={}, keys={}", lookup.name, lookup.keys()),
        }
    }
}

impl ExecutionPlan for RowScanExec {
    fn name(&self) -> &'static str {
        "RowScanExec"
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
        for hint in &self.hints {
            if f(hint)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.with_hints(self.hints.clone())))
    }

    fn handle_child_pushdown_result(
        &self,
        _: FilterPushdownPhase,
        child_pushdown_result: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let mut hints = self.hints.clone();
        let of_output = self.output.columns_of_table();
        let has_indexes = matches!(&self.source, Source::Pages { indexes, .. } if !indexes.is_empty());
        let mut answers = Vec::new();
        for parent in child_pushdown_result.parent_filters {
            if has_indexes && is_dynamic(&parent.filter) {
                hints.push(on_table_columns(&parent.filter, &of_output)?);
            }
            answers.push(PushedDown::No);
        }
        let is_changed = hints.len() > self.hints.len();
        let updated_node = is_changed.then(|| Arc::new(self.with_hints(hints)) as Arc<dyn ExecutionPlan>);
        Ok(FilterPushdownPropagation { filters: answers, updated_node })
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let partitions = self.properties.partitioning.partition_count();
        let rest = match &self.source {
            Source::Pages { pages, .. } => {
                let share = |of: usize| pages.len() * of / partitions;
                share(partition)..share(partition + 1)
            }
            Source::Index(_) => 0..1,
        };
        let mut reader = Reader {
            table: self.table.clone(),
            transaction: Arc::clone(&self.transaction),
            source: self.source.clone(),
            output: self.output.clone(),
            batch_rows: context.session_config().batch_size(),
            rest,
            found: None,
            keys_looked_up: 0,
            hints: self.hints.clone(),
            asked: (!self.hints.is_empty()).then(|| self.asked(partition)),
            is_first: partition == 0,
        };
        self.codec()?;
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let pages_read = MetricBuilder::new(&self.metrics).counter("pages", partition);
        let keys_looked_up = MetricBuilder::new(&self.metrics).counter("keys_looked_up", partition);
        let mut has_failed = false;
        let batches = std::iter::from_fn(move || {
            if has_failed {
                return None;
            }
            let timer = baseline.elapsed_compute().timer();
            let before = reader.rest.len();
            let batch = reader.next();
            timer.done();
            if matches!(reader.source, Source::Pages { .. }) {
                pages_read.add(before - reader.rest.len());
            }
            keys_looked_up.add(std::mem::take(&mut reader.keys_looked_up));
            match &batch {
                Ok(Some(batch)) => baseline.record_output(batch.num_rows()),
                Ok(None) => {}
                Err(_) => has_failed = true,
            }
            batch.transpose()
        });
        let batches = futures::stream::iter(batches);
        Ok(Box::pin(cooperative(RecordBatchStreamAdapter::new(self.schema(), batches))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema());
        if let Source::Index(lookup) = &self.source
            && lookup.is_unique
        {
            statistics.num_rows = Precision::Inexact(lookup.keys());
        }
        Ok(Arc::new(statistics))
    }
}

/// What is left to read for a partition.
struct Reader {
    table: Table,
    transaction: Arc<SharedTransaction>,
    source: Source,
    output: Output,
    batch_rows: usize,
    /// Pages, or rows that an index has found.
    rest: Range<usize>,
    found: Option<Vec<u64>>,
    keys_looked_up: usize,
    hints: Vec<Arc<dyn PhysicalExpr>>,
    /// Not decided upon yet, if there are hints.
    asked: Option<Arc<OnceLock<Option<Lookup>>>>,
    is_first: bool,
}

impl Reader {
    fn next(&mut self) -> Result<Option<RecordBatch>> {
        self.heed_hints()?;
        let (table, transaction) = (self.table.clone(), Arc::clone(&self.transaction));
        let codec = table.row_codec().map_err(crate::scan::storage_error)?;
        let output = self.output.clone();
        let mut rows = codec.decoder(&output.columns).map_err(crate::error::pages_error)?;
        let mut ids = output.ids();
        transaction.read(|transaction| self.read(&table, transaction, &mut rows, &mut ids))?;
        if rows.rows() == 0 {
            return Ok(None);
        }
        output.decoded(&mut rows, ids).map(Some)
    }

    /// Looks rows up instead of reading all, if few are asked for by now. One partition does for all.
    fn heed_hints(&mut self) -> Result<()> {
        let (Some(asked), Source::Pages { indexes, .. }) = (self.asked.take(), &self.source) else {
            return Ok(());
        };
        let lookup = match asked.get() {
            Some(lookup) => lookup.clone(),
            None => {
                let lookup = Lookup::of_known(&self.table, indexes, &self.hints)?;
                asked.get_or_init(|| lookup).clone()
            }
        };
        if let Some(lookup) = lookup {
            self.source = Source::Index(lookup);
            self.rest = if self.is_first { 0..1 } else { 0..0 };
        }
        Ok(())
    }

    fn read(
        &mut self,
        table: &Table,
        transaction: &Transaction,
        rows: &mut RowDecoder<'_>,
        ids: &mut Option<Vec<u64>>,
    ) -> Result<(), StorageError> {
        match &self.source {
            Source::Pages { pages, .. } => {
                while !self.rest.is_empty() && rows.rows() < self.batch_rows && rows.bytes() < BATCH_BYTES {
                    let ahead = self.rest.end.min(self.rest.start + PAGES_AT_ONCE);
                    transaction.read_ahead(pages.slice(self.rest.start..ahead))?;
                    // One by one: rows of a page may be long.
                    while self.rest.start < ahead && rows.bytes() < BATCH_BYTES {
                        let page = self.rest.start..self.rest.start + 1;
                        transaction.read_pages(table, pages.slice(page), rows, ids.as_mut())?;
                        self.rest.start += 1;
                    }
                }
            }
            Source::Index(_) if self.found.is_none() && self.rest.is_empty() => {}
            Source::Index(lookup) => {
                let found = match self.found.take() {
                    Some(found) => found,
                    None => {
                        let found = transaction.find(table, lookup.index, &lookup.values)?;
                        self.keys_looked_up = lookup.keys();
                        self.rest = 0..found.len();
                        found
                    }
                };
                let mut left = &found[self.rest.clone()];
                read_found(transaction, table, &mut left, self.batch_rows, rows, ids.as_mut())?;
                self.rest.start = self.rest.end - left.len();
                self.found = Some(found);
            }
        }
        Ok(())
    }
}
