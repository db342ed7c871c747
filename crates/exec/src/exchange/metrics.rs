//! What an exchange reports through DataFusion's metrics.

use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, Gauge, MetricBuilder, Time,
};

use crate::chapter::ShelfMetrics;
use crate::spill_metrics::SpillMetrics;

/// Metrics of one output partition.
#[derive(Clone, Debug)]
pub struct OutputMetrics {
    pub baseline: BaselineMetrics,
    pub spill: SpillMetrics,
}

/// Metrics of all of an exchange.
#[derive(Clone, Debug)]
pub struct SharedMetrics {
    /// Time spent on choosing rows' outputs.
    pub repartition_time: Time,
    /// Most bytes of rows that waited in memory.
    pub peak_memory_bytes: Gauge,
    /// Traffic of all outputs.
    pub shelf: ShelfMetrics,
}

impl OutputMetrics {
    pub fn new(set: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        Self { baseline: BaselineMetrics::new(set, partition), spill: SpillMetrics::new(set, partition) }
    }
}

impl SharedMetrics {
    pub fn new(set: &ExecutionPlanMetricsSet) -> Self {
        Self {
            repartition_time: MetricBuilder::new(set).subset_time("repartition_time", 0),
            peak_memory_bytes: MetricBuilder::new(set).gauge("peak_memory_bytes", 0),
            shelf: ShelfMetrics::new(set, 0),
        }
    }
}
