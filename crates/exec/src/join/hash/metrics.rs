//! What a hash join reports beside other joins.

use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder};

/// Counts of partitions and of probe rows.
#[derive(Clone, Debug)]
pub struct HashJoinMetrics {
    pub spilled_partitions: Count,
    /// Probe rows of spilled partitions that were answered without being spilled: no build row has their key.
    pub filtered_rows: Count,
    /// Spilled partitions that were split again because their smaller side did not fit.
    pub recursive_partitions: Count,
    /// Spilled partitions joined on the side that was meant to probe, because it was smaller.
    pub role_reversals: Count,
}

impl HashJoinMetrics {
    pub fn new(set: &ExecutionPlanMetricsSet) -> Self {
        let count = |name: &'static str| MetricBuilder::new(set).counter(name, 0);
        Self {
            spilled_partitions: count("spilled_partitions"),
            filtered_rows: count("filtered_rows"),
            recursive_partitions: count("recursive_partitions"),
            role_reversals: count("role_reversals"),
        }
    }
}
