//! What operators that spill report of it through DataFusion's metrics.

use std::sync::Arc;

use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, Gauge, MetricBuilder, Time};
use nandina_spill::QuerySpace;
use parking_lot::Mutex;

/// Traffic between an operator and temporary space.
#[derive(Clone, Debug)]
pub struct SpillMetrics {
    /// Time spent waiting for spilled pages to be written or read.
    pub time: Time,
    /// Rows that were written.
    pub spilled_rows: Count,
    /// Pages that were written: bytes on the device, and before they were compressed.
    written_bytes: Count,
    page_bytes: Count,
    read_bytes: Count,
    /// Mean number of requests outstanding while the operator did I/O, times 100.
    mean_queue_depth_x100: Gauge,
    /// Two that bring up the counts at once would count some bytes twice.
    bringing_up: Arc<Mutex<()>>,
}

impl SpillMetrics {
    pub fn new(set: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        let count = |name: &'static str| MetricBuilder::new(set).counter(name, partition);
        Self {
            time: MetricBuilder::new(set).subset_time("spill_time", partition),
            spilled_rows: count("spilled_rows"),
            written_bytes: count("spilled_bytes"),
            page_bytes: count("spilled_page_bytes"),
            read_bytes: count("spill_read_bytes"),
            mean_queue_depth_x100: MetricBuilder::new(set).gauge("mean_queue_depth_x100", partition),
            bringing_up: Arc::default(),
        }
    }

    /// Updates the counts from the space's account.
    pub fn update_from(&self, space: &QuerySpace) {
        let _only_one = self.bringing_up.lock();
        let io = space.io().statistics();
        let add_missing = |metric: &Count, total: u64| {
            metric.add((total as usize).saturating_sub(metric.value()));
        };
        add_missing(&self.written_bytes, io.bytes_written);
        add_missing(&self.page_bytes, space.spilled_page_bytes());
        add_missing(&self.read_bytes, io.bytes_read);
        self.mean_queue_depth_x100.set((io.mean_queue_depth() * 100.0) as usize);
    }
}
