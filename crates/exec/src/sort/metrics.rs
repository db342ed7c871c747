//! What a sort reports through DataFusion's metrics.

use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, Gauge, MetricBuilder,
};

use crate::spill::SpillMetrics;

/// Metrics of one output partition.
#[derive(Clone, Debug)]
pub struct SortMetrics {
    pub baseline: BaselineMetrics,
    pub spill: SpillMetrics,
    /// Most memory the sort held at any one time.
    pub peak_memory_bytes: Gauge,
    pub spilled_runs: Count,
    /// Merges of some runs to a larger one, since they were too many to be read at once.
    pub intermediate_merges: Count,
}

impl SortMetrics {
    pub fn new(set: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        let count = |name: &'static str| MetricBuilder::new(set).counter(name, partition);
        Self {
            baseline: BaselineMetrics::new(set, partition),
            spill: SpillMetrics::new(set, partition),
            peak_memory_bytes: MetricBuilder::new(set).gauge("peak_memory_bytes", partition),
            spilled_runs: count("spilled_runs"),
            intermediate_merges: count("intermediate_merges"),
        }
    }

    /// Of a sort inside an operator that counts its own output.
    pub fn without_rows(set: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        let metrics = Self::new(set, partition);
        Self { baseline: metrics.baseline.intermediate(), ..metrics }
    }
}
