//! What an exchange reports through DataFusion's metrics.

use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, Gauge, MetricBuilder, Time};

use crate::spill::SpillMetrics;

/// Metrics of all of an exchange.
#[derive(Clone, Debug)]
pub struct SharedMetrics {
    /// Time spent on choosing rows' outputs.
    pub repartition_time: Time,
    /// Most bytes of rows that waited in memory.
    pub peak_memory_bytes: Gauge,
    /// Traffic of all outputs.
    pub spill: SpillMetrics,
}

impl SharedMetrics {
    pub fn new(set: &ExecutionPlanMetricsSet) -> Self {
        Self {
            repartition_time: MetricBuilder::new(set).subset_time("repartition_time", 0),
            peak_memory_bytes: MetricBuilder::new(set).gauge("peak_memory_bytes", 0),
            spill: SpillMetrics::new(set, 0),
        }
    }
}
