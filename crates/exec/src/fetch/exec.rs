//! The fetch as a node of a plan.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ColumnStatistics, Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{CardinalityEffect, SchedulingType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties, StatisticsArgs,
};
use nandina_storage::Table;

use super::stream::{FetchMetrics, Fetching, fetched};

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

/// Adds columns of stored tables to rows that carry their ids: behind the columns of the input, table by table.
///
/// Rows stay in their order and partition.
pub struct FetchExec {
    input: Arc<dyn ExecutionPlan>,
    tables: Arc<[FetchedTable]>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl FetchExec {
    pub fn try_new(input: Arc<dyn ExecutionPlan>, tables: Arc<[FetchedTable]>) -> Result<Self> {
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
        let properties = PlanProperties::new(
            EquivalenceProperties::new_with_orderings(schema, orderings),
            input.output_partitioning().clone(),
            input.pipeline_behavior(),
            input.boundedness(),
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(Self { input, tables, properties: Arc::new(properties), metrics })
    }

    pub fn tables(&self) -> &[FetchedTable] {
        &self.tables
    }
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
                write!(f, "FetchExec: {}", described.join("; "))
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
        vec![true]
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
            Ok([input]) => Ok(Arc::new(Self::try_new(input, Arc::clone(&self.tables))?)),
            Err(_) => internal_err!("a fetch has one input"),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, Arc::clone(&context))?;
        // One output has all processors, several share them.
        let partitions = self.properties.output_partitioning().partition_count();
        let tasks = context.session_config().target_partitions().div_ceil(partitions.max(1));
        let metrics = FetchMetrics::new(&self.metrics, partition);
        let fetching = Fetching::new(Arc::clone(&self.tables), self.schema(), tasks, metrics, &context);
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), fetched(fetching, input))))
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
