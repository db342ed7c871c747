//! The plan node that computes rows once that are read several times.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::StreamExt;
use nandina_pages::PageSchema;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::batch::HeldBatch;
use crate::error::pages_error;
use crate::exchange::metrics::SharedMetrics;
use crate::exchange::output::{Begin, Output, Running};
use crate::exchange::producer::Done;
use crate::exchange::queue::Queues;
use crate::execution::meter::inherited;
use crate::spill::{SpillContext, SpillShape, operator_space};

/// Computes its input for several readers, of which it is the first. See the [module documentation](super).
pub struct SpoolExec {
    /// Of inputs that are equal, the same.
    number: usize,
    readers: usize,
    input: Arc<dyn ExecutionPlan>,
    pages: Arc<PageSchema>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    current: Mutex<Option<Begun>>,
}

/// An execution that not all partitions of all readers have been asked for yet.
struct Begun {
    /// Of every partition.
    running: Vec<Arc<Running>>,
    /// For every partition, which readers have begun.
    is_taken: Vec<Vec<bool>>,
}

impl SpoolExec {
    /// A spool with one reader: it passes its input on. `number` tells spools of different inputs apart. Fails for
    /// columns that cannot be spilled.
    pub fn try_new(number: usize, input: Arc<dyn ExecutionPlan>) -> Result<Self> {
        Self::with_readers(number, input, 1)
    }

    /// A spool of `readers` readers, itself included.
    pub fn with_readers(number: usize, input: Arc<dyn ExecutionPlan>, readers: usize) -> Result<Self> {
        let pages = PageSchema::try_new(input.schema()).map_err(pages_error)?;
        let mut equivalences = input.equivalence_properties().clone();
        equivalences.clear_orderings();
        let properties = input.properties().as_ref().clone().with_eq_properties(equivalences);
        Ok(Self {
            number,
            readers,
            input,
            pages,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
            current: Mutex::new(None),
        })
    }

    /// The number that it shares with spools of equal inputs.
    pub fn number(&self) -> usize {
        self.number
    }

    /// How many read its rows, itself included.
    pub fn readers(&self) -> usize {
        self.readers
    }

    /// What it computes.
    pub fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }

    /// The rows of a partition for one of the readers, which counts in `metrics`.
    pub(super) fn read(
        &self,
        reader: usize,
        partition: usize,
        context: &Arc<TaskContext>,
        metrics: BaselineMetrics,
    ) -> Result<SendableRecordBatchStream> {
        Ok(Output::new(self.running(reader, partition, context)?, reader, metrics).stream(self.schema()))
    }

    /// The execution that a reader belongs to: the current one, unless it has read the partition there. The plan is then
    /// executed again, and not all that could read it did so the last time.
    fn running(&self, reader: usize, partition: usize, context: &Arc<TaskContext>) -> Result<Arc<Running>> {
        let is_free = |begun: &Begun| {
            begun.is_taken.get(partition).and_then(|readers| readers.get(reader)) == Some(&false)
        };
        let mut current = self.current.lock();
        let mut begun = match current.take().filter(is_free) {
            Some(begun) => begun,
            None => self.start(context)?,
        };
        let running = begun.running.get(partition).map(Arc::clone);
        let readers = begun.is_taken.get_mut(partition);
        readers.and_then(|readers| readers.get_mut(reader)).into_iter().for_each(|is_taken| *is_taken = true);
        *current = Some(begun).filter(|begun| begun.is_taken.iter().flatten().any(|is_taken| !is_taken));
        running.ok_or_else(|| DataFusionError::Internal(format!("a spool has no partition {partition}")))
    }

    fn partitions(&self) -> usize {
        self.input.output_partitioning().partition_count()
    }

    /// Every partition has queues of its own: one that runs ahead does not make the others do so.
    fn start(&self, context: &Arc<TaskContext>) -> Result<Begun> {
        let metrics = SharedMetrics::new(&self.metrics);
        let (pool, batch_rows) = (context.memory_pool(), context.session_config().batch_size());
        let space = operator_space(context, "spool")?;
        let shape = SpillShape::SideBySide;
        let spill = SpillContext::new(shape, &self.pages, &space, pool, "Spool", batch_rows, &metrics.spill);
        let start = |partition: usize| {
            let name = format!("Spool[{partition}]");
            let queues = Queues::new(&name, self.readers, 1, pool, Arc::clone(&spill), metrics.clone());
            let rows = self.input.execute(partition, Arc::clone(context))?;
            let mut producers = JoinSet::new();
            producers.spawn(inherited(copy(Arc::clone(&queues), rows, self.readers)));
            Ok(Running::new(queues, producers, Begin::new()))
        };
        let running = (0..self.partitions()).map(start).collect::<Result<Vec<_>>>()?;
        let is_taken = vec![vec![false; self.readers]; running.len()];
        Ok(Begun { running, is_taken })
    }
}

/// Puts all rows of a partition into the queue of every reader.
async fn copy(queues: Arc<Queues>, mut rows: SendableRecordBatchStream, readers: usize) {
    let done = Done::new(&queues);
    let outcome = copy_all(&queues, &mut rows, readers).await;
    // The input gives back what it holds before the readers learn that it has ended.
    drop(rows);
    done.with(outcome);
}

async fn copy_all(queues: &Queues, rows: &mut SendableRecordBatchStream, readers: usize) -> Result<()> {
    while let Some(batch) = rows.next().await {
        // Compacted here, so that all readers hold the same copy.
        let batch = HeldBatch::new(batch?)?.rows;
        for reader in 0..readers {
            queues.push(reader, batch.clone()).await?;
        }
        queues.wanted().await;
    }
    Ok(())
}

impl fmt::Debug for SpoolExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpoolExec")
            .field("number", &self.number)
            .field("readers", &self.readers)
            .finish_non_exhaustive()
    }
}

impl DisplayAs for SpoolExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        match format {
            DisplayFormatType::TreeRender => writeln!(f, "spool={}", self.number),
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "SpoolExec: spool={}, readers={}", self.number, self.readers)
            }
        }
    }
}

impl ExecutionPlan for SpoolExec {
    fn name(&self) -> &'static str {
        "SpoolExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([input]) = <[_; 1]>::try_from(children) else {
            return Err(DataFusionError::Internal("a spool has one input".to_owned()));
        };
        Ok(Arc::new(Self::with_readers(self.number, input, self.readers)?))
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false]
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if self.readers == 1 {
            return self.input.execute(partition, context);
        }
        self.read(0, partition, &context, BaselineMetrics::new(&self.metrics, partition))
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
            [input] => Ok(Arc::clone(input)),
            _ => Err(DataFusionError::Internal("a spool has one input".to_owned())),
        }
    }
}
