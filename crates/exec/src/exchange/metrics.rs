//! What an exchange reports through DataFusion's metrics.

use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, Gauge, MetricBuilder, Time,
};

/// Metrics of one output partition.
#[derive(Clone, Debug)]
pub struct OutputMetrics {
    pub baseline: BaselineMetrics,
    /// Time spent waiting for spilled pages.
    pub spill_time: Time,
}

/// Metrics of all of an exchange.
#[derive(Clone, Debug)]
pub struct SharedMetrics {
    /// Time spent on choosing rows' outputs.
    pub repartition_time: Time,
    /// Most bytes of rows that waited in memory.
    pub peak_memory_bytes: Gauge,
    pub spilled_rows: Count,
    pub spilled_bytes: Count,
    pub spill_read_bytes: Count,
}

impl OutputMetrics {
    pub fn new(set: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        Self {
            baseline: BaselineMetrics::new(set, partition),
            spill_time: MetricBuilder::new(set).subset_time("spill_time", partition),
        }
    }
}

impl SharedMetrics {
    pub fn new(set: &ExecutionPlanMetricsSet) -> Self {
        let count = |name: &'static str| MetricBuilder::new(set).counter(name, 0);
        Self {
            repartition_time: MetricBuilder::new(set).subset_time("repartition_time", 0),
            peak_memory_bytes: MetricBuilder::new(set).gauge("peak_memory_bytes", 0),
            spilled_rows: count("spilled_rows"),
            spilled_bytes: count("spilled_bytes"),
            spill_read_bytes: count("spill_read_bytes"),
        }
    }
}
