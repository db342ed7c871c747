//! The fetch as a node of a plan.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ColumnStatistics, Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, lit};
use datafusion::physical_expr::{
    EquivalenceProperties, OrderingRequirements, PhysicalExpr, PhysicalSortExpr, PhysicalSortRequirement,
};
use datafusion::physical_plan::execution_plan::{CardinalityEffect, SchedulingType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, PlanProperties, StatisticsArgs,
};
use nandina_storage::{RowId, Table};

use super::sort::SortByRowId;
use super::source::Source;
use super::stream::{FetchMetrics, Fetching, fetched};
use crate::execution::SharedExecution;

/// A table whose columns are added, and where the ids of its rows are.
#[derive(Clone)]
pub struct FetchedTable {
    /// The snapshot that the ids are from.
    pub table: Table,
    /// The column of the input that has the ids.
    pub row_ids: usize,
    /// Columns of the table, and what they are called here.
    pub columns: Vec<(usize, FieldRef)>,
}

/// In which order the rows of a fetch come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowOrder {
    /// As they do in the input.
    Kept,
    /// As suits the device. Once pages have been read again and again, the rest of each partition is sorted by row id, so
    /// that it reads each page once more at most.
    Any,
    /// By row id in each partition: the input has to come so. All rows of a group of neighbouring pages are in one partition,
    /// so that a page is read once, or twice where two windows meet on it: RARE-join's (1+ε) pass, with runs of an external
    /// sort for partitions. Rows without an id are all in one partition.
    OfTable,
}

/// So many neighbouring pages have their rows in one partition, as log2: enough for reads of several pages at once.
const GROUP_PAGES_LOG2: u32 = 6;

/// What the planner expected of a plan with late columns, and of the same rows made otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FetchEstimate {
    pub rows: u64,
    /// Of each algorithm by its name.
    pub millis: Arc<[(&'static str, u64)]>,
}

impl fmt::Display for FetchEstimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rows {}", self.rows)?;
        self.millis.iter().try_for_each(|(algorithm, millis)| write!(f, ", {algorithm} {millis} ms"))
    }
}

/// Adds columns of stored tables to rows that carry their ids: behind the columns of the input, table by table.
///
/// Rows stay in their partition.
pub struct FetchExec {
    input: Arc<dyn ExecutionPlan>,
    tables: Arc<[FetchedTable]>,
    order: RowOrder,
    /// Its number among the fetches that the planner may do without.
    candidate: Option<usize>,
    /// What it was chosen for.
    estimate: OnceLock<FetchEstimate>,
    page_reads: SharedExecution<Arc<AtomicU64>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl FetchExec {
    /// Where the order is not kept, the columns are those of one table.
    pub fn try_new(
        input: Arc<dyn ExecutionPlan>,
        tables: Arc<[FetchedTable]>,
        order: RowOrder,
    ) -> Result<Self> {
        if order != RowOrder::Kept && tables.len() != 1 {
            return internal_err!("rows can be in the order of one table");
        }
        let of_input = input.schema();
        for table in tables.iter() {
            if of_input.field(table.row_ids).data_type() != &DataType::UInt64 {
                return internal_err!("column {} of a fetch's input has no row ids", table.row_ids);
            }
        }
        let added = tables.iter().flat_map(|table| table.columns.iter().map(|(_, field)| Arc::clone(field)));
        let fields: Vec<FieldRef> = of_input.fields().iter().cloned().chain(added).collect();
        let schema = Arc::new(Schema::new_with_metadata(fields, of_input.metadata().clone()));
        // Columns of the input keep their places, and with them what is known of their order.
        let orderings = input.equivalence_properties().oeq_class().iter().cloned();
        // An input that is yet to be sorted by row id has an order which it will lose.
        let keeps = match order {
            RowOrder::Kept => true,
            RowOrder::Any => false,
            RowOrder::OfTable => is_sorted_by_id(&input, &tables)?,
        };
        let orderings = orderings.filter(|_| keeps);
        let properties = PlanProperties::new(
            EquivalenceProperties::new_with_orderings(schema, orderings),
            input.output_partitioning().clone(),
            input.pipeline_behavior(),
            input.boundedness(),
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        let metrics = ExecutionPlanMetricsSet::new();
        let properties = Arc::new(properties);
        let page_reads = SharedExecution::default();
        let (candidate, estimate) = (None, OnceLock::new());
        Ok(Self { input, tables, order, candidate, estimate, page_reads, properties, metrics })
    }

    pub fn tables(&self) -> &[FetchedTable] {
        &self.tables
    }

    /// Gives it a number among the fetches that the planner may do without.
    pub fn with_candidate(self, candidate: Option<usize>) -> Self {
        Self { candidate, ..self }
    }

    /// Has it show what it was chosen for.
    pub fn show_estimate(&self, estimate: FetchEstimate) {
        self.estimate.get_or_init(|| estimate);
    }

    pub fn candidate(&self) -> Option<usize> {
        self.candidate
    }

    pub fn order(&self) -> RowOrder {
        self.order
    }

    pub fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }

    /// The row ids that rows are in the order of, if that is asked of the input.
    fn ordering_ids(&self) -> Option<Arc<dyn PhysicalExpr>> {
        let fetched = self.tables.first().filter(|_| self.order == RowOrder::OfTable)?;
        Some(row_ids(&self.input, fetched))
    }
}

fn row_ids(input: &Arc<dyn ExecutionPlan>, fetched: &FetchedTable) -> Arc<dyn PhysicalExpr> {
    Arc::new(Column::new(input.schema().field(fetched.row_ids).name(), fetched.row_ids))
}

fn is_sorted_by_id(input: &Arc<dyn ExecutionPlan>, tables: &[FetchedTable]) -> Result<bool> {
    let Some(fetched) = tables.first() else { return Ok(false) };
    let order = PhysicalSortExpr::new(row_ids(input, fetched), SortOptions::default());
    input.equivalence_properties().ordering_satisfy([order])
}

/// The number of the group of pages that a row is on.
fn page_group(row_ids: Arc<dyn PhysicalExpr>) -> Arc<dyn PhysicalExpr> {
    let bits = lit(u64::from(RowId::SLOT_BITS + GROUP_PAGES_LOG2));
    Arc::new(BinaryExpr::new(row_ids, Operator::BitwiseShiftRight, bits))
}

impl fmt::Debug for FetchExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FetchExec").field("input", &self.input).finish_non_exhaustive()
    }
}

impl DisplayAs for FetchExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let described = self.tables.iter().map(|table| {
            let columns: Vec<&str> = table.columns.iter().map(|(_, field)| field.name().as_str()).collect();
            format!("table={}, columns=[{}]", table.table.name(), columns.join(", "))
        });
        let described: Vec<String> = described.collect();
        match format {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "FetchExec: {}", described.join("; "))?;
                match self.order {
                    RowOrder::Kept => {}
                    RowOrder::Any => write!(f, ", order=any")?,
                    RowOrder::OfTable => write!(f, ", order=table")?,
                }
                match self.estimate.get() {
                    Some(estimate) => write!(f, ", estimated=[{estimate}]"),
                    None => Ok(()),
                }
            }
            DisplayFormatType::TreeRender => described.iter().try_for_each(|table| writeln!(f, "{table}")),
        }
    }
}

impl ExecutionPlan for FetchExec {
    fn name(&self) -> &'static str {
        "FetchExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![self.order != RowOrder::Any]
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        let order =
            self.ordering_ids().map(|ids| PhysicalSortRequirement::new(ids, Some(SortOptions::default())));
        vec![order.map(|order| OrderingRequirements::new([order].into()))]
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        let by_page = self.ordering_ids().map(|ids| Distribution::KeyPartitioned(vec![page_group(ids)]));
        InputDistributionRequirements::new(vec![by_page.unwrap_or(Distribution::UnspecifiedDistribution)])
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match <[_; 1]>::try_from(children) {
            Ok([input]) => {
                let renewed = Self::try_new(input, Arc::clone(&self.tables), self.order)?;
                let (candidate, estimate) = (self.candidate, self.estimate.clone());
                Ok(Arc::new(Self { candidate, estimate, ..renewed }))
            }
            Err(_) => internal_err!("a fetch has one input"),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, Arc::clone(&context))?;
        // One output has all processors, several share them.
        let partitions = self.properties.output_partitioning().partition_count();
        let tasks = context.session_config().target_partitions().div_ceil(partitions.max(1));
        let metrics = FetchMetrics::new(&self.metrics, partition);
        let sort = match self.order {
            RowOrder::Kept | RowOrder::OfTable => None,
            RowOrder::Any => Some(SortByRowId::new(&self.tables, &self.metrics, partition, &context)?),
        };
        let page_reads = self.page_reads.get(partitions, || Ok(Arc::default()))?;
        let sources = self.tables.iter().cloned().map(Source::table).collect();
        let fetching = Fetching::new(sources, self.schema(), tasks, page_reads, metrics, &context);
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), fetched(fetching, input, sort))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        input_statistics: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let [input] = input_statistics else { return internal_err!("a fetch has one input") };
        let added: usize = self.tables.iter().map(|table| table.columns.len()).sum();
        let mut statistics = input.as_ref().clone().to_inexact();
        statistics.num_rows = input.num_rows;
        statistics.total_byte_size = Default::default();
        statistics.column_statistics.extend((0..added).map(|_| ColumnStatistics::new_unknown()));
        Ok(Arc::new(statistics))
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }
}
