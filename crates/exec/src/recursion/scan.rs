//! The scan by which the recursive term reads the rows of the last step.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::work_table::WorkTableExec;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

use super::work_table::{WorkTable, with_schema};

/// Reads the rows of the last step.
#[derive(Debug)]
pub struct WorkTableScanExec {
    name: String,
    table: Arc<WorkTable>,
    /// The columns of the table that this scan gives.
    projection: Vec<usize>,
    /// Whether the rows are read several times in one step: by each step of a recursion within it.
    keeps_rows: bool,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl WorkTableScanExec {
    /// Takes the place of `planned`, a scan of a table that has the columns of `table_schema`. `None` if it cannot be
    /// determined which of them it gives: the node does not say, so they are found by their names. A table of which another
    /// rule has made two columns of one name, or one of another type, stays with DataFusion.
    fn replacing(
        planned: &WorkTableExec,
        table_schema: &SchemaRef,
        table: &Arc<WorkTable>,
    ) -> Option<Arc<dyn ExecutionPlan>> {
        let schema = planned.schema();
        let projection = schema.fields().iter().map(|field| {
            let columns = table_schema.fields().iter().enumerate();
            let mut named = columns.filter(|(_, column)| column.name() == field.name());
            let (number, column) = named.next()?;
            (named.next().is_none() && column.data_type() == field.data_type()).then_some(number)
        });
        let projection = projection.collect::<Option<Vec<_>>>()?;
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let properties = Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative));
        let (name, table) = (planned.name().to_owned(), Arc::clone(table));
        let metrics = ExecutionPlanMetricsSet::new();
        Some(Arc::new(Self { name, table, projection, keeps_rows: false, properties, metrics }))
    }

    /// Whether it is the rows of `table` that it reads.
    pub(super) fn reads(&self, table: &Arc<WorkTable>) -> bool {
        Arc::ptr_eq(&self.table, table)
    }

    /// The same scan of another table.
    pub(super) fn of(&self, table: &Arc<WorkTable>, keeps_rows: bool) -> Self {
        Self {
            name: self.name.clone(),
            table: Arc::clone(table),
            projection: self.projection.clone(),
            keeps_rows,
            properties: Arc::clone(&self.properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }
}

/// The recursive term of `planned` with scans of `table` where it has DataFusion's. `None` if the columns of one cannot
/// be determined.
pub fn scanning(
    planned: &RecursiveQueryExec,
    table: &Arc<WorkTable>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let schema = planned.schema();
    let mut is_known = true;
    let term = Arc::clone(planned.recursive_term()).transform_down(|node| {
        let scan = node.downcast_ref::<WorkTableExec>().filter(|scan| scan.name() == planned.name());
        let Some(scan) = scan else { return Ok(Transformed::no(node)) };
        let replacing = WorkTableScanExec::replacing(scan, &schema, table);
        is_known &= replacing.is_some();
        Ok(replacing.map_or_else(|| Transformed::no(node), Transformed::yes))
    })?;
    Ok(Some(term.data).filter(|_| is_known))
}

impl DisplayAs for WorkTableScanExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        match format {
            DisplayFormatType::TreeRender => write!(f, "name={}", self.name),
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "WorkTableScanExec: name={}", self.name)
            }
        }
    }
}

impl ExecutionPlan for WorkTableScanExec {
    fn name(&self) -> &'static str {
        "WorkTableScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, _context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let mut reading = self.table.read(self.keeps_rows).ok_or_else(|| {
            DataFusionError::Internal(format!("rows of the recursion '{}' are read twice", self.name))
        })?;
        let (projection, schema) = (self.projection.clone(), self.schema());
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let stream = async_stream::try_stream! {
            while let Some(batch) = reading.next().await? {
                baseline.record_output(batch.num_rows());
                // Every column may have nulls here, where the static term's may not.
                yield with_schema(batch.project(&projection)?, &schema)?;
            }
        };
        let stream = RecordBatchStreamAdapter::new(self.schema(), Box::pin(stream));
        Ok(Box::pin(cooperative(stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _input_stats: &[Arc<Statistics>],
        _args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        Ok(Arc::new(Statistics::new_unknown(&self.schema())))
    }
}
