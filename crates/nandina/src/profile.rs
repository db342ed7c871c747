//! Where a query's time, memory and I/O went: what `EXPLAIN ANALYZE` shows.
//!
//! Every operator counts for itself, in DataFusion's metrics. Here the counters of all partitions become one
//! line per operator, and the plan becomes a tree that is read from the top (the result) to the leaves:
//!
//! ```text
//!   HashJoinExec: Inner, on=[(o_orderkey, l_orderkey)]
//!   │  11,997,996 rows · 3.21 s · peak 61.3 MiB · 24 partitions spilled · 610 MiB written · 610 MiB read · depth 31.4
//!   ├─ DataSourceExec: orders.parquet
//!   │     3,000,000 rows · 412 ms · 120 MiB scanned
//!   └─ …
//! ```

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::metrics::MetricValue;
use datafusion::physical_plan::{DisplayFormatType, ExecutionPlan};

use nandina_exec::execution::meter::MeterExec;
use nandina_exec::rows::IndexedScanExec;
use nandina_exec::scan::{ColumnGroupsExec, TableScanExec};

use crate::byte_size;

/// Longest description of an operator that is shown without `VERBOSE`.
const DETAIL_WIDTH: usize = 110;

/// The operators of one executed plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    pub root: Operator,
}

/// What one operator did, over all its partitions. Zero means: not counted, or none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Operator {
    /// Name and details, as in `EXPLAIN`.
    pub description: String,
    pub rows: u64,
    /// Time that processors computed for the operator, summed over its workers.
    pub compute: Duration,
    /// Of a scan: time that its outputs waited for the device, summed.
    pub wait: Duration,
    /// Part of a join's time in which it built its tables.
    pub build: Duration,
    /// Part of a join's time in which it looked up rows in them.
    pub probe: Duration,
    /// Time waited for temporary space to be written or read.
    pub spill: Duration,
    pub peak_memory_bytes: u64,
    pub spilled_partitions: u64,
    /// Sorted runs that were written, and merges of some of them to larger ones.
    pub spilled_runs: u64,
    pub run_merges: u64,
    /// Partitions that did not fit into memory by themselves and were partitioned once more.
    pub split_partitions: u64,
    /// Probe rows of spilled partitions that a filter kept in memory.
    pub filtered_rows: u64,
    /// Bytes written to temporary space, and read back.
    pub spilled_bytes: u64,
    pub spill_read_bytes: u64,
    /// Bytes of the pages that were written, before any were compressed.
    pub spilled_page_bytes: u64,
    /// Bytes read from tables or files.
    pub scanned_bytes: u64,
    /// Bytes of tables that an earlier query had read, and that were still in memory.
    pub cached_bytes: u64,
    /// Requests in flight on average while any was.
    pub mean_queue_depth: f64,
    pub inputs: Vec<Operator>,
}

impl Profile {
    /// Reads the counters of a plan, which may still be running.
    pub fn of(plan: &Arc<dyn ExecutionPlan>) -> Self {
        Profile { root: Operator::of(plan) }
    }

    /// Bytes that all operators together wrote to temporary space.
    pub fn spilled_bytes(&self) -> u64 {
        self.root.sum(&|operator| operator.spilled_bytes)
    }

    /// The same bytes before any were compressed.
    pub fn spilled_page_bytes(&self) -> u64 {
        self.root.sum(&|operator| operator.spilled_page_bytes)
    }

    /// Bytes that all operators together read back from temporary space.
    pub fn spill_read_bytes(&self) -> u64 {
        self.root.sum(&|operator| operator.spill_read_bytes)
    }

    /// Bytes that all scans together read from tables and files.
    pub fn scanned_bytes(&self) -> u64 {
        self.root.sum(&|operator| operator.scanned_bytes)
    }

    /// The largest mean queue depth of any operator.
    pub fn queue_depth(&self) -> f64 {
        self.root.fold(0.0, &|depth: f64, operator| depth.max(operator.mean_queue_depth))
    }

    /// Processor time of all operators together.
    pub fn compute(&self) -> Duration {
        self.root.fold(Duration::ZERO, &|sum, operator| sum + operator.compute)
    }

    /// The tree as text; `verbose` shows whole descriptions.
    pub fn render(&self, verbose: bool) -> String {
        let mut text = String::new();
        self.root.render(&mut text, "", "", verbose);
        text
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.render(false))
    }
}

impl Operator {
    fn of(plan: &Arc<dyn ExecutionPlan>) -> Self {
        if let Some(metered) = plan.downcast_ref::<MeterExec>() {
            let mut operator = Operator::of(metered.operator());
            operator.compute = metered.meter().processor_time();
            if is_scan(metered.operator()) {
                operator.wait = metered.meter().waited();
            }
            return operator;
        }
        let mut operator = Operator { description: describe(plan), ..Operator::default() };
        let mut depths: Vec<f64> = Vec::new();
        for metric in plan.metrics().iter().flat_map(|metrics| metrics.iter()) {
            let value = metric.value().as_usize() as u64;
            let is_peak = matches!(metric.value(), MetricValue::PeakMemoryUsage { .. });
            match metric.value().name() {
                "output_rows" => operator.rows += value,
                "elapsed_compute" | "time_elapsed_processing" => {
                    operator.compute += Duration::from_nanos(value)
                }
                "build_time" => operator.build += Duration::from_nanos(value),
                "probe_time" | "join_time" => operator.probe += Duration::from_nanos(value),
                "spill_time" => operator.spill += Duration::from_nanos(value),
                "peak_memory_bytes" => operator.peak_memory_bytes += value,
                "spilled_partitions" => operator.spilled_partitions += value,
                "spilled_runs" => operator.spilled_runs += value,
                "intermediate_merges" => operator.run_merges += value,
                "recursive_partitions" => operator.split_partitions += value,
                "filtered_rows" => operator.filtered_rows += value,
                "spilled_bytes" => operator.spilled_bytes += value,
                "spilled_page_bytes" => operator.spilled_page_bytes += value,
                "spill_read_bytes" => operator.spill_read_bytes += value,
                "bytes_scanned" | "bytes_read" => operator.scanned_bytes += value,
                "bytes_cached" => operator.cached_bytes += value,
                "mean_queue_depth_x100" if value > 0 => depths.push(value as f64 / 100.0),
                _ if is_peak => operator.peak_memory_bytes += value,
                _ => {}
            }
        }
        if !depths.is_empty() {
            operator.mean_queue_depth = depths.iter().sum::<f64>() / depths.len() as f64;
        }
        operator.inputs = plan.children().into_iter().map(Operator::of).collect();
        operator
    }

    /// The counters that are not zero, in words.
    pub fn facts(&self) -> Vec<String> {
        let mut facts = Vec::new();
        if self.rows > 0 {
            facts.push(format!("{} row{}", grouped(self.rows), if self.rows == 1 { "" } else { "s" }));
        }
        if self.compute > Duration::ZERO {
            facts.push(duration(self.compute));
        }
        for (name, time) in
            [("wait", self.wait), ("build", self.build), ("probe", self.probe), ("spill wait", self.spill)]
        {
            if time > Duration::ZERO {
                facts.push(format!("{name} {}", duration(time)));
            }
        }
        if self.peak_memory_bytes > 0 {
            facts.push(format!("peak {}", byte_size::format(self.peak_memory_bytes)));
        }
        if self.spilled_partitions > 0 {
            let plural = if self.spilled_partitions == 1 { "" } else { "s" };
            facts.push(format!("{} partition{plural} spilled", grouped(self.spilled_partitions)));
        }
        if self.spilled_runs > 0 {
            let plural = if self.spilled_runs == 1 { "" } else { "s" };
            facts.push(format!("{} run{plural} spilled", grouped(self.spilled_runs)));
        }
        if self.run_merges > 0 {
            let plural = if self.run_merges == 1 { "" } else { "s" };
            facts.push(format!("{} merge{plural} before the last", grouped(self.run_merges)));
        }
        if self.split_partitions > 0 {
            facts.push(format!("{} split further", grouped(self.split_partitions)));
        }
        if self.filtered_rows > 0 {
            facts.push(format!("{} probe rows kept from spilling", grouped(self.filtered_rows)));
        }
        let written = match self.spilled_page_bytes {
            page_bytes if page_bytes > self.spilled_bytes => {
                format!("written ({} uncompressed)", byte_size::format(page_bytes))
            }
            _ => "written".to_owned(),
        };
        let sizes = [
            (written.as_str(), self.spilled_bytes),
            ("read", self.spill_read_bytes),
            ("scanned", self.scanned_bytes),
            ("found in memory", self.cached_bytes),
        ];
        for (name, bytes) in sizes {
            if bytes > 0 {
                facts.push(format!("{} {name}", byte_size::format(bytes)));
            }
        }
        if self.mean_queue_depth > 0.0 {
            facts.push(format!("depth {:.1}", self.mean_queue_depth));
        }
        facts
    }

    fn render(&self, text: &mut String, first_indent: &str, indent: &str, verbose: bool) {
        let description = if verbose { self.description.clone() } else { shorten(&self.description) };
        let facts = self.facts().join(" · ");
        let stem = if self.inputs.is_empty() { "   " } else { "│  " };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{first_indent}{description}");
        if !facts.is_empty() {
            let _ = writeln!(text, "{indent}{stem}{facts}");
        }
        let last = self.inputs.len().saturating_sub(1);
        for (position, input) in self.inputs.iter().enumerate() {
            let (branch, below) = if position == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            input.render(text, &format!("{indent}{branch}"), &format!("{indent}{below}"), verbose);
        }
    }

    fn sum(&self, value: &impl Fn(&Operator) -> u64) -> u64 {
        self.fold(0, &|total, operator| total + value(operator))
    }

    fn fold<T>(&self, start: T, step: &impl Fn(T, &Operator) -> T) -> T {
        self.inputs.iter().fold(step(start, self), |value, input| input.fold(value, step))
    }
}

/// Whether what an operator waits for is a device.
fn is_scan(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<TableScanExec>()
        || plan.is::<IndexedScanExec>()
        || plan.is::<DataSourceExec>()
        || plan.is::<ColumnGroupsExec>()
}

fn describe(plan: &Arc<dyn ExecutionPlan>) -> String {
    struct OneLine<'a>(&'a dyn ExecutionPlan);
    impl fmt::Display for OneLine<'_> {
        fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt_as(DisplayFormatType::Default, formatter)
        }
    }
    with_file_names(&OneLine(plan.as_ref()).to_string().replace('\n', " "))
}

/// Replaces the list of byte ranges of a file scan, which can fill pages, by the names of the files.
fn with_file_names(description: &str) -> String {
    let Some((before, rest)) = description.split_once("file_groups={") else { return description.to_owned() };
    let Some((groups, after)) = rest.split_once('}') else { return description.to_owned() };
    let mut names: Vec<&str> = Vec::new();
    for range in groups.split([',', '[', ']']) {
        let path = range.trim().rsplit_once(':').map_or(range.trim(), |(path, _)| path);
        let name = path.rsplit('/').next().unwrap_or(path);
        if path.contains('/') && !names.contains(&name) {
            names.push(name);
        }
    }
    match names.as_slice() {
        [] => description.to_owned(),
        [one] => format!("{before}{one}{after}"),
        [first, others @ ..] => format!("{before}{first} and {} more{after}", others.len()),
    }
}

fn shorten(description: &str) -> String {
    if description.chars().count() <= DETAIL_WIDTH {
        return description.to_owned();
    }
    let kept: String = description.chars().take(DETAIL_WIDTH - 1).collect();
    format!("{kept}…")
}

/// `1234567` as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A time with three significant digits: `812 µs`, `3.21 s`, `2 min 5 s`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds >= 100.0 {
        let whole = time.as_secs();
        return format!("{} min {} s", whole / 60, whole % 60);
    }
    let (value, unit) = if seconds >= 1.0 {
        (seconds, "s")
    } else if seconds >= 1e-3 {
        (seconds * 1e3, "ms")
    } else {
        (seconds * 1e6, "µs")
    };
    let decimals = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(duration(Duration::from_millis(3214)), "3.21 s");
        assert_eq!(duration(Duration::from_micros(81_234)), "81.2 ms");
        assert_eq!(duration(Duration::from_nanos(812_000)), "812 µs");
        assert_eq!(duration(Duration::from_secs(125)), "2 min 5 s");
    }

    #[test]
    fn scans_are_described_by_their_files() {
        let text = "DataSourceExec: file_groups={2 groups: [[d/a.parquet:0..9, d/b.parquet:0..4], [d/b.parquet:4..9]]}, file_type=parquet";
        assert_eq!(with_file_names(text), "DataSourceExec: a.parquet and 1 more, file_type=parquet");
        assert_eq!(with_file_names("FilterExec: a > 1"), "FilterExec: a > 1");
    }

    #[test]
    fn the_tree_hides_zeros() {
        let scan = Operator {
            description: "Scan: a".to_owned(),
            rows: 10,
            scanned_bytes: 2048,
            ..Operator::default()
        };
        let empty = Operator { description: "Scan: b".to_owned(), ..Operator::default() };
        let root = Operator {
            description: "Join".to_owned(),
            rows: 1,
            compute: Duration::from_millis(5),
            peak_memory_bytes: 1 << 20,
            spilled_partitions: 3,
            spilled_runs: 20,
            run_merges: 1,
            filtered_rows: 0,
            spilled_bytes: 1 << 20,
            spill_read_bytes: 1 << 19,
            spilled_page_bytes: 3 << 20,
            mean_queue_depth: 31.42,
            inputs: vec![scan, empty],
            ..Operator::default()
        };
        let profile = Profile { root };
        assert_eq!(
            profile.to_string(),
            "Join\n\
             │  1 row · 5.00 ms · peak 1 MiB · 3 partitions spilled · 20 runs spilled · 1 merge before the last · 1 MiB written (3 MiB uncompressed) · 512 KiB read · depth 31.4\n\
             ├─ Scan: a\n\
             │     10 rows · 2 KiB scanned\n\
             └─ Scan: b\n"
        );
        assert_eq!(profile.spilled_bytes(), 1 << 20);
        assert_eq!(profile.scanned_bytes(), 2048);
        assert_eq!(profile.queue_depth(), 31.42);
    }
}
