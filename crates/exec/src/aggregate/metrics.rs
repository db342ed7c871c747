//! What an aggregation reports through DataFusion's metrics.

use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, Gauge, MetricBuilder,
};

use crate::spill::SpillMetrics;

/// Metrics of one output partition, or of the state that all partitions share.
#[derive(Clone, Debug)]
pub struct AggregateMetrics {
    pub baseline: BaselineMetrics,
    pub input_rows: Count,
    /// Rows that went to partitions without having been aggregated first, since that gained nothing.
    pub passed_rows: Count,
    pub spill: SpillMetrics,
    /// Most memory the aggregation held at any one time.
    pub peak_memory_bytes: Gauge,
    /// Groups that were scattered to partitions, as often as they were.
    pub partitioned_groups: Count,
    pub spilled_partitions: Count,
    /// Partitions that were split again because their groups did not fit.
    pub recursive_partitions: Count,
}

impl AggregateMetrics {
    pub fn new(set: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        let count = |name: &'static str| MetricBuilder::new(set).counter(name, partition);
        let gauge = |name: &'static str| MetricBuilder::new(set).gauge(name, partition);
        Self {
            baseline: BaselineMetrics::new(set, partition),
            input_rows: count("input_rows"),
            passed_rows: count("passed_rows"),
            spill: SpillMetrics::new(set, partition),
            peak_memory_bytes: gauge("peak_memory_bytes"),
            partitioned_groups: count("partitioned_groups"),
            spilled_partitions: count("spilled_partitions"),
            recursive_partitions: count("recursive_partitions"),
        }
    }
}
