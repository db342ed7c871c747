//! The plan node that computes what is read several times.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::StreamExt;
use nandina_pages::PageSchema;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::chapter::Shelf;
use crate::error::pages_error;
use crate::exchange::metrics::{OutputMetrics, SharedMetrics};
use crate::exchange::output::{Output, Running};
use crate::exchange::producer::Done;
use crate::exchange::queue::Queues;
use crate::held_batch::HeldBatch;
use crate::temp::operator_space;

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
    running: Arc<Running>,
    is_taken: Vec<bool>,
}

impl SpoolExec {
    /// A spool that nobody else reads: it passes its input on. `number` tells spools of different inputs apart. Fails for
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
        metrics: OutputMetrics,
    ) -> Result<SendableRecordBatchStream> {
        let output = reader * self.partitions() + partition;
        Ok(Output::new(self.running(output, context)?, output, metrics).stream(self.schema()))
    }

    /// The execution that an output belongs to: the current one, unless it has given that out before. The plan is then
    /// executed again, and had a reader the last time that was not asked.
    fn running(&self, output: usize, context: &Arc<TaskContext>) -> Result<Arc<Running>> {
        let mut current = self.current.lock();
        let begun = current.take().filter(|begun| begun.is_taken.get(output) == Some(&false));
        let mut begun = match begun {
            Some(begun) => begun,
            None => {
                let is_taken = vec![false; self.readers * self.partitions()];
                Begun { running: self.start(context)?, is_taken }
            }
        };
        let running = Arc::clone(&begun.running);
        begun.is_taken.get_mut(output).into_iter().for_each(|is_taken| *is_taken = true);
        *current = Some(begun).filter(|begun| begun.is_taken.contains(&false));
        Ok(running)
    }

    fn partitions(&self) -> usize {
        self.input.output_partitioning().partition_count()
    }

    fn start(&self, context: &Arc<TaskContext>) -> Result<Arc<Running>> {
        let metrics = SharedMetrics::new(&self.metrics);
        let (pool, batch_rows) = (context.memory_pool(), context.session_config().batch_size());
        let space = operator_space(context, "spool")?;
        let shelf = Shelf::new(Arc::clone(&self.pages), space, pool, batch_rows, metrics.shelf.clone());
        let (readers, partitions) = (self.readers, self.partitions());
        let queues = Queues::new("Spool", readers * partitions, partitions, pool, shelf, metrics);
        let mut producers = JoinSet::new();
        for partition in 0..partitions {
            let rows = self.input.execute(partition, Arc::clone(context))?;
            let own = (0..readers).map(move |reader| reader * partitions + partition);
            producers.spawn(copy(Arc::clone(&queues), rows, own));
        }
        Ok(Running::new(queues, producers))
    }
}

/// Puts all rows of a partition into the queue of every reader.
async fn copy(
    queues: Arc<Queues>,
    mut rows: SendableRecordBatchStream,
    outputs: impl Iterator<Item = usize> + Clone + Send,
) {
    let done = Done::new(&queues);
    let outcome = copy_all(&queues, &mut rows, outputs).await;
    // The input gives back what it holds before the readers learn that it has ended.
    drop(rows);
    done.with(outcome);
}

async fn copy_all(
    queues: &Queues,
    rows: &mut SendableRecordBatchStream,
    outputs: impl Iterator<Item = usize> + Clone + Send,
) -> Result<()> {
    while let Some(batch) = rows.next().await {
        let batch = HeldBatch::new(batch?)?.rows;
        for output in outputs.clone() {
            queues.push(output, batch.clone()).await?;
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
        self.read(0, partition, &context, OutputMetrics::new(&self.metrics, partition))
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

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }
}
