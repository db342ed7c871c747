//! What a join reports through DataFusion's metrics.

use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, Gauge, MetricBuilder, Time,
};

use crate::spill::SpillMetrics;

/// Metrics of one output partition, or of the state that all partitions share.
#[derive(Clone, Debug)]
pub struct JoinMetrics {
    pub baseline: BaselineMetrics,
    /// Time spent consuming the build side.
    pub build_time: Time,
    pub build_input_rows: Count,
    /// Time spent probing, or comparing rows.
    pub probe_time: Time,
    pub probe_input_rows: Count,
    pub spill: SpillMetrics,
    /// Most memory the join held at any one time.
    pub peak_memory_bytes: Gauge,
    /// Blocks in which build rows were read back that did not fit in one piece.
    pub build_blocks: Count,
}

impl JoinMetrics {
    pub fn new(set: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        let time = |name: &'static str| MetricBuilder::new(set).subset_time(name, partition);
        let count = |name: &'static str| MetricBuilder::new(set).counter(name, partition);
        Self {
            baseline: BaselineMetrics::new(set, partition),
            build_time: time("build_time"),
            build_input_rows: count("build_input_rows"),
            probe_time: time("probe_time"),
            probe_input_rows: count("probe_input_rows"),
            spill: SpillMetrics::new(set, partition),
            peak_memory_bytes: MetricBuilder::new(set).gauge("peak_memory_bytes", partition),
            build_blocks: count("build_blocks"),
        }
    }
}
