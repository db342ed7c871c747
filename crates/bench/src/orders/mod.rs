//! A query means the same in whatever order FROM names its tables.
//!
//! ```text
//!   a query ──► written, reversed and random orders ──┬── native tables ──┬── no limit ──► the same rows
//!                                                     └── Parquet files ──┴── a tiny one
//! ```
//!
//! The planner goes by the order that is written where it knows nothing better, so that each order is another plan:
//! other sides are built, other filters are pushed, other columns of the same name meet.

pub mod check;
pub mod generated;
pub mod permute;
pub mod suites;

/// A query, and how its FROM can be written.
#[derive(Debug, Clone)]
pub struct Variants {
    pub name: String,
    /// What kind of order, and the query; the first is what the others have to agree with.
    pub texts: Vec<(String, String)>,
}
