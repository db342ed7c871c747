//! How far a running query has come, without asking it: from the counters its operators keep anyway.
//!
//! The share done is what the scans at the leaves have delivered of what they expect to. A query that spills
//! then still has to read back what it wrote, which counts as work of its own:
//!
//! ```text
//!   share = (rows delivered by scans + bytes read back · w) / (rows expected + bytes written · w)
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::common::stats::Precision;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use nandina_exec::rows::IndexedScanExec;
use nandina_exec::spool::SpoolReadExec;

/// A row weighs as much as this many bytes, in comparing scans with unknown row counts and spilled bytes to
/// scans with known ones: about the width of a row of the benchmark tables' usual projections.
const BYTES_PER_ROW: f64 = 64.0;

/// A snapshot of a running query.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Progress {
    /// Rows delivered by the scans so far.
    pub rows_read: u64,
    /// Share of the work done, 0 to 1, where the scans know how much there is.
    pub fraction: Option<f64>,
    /// Bytes written to temporary space so far.
    pub spilled_bytes: u64,
    /// Bytes of temporary space read back so far.
    pub spill_read_bytes: u64,
}

/// The share done of work that knows it by itself, which tells it here.
#[derive(Clone, Default)]
pub(crate) struct ToldShare(Arc<AtomicU64>);

impl ToldShare {
    /// From 0 to 1.
    pub(crate) fn tell(&self, share: f64) {
        self.0.store(share.to_bits(), Ordering::Relaxed);
    }

    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed)).clamp(0.0, 1.0)
    }
}

/// Takes snapshots of one query.
#[derive(Clone)]
pub struct ProgressMeter {
    plan: Option<Arc<dyn ExecutionPlan>>,
    scans: Vec<Scan>,
    told: Option<ToldShare>,
}

#[derive(Clone)]
struct Scan {
    node: Arc<dyn ExecutionPlan>,
    expected: Expected,
}

#[derive(Clone, Copy)]
enum Expected {
    Rows(usize),
    FileBytes(u64),
    Unknown,
}

impl ProgressMeter {
    pub(crate) fn new(plan: Option<&Arc<dyn ExecutionPlan>>, told: Option<ToldShare>) -> Self {
        let mut scans = Vec::new();
        if let Some(plan) = plan {
            collect_scans(plan, &mut scans);
        }
        ProgressMeter { plan: plan.cloned(), scans, told }
    }

    /// Reads the counters.
    pub fn now(&self) -> Progress {
        let fraction = self.told.as_ref().map(ToldShare::get);
        let mut progress = Progress { fraction, ..Progress::default() };
        let Some(plan) = &self.plan else { return progress };
        add_spill(plan, &mut progress);
        let (mut done, mut total) = (0.0, 0.0);
        let mut is_known = !self.scans.is_empty();
        for scan in &self.scans {
            // Those that a Parquet scan turned away, too.
            let rows = counter(&scan.node, "output_rows") + counter(&scan.node, "pushdown_rows_pruned");
            progress.rows_read += rows as u64;
            match scan.expected {
                Expected::Rows(expected) => {
                    done += rows.min(expected) as f64;
                    total += expected as f64;
                }
                Expected::FileBytes(expected) => {
                    let scanned = counter(&scan.node, "bytes_scanned") as f64;
                    done += scanned.min(expected as f64) / BYTES_PER_ROW;
                    total += expected as f64 / BYTES_PER_ROW;
                }
                Expected::Unknown => is_known = false,
            }
        }
        done += progress.spill_read_bytes.min(progress.spilled_bytes) as f64 / BYTES_PER_ROW;
        total += progress.spilled_bytes as f64 / BYTES_PER_ROW;
        if is_known && total > 0.0 {
            progress.fraction = Some((done / total).clamp(0.0, 1.0));
        }
        progress
    }
}

fn collect_scans(plan: &Arc<dyn ExecutionPlan>, scans: &mut Vec<Scan>) {
    // What an index finds is read without the scans below.
    let is_indexed = plan.is::<IndexedScanExec>();
    // What a spool gives its readers has been counted where it was read.
    if is_indexed || (plan.children().is_empty() && !plan.is::<SpoolReadExec>()) {
        scans.push(Scan { node: Arc::clone(plan), expected: expected_work(plan) });
    }
    if is_indexed {
        return;
    }
    for child in plan.children() {
        collect_scans(child, scans);
    }
}

fn expected_work(scan: &Arc<dyn ExecutionPlan>) -> Expected {
    if let Ok(statistics) = StatisticsContext::new().compute(scan.as_ref(), &StatisticsArgs::new())
        && let Precision::Exact(rows) | Precision::Inexact(rows) = statistics.num_rows
    {
        return Expected::Rows(rows);
    }
    let files = scan
        .downcast_ref::<DataSourceExec>()
        .and_then(|source| source.data_source().downcast_ref::<FileScanConfig>());
    match files {
        Some(config) => {
            let files = config.file_groups.iter().flat_map(|group| group.files());
            Expected::FileBytes(files.map(|file| file.effective_size()).sum())
        }
        None => Expected::Unknown,
    }
}

fn add_spill(plan: &Arc<dyn ExecutionPlan>, progress: &mut Progress) {
    progress.spilled_bytes += counter(plan, "spilled_bytes") as u64;
    progress.spill_read_bytes += counter(plan, "spill_read_bytes") as u64;
    for child in plan.children() {
        add_spill(child, progress);
    }
}

/// The sum of one of a node's counters over its partitions.
fn counter(node: &Arc<dyn ExecutionPlan>, name: &str) -> usize {
    let Some(metrics) = node.metrics() else { return 0 };
    metrics
        .iter()
        .filter(|metric| metric.value().name() == name)
        .map(|metric| metric.value().as_usize())
        .sum()
}
