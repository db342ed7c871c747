//! The plan node of those that read what another part of the plan computes.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

use super::exec::SpoolExec;

/// Reads the rows of a [`SpoolExec`] that stands elsewhere in the plan.
#[derive(Debug)]
pub struct SpoolReadExec {
    spool: Arc<SpoolExec>,
    /// Which of the readers it is; the spool itself is 0.
    reader: usize,
    metrics: ExecutionPlanMetricsSet,
}

impl SpoolReadExec {
    /// A reader of `spool`, whose readers are counted from 0, which is the spool itself.
    pub fn new(spool: Arc<SpoolExec>, reader: usize) -> Self {
        Self { spool, reader, metrics: ExecutionPlanMetricsSet::new() }
    }

    /// The spool that it reads from.
    pub fn spool(&self) -> &Arc<SpoolExec> {
        &self.spool
    }

    /// Which of the spool's readers it is.
    pub fn reader(&self) -> usize {
        self.reader
    }
}

impl DisplayAs for SpoolReadExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        match format {
            DisplayFormatType::TreeRender => writeln!(f, "spool={}", self.spool.number()),
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "SpoolReadExec: spool={}", self.spool.number())
            }
        }
    }
}

impl ExecutionPlan for SpoolReadExec {
    fn name(&self) -> &'static str {
        "SpoolReadExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.spool.properties()
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
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match children.is_empty() {
            true => Ok(self),
            false => Err(DataFusionError::Internal("the reader of a spool has no input".to_owned())),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.spool.read(self.reader, partition, &context, BaselineMetrics::new(&self.metrics, partition))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
