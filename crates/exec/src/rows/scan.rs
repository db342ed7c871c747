//! Reading rows that are changed one by one.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, StatisticsArgs,
};
use nandina_pages::{RowCodec, RowDecoder};
use nandina_storage::{RowPages, StorageError, Table, Transaction};

use super::lookup::Lookup;
use super::transactions::SharedTransaction;

/// Pages that are read together.
const PAGES_AT_ONCE: usize = 32;
/// Rows that an index has found which are read together.
const ROWS_AT_ONCE: usize = 256;
/// Pages from which on another partition is worth its while.
const PARTITION_PAGES: usize = 256;
/// A batch is emitted once its rows take so many bytes.
const BATCH_BYTES: usize = 1 << 20;

/// Which rows are read.
#[derive(Debug, Clone)]
pub(super) enum Source {
    Pages(RowPages),
    Index(Lookup),
}

/// Reads all rows of a table that a transaction sees, or those whose keys an index finds.
#[derive(Debug)]
pub struct RowScanExec {
    table: Table,
    transaction: Arc<SharedTransaction>,
    source: Source,
    /// Columns of the table.
    columns: Vec<usize>,
    /// Where row ids stand in the output.
    row_ids_at: Option<usize>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl RowScanExec {
    /// `schema` has the table's columns, and row ids behind them where they are wanted.
    pub(super) fn try_new(
        table: Table,
        schema: &SchemaRef,
        transaction: Arc<SharedTransaction>,
        source: Source,
        projection: Vec<usize>,
        target_partitions: usize,
    ) -> Result<Self> {
        let of_table = table.schema().fields().len();
        let output = Arc::new(schema.project(&projection)?);
        let row_ids_at = projection.iter().position(|column| *column == of_table);
        let columns: Vec<usize> = projection.into_iter().filter(|column| *column < of_table).collect();
        let partitions = match &source {
            Source::Pages(pages) => (pages.len() / PARTITION_PAGES).clamp(1, target_partitions.max(1)),
            Source::Index(_) => 1,
        };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(output),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        let (properties, metrics) = (Arc::new(properties), ExecutionPlanMetricsSet::new());
        Ok(Self { table, transaction, source, columns, row_ids_at, properties, metrics })
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    fn codec(&self) -> Result<&RowCodec> {
        self.table.row_codec().map_err(crate::scan::storage_error)
    }
}

impl DisplayAs for RowScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "RowScanExec: table={}", self.table.name())?;
        match &self.source {
            Source::Pages(pages) => write!(f, ", pages={}", pages.len()),
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
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let partitions = self.properties.partitioning.partition_count();
        let rest = match &self.source {
            Source::Pages(pages) => {
                let share = |of: usize| pages.len() * of / partitions;
                share(partition)..share(partition + 1)
            }
            Source::Index(_) => 0..1,
        };
        let mut reader = Reader {
            table: self.table.clone(),
            transaction: Arc::clone(&self.transaction),
            source: self.source.clone(),
            columns: self.columns.clone(),
            row_ids_at: self.row_ids_at,
            schema: self.schema(),
            batch_rows: context.session_config().batch_size(),
            rest,
            found: None,
        };
        self.codec()?;
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let pages_read = MetricBuilder::new(&self.metrics).counter("pages", partition);
        let mut has_failed = false;
        let batches = std::iter::from_fn(move || {
            if has_failed {
                return None;
            }
            let timer = baseline.elapsed_compute().timer();
            let before = reader.rest.len();
            let batch = reader.next();
            timer.done();
            if matches!(reader.source, Source::Pages(_)) {
                pages_read.add(before - reader.rest.len());
            }
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
    columns: Vec<usize>,
    row_ids_at: Option<usize>,
    schema: SchemaRef,
    batch_rows: usize,
    /// Pages, or rows that an index has found.
    rest: Range<usize>,
    found: Option<Vec<u64>>,
}

impl Reader {
    fn next(&mut self) -> Result<Option<RecordBatch>> {
        let (table, transaction) = (self.table.clone(), Arc::clone(&self.transaction));
        let codec = table.row_codec().map_err(crate::scan::storage_error)?;
        let mut rows = codec.decoder(&self.columns).map_err(crate::error::pages_error)?;
        let mut ids = self.row_ids_at.map(|_| Vec::new());
        transaction.read(|transaction| self.read(&table, transaction, &mut rows, &mut ids))?;
        if rows.rows() == 0 {
            return Ok(None);
        }
        self.batch(&mut rows, ids).map(Some)
    }

    fn read(
        &mut self,
        table: &Table,
        transaction: &Transaction,
        rows: &mut RowDecoder<'_>,
        ids: &mut Option<Vec<u64>>,
    ) -> Result<(), StorageError> {
        match &self.source {
            Source::Pages(pages) => {
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
            Source::Index(lookup) => {
                let found = match self.found.take() {
                    Some(found) => found,
                    None => {
                        let found = transaction.find(table, lookup.index, &lookup.values)?;
                        self.rest = 0..found.len();
                        found
                    }
                };
                while !self.rest.is_empty() && rows.rows() < self.batch_rows && rows.bytes() < BATCH_BYTES {
                    let end = self.rest.end.min(self.rest.start + ROWS_AT_ONCE);
                    transaction.read_rows(table, &found[self.rest.start..end], rows, ids.as_mut())?;
                    self.rest.start = end;
                }
                self.found = Some(found);
            }
        }
        Ok(())
    }

    fn batch(&self, rows: &mut RowDecoder<'_>, ids: Option<Vec<u64>>) -> Result<RecordBatch> {
        let count = rows.rows();
        let mut columns: Vec<ArrayRef> = rows.finish().map_err(crate::error::pages_error)?.columns().to_vec();
        if let (Some(at), Some(ids)) = (self.row_ids_at, ids) {
            columns.insert(at, Arc::new(UInt64Array::from(ids)));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}
