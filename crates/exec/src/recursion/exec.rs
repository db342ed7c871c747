//! The recursion as a node of a DataFusion plan.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, InputDistributionRequirements, PlanProperties,
};
use futures::StreamExt;
use nandina_pages::PageSchema;

use super::distinct::Distinct;
use super::keys::RowKeys;
use super::run::Run;
use super::scan::{WorkTableScanExec, scanning};
use super::seen::SeenRows;
use super::work_table::WorkTable;
use crate::memory::HeldMemory;
use crate::spill::{RowQueue, SpillContext, SpillMetrics, SpillShape, operator_space};

/// A recursive query whose rows wait for the next step in a queue that spills, and are compared with those before,
/// where each is to be there once, beyond memory, too. See the [module documentation](super).
pub struct SpillingRecursiveQueryExec {
    /// The node whose place it takes: it knows all that matters for planning.
    planned: Arc<RecursiveQueryExec>,
    /// What the scans in the recursive term are known by.
    table: Arc<WorkTable>,
    pages: Arc<PageSchema>,
    /// Where each row is to be there once.
    keys: Option<Arc<RowKeys>>,
    metrics: ExecutionPlanMetricsSet,
}

impl SpillingRecursiveQueryExec {
    /// Takes the place of `planned`. `None` if it has columns that cannot be spilled, or compared beyond memory, or
    /// scans whose columns cannot be determined.
    pub fn replacing(planned: &RecursiveQueryExec) -> Result<Option<Self>> {
        let table = Arc::default();
        let Some(recursive_term) = scanning(planned, &table)? else { return Ok(None) };
        let Ok(pages) = PageSchema::try_new(planned.schema()) else { return Ok(None) };
        let keys = planned.is_distinct().then(|| RowKeys::try_new(planned.schema())).transpose();
        let keys = match keys {
            Ok(keys) => keys.map(Arc::new),
            Err(reason) => {
                log::debug!("a recursion is left to DataFusion: {reason}");
                return Ok(None);
            }
        };
        let planned = with_terms(planned, Arc::clone(planned.static_term()), recursive_term)?;
        Ok(Some(Self { planned, table, pages, keys, metrics: ExecutionPlanMetricsSet::new() }))
    }

    /// The same recursion of other terms, not run yet.
    fn of(
        &self,
        static_term: Arc<dyn ExecutionPlan>,
        recursive_term: Arc<dyn ExecutionPlan>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self {
            planned: with_terms(&self.planned, static_term, recursive_term)?,
            table: Arc::clone(&self.table),
            pages: Arc::clone(&self.pages),
            keys: self.keys.clone(),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }

    fn run(&self, context: Arc<TaskContext>) -> Result<Run> {
        let (pool, batch_rows) = (context.memory_pool(), context.session_config().batch_size());
        let space = operator_space(&context, "recursive query")?;
        let metrics = SpillMetrics::new(&self.metrics, 0);
        let gauge = |name: &'static str| MetricBuilder::new(&self.metrics).gauge(name, 0);
        let (name, name_of_seen) = ("RecursiveQuery[0]", "RecursiveQuerySeen[0]");
        let shape = SpillShape::SideBySide;
        let spill = SpillContext::new(shape, &self.pages, &space, pool, name, batch_rows, &metrics);
        let found = RowQueue::new(name, pool, spill, gauge("peak_memory_bytes"));
        let distinct = self.keys.as_ref().map(|keys| {
            let memory = HeldMemory::new(pool, name_of_seen, gauge("peak_seen_bytes"));
            let (shape, pages) = (SpillShape::ByHash, &keys.key_pages);
            let spill = SpillContext::new(shape, pages, &space, pool, name_of_seen, batch_rows, &metrics);
            let seen = SeenRows::try_new(Arc::clone(keys), spill, memory)?;
            Ok::<_, DataFusionError>(Distinct::new(seen, found.another(), pool))
        });
        let table = Arc::default();
        Ok(Run {
            term: bound(self.planned.recursive_term(), &self.table, &table)?,
            table,
            found,
            distinct: distinct.transpose()?,
            schema: self.schema(),
            steps: MetricBuilder::new(&self.metrics).counter("steps", 0),
            is_over: true,
            context,
        })
    }
}

fn with_terms(
    planned: &RecursiveQueryExec,
    static_term: Arc<dyn ExecutionPlan>,
    recursive_term: Arc<dyn ExecutionPlan>,
) -> Result<Arc<RecursiveQueryExec>> {
    let name = planned.name().to_owned();
    let (schema, is_distinct) = (planned.schema(), planned.is_distinct());
    let changed = RecursiveQueryExec::try_new(name, schema, static_term, recursive_term, is_distinct)?;
    Ok(Arc::new(changed))
}

/// `term` with its scans of `planned` as scans of `table`.
fn bound(
    term: &Arc<dyn ExecutionPlan>,
    planned: &Arc<WorkTable>,
    table: &Arc<WorkTable>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let changed = rebound(term, planned, table, false)?;
    Ok(changed.unwrap_or_else(|| Arc::clone(term)))
}

/// `None` if nothing changes. `is_repeated`: whether `node` is executed several times in one step.
fn rebound(
    node: &Arc<dyn ExecutionPlan>,
    planned: &Arc<WorkTable>,
    table: &Arc<WorkTable>,
    is_repeated: bool,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(scan) = node.downcast_ref::<WorkTableScanExec>() {
        return Ok(scan.reads(planned).then(|| Arc::new(scan.of(table, is_repeated)) as _));
    }
    let is_recursion = node.is::<SpillingRecursiveQueryExec>() || node.is::<RecursiveQueryExec>();
    let mut changes = false;
    let mut children = Vec::new();
    for (number, child) in node.children().into_iter().enumerate() {
        let is_recursive_term = is_recursion && number > 0;
        let changed = rebound(child, planned, table, is_repeated || is_recursive_term)?;
        changes |= changed.is_some();
        children.push(changed.unwrap_or_else(|| Arc::clone(child)));
    }
    if !changes {
        return Ok(None);
    }
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    Arc::clone(node).replace_children(children, options).map(Some)
}

impl fmt::Debug for SpillingRecursiveQueryExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpillingRecursiveQueryExec").field("planned", &self.planned).finish_non_exhaustive()
    }
}

impl DisplayAs for SpillingRecursiveQueryExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let (name, is_distinct) = (self.planned.name(), self.planned.is_distinct());
        match format {
            DisplayFormatType::TreeRender => write!(f, "name={name}\nis_distinct={is_distinct}"),
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "SpillingRecursiveQueryExec: name={name}, is_distinct={is_distinct}")
            }
        }
    }
}

impl ExecutionPlan for SpillingRecursiveQueryExec {
    fn name(&self) -> &'static str {
        "SpillingRecursiveQueryExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.planned.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.planned.children()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.planned.apply_expressions(f)
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        self.planned.input_distribution_requirements()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.planned.maintains_input_order()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        self.planned.benefits_from_input_partitioning()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([static_term, recursive_term]) = <[_; 2]>::try_from(children) else {
            return Err(DataFusionError::Internal("a recursion has two terms".to_owned()));
        };
        self.of(static_term, recursive_term)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        self.of(Arc::clone(self.planned.static_term()), Arc::clone(self.planned.recursive_term()))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return Err(DataFusionError::Internal(format!("a recursion has no output {partition}")));
        }
        let mut run = self.run(Arc::clone(&context))?;
        let mut step = Some(self.planned.static_term().execute(0, context)?);
        let baseline = BaselineMetrics::new(&self.metrics, 0);
        let stream = async_stream::try_stream! {
            while let Some(mut rows) = step {
                while let Some(batch) = rows.next().await.transpose()? {
                    let timer = baseline.elapsed_compute().timer();
                    let found = run.push(batch).await?;
                    drop(timer);
                    if let Some(found) = found {
                        baseline.record_output(found.num_rows());
                        yield found;
                    }
                }
                // Before others need the memory of the term.
                drop(rows);
                loop {
                    let timer = baseline.elapsed_compute().timer();
                    let checked = run.next_checked().await?;
                    drop(timer);
                    let Some(checked) = checked else { break };
                    baseline.record_output(checked.num_rows());
                    yield checked;
                }
                step = run.next_step()?;
            }
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
