//! Queries beyond memory: Nandina and other engines under the same hard cap.
//!
//! ```text
//!   Suite: queries × limits × engines ──► peers/capped.py ──► nandina -c SQL        one process per run,
//!                                         (control group)     python duckdb_peer.py  page cache of the input dropped
//!                                               │             …
//!                                               ▼
//!                              Usage (time, memory, I/O) + result ──► Cell ──► joins.json ──► joins.md, joins.svg
//! ```
//!
//! Engines get the limit by their own settings; the cap is for all alike twice the limit, and at least 256 MB
//! more than it, so that an engine which overshoots a little finishes and shows it in its peak.

pub mod cells;
pub mod engines;
pub mod report;
pub mod suites;

pub use cells::{Cell, Outcome, Results, Run};
pub use engines::{Engine, Workshop};
pub use suites::{Query, Suite};

/// The least by which the cap exceeds the limit.
const CAP_MARGIN_BYTES: u64 = 256 << 20;

/// The hard cap that belongs to a limit.
pub fn cap_bytes(limit_bytes: u64) -> u64 {
    (2 * limit_bytes).max(limit_bytes + CAP_MARGIN_BYTES)
}

#[cfg(test)]
mod tests {
    #[test]
    fn caps_leave_room() {
        assert_eq!(super::cap_bytes(64 << 20), 320 << 20);
        assert_eq!(super::cap_bytes(512 << 20), 1 << 30);
    }
}
