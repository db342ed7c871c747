//! How much I/O it takes to do without a byte of a join's build side in memory.
//!
//! A spilled build byte is written and read again, and so are the probe rows that come for it: with the share
//! `s` of the build side on the device, `s` of the probe rows not yet seen follow it there (Shapiro's hybrid hash join,
//! as the cached Grace hash join counts its I/O). A byte of a small build side under a large probe side is the
//! most expensive memory of a plan; one of a join whose probe side is nearly over costs no more than itself.

use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::datatypes::Schema;

use super::estimate::BuildEstimate;
use crate::join::spec::JoinSpec;

/// Probe rows per build row without any estimate.
const ASSUMED_PROBE_ROWS: usize = 1;
/// Bytes of a value whose type does not say.
const ASSUMED_VALUE_BYTES: usize = 16;

/// Counts the rows of both sides, beside what the planner expected.
#[derive(Debug)]
pub struct SpillCost {
    expected: BuildEstimate,
    build_row_bytes: usize,
    probe_row_bytes: usize,
    build_rows: AtomicUsize,
    probe_rows: AtomicUsize,
}

impl SpillCost {
    pub fn new(spec: &JoinSpec, expected: BuildEstimate) -> Self {
        Self {
            expected,
            build_row_bytes: row_bytes(spec.build.pages.arrow()),
            probe_row_bytes: row_bytes(spec.probe.pages.arrow()),
            build_rows: AtomicUsize::new(0),
            probe_rows: AtomicUsize::new(0),
        }
    }

    /// Further rows of the build side have been seen.
    pub fn add_build_rows(&self, rows: usize) {
        self.build_rows.fetch_add(rows, Ordering::Relaxed);
    }

    /// Further rows of the probe side have been seen.
    pub fn add_probe_rows(&self, rows: usize) {
        self.probe_rows.fetch_add(rows, Ordering::Relaxed);
    }

    /// Bytes written and read for each byte of the build side that is spilled now.
    pub fn io_per_byte(&self, is_building: bool) -> f64 {
        let seen = self.build_rows.load(Ordering::Relaxed);
        let build_rows = if is_building { seen.max(self.expected.build_rows.unwrap_or(0)) } else { seen };
        let build_rows = build_rows.max(1);
        let probed = self.probe_rows.load(Ordering::Relaxed);
        let expected = self.expected.probe_rows.unwrap_or(build_rows.saturating_mul(ASSUMED_PROBE_ROWS));
        // More rows than expected. How many more is unknown: half as many again is as likely as not.
        let to_come = expected.checked_sub(probed).unwrap_or(probed / 2);
        let build_bytes = build_rows as f64 * self.build_row_bytes as f64;
        2.0 + 2.0 * (to_come as f64 * self.probe_row_bytes as f64) / build_bytes
    }
}

/// The estimated bytes of a row in a page.
fn row_bytes(schema: &Schema) -> usize {
    let bytes = schema.fields().iter().map(|field| field.data_type().primitive_width());
    bytes.map(|width| width.unwrap_or(ASSUMED_VALUE_BYTES)).sum::<usize>().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(build_rows: Option<usize>, probe_rows: Option<usize>) -> SpillCost {
        SpillCost {
            expected: BuildEstimate { build_rows, probe_rows },
            build_row_bytes: 10,
            probe_row_bytes: 20,
            build_rows: AtomicUsize::new(0),
            probe_rows: AtomicUsize::new(0),
        }
    }

    #[test]
    fn a_large_probe_side_makes_build_bytes_dear() {
        assert_eq!(cost(Some(100), Some(0)).io_per_byte(true), 2.0);
        assert_eq!(cost(Some(100), Some(100)).io_per_byte(true), 6.0);
        assert_eq!(cost(Some(100), Some(1000)).io_per_byte(true), 42.0);
    }

    #[test]
    fn what_was_counted_replaces_what_was_expected() {
        let cost = cost(Some(100), Some(1000));
        cost.add_build_rows(400);
        assert_eq!(cost.io_per_byte(true), 12.0);
        assert_eq!(cost.io_per_byte(false), 12.0);
        cost.add_probe_rows(800);
        assert_eq!(cost.io_per_byte(false), 4.0);
        cost.add_probe_rows(200);
        assert_eq!(cost.io_per_byte(false), 2.0);
        cost.add_probe_rows(600);
        assert_eq!(cost.io_per_byte(false), 10.0, "800 more are expected after 1600");
    }

    #[test]
    fn unknown_sides_count_as_equally_long() {
        assert_eq!(cost(None, None).io_per_byte(true), 6.0);
        assert_eq!(cost(Some(50), None).io_per_byte(true), 6.0);
    }
}
